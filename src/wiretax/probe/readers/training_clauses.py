"""Clauses of a sentence about training: what each says beside its figure, and which figure belongs to which count."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wiretax.model.observation import Scalar
from wiretax.probe.readers.training_words import COUNTS, WORD_NUMBERS, Word

RATES = ("steps_per_second", "seconds_per_step", "samples_per_second", "tokens_per_second", "flops_per_second")
_BEFORE_COUNT = ("on", "for", "with", "using")
"""Words after which a bare number can be a count ("5.6 on 2")."""
_GOES_ON = frozenset({"it", "i", "we", "they", "this", "takes", "shows", "gives", "gets", "only", "is", "runs"})
"""Words that follow a count which leaves out what it counts ("with two it takes 9 hours")."""


_COLLECTIVE = re.compile(
    r"\b(all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|broadcast|send[-_/ ]?recv)\b", re.IGNORECASE
)
_OPERATIONS = {
    name.replace("_", ""): name for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
}
_MEASURE = re.compile(r"\b(bus|alg(?:orithm)?)[_ ]?b(?:w|andwidth)\b", re.IGNORECASE)
_MAY_COUNT = re.compile(
    r"\d\s?(?:[x\u00d7]|-)?\s?(?:GPU|gpu|[cC]ard|[dD]evice|[rR]ank|[pP]roc|[nN]ode|[mM]achine|[hH]ost|[sS]erver|A\d|H\d|V\d|L\d|RTX|GTX|Tesla|T[iI]|[x\u00d7])|"
    r"[kKnN]=\d|=\s?\d|--\w|DDP|FSDP|\bd?dp\b|\bfsdp\b|\bDP\b|SHARD|ZeRO|zero|[pP]arallel|[hH]orovod|[dD]eep[sS]peed|\b[tT][pP]\b|\bPP\b|"
    r"[-\s](?:GPU|gpu|card|H100|A100)"
)


def may_count(text: str) -> bool:
    """Whether a line can name a number of GPUs or a strategy; far cheaper than cutting it into words."""
    return _MAY_COUNT.search(text) is not None


@dataclass(frozen=True, slots=True)
class Context:
    """What a clause says beside its quantity."""

    num_gpus: int | None = None
    num_hosts: int | None = None
    strategy: str | None = None
    wire: str | None = None
    phase: str | None = None
    includes: str | None = None
    scope: str | None = None
    fresh: bool | None = None
    """The clause had no figure of its own, so the next one is about what it names."""

    def over(self, other: Context) -> Context:
        """This context, with the gaps filled from another."""
        values = {name: getattr(self, name) if getattr(self, name) is not None else getattr(other, name) for name in self.__slots__}
        return Context(**values)

    def tags(self) -> dict[str, Scalar]:
        """The part that every observation carries."""
        hosts: dict[str, Scalar] = {} if self.num_hosts is None else {"num_hosts": self.num_hosts}
        return {"num_gpus": self.num_gpus, "strategy": self.strategy, "wire": self.wire, **hosts}


def _strategy(tokens: list[Word]) -> str | None:
    """The first strategy named; an engine's name gives way to what it is told to do ("DeepSpeed ZeRO-3")."""
    named = [word.name for word in tokens if word.kind == "strategy"]
    return next((name for name in named if name not in ("deepspeed", "horovod")), named[0] if named else None)


def _counted(tokens: list[Word], kind: str) -> list[int]:
    return [int(word.value) for word in tokens if word.kind == kind and word.value is not None]


def context_of(tokens: list[Word]) -> Context:
    """What the words of a clause say of GPUs, strategy, wire, phase and scope; the first of each kind."""

    def first(kind: str) -> str | None:
        return next((word.name for word in tokens if word.kind == kind), None)

    figure = next((place for place, word in enumerate(tokens) if word.kind == "quantity"), len(tokens))
    # "DDP 4x A10: 1 GPU 100 samples/s": the nearest count in front of the figure is the figure's.
    counts = [*_counted(tokens[:figure], "count")[-1:], *_counted(tokens[figure:], "count")]
    hosts = [*_counted(tokens[:figure], "hosts")[-1:], *_counted(tokens[figure:], "hosts")]
    phases = [word.name for word in tokens if word.kind == "phase"]
    wires = [word.name for word in tokens if word.kind == "wire"]
    settings = [word.text for word in tokens if word.kind == "setting"]
    named = {name for name in wires if name != "nccl"}
    # "from PCIe to NVLink" is about neither.
    wire = None if len(named) > 1 else next(iter(named), wires[0] if wires else settings[0] if settings else None)
    scope = first("scope")
    for position, word in enumerate(tokens):
        after = tokens[position + 1 : position + 2]
        around = [*tokens[max(0, position - 3) : position], *after]
        if word.kind == "scope" and any(other.text.lower().startswith(("batch", "bs", "micro")) for other in around):
            scope = None  # it is the batch that counts so, not the figure
        if word.kind == "strategy" and not counts:
            after = tokens[position + 1 : position + 2]
            if (
                after
                and after[0].kind == "number"
                and after[0].value is not None
                and after[0].value.is_integer()
                and after[0].value <= 1024
            ):
                counts.append(int(after[0].value))
        if word.kind == "word" and word.text.lower() in _BEFORE_COUNT and not counts:
            rest = tokens[position + 2 : position + 3]
            spoken = bool(after and rest) and after[0].text.lower() in WORD_NUMBERS and rest[0].text.lower() in _GOES_ON
            if after and (not rest or rest[0].kind in ("separator", "arrow", "colon") or spoken):
                if after[0].kind == "number" and after[0].value is not None and after[0].value.is_integer():
                    counts.append(int(after[0].value))
                elif after[0].text.lower() in WORD_NUMBERS:
                    counts.append(WORD_NUMBERS[after[0].text.lower()])
    return Context(
        num_gpus=counts[0] if counts else None,
        num_hosts=hosts[0] if hosts else None,
        strategy=_strategy(tokens),
        wire=wire,
        phase=phases[0] if phases else None,
        includes=next((name for name in phases[1:] if name == "communication" and phases[0] != name), None),
        scope=scope,
    )


def measured(tokens: list[Word]) -> list[Word]:
    """The figures that have a unit."""
    return [word for word in tokens if word.kind == "quantity" and word.dimension is not None]


def split(tokens: list[Word], only: tuple[str, ...] = ()) -> list[list[Word]]:
    """The tokens between separators, or between those of ``only``."""
    clauses: list[list[Word]] = [[]]
    for word in tokens:
        if word.kind == "separator" and (not only or word.text.strip() in only):
            clauses.append([])
        else:
            clauses[-1].append(word)
    return [clause for clause in clauses if clause]


def parts(tokens: list[Word]) -> list[list[Word]]:
    """A clause with several figures of one kind and several counts, cut so that each figure has its own count.

    "2400 img/s on 8 GPUs 350 img/s on 1 GPU" begins with a figure, so the count follows it; otherwise the count leads.
    """
    measured = [word for word in tokens if word.kind == "quantity" and word.dimension in (*RATES, "seconds")]
    if len(measured) < 2 or len({word.dimension for word in measured}) > 1 or not any(word.kind in COUNTS for word in tokens):
        return [tokens]
    leads = next(word.kind for word in tokens if word.kind in (*COUNTS, "quantity"))
    if leads == "quantity":
        cuts = [position for position, word in enumerate(tokens) if word in measured]
        return [tokens[start:end] for start, end in zip([0, *cuts[1:]], [*cuts[1:], len(tokens)], strict=True)]
    ends = [position + 1 for position, word in enumerate(tokens) if word in measured]
    return [tokens[start:end] for start, end in zip([0, *ends[:-1]], [*ends[:-1], len(tokens)], strict=True)]


def head_and_rest(tokens: list[Word]) -> tuple[list[Word], list[Word]]:
    """What stands before the first colon, if it holds no figure, and the rest."""
    colon = next((i for i, word in enumerate(tokens) if word.kind == "colon"), None)
    if colon is None or any(word.kind in ("quantity", "pair") for word in tokens[:colon]):
        return [], tokens
    return tokens[:colon], tokens[colon + 1 :]


def several(count: int | None) -> int | None:
    """A count that the next clause may share ("8 GPU PCIe 93 vs NVLink 188"); one GPU is mostly what the others are compared with."""
    return count if count is not None and count > 1 else None


def is_to(tokens: list[Word], position: int) -> bool:
    """Whether the word is the "to" of "from 19 ms to 400 ms"."""
    if tokens[position].text.lower() != "to" or not 0 < position < len(tokens) - 1:
        return False
    return tokens[position - 1].kind in ("quantity", "number") and tokens[position + 1].kind == "quantity"


def with_units(clause: list[Word], lender: Word | None) -> list[Word]:
    """Lends the one unit of a line to numbers that stand where a quantity must: before an arrow, after a count, before "on 2"."""
    result = list(clause)
    for position, word in enumerate(clause):
        if word.kind != "number" or word.value is None:
            continue
        after = clause[position + 1] if position + 1 < len(clause) else None
        before = clause[position - 1] if position > 0 else None
        beyond = clause[position + 2] if position + 2 < len(clause) else None
        unit = lender
        leads_arrow = after is not None and (after.kind == "arrow" or after.text.lower() == "to") and beyond is not None
        if leads_arrow and beyond is not None and beyond.kind == "quantity":
            unit = beyond
        follows_count = before is not None and (
            before.kind in COUNTS or (before.kind in ("colon", "arrow") and position > 1 and clause[position - 2].kind in COUNTS)
        )
        before_on = after is not None and after.text.lower() in _BEFORE_COUNT and beyond is not None
        if unit is None or unit.si_value is None or not unit.value or not (leads_arrow or follows_count or before_on):
            continue
        scale = unit.si_value / unit.value
        result[position] = Word(
            "quantity", word.text, word.start, word.value, unit.unit, unit.dimension, word.value * scale, per_gpu=unit.per_gpu
        )
    return result


def operation_in(text: str) -> str | None:
    """The first collective that a text names, in our spelling."""
    match = _COLLECTIVE.search(text)
    return _OPERATIONS[re.sub(r"[-_ /]", "", match.group(1).lower())] if match else None


def measure_in(text: str) -> str | None:
    """``busbw`` or ``algbw``, whichever a text names first."""
    match = _MEASURE.search(text)
    return None if match is None else f"{match.group(1).lower()[:3]}bw"


def rates_of(dimension: str | None, value: float | None) -> dict[str, Scalar]:
    """A rate under the name of its dimension; steps both ways round."""
    rates: dict[str, Scalar] = {str(dimension): value}
    other = {"steps_per_second": "seconds_per_step", "seconds_per_step": "steps_per_second"}.get(str(dimension))
    if other and value:
        rates[other] = 1 / value
    return rates


def currency(unit: str) -> str:
    """The code of a currency from a unit such as ``EUR/h`` or a sign."""
    signs = {"€": "EUR", "$": "USD", "£": "GBP"}
    return next((code for sign, code in signs.items() if sign in unit), re.split(r"[\s/]", unit)[0].upper())


def respectively(tokens: list[Word]) -> tuple[list[tuple[int, Word]], list[Word]]:
    """Counts and figures of "2h, 6h and 8h for 1, 2 and 8 GPUs respectively", one with the other, and the words beside them.

    No pairs where there are not as many figures as counts.
    """
    runs: list[list[Word]] = [[]]
    for word in tokens:
        if word.kind in ("number", "quantity", "count"):
            if runs[-1] and runs[-1][-1].kind != "number" and runs[-1][-1].kind != word.kind:
                runs.append([])  # "4 GPUs (60, 36, 20 min)"
            runs[-1].append(word)
        elif word.kind != "separator" and runs[-1]:
            runs.append([])
    lists = [run for run in runs if len(run) > 1]
    counts = next((run for run in lists if run[-1].kind == "count"), None)
    figures = next((run for run in lists if run[-1].kind == "quantity" and run[-1].dimension in (*RATES, "seconds")), None)
    if counts is None or figures is None or len(counts) != len(figures):
        return [], tokens
    last = figures[-1]
    scale = (last.si_value or 0.0) / (last.value or 1.0)
    paired = []
    for count, figure in zip(counts, figures, strict=True):
        if count.value is None or not count.value.is_integer() or figure.value is None:
            return [], tokens
        own = figure if figure.kind == "quantity" else None
        paired.append((int(count.value), own or _in_unit_of(figure, last, scale)))
    return paired, [word for word in tokens if word not in counts and word not in figures]


def _in_unit_of(figure: Word, last: Word, scale: float) -> Word:
    return Word("quantity", figure.text, figure.start, figure.value, last.unit, last.dimension, (figure.value or 0.0) * scale)
