"""Reads how fast training runs as people write it: "3.1 s/it on 1 GPU, 5.6 on 2", "optimizer step 19 -> 400 ms".

Nothing is guessed: a rate keeps its unit as written, and ``scope`` is ``unknown`` where the text does not say whether it counts one
process or all. A number without a unit takes the unit of its line only where the line has one.

Observations (all carry ``num_gpus``, ``strategy``, ``wire``, ``workload`` (``training``, ``generation``) and ``label``, the line; None
where not said; and ``num_hosts`` where machines are counted):
    ``training.rate``: ``value``, ``unit``, and one of ``steps_per_second``, ``seconds_per_step``, ``samples_per_second``,
    ``tokens_per_second``, ``flops_per_second``; ``scope`` (``global``, ``per_process``, ``unknown``).
    ``training.run_time``: ``seconds``, ``steps``, ``per`` (``epoch``, ``run`` or None).
    ``training.steps``: ``steps`` of a run or an epoch, where no time stands beside them.
    ``training.phase``: ``phase`` (``forward``, ``backward``, ``optimizer``, ``communication``, ``data``, ``step``), ``seconds``,
    ``includes`` (``communication`` where the text says that the phase holds it).
    ``training.change``: ``what`` (a phase, a dimension such as ``steps_per_second``, or ``run_time``), ``before``, ``after`` (in the unit
    that ``what`` names, seconds for phases and run times), ``unit``.
    ``training.data_wait``: ``step_seconds``, ``data_seconds``, ``fraction``.
    ``training.told_slower``: several GPUs or hosts are slower than one, without figures.
    ``training.ratio``: ``factor``, ``direction`` (``slower``, ``faster``), ``base_gpus``.
    ``training.speedup``: ``factor`` of several GPUs over one, as the text works it out.
    ``training.utilization``: ``pattern`` (``saw-tooth``, ``low``, None), ``low_fraction``, ``high_fraction``, ``all_gpus``.
    ``training.remedy``: ``area`` (``input``; ``accumulation``: the line names it), ``helped``, ``text``.
    ``training.batch_note``: ``text`` (the global batch differs).
    ``training.predicted``: ``seconds`` of a time that the text computes.
    ``bandwidth.pair``: ``source_gpu``, ``target_gpu``, ``value``, ``unit``, ``bandwidth_bytes_per_second``, ``both_ways``.
    ``bandwidth.collective``: ``operation``, ``measure`` (``busbw``, ``algbw``, None), ``backend``, ``value``, ``unit``,
    ``bandwidth_bytes_per_second``.
    ``price``: ``amount_per_hour``, ``currency``, ``per_gpu``.
"""

from __future__ import annotations

import re
from dataclasses import replace

from wiretax.model.observation import Scalar
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import MOST_PROSE, MOST_PROSE_CHARACTERS, Line, Stream, may_be_prose, mentions, streams
from wiretax.probe.readers.training_clauses import (
    RATES,
    Context,
    context_of,
    currency,
    head_and_rest,
    is_to,
    may_count,
    measure_in,
    measured,
    operation_in,
    parts,
    rates_of,
    respectively,
    several,
    split,
    with_units,
)
from wiretax.probe.readers.training_words import COUNTS, Word, unit_of, words
from wiretax.probe.readers.words_in_english import in_english

FORMAT = "training timings in words"
_NOT_PROSE = re.compile(
    r"NCCL (?:INFO|WARN|TRACE|ERROR)|Watchdog|WorkNCCL|NVRM|systemd\[| kernel: |^\s*File \"|'train_runtime'|\[Hardware Error\]|MiB /|"
    r"^\s*\+-|NVIDIA-SMI|Link \d{1,2}[:,]|^#\s+nThread|avg bus bandwidth|\bstep_avg:|Speed: [\d.]{1,9} samples/sec",
    re.IGNORECASE,
)
_FIGURE = re.compile(
    r"\d\s?(?:[iI]t|[iI]ter|s|S|ms|us|h|H|min|m\d|d|[sS]tep|tok|Tok|[kK]\s?tok|im|TFLOP|PFLOP|GB|Gb|MB|Gi|"
    r"Mi|TB|fps|TPS|tps|wps|[kKM] (?:wps|tps)|EUR|USD|[xX\u00d7%]|exam|seq|sent|fram|batch)|"
    r"[\u20ac$\u00a3]\s?\d|/s|\d:\d\d|per second|times faster|slower|as slow|on (?:one|two|four|eight|\d)|[sS]econds"
)
_WORDS = ("saw-tooth", "sawtooth", "util", "idle", "workers", "ssd", "hdd", "dataloader", "data loader", "pin_memory")
_PREDICTED = re.compile(
    r"\bT\s?[=≈~]|\bpredict|\btheoretical|(?<!as )(?<!than )(?<!not )\bexpected\b(?!\))|\bideal\b|"
    r"\bestimated? (?!around|at|about|(?:training |end )?time)|\bformula\b",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"\b(?:theoretical\w{0,3}|peak|limit|spec\w{0,9}|up to|should|expected?)\b", re.IGNORECASE)
"""Words in front of a bandwidth that make it a limit and no measurement."""
_RATIO = re.compile(
    r"(\d{1,4}(?:\.\d{1,3})?|twice|two|three|four)(?:\s?[x\u00d7]\s| times |(?<=twice) )(slower|faster|as slow)|"
    r"(\d{1,3})\s?% (slower|faster)",
    re.IGNORECASE,
)
_SPOKEN = {"twice": 2.0, "two": 2.0, "three": 3.0, "four": 4.0}
_THAN_ONE = re.compile(r"(?:than|to|as)\b.{0,40}?\b(?:single|one|1)[- ]?(?:GPU|card)", re.IGNORECASE)
_MANY = (
    r"(?:multi(?:ple)?[- ]?(?:GPU|node)s?|(?:two|three|four|eight|\d{1,3}) ?(?:x )?(?:GPUs?|cards?|(?:GPU )?nodes?|machines?)"
    r"|DDP|FSDP|DataParallel)"
)
_SLOWER = re.compile(
    rf"\b{_MANY}\b[^.;]{{0,80}}?\bslower,? (?:than|compared (?:to|with))\b[^.;]{{0,40}}?"
    r"\b(?:single|one|1)[- ]?(?:(?:GPU )?node|GPU|card|machine|server)\b",
    re.IGNORECASE,
)
"""Somebody says so and gives no figure."""
_NO_CLAIM = re.compile(
    r"\b(?:not|no|never|isn't|aren't|wasn't|if|whether|may|might|could|should|would)\b|^\W{0,4}(?:is|are|does|can)\b", re.IGNORECASE
)
_SEVERAL = re.compile(r"\b(?:DDP|FSDP|DataParallel|multi-?GPU|distributed)\b", re.IGNORECASE)
_COMPARED = re.compile(r"\b(?:than|as|compared|versus|vs)\b", re.IGNORECASE)
_SPEEDUP = re.compile(r"\b(?:speed-?ups?|scale-?ups?|scaling)\b", re.IGNORECASE)
_TIMES = re.compile(r"(?<![\d.])([0-9]{1,2}\.\d{1,3})\s?[x\u00d7](?!\w)")
_UTIL = re.compile(r"\butil(?:i[sz]ation)?\b", re.IGNORECASE)
_SAWTOOTH = re.compile(
    r"saw-?tooth|oscillat|spik|(?:jump|fluctuat|swing|bounc|drop)\w{0,5} .{0,50}\b0 ?%|"
    r"(?:drops?|becomes?|goes|falls?) (?:down )?(?:to )?0\b|\bidle\b|0\s?%? (?:to|and|-) ?(?:9\d|100)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d{1,3})\s?%?\s?(?:\.\.|-|\u2013|to|and)\s?(\d{1,3})\s?%")
_INPUT = re.compile(
    r"\b(HDD|SSD|NVMe|disk|NFS|num_workers|dataloader|data loader|network[- ]mounted|pin_memory|prefetch|ddp_spawn|dataset on)\b",
    re.IGNORECASE,
)
_HELPED = re.compile(r"\b(removed|fixed|fixes|solved|helped|faster|improved|resolved|cured|went away)\b", re.IGNORECASE)
_ACCUMULATED = re.compile(
    r"\bgradient accumulation\b|\bgrad(?:ient)?[_ ]?accum\w{0,10}|\bno_sync\b|\baccumulat(?:e|ing|ed) gradients\b", re.IGNORECASE
)
_BATCH = re.compile(r"\(?((?:global|total|effective)[- ]batch[^,;|)]{0,40})\)?", re.IGNORECASE)
_TRAINING = re.compile(r"train|step|throughput|speed|GPU|rate|epoch", re.IGNORECASE)
_COMMANDS = ("torchrun", "accelerate", "deepspeed", "python", "mpirun", "srun", "vllm")
_COMMAND = re.compile(r"(?:^|[\s$#])(?:torchrun|accelerate launch|deepspeed|python3?|mpirun|srun|vllm serve)\s\S")
_ANNOUNCES = (":", "\uff1a")
_MOST_FIGURES = 40
"""A line with more is data, not a sentence."""
_NO_STEP = 3600.0
"""Seconds that no step lasts: "iteration times: 160000, it took 3 days" is of the run."""
_TQDM = re.compile(r"(?:\d{1,3}%\|[^|]{0,80}\|\s?)?\d{1,9}/\d{1,9} \[[^\]]{3,80}\]")


def read(text: Text) -> tuple[Piece, ...]:
    """The timings of each stream, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    heading = Context()
    num_sentences = num_characters = 0
    for line in stream.lines:
        if not line.text.strip() or line.text.lstrip().startswith("```") or len(line.text) > 2000:
            continue
        text = in_english(line.text.replace("**", ""))
        if not may_be_prose(text):
            continue
        figures = _FIGURE.search(text) is not None or mentions(text.lower(), _WORDS)
        heading_like = (len(text) <= (120 if text.rstrip().endswith(_ANNOUNCES) else 80) and may_count(text)) or mentions(text, _COMMANDS)
        if not (figures or heading_like) or _NOT_PROSE.search(text) or _is_table(text):
            continue
        num_sentences += 1
        num_characters += len(text)
        if num_sentences > MOST_PROSE or num_characters > MOST_PROSE_CHARACTERS:
            break
        above = _heading(text) if heading_like else None
        if above is not None:
            heading = above
            continue
        if not figures:
            continue
        if _Line(line, text, heading, notes).read():
            lines.add(line.number)
    if not lines:
        return None
    return Piece(source=source, format=FORMAT, first_line=min(lines), observations=notes.observations(), understood=frozenset(lines))


def _heading(text: str) -> Context | None:
    """What a line without a figure says of the lines below it: "2 GPUs:", "### FSDP", or the command that was run."""
    is_command = len(text) < 1000 and _COMMAND.search(text) is not None
    announces = text.rstrip().endswith(_ANNOUNCES)
    if not is_command and len(text) > (120 if announces else 80):
        return None
    tokens = words(text)
    others = [word for word in tokens if word.kind == "word"]
    if any(word.kind == "quantity" for word in tokens):
        return None
    if not is_command and (len(others) > (14 if announces else 3) or any(word.kind in ("number", "phase") for word in tokens)):
        return None
    found = context_of(tokens)
    if found.num_gpus is None and found.strategy is None:
        return Context() if is_command else None
    return Context(num_gpus=found.num_gpus, num_hosts=found.num_hosts, strategy=found.strategy, wire=found.wire)


def _is_table(text: str) -> bool:
    stripped = text.strip()
    return stripped.startswith("|") and stripped.endswith("|") and stripped.count("|") >= 3


def _opens_with_count(tokens: list[Word]) -> bool:
    """Whether the first figure has a count of its own in front."""
    return next((word.kind for word in tokens if word.kind in (*COUNTS, "quantity")), None) in COUNTS


class _Line:
    """Reads the clauses of one line."""

    def __init__(self, line: Line, text: str, heading: Context, notes: pasted.Notes) -> None:
        self._number = line.number
        self._text = text
        self._heading = heading
        self._notes = notes
        self._label = line.text.strip(" #*-\t")[:80]
        self._phases: dict[str, float] = {}
        self._only_count: int | None = None
        self._counts: list[Word] = []
        self._only_steps: Word | None = None
        self._found = False
        self._is_predicted = _PREDICTED.search(text) is not None
        self._says_training = _TRAINING.search(text) is not None
        self._workload = (
            "generation"
            if re.search(r"\bgenerat|\binference\b|\bdecod|\bserving\b|\bprefill\b", text, re.IGNORECASE)
            else "training"
            if re.search(r"\btrain|\bfine-?tun|\bepoch|\boptimi[sz]er\b|\bbackward\b", text, re.IGNORECASE)
            else None
        )

    def read(self) -> bool:
        """Notes what the line says; whether it said anything."""
        self._notes_beside()
        # A progress bar is read elsewhere; what stands around it is read here.
        text = _TQDM.sub(" ; ", self._text)
        tokens = words(text)
        if len(measured(tokens)) > _MOST_FIGURES:
            return self._found
        if "respectively" in text or "\u5206\u522b" in text:
            listed, tokens = respectively(tokens)
            for count, figure in listed:
                self._quantities([figure], Context(num_gpus=count), [figure])
        head, tokens = head_and_rest(tokens)
        around = context_of(head).over(self._heading)
        if any(word.kind == "colon" for word in tokens):
            # "A: 3 it/s; B: 4 it/s": the head is the first clause's label, except for what it says of the subject.
            tokens = [*head, *tokens]
            around = Context(phase=around.phase, includes=around.includes, scope=around.scope).over(self._heading)
        elif head and head[-1].kind in COUNTS and not _opens_with_count(tokens):
            tokens = [head[-1], *tokens]
        if text != self._text and around.num_gpus is None:
            around = context_of(words(text.split(";")[0])).over(around)
        lender = self._unit(tokens, head)
        if lender is not None and not lender.text and (bare := next((word for word in tokens if word.kind != "colon"), None)) is not None:
            tokens = self._with_unit(tokens, bare, lender)
        self._counts = [word for word in tokens if word.kind == "count" and word.value is not None]
        counts = {int(word.value or 0) for word in self._counts}
        self._only_count = counts.pop() if len(counts) == 1 else None
        steps = [word for word in tokens if word.kind == "quantity" and word.dimension == "steps"]
        times = [word for word in tokens if word.kind == "quantity" and word.dimension == "seconds"]
        if len(steps) == len(times) == 1 and len(measured(tokens)) == 2:
            # "1000 steps, 612 s": a comma does not part what belongs together.
            self._only_steps = steps[0]
        trailing = re.search(r"\(([^()]{2,60})\)\s*$", text)
        if trailing and self._only_count is not None and (behind := context_of(words(trailing.group(1))).num_gpus) is not None:
            around = replace(around, num_gpus=around.num_gpus or behind)
        for sentence in split(tokens, (".", "?", "!")):
            carried = Context()
            for clause in split(sentence):
                carried = self._clause(with_units(clause, lender), around, carried)
        if "step" in self._phases and "data" in self._phases and self._phases["step"] > 0:
            self._add(
                "training.data_wait",
                around,
                step_seconds=self._phases["step"],
                data_seconds=self._phases["data"],
                fraction=self._phases["data"] / self._phases["step"],
            )
        return self._found

    def _unit(self, tokens: list[Word], head: list[Word]) -> Word | None:
        """The one unit of the line, or of its head ("Throughput (samples/s):"); None where there are several."""
        figures = [word for word in tokens if word.kind == "quantity" and word.dimension in (*RATES, "seconds")]
        if figures:
            return figures[0] if len({(word.unit, word.dimension) for word in figures}) == 1 else None
        named = unit_of(self._text.partition(":")[0]) if head else None
        if named is None or named[0] not in (*RATES, "seconds"):
            return None
        return Word("quantity", "", 0, 1.0, named[2], named[0], named[1])

    def _with_unit(self, tokens: list[Word], bare: Word, lender: Word) -> list[Word]:
        """The unit in front of the colon for the bare number behind it: "total images/sec: 146.4"."""
        if bare.kind != "number" or bare.value is None or lender.si_value is None:
            return tokens
        if self._text[bare.start + len(bare.text) :][:1].isalpha():
            return tokens  # "52.8G" is in a unit of its own
        figure = replace(bare, kind="quantity", unit=lender.unit, dimension=lender.dimension, si_value=bare.value * lender.si_value)
        return [figure if word is bare else word for word in tokens]

    def _add(self, kind: str, context: Context, **values: Scalar) -> None:
        self._found = True
        tags = context.tags() | {"workload": self._workload, "label": self._label}
        self._notes.add(self._number, kind, **values, **tags)

    def _clause(self, tokens: list[Word], around: Context, carried: Context) -> Context:
        """Notes one clause, and returns what the next ones of the sentence go on speaking of."""
        arrow = next((i for i, word in enumerate(tokens) if word.kind == "arrow" or is_to(tokens, i)), None)
        local = context_of(tokens)
        if not measured(tokens):
            kept = replace(local.over(carried), phase=carried.phase or local.phase, includes=carried.includes or local.includes)
            if carried.phase and local.phase == "communication" != carried.phase:
                kept = replace(kept, includes="communication")
            return replace(kept, fresh=True)
        said = (
            local if local.phase is not None or local.scope is not None else replace(local, phase=carried.phase, includes=carried.includes)
        )
        if said.num_gpus is None and carried.num_gpus is not None and (carried.fresh or said.wire or said.strategy):
            said = replace(said, num_gpus=carried.num_gpus)
        if carried.fresh:
            said = said.over(Context(strategy=carried.strategy, wire=carried.wire))
        context = said.over(around)
        goes_on = Context(phase=context.phase, includes=context.includes, num_gpus=several(context.num_gpus))
        if arrow is None:
            for part in parts(tokens):
                own = context_of(part) if len(part) < len(tokens) else local
                here = replace(context, num_gpus=own.num_gpus) if len(part) < len(tokens) else context
                self._quantities(part, here, tokens)
            return goes_on
        left, right = tokens[:arrow], tokens[arrow + 1 :]
        before, after = measured(left), measured(right)
        counts = [any(word.kind in COUNTS for word in side) for side in (left, right)]
        if after and not before:
            self._quantities(right, context_of(left).over(context), tokens)
        elif before and after and all(counts):
            left_context = context_of(left).over(around)
            self._quantities(left, left_context, tokens)
            self._quantities(right, context_of(right).over(replace(left_context, num_gpus=None)).over(around), tokens)
        elif before and after:
            self._change(before[-1], after[0], context)
        return goes_on

    def _quantities(self, tokens: list[Word], context: Context, clause: list[Word]) -> None:
        figures = measured(tokens)
        steps = next((word for word in figures if word.dimension == "steps"), self._only_steps)
        pair = next((word.pair for word in clause if word.kind == "pair"), None)
        if steps is not None and steps.value and context.num_gpus is not None and not any(w.dimension == "seconds" for w in figures):
            self._add("training.steps", context, steps=int(steps.value))
        for word in figures:
            if word.dimension in RATES:
                self._rate(word, context)
            elif word.dimension == "bytes_per_second":
                self._bandwidth(word, context, pair)
            elif word.dimension == "price":
                code = currency(word.unit or "")
                self._add("price", context, amount_per_hour=word.si_value, currency=code, per_gpu=word.per_gpu)
            elif word.dimension == "seconds":
                self._seconds(word, context, steps)

    def _counted(self, word: Word, context: Context) -> Context:
        """A figure without a count has the last one in front of it (two GPUs, 196 batches, each takes 56 s/it)."""
        if context.num_gpus is not None:
            return context
        before = [int(count.value or 0) for count in self._counts if count.start < word.start]
        if context.strategy is not None:
            before = sorted({count for count in before if count > 1})[-1:]
        return replace(context, num_gpus=before[-1] if before else None)

    def _rate(self, word: Word, context: Context) -> None:
        context = self._counted(word, context)
        if not (context.num_gpus or context.num_hosts or context.strategy or context.wire) and not self._says_training:
            return
        scope = "per_process" if word.per_gpu or context.scope == "per_process" else "global" if context.num_gpus == 1 else context.scope
        rates = rates_of(word.dimension, word.si_value)
        self._add("training.rate", context, value=word.value, unit=word.unit, **rates, scope=scope or "unknown")

    def _seconds(self, word: Word, context: Context, steps: Word | None) -> None:
        if context.phase in ("epoch", "run"):
            context = self._counted(word, context)
        if context.phase == "step" and (word.si_value or 0.0) >= _NO_STEP:
            context = replace(context, phase="run")
        if self._is_predicted:
            self._add("training.predicted", context, seconds=word.si_value)
        elif context.phase in ("forward", "backward", "optimizer", "communication", "data", "step") and steps is None:
            context = replace(context, num_gpus=context.num_gpus or self._only_count)
            self._add("training.phase", context, phase=context.phase, seconds=word.si_value, includes=context.includes)
            if word.si_value:
                self._phases.setdefault(str(context.phase), word.si_value)
                if context.phase == "step" and (context.num_gpus or context.num_hosts):
                    # "each iteration takes 300 ms" is a rate as well, to be set beside that of other counts.
                    rates = rates_of("seconds_per_step", word.si_value)
                    self._add("training.rate", context, value=word.value, unit=f"{word.unit}/step", **rates, scope="unknown")
        elif context.num_gpus is not None or context.num_hosts is not None or context.strategy is not None:
            per = context.phase if context.phase in ("epoch", "run") else None
            count = None if steps is None or steps.value is None else int(steps.value)
            self._add("training.run_time", context, seconds=word.si_value, steps=count, per=per)

    def _bandwidth(self, word: Word, context: Context, pair: tuple[int, int] | None) -> None:
        if pair is not None and pair[0] != pair[1]:
            both = re.search(r"bidir|both ways|duplex|<->|↔", self._text, re.IGNORECASE) is not None
            self._add(
                "bandwidth.pair",
                context,
                source_gpu=pair[0],
                target_gpu=pair[1],
                value=word.value,
                unit=word.unit,
                bandwidth_bytes_per_second=word.si_value,
                both_ways=both,
            )
            return
        if _LIMIT.search(self._text[max(0, word.start - 40) : word.start]):
            return
        operation, measure = operation_in(self._text), measure_in(self._text)
        if operation or measure:
            backend = context.wire if context.wire in ("nccl", "gloo") else None
            self._add(
                "bandwidth.collective",
                context,
                operation=operation,
                measure=measure,
                backend=backend,
                value=word.value,
                unit=word.unit,
                bandwidth_bytes_per_second=word.si_value,
            )

    def _change(self, before: Word, after: Word, context: Context) -> None:
        if before.dimension != after.dimension or before.si_value is None or after.si_value is None:
            return
        if before.dimension in RATES:
            what = str(before.dimension)
        elif before.dimension == "seconds":
            known = ("forward", "backward", "optimizer", "communication", "data", "step")
            what = context.phase if context.phase in known else "run_time"
        else:
            return
        self._add("training.change", context, what=what, before=before.si_value, after=after.si_value, unit=after.unit)

    def _notes_beside(self) -> None:
        text = self._text
        ratio = _RATIO.search(text)
        if ratio and "GPU" in text:
            counts = [int(word.value or 0) for word in words(text) if word.kind == "count"]
            named = (ratio.group(1) or "").lower()
            factor = float(_SPOKEN.get(named, named)) if named else 1 + float(ratio.group(3)) / 100
            base = counts[1] if len(counts) == 2 else None
            count = counts[0] if counts else None
            if counts == [1] and _THAN_ONE.search(text, ratio.end()):
                count, base = None, 1
            elif base is None and _SEVERAL.search(text, 0, ratio.start()) and not _COMPARED.search(text, ratio.end()):
                base = 1  # "my DDP is 4 times slower": than without it
            self._add(
                "training.ratio",
                Context(num_gpus=count),
                factor=factor,
                direction="faster" if (ratio.group(2) or ratio.group(4)).lower() == "faster" else "slower",
                base_gpus=base,
            )
        slower = _SLOWER.search(text) if "slower" in text else None
        if slower and not ratio and not _NO_CLAIM.search(text, 0, slower.end()):
            self._add("training.told_slower", Context())
        if _SPEEDUP.search(text):
            counts = [int(word.value or 0) for word in words(text) if word.kind == "count"]
            if len(set(counts)) == 2 and 1 in counts:
                for factor_text in _TIMES.findall(text):
                    self._add("training.speedup", Context(num_gpus=max(counts)), factor=float(factor_text))
        if _UTIL.search(text) or (re.search(r"\bgpus?\b", text, re.IGNORECASE) and re.search(r"\bidle\b", text)):
            span = _RANGE.search(text)
            low, high = (int(span.group(1)) / 100, int(span.group(2)) / 100) if span else (None, None)
            pattern = "saw-tooth" if _SAWTOOTH.search(text) else "low" if high is not None and high <= 0.5 else None
            if span or pattern:
                together = re.search(r"\ball (?:cards|gpus|devices)\b|same time|together", text, re.IGNORECASE) is not None
                self._add("training.utilization", Context(), pattern=pattern, low_fraction=low, high_fraction=high, all_gpus=together)
        if _INPUT.search(text) and _HELPED.search(text):
            self._add("training.remedy", Context(), area="input", helped=True, text=text.strip(" #")[:160])
        if _ACCUMULATED.search(text):
            self._add("training.remedy", Context(), area="accumulation", helped=None, text=text.strip(" #")[:160])
        batch = _BATCH.search(text)
        if batch:
            self._add("training.batch_note", Context(), text=batch.group(1).strip())
