"""The words in which people state how fast they train: counts, rates, times, strategies, wires, phases.

:func:`words` cuts a line into these; the readers of prose, tables and logs put them together. Units are kept as written and, where
their meaning is certain, converted: a step rate says nothing of samples, and a rate "per GPU" is not a rate of the job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from wiretax.probe.readers.words_in_english import in_english

Kind = Literal[
    "quantity", "number", "count", "hosts", "pair", "strategy", "wire", "phase", "arrow", "separator", "colon", "scope", "setting", "word"
]
Dimension = Literal[
    "steps_per_second", "seconds_per_step", "samples_per_second", "tokens_per_second", "flops_per_second", "bytes_per_second", "seconds",
    "price", "steps", "fraction", "num_bytes",
]  # fmt: skip

_NUMBER = r"(?!0,)\d{1,3}(?:,\d{3}){1,5}(?![\d,])(?:\.\d{1,9})?|(?:0,\d{1,9}|\d{1,15},\d{1,2})(?![\d,.])|\d{1,15}(?:\.\d{1,9})?|\.\d{1,9}"
"""Commas between groups of three are English; before one or two digits, or behind a lone 0, a comma is most of Europe's point."""
MOST_GPUS = 1024
"""A larger number in front of "GPUs" is a card's ("RTX 5090 GPUs")."""
_PER_GPU = r"(?:\s?(?:/|per)\s?(?:GPU|gpu|device|card|process|rank|worker)\b)"
_EACH = r"\s?/\s?(?:GPU|device|card|process|rank)(?=\s?/)"
"""In front of the second: ``tokens/device/second``."""
_STEP = r"(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?|updates?)"
_SECOND = r"(?:s(?:ec(?:ond)?s?)?)"
_SAMPLE = r"(?:samples?|examples?|seqs?|sequences?|im(?:g|age)s?|sentences?|frames?|clips?|pairs?|rows?|items?)"
_UNITS: tuple[tuple[str, Dimension, float], ...] = (
    (rf"{_STEP}\s?(?:/|per)\s?{_SECOND}", "steps_per_second", 1.0),
    (rf"{_SECOND}\s?(?:/|per)\s?{_STEP}", "seconds_per_step", 1.0),
    (rf"(?:ms|milliseconds?)\s?(?:/|per)\s?{_STEP}", "seconds_per_step", 1e-3),
    (rf"{_SAMPLE}(?:{_EACH})?\s?(?:/|per)\s?{_SECOND}", "samples_per_second", 1.0),
    (r"fps", "samples_per_second", 1.0),
    (rf"/\s?{_SECOND}(?={_PER_GPU})", "samples_per_second", 1.0),
    (rf"[Kk]\s?tok(?:en)?s?\s?(?:/|per)\s?{_SECOND}", "tokens_per_second", 1e3),
    (rf"tok(?:en)?s?(?:{_EACH})?\s?(?:/|per)\s?{_SECOND}|t/s|TPS|tps|wps|tgs", "tokens_per_second", 1.0),
    (r"TFLOPS?(?:/s)?", "flops_per_second", 1e12),
    (r"PFLOPS?(?:/s)?", "flops_per_second", 1e15),
    (r"GB(?:/s(?:ec)?|ps)\b", "bytes_per_second", 1e9),
    (r"GiB/s(?:ec)?", "bytes_per_second", float(2**30)),
    (r"MB(?:/s(?:ec)?|ps)\b", "bytes_per_second", 1e6),
    (r"MiB/s(?:ec)?", "bytes_per_second", float(2**20)),
    (r"TB/s(?:ec)?", "bytes_per_second", 1e12),
    (r"Gb(?:it)?(?:/s(?:ec)?|ps)|Gbits?/s(?:ec)?", "bytes_per_second", 1e9 / 8),
    (r"Mb(?:it)?(?:/s(?:ec)?|ps)|Mbits?/s(?:ec)?", "bytes_per_second", 1e6 / 8),
    (r"(?:EUR|USD|GBP|CNY|RMB|€|\$|£)\s?(?:/|per)\s?(?:GPU[- ]?)?h(?:(?:ou)?rs?)?\b", "price", 1.0),
    (r"(?:ms|msec|milliseconds?)\b", "seconds", 1e-3),
    (r"(?:us|\u00b5s|usec|microseconds?)\b", "seconds", 1e-6),
    (r"(?:d|days?)\b", "seconds", 86400.0),
    (r"(?:h|hr|hrs|hours?)\b", "seconds", 3600.0),
    (r"(?:min|mins|minutes?)\b", "seconds", 60.0),
    (r"(?:s|sec|secs|seconds?)\b", "seconds", 1.0),
    (r"(?:steps|iterations|iters|batches|updates|it)\b", "steps", 1.0),
    (r"%", "fraction", 0.01),
    (r"(?:GB|GiB|MB|MiB|KB|KiB)\b", "num_bytes", 1.0),
)
_RATES = ("steps_per_second", "seconds_per_step", "samples_per_second", "tokens_per_second")
# Byte and bit differ by the case of one letter; for the other rates people write any case.
_UNIT_PATTERNS = tuple(
    (
        re.compile(rf"(?:{pattern}){_PER_GPU}?" + ("" if pattern == "%" else r"(?!\w|/(?!epoch))"), re.IGNORECASE if what in _RATES else 0),
        what,
        scale,
    )
    for pattern, what, scale in _UNITS
)

WORD_NUMBERS = {
    "one": 1, "single": 1, "two": 2, "both": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6, "eight": 8, "sixteen": 16,
}  # fmt: skip
_GPU_WORD = r"(?:GPUs?|gpus?|(?:(?:graphics?|video) )?cards?|devices?|ranks?|procs?|processes|accelerators?)"
_HOST_WORD = r"(?:nodes?|machines?|hosts?|servers?)"
COUNTS = ("count", "hosts")
"""Kinds of words that say how many GPUs, or how many machines full of them, a figure is of."""
_NAMED_CARD = (
    r"(?:(?:NVIDIA|GeForce|Tesla|RTX|GTX|Quadro|Titan\w{0,3})\b|[AHLBV]\d{2,3}[A-Z]?s?\b|(?:T4|P100|P40|K80|K40|M40|M60)s?\b|MI\d{2,3})"
)
_ONE_CARD = (
    rf"{_NAMED_CARD}[ -]?(?:[A-Z]{{0,4}}\d[\w-]{{0,12}}(?: ?Ti)?)?(?:\s(?:GPU|card))?"
    r"(?=[,.;:)]|\s(?:the|it|I|we|is|was|takes|gets?|runs?|with)\b|\s{0,4}$)"
)
"""A card behind "a": "on a Tesla V100, it takes ..."; "on an A100 node" counts nothing."""
_GEFORCE = r"[1-5]0[5-9]0(?: ?Ti)?(?: ?SUPER)?s?\b"
"""A GeForce card by its number alone, which is no figure."""
_CARD = rf"(?:{_NAMED_CARD}|\d{{4}}(?: ?Ti)?s?\b)"
STRATEGIES: tuple[tuple[str, str], ...] = (
    (r"(?:without|w/o|no|non)[- ](?:tensor[- ]parallel(?:ism)?|TP)", "no_tp"),
    (r"FULL_SHARD", "fsdp"),
    (r"SHARD_GRAD_OP", "fsdp_grad_op"),
    (r"HYBRID_SHARD|HSDP", "hsdp"),
    (r"FSDP2?", "fsdp"),
    (r"ZeRO[- ]?3|zero_?3|stage[- ]?3", "zero3"),
    (r"ZeRO[- ]?2|zero_?2|stage[- ]?2", "zero2"),
    (r"ZeRO[- ]?1|zero_?1|stage[- ]?1", "zero1"),
    (r"DistributedDataParallel|DDP", "ddp"),
    (r"DataParallel|nn\.DP|DP", "dp"),
    (r"tensor[- ]parallel(?:ism)?|TP", "tp"),
    (r"pipeline[- ]parallel(?:ism)?|PP", "pp"),
    (r"Horovod", "horovod"),
    (r"DeepSpeed", "deepspeed"),
)
_WIRES: tuple[tuple[str, str], ...] = (
    (r"(?:no|without|w/o|not?)[- ]?NV(?:Link)?\b", "no_nvlink"),
    (r"NVLink|NVSwitch|NVL\b", "nvlink"),
    (r"NCCL_P2P_DISABLE=1|P2P[- ](?:off|disabled)|(?:no|without) P2P", "p2p_off"),
    (r"NCCL_P2P_DISABLE=0|P2P[- ](?:on|enabled)|with P2P", "p2p_on"),
    (r"PCI-?e", "pcie"),
    (r"gloo", "gloo"),
    (r"nccl", "nccl"),
    (r"sockets?|TCP|ethernet", "socket"),
    (r"InfiniBand|\bIB\b|RoCE|EFA|RDMA", "rdma"),
)
_PHASES: tuple[tuple[str, str], ...] = (
    (r"data[_ ]?(?:time|load(?:ing|er)?|wait(?:ing)?|fetch(?:ing)?)|dataload\w{0,4}|batch load(?:ing)?|input pipeline", "data"),
    (r"(?:gradient|grad)[_ ]?(?:sync\w{0,14}|all-?reduce)|all-?_?reduce|allreduce|comm(?:unication)?(?:[_ ]time)?", "communication"),
    (r"all-?_?gather|reduce-?_?scatter", "communication"),
    (r"optimi[sz]er(?:[_ ]step)?|optim[_ ]step|opt(?:im)?\.step\(?\)?", "optimizer"),
    (r"forward(?:[_ ]pass)?|fwd", "forward"),
    (r"backward(?:s)?(?:[_ ]pass)?|bwd|backprop", "backward"),
    (r"per[- ]epoch|/\s?epoch|epochs?", "epoch"),
    (r"step[_ ]time|iteration[_ ]time|time[/ _]?(?:per )?[/ ]?(?:iter(?:ation)?|step|batch)|iter[_ ]time|batch[_ ]time", "step"),
    (r"train[_ ]?runtime|training[_ ]time|train(?:ing)? took|run ?time|total[_ ]time|wall[- ]?(?:clock|time)", "run"),
    (r"iterations?|\biter\b|\bsteps?\b", "step"),
)
_SCOPES: tuple[tuple[str, str], ...] = (
    (r"per[- _](?:GPU|device|process|rank|card|worker)", "per_process"),
    (r"(?:total|global|aggregate|overall|combined|all GPUs)", "global"),
)


def _alternation(pairs: tuple[tuple[str, str], ...]) -> str:
    return "|".join(f"(?:{pattern})" for pattern, _ in pairs)


_TOKEN = re.compile(
    rf"(?P<pair>(?:GPU|cuda:|gpu|device)?\s?\d{{1,3}}\s?(?:->|→|<->|↔|=>|-->|<-->)\s?(?:GPU|cuda:|gpu|device)\s?\d{{1,3}}\b|"
    rf"(?:GPU|cuda:|gpu)\s?\d{{1,3}}\s?(?:->|→|<->|↔|=>|-->|-|to)\s?(?:GPU|cuda:|gpu)?\s?\d{{1,3}}\b(?!\s?GPU))"
    rf"|(?P<clock>\b\d{{1,3}}:\d\d(?::\d\d)?(?:\.\d{{1,6}})?\b"
    rf"|\b\d{{1,3}}\s?(?:h|hrs?|hours?)\s?\d{{1,2}}\s?(?:m|mins?|minutes?)\b|\b\d{{1,3}}\s?(?:m|min)\s?\d{{1,2}}\s?(?:s|sec)\b)"
    rf"|(?P<count>--(?:devices|gpus|num[-_]gpus|num[-_]processes|nproc[-_]per[-_]node|tensor-parallel-size|tp-size)[ =]\d{{1,4}}\b"
    rf"|\b(?:(?:k|n|ngpus?|num_gpus|n_gpus|gpus|world[_ ]?size|nproc(?:[-_ ]per[-_ ]node)?|devices)"
    rf"\s?[=:]\s?\d{{1,4}}\b|(?:dp|tp|DDP|FSDP)\s?=\s?\d{{1,4}}(?:/\d{{1,3}}){{0,3}}\b"
    rf"|\d{{1,3}}\s(?={_NAMED_CARD}|{_GEFORCE})|\ban?\s(?:single\s)?(?={_ONE_CARD})|(?:one|single|two|both|dual|three|four|quad|six|eight)\s(?={_NAMED_CARD}|{_GEFORCE})"
    rf"|\d{{1,4}}\s?[x\u00d7*-]?\s?{_GPU_WORD}\b|\d{{1,3}}\s?[x\u00d7*]\s?(?={_CARD})"
    rf"|(?:one|single|two|both|dual|three|four|quad|six|eight|sixteen)[- ]{_GPU_WORD}\b"
    rf"|(?:TP|DP)-?\d{{1,3}}\b))"
    rf"|(?P<hosts>--nnodes[ =]\d{{1,3}}\b|\b(?:nnodes|num_nodes)\s?[=:]\s?\d{{1,3}}\b"
    rf"|\b(?:\d{{1,3}}\s?[x\u00d7-]?\s?|(?:one|single|two|both|three|four|six|eight|sixteen)[- ]){_HOST_WORD}\b)"
    rf"|(?P<card>\b(?:RTX|GTX)\s?(?:PRO )?A?\d{{3,4}}(?: ?Ti)?(?: ?SUPER)?s?\b)"
    rf"|(?P<setting>\b(?-i:[A-Z][A-Z0-9]{{1,12}}_[A-Z0-9_]{{1,40}})=[^\s:;,|)]{{1,40}})"
    rf"|(?P<money>[€$£]\s?(?:{_NUMBER})\s?(?:/|per)\s?(?:GPU[- ]?)?h(?:(?:ou)?rs?)?\b)"
    rf"|(?P<number>(?<![\w.])(?<!\d[,'\u2019])(?:{_NUMBER})(?:(?-i:[kKM])(?=\s?(?:tok|im|sam|/|\s)))?)"
    rf"|(?P<wire>\b(?:{_alternation(_WIRES)}))"
    rf"|(?P<scope>\b(?:{_alternation(_SCOPES)})\b)"
    rf"|(?P<strategy>\b(?:{_alternation(STRATEGIES)})\b)"
    rf"|(?P<phase>(?<![A-Za-z])(?:{_alternation(_PHASES)}))"
    r"|(?P<arrow>->|→|=>|-->|⟶)"
    r"|(?P<colon>:(?=\s|$))"
    r"|(?P<separator>\||;|,(?=\s)|[.?!](?=\s{1,4}(?-i:[A-Z0-9#])|\s{0,4}$)|\bvs\.?(?=\s)|\bversus\b|\band\b|\bbut\b|"
    r"\bwhile\b|\bwhereas\b|\bof which\b|\bcompared (?:to|with)\b)"
    r"|(?P<word>[A-Za-z][\w'/+-]*)",
    re.IGNORECASE,
)


_GROUPS = re.compile(r"(?:[ \u00a0\u2007\u2009\u202f]\d{3}){1,4}(?![\d.,]*\d)")
_BEFORE_GROUPS = re.compile(r"([A-Za-z]+)([ :=~(,;]{1,4})$")
_COUNTED_WORDS = frozenset(
    {"gpu", "gpus", "rank", "ranks", "epoch", "step", "iter", "iteration", "batch", "bs", "layer", "seed", "run", "n", "x"}
)
_AFTER_COUNT = re.compile(rf"\s?(?:{_GEFORCE})(?!\s?(?:[a-zA-Z]{{1,8}}/|tok|img))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Word:
    """One piece of a sentence.

    Attributes:
        kind: what it is.
        text: as written.
        value: a number: of GPUs, of hosts, of seconds, of the unit.
        unit: the unit as written.
        dimension: what the unit measures; ``si_value`` is in the unit that its name says.
        si_value: the value converted.
        name: canonical name of a strategy, wire, phase or scope.
        per_gpu: the unit says "per GPU".
        pair: source and target of a pair of GPUs.
        start: where it begins in the line.
    """

    kind: Kind
    text: str
    start: int
    value: float | None = None
    unit: str | None = None
    dimension: Dimension | None = None
    si_value: float | None = None
    name: str | None = None
    per_gpu: bool = False
    pair: tuple[int, int] | None = None


def words(line: str) -> list[Word]:
    """Cuts a line (at most 2,000 characters of it) into words."""
    return list(_cut(in_english(line[:2000])))


# Logs repeat their lines, and several readers ask for the words of one.
@lru_cache(maxsize=2048)
def _cut(line: str) -> tuple[Word, ...]:
    found: list[Word] = []
    position = 0
    while match := _TOKEN.search(line, position):
        position = match.end()
        kind = str(match.lastgroup)
        text = match.group()
        if kind == "number":
            word, position = _quantity(line, match)
            found.append(word)
        elif kind == "clock":
            seconds = _clock(text)
            found.append(Word("quantity", text, match.start(), seconds, "clock", "seconds", seconds))
        elif kind == "count":
            digits = re.search(r"\d{1,4}", text)
            first = re.split(r"[-\s]", text.lower())[0]
            count = 1 if first in ("a", "an") else int(digits.group()) if digits else WORD_NUMBERS[first]
            if count > MOST_GPUS:
                found.append(Word("number", text, match.start(), float(count)))
                continue
            strategy = re.match(r"(TP|DP|DDP|FSDP)(?=[\s=\d-])", text, re.IGNORECASE)
            if strategy:
                found.append(Word("strategy", text, match.start(), name=_canonical(STRATEGIES, strategy.group())))
            found.append(Word("count", text, match.start(), float(count)))
            named = _AFTER_COUNT.match(line, position)
            if named:
                found.append(Word("word", named.group(), named.start()))
                position = named.end()
        elif kind == "hosts":
            digits = re.search(r"\d{1,3}", text)
            count = int(digits.group()) if digits else WORD_NUMBERS[re.split(r"[-\s]", text.lower())[0]]
            found.append(Word("hosts", text, match.start(), float(count)))
        elif kind == "card":
            found.append(Word("word", text, match.start()))
        elif kind == "pair":
            first, second = (int(number) for number in re.findall(r"\d{1,3}", text)[:2])
            found.append(Word("pair", text, match.start(), pair=(first, second)))
        elif kind == "money":
            amount = number_of(re.sub(r"[^\d.,]", "", text.split("/")[0].split("per")[0]))
            found.append(Word("quantity", text, match.start(), amount, text[0], "price", amount, per_gpu="gpu" in text.lower()))
        elif kind in ("wire", "strategy", "phase", "scope"):
            table = {"wire": _WIRES, "strategy": STRATEGIES, "phase": _PHASES, "scope": _SCOPES}[kind]
            found.append(Word(kind, text, match.start(), name=_canonical(table, text)))  # type: ignore[arg-type]
        else:
            found.append(Word(kind, text, match.start()))  # type: ignore[arg-type]
    return tuple(found)


def number_of(text: str) -> float:
    """The number, whose comma parts thousands or stands for the point."""
    is_point = text.startswith("0,") or re.fullmatch(r"\d+,\d{1,2}", text) is not None
    return float(text.replace(",", "." if is_point else ""))


def _clock(text: str) -> float:
    """Seconds of ``6:41``, ``1:06:41``, ``3h20m`` or ``2m30s``."""
    parts = [float(part) for part in re.findall(r"\d+(?:\.\d+)?", text)]
    if ":" not in text and "h" in text.lower():
        parts.append(0.0)
    return parts[0] * 60 + parts[1] if len(parts) == 2 else parts[0] * 3600 + parts[1] * 60 + parts[2]


def _canonical(table: tuple[tuple[str, str], ...], text: str) -> str:
    return next((name for pattern, name in table if re.fullmatch(pattern, text, re.IGNORECASE)), text.lower())


def _quantity(line: str, match: re.Match[str]) -> tuple[Word, int]:
    """The number with its unit, if one follows."""
    text, end = match.group(), _end_of_groups(line, match)
    scale = {"k": 1e3, "m": 1e6}.get(text[-1].lower(), 1.0)
    value = number_of("".join(line[match.start() : end].split()) if end > match.end() else text.rstrip("kKM")) * scale
    start = end + (line[end : end + 1] in (" ", "\u00a0"))
    for pattern, dimension, factor in _UNIT_PATTERNS:
        unit = pattern.match(line, start)
        if unit:
            written = unit.group()
            return (
                Word(
                    "quantity",
                    line[match.start() : unit.end()],
                    match.start(),
                    value,
                    written,
                    dimension,
                    value * factor,
                    per_gpu=re.search(f"{_PER_GPU}|{_EACH}", written) is not None,
                ),
                unit.end(),
            )
    return Word("number", line[match.start() : end], match.start(), value), end


def _end_of_groups(line: str, match: re.Match[str]) -> int:
    """The end of a number whose thousands are apart: ``12 345 tok/s``.

    A plain blank may as well stand between two numbers: between groups it stands in front of a rate, and behind a word that counts nothing.
    """
    groups = _GROUPS.match(line, match.end()) if match.group().isdecimal() and len(match.group()) <= 3 else None
    if groups is None:
        return match.end()
    if " " in groups.group():
        before = _BEFORE_GROUPS.search(line, 0, match.start())
        unit = any(pattern.match(line, groups.end() + 1) for pattern, what, _ in _UNIT_PATTERNS if what in _RATES)
        if not unit or before is None or (before[1].lower() in _COUNTED_WORDS and before[2].isspace()):
            return match.end()
    return groups.end()


@lru_cache(maxsize=4096)
def unit_of(heading: str) -> tuple[Dimension, float, str] | None:
    """(dimension, factor to its SI unit, unit as written) of a column heading such as ``samples/s`` or ``time (ms)``."""
    special = (
        (r"samples?_per_second|samples/sec|throughput", "samples_per_second", 1.0),
        (r"steps?_per_second|iter(?:ation)?s?_per_sec\w{0,4}", "steps_per_second", 1.0),
        (r"tokens?_per_sec\w{0,4}", "tokens_per_second", 1.0),
        (r"(?:step|iter(?:ation)?|batch)[_ ]time", "seconds_per_step", 1.0),
        (r"^(?:train[_ ]?)?run[_ ]?time$", "seconds", 1.0),
    )
    text = heading.strip()
    if re.search(r"\btime ?/ ?s$", text, re.IGNORECASE):
        return "seconds", 1.0, "s"
    for pattern, dimension, factor in _UNIT_PATTERNS:
        if dimension in ("steps", "fraction", "price", "num_bytes"):
            continue
        match = re.search(rf"(?:^|[\s(\[_,/-]){pattern.pattern}", text, pattern.flags & re.IGNORECASE)
        if match and not (dimension == "seconds" and re.search(r"per_sec|/s", text)):
            written = re.sub(r"^[\s(\[_,/-]", "", match.group())
            if dimension == "seconds" and re.search(r"step|iter|batch", text, re.IGNORECASE):
                return "seconds_per_step", factor, written
            return dimension, factor, written
    for name, dimension_name, factor in special:
        match = re.search(name, text, re.IGNORECASE)
        if match:
            return dimension_name, factor, match.group()  # type: ignore[return-value]
    return None
