"""Reads the timing lines that training frameworks log.

Hugging Face Trainer, progress bars (tqdm, Lightning), DeepSpeed, Megatron, OpenMMLab and Detectron2, PyTorch's ImageNet example, timm,
Keras, nanoGPT, torchtitan, Horovod. A log repeats itself thousands of times, so each figure is reported once a run: the median of its
lines (the last for progress bars), at the line of the last.

Observations:
    ``training.rate``, ``training.phase``, ``training.run_time``, ``training.data_wait``: as in
    :mod:`wiretax.probe.readers.training_text`, with ``framework`` and ``lines`` (how many lines it stands for).
    ``training.setting``: ``name`` (``per_device_batch``, ``global_batch``, ``accumulation_steps``, ``num_gpus``,
    ``num_examples``), ``value``.
    ``training.steps``: ``steps``: the length of a progress bar, or what a Trainer says of its steps.
    ``training.run``: ``num_gpus``, ``program``: a command that starts a run.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field

from wiretax.model.observation import Scalar
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import MOST_PROSE, Line, Stream, mentions, streams
from wiretax.probe.readers.training_clauses import RATES, Context, context_of, may_count, rates_of
from wiretax.probe.readers.training_words import unit_of, words

FORMAT = "training log"
_F = r"(\d{1,9}(?:\.\d{1,12})?)"
_TQDM = re.compile(
    rf"\b(?P<done>\d{{1,9}})/(?P<total>\d{{1,9}})"
    rf" \[(?P<elapsed>\d{{1,3}}:\d\d(?::\d\d)?)"
    rf"<[^,\]]{{1,20}},\s{{0,3}}{_F}\s?(?P<unit>[a-zA-Z]{{1,12}}/s|s/[a-zA-Z]{{1,12}})(?![a-zA-Z])"
)
_SCALED = re.compile(r"(?P<prefix>[kMG])(?P<what>B|it|ex|examples|samples|tok|tokens|img|imgs)/s|B/s")
"""What tqdm makes of a rate when it is told to count bytes or to scale."""
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}
_BAR = re.compile(r"\d{1,3}%\|[^|]{0,120}\|\s?\Z")
_LONGEST_LABEL = 120
_LONGEST_BAR = 128
_NOT_STEPS = re.compile(
    r"\b(?:Map|Loading|Download|Generating|Filter|Tokeniz|Fetching|Saving|Casting|Resolving|Shuffl|Extract|Writing|Copying|Reading|Evaluat|"
    r"Validat|Predict|Testing|Capturing|Processed prompts)",
    re.IGNORECASE,
)
_HF = re.compile(
    r"['\"]?\b(train_runtime|train_samples_per_second|train_steps_per_second|train_tokens_per_second)\b['\"]?\s{0,30}[:=]\s{0,30}['\"]?"
    r"(?:(\d{1,4}) days?, )?(\d[\d:.]{0,14})"
)
_HF_SETTING = re.compile(
    r"\b(Num examples|Instantaneous batch size per device|Total train batch size \([^)]{0,60}\)|"
    r"Gradient Accumulation steps|Total optimization steps)\s?="
    r"\s?([\d,]{1,12})"
)
_SETTING_NAMES = {
    "Num examples": "num_examples",
    "Instantaneous batch size per device": "per_device_batch",
    "Gradient Accumulation steps": "accumulation_steps",
    "Total optimization steps": "optimization_steps",
}
_COMMAND = re.compile(
    r"(?:^|[\s$#/])(torchrun|accelerate launch|deepspeed|python3? -m torch\.distributed\.(?:launch|run)|mpirun|srun|horovodrun|python3?)"
    r"\s(.{0,400})"
)
_COMMAND_COUNT = re.compile(r"--?(?P<name>nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus|np|n|ntasks)[= ](?P<count>\d{1,4})\b")
_COMMAND_NODES = re.compile(r"--?(?:nnodes|num[-_]nodes)[= ](\d{1,4}(?::\d{1,4})?)")
_VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES=['\"]?(\d{1,3}(?:,\d{1,3}){0,31})")
_PROFILED = re.compile(r"enumerate\(DataLoader\)#\S{1,80}\s{1,20}(?:[\d.]{1,9}%\s{1,20}\S{1,16}\s{1,20})([\d.]{1,9})%\s")
"""The loader's row of torch's profiler: its second percentage is its share of all the CPU's time."""
_WORLD = re.compile(
    r"(?:Starting with|Num processes:|using world size:|world[ _]size[:=]|Num GPUs used ?:|distributed_world_size=)\s{0,4}(\d{1,5})\b",
    re.IGNORECASE,
)
_RULES: tuple[tuple[str, re.Pattern[str], tuple[tuple[int, str, float], ...]], ...] = (
    # (framework, pattern, (group, what, factor to SI))
    ("openmmlab", re.compile(rf"\btime: {_F}\s{{0,4}},?\s{{0,4}}data_time: {_F}"), ((1, "step", 1.0), (2, "data", 1.0))),
    (
        "detectron2",
        re.compile(rf"\btime: {_F}\s{{1,4}}last_time: [\d.]{{1,12}}\s{{1,4}}data_time: {_F}"),
        ((1, "step", 1.0), (2, "data", 1.0)),
    ),
    (
        "torchvision",
        re.compile(rf"\btime: {_F}(?: \([\d.]{{1,12}}\))?\s{{1,4}}data: {_F}\b"),
        ((1, "step", 1.0), (2, "data", 1.0)),
    ),
    (
        "imagenet-example",
        re.compile(rf"\bTime\s{{1,8}}[\d.]{{1,9}} \(\s{{0,6}}{_F}\)\s{{1,8}}Data\s{{1,8}}[\d.]{{1,9}} \(\s{{0,6}}{_F}\)"),
        ((1, "step", 1.0), (2, "data", 1.0)),
    ),
    (
        "timm",
        re.compile(
            rf"\bTime: [\d.]{{1,9}}s,\s{{1,8}}[\d.,]{{1,12}}/s\s{{1,8}}\(\s{{0,4}}{_F}s,\s{{1,8}}{_F}/s\)"
            rf".{{0,80}}?Data: [\d.]{{1,9}} \(\s{{0,4}}{_F}\)"
        ),
        ((1, "step", 1.0), (2, "samples_per_second", 1.0), (3, "data", 1.0)),
    ),
    ("mxnet", re.compile(rf"\bSpeed: {_F} samples/sec"), ((1, "samples_per_second", 1.0),)),
    ("deepspeed", re.compile(rf"RunningAvgSamplesPerSec={_F}"), ((1, "samples_per_second", 1.0),)),
    ("deepspeed", re.compile(rf"time \(ms\) \|.{{0,40}}\bfwd(?:_microstep)?: {_F}"), ((1, "forward", 1e-3),)),
    ("deepspeed", re.compile(rf"time \(ms\) \|.{{0,160}}\bbwd(?:_inner)?(?:_microstep)?: {_F}"), ((1, "backward", 1e-3),)),
    ("deepspeed", re.compile(rf"time \(ms\) \|.{{0,240}}\bbwd_allreduce(?:_microstep)?: {_F}"), ((1, "communication", 1e-3),)),
    ("deepspeed", re.compile(rf"time \(ms\) \|.{{0,320}}\bstep(?:_microstep)?: {_F}"), ((1, "optimizer", 1e-3),)),
    ("megatron", re.compile(rf"elapsed time per iteration \(ms\): {_F}"), ((1, "step", 1e-3),)),
    ("megatron", re.compile(rf"throughput per GPU \(TFLOP/s/GPU\): {_F}"), ((1, "flops_per_second_each", 1e12),)),
    ("nanogpt", re.compile(rf"\biter \d{{1,9}}: loss [\d.]{{1,12}}, time {_F}ms"), ((1, "step", 1e-3),)),
    ("modded-nanogpt", re.compile(rf"\bstep:\d{{1,9}}(?:/\d{{1,9}})? .{{0,120}}?\bstep_avg:\s?{_F}ms"), ((1, "step", 1e-3),)),
    ("torchtitan", re.compile(r"\bstep:\s{0,6}\d{1,9}\s.{0,120}?\btps: (\d[\d,]{0,12})"), ((1, "tokens_per_second_each", 1.0),)),
    ("horovod", re.compile(rf"Total img/sec on \d{{1,5}} \w{{1,8}}\(s\): {_F}"), ((1, "samples_per_second_all", 1.0),)),
    ("horovod", re.compile(rf"Img/sec per \w{{1,8}}: {_F}"), ((1, "samples_per_second_each", 1.0),)),
    ("keras", re.compile(rf"\d{{1,9}}/\d{{1,9}} \[=[=>.]{{0,60}}\] - \d{{1,6}}s {_F}ms/step"), ((1, "step", 1e-3),)),
    ("keras", re.compile(rf"\d{{1,9}}/\d{{1,9}} \[=[=>.]{{0,60}}\] - \d{{1,6}}s {_F}s/step"), ((1, "step", 1.0),)),
    ("fairseq", re.compile(rf"\bwps=? ?{_F},? (?:\||ups)"), ((1, "tokens_per_second_all", 1.0),)),
)  # fmt: skip
_MANY_STEPS = 200
"""A shorter progress bar may count epochs."""
_HINTS = (
    "/s", "s/", "train_", "batch size", "Num examples", "Accumulation",
    "optimization steps", "step_avg:", "time: ", "Time", "SamplesPerSec", "time (ms)", "elapsed time",
    "TFLOP", "tps:", "mg/sec", "ms/step", "wps", "torchrun", "accelerate", "deepspeed", "python", "mpirun", "srun", "horovodrun", "loss",
    "orld", "DataLoader", "Num GPUs", "processes", "Speed:",
)  # fmt: skip


@dataclass(slots=True)
class _Run:
    """The figures of one run: (framework, what) to its values and the last line of each."""

    context: Context
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    last: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    bars: dict[tuple[str, int], tuple[int, str, Context, dict[str, Scalar]]] = field(default_factory=dict)
    settings: dict[str, tuple[int, int]] = field(default_factory=dict)


def read(text: Text) -> tuple[Piece, ...]:
    """The logs of each stream, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _Reader(text.source, stream).piece()) is not None)


class _Reader:
    """Collects the figures of one stream, run by run."""

    def __init__(self, source: str, stream: Stream) -> None:
        self._source = source
        self._stream = stream
        self._notes = pasted.Notes(source, stream.lines)
        self._lines: set[int] = set()
        self._runs = [_Run(Context())]

    def piece(self) -> Piece | None:
        """What was found, or None."""
        heading = Context()
        for line in self._stream.lines:
            text = line.text
            if len(text) > 4000 or not mentions(text, _HINTS):
                if 0 < len(text) < 80 and may_count(text) and not text.lstrip().startswith("```") and len(self._runs) < MOST_PROSE:
                    found = context_of(words(text))
                    if found.num_gpus is not None and found != heading:
                        # "2 GPU" above a log speaks for the log, as a command does.
                        heading = found
                        self._runs.append(_Run(Context(num_gpus=found.num_gpus, strategy=found.strategy)))
                continue
            if self._command(line) or self._setting(line):
                heading = Context()
                continue
            self._figures(line, heading)
        for run in self._runs:
            self._note(run)
        observations = self._notes.observations()
        if not observations:
            return None
        return Piece(
            source=self._source,
            format=FORMAT,
            first_line=min(self._lines),
            observations=observations,
            understood=frozenset(self._lines),
        )

    def _command(self, line: Line) -> bool:
        match = _COMMAND.search(line.text)
        if not match or (match.group(1).startswith("python") and ".py" not in match.group(2)):
            return False
        gpus = _gpus(match.group(1), match.group(2), line.text)
        strategy = context_of(words(match.group(2))).strategy
        self._runs.append(_Run(Context(num_gpus=gpus, strategy=strategy)))
        if gpus is not None:
            self._notes.add(line.number, "training.run", num_gpus=gpus, program=match.group(1))
            self._lines.add(line.number)
        return True

    def _setting(self, line: Line) -> bool:
        run = self._runs[-1]
        match = _HF_SETTING.search(line.text)
        if match:
            name = _SETTING_NAMES.get(match.group(1), "global_batch")
            if name in run.settings and name == "num_examples":
                run = _Run(run.context)
                self._runs.append(run)
            run.settings[name] = (int(match.group(2).replace(",", "")), line.number)
            self._lines.add(line.number)
            return True
        world = _WORLD.search(line.text)
        if world:
            run.settings["num_gpus"] = (int(world.group(1)), line.number)
            run.context = Context(num_gpus=int(world.group(1)), strategy=run.context.strategy)
            self._lines.add(line.number)
        return world is not None

    def _figures(self, line: Line, heading: Context) -> None:
        text, run = line.text, self._runs[-1]
        first = _HF.search(text)
        if first and first.start() > 3 and may_count(text[: first.start()]):
            named = context_of(words(text[: first.start()]))
            if named.num_gpus is not None and named.num_gpus != run.context.num_gpus:
                # "2 GPUs: {'train_runtime': ...": the words before it speak for the figures.
                run = _Run(Context(num_gpus=named.num_gpus, strategy=named.strategy))
                self._runs.append(run)
        for name, days, value in _HF.findall(text):
            seconds = 86400.0 * int(days or 0) + _clock(value)
            if name == "train_runtime" and ("hf-trainer", "run") in run.values:
                run = _Run(run.context)
                self._runs.append(run)
            what = {"train_runtime": "run"}.get(name, name.removeprefix("train_"))
            run.values.setdefault(("hf-trainer", what), []).append(seconds)
            run.last[("hf-trainer", what)] = (line.number, text.strip())
            self._lines.add(line.number)
        if "[" in text and "<" in text:
            self._bar(line, heading, run)
        profiled = _PROFILED.search(text) if "DataLoader" in text else None
        if profiled:
            waited: dict[str, Scalar] = {"step_seconds": None, "data_seconds": None, "fraction": float(profiled.group(1)) / 100}
            tags = run.context.tags() | {"workload": "training", "label": text.strip()[:80], "framework": "torch profiler", "lines": 1}
            self._notes.add(line.number, "training.data_wait", **waited, **tags)
            self._lines.add(line.number)
        for framework, pattern, parts in _RULES:
            match = pattern.search(text)
            if match:
                for group, what, factor in parts:
                    value = float(match.group(group).replace(",", "")) * factor
                    run.values.setdefault((framework, what), []).append(value)
                    run.last[(framework, what)] = (line.number, text.strip())
                self._lines.add(line.number)
                if framework in ("openmmlab", "detectron2"):
                    break

    def _bar(self, line: Line, heading: Context, run: _Run) -> None:
        match = _TQDM.search(line.text)
        if not match:
            return
        # What stands in front is looked at only here: a pattern that began with it would try it at every place of the line.
        end = match.start()
        drawn = _BAR.search(line.text, max(0, end - _LONGEST_BAR), end)
        label = line.text[max(0, (drawn.start() if drawn else end) - _LONGEST_LABEL) : drawn.start() if drawn else end].strip()
        if _NOT_STEPS.search(label):
            return
        value, unit = float(match.group(4)), match.group("unit")
        scaled = _SCALED.fullmatch(unit)
        if scaled and scaled["what"] in ("B", None):
            return  # a download
        if scaled:
            value, unit = value * _PREFIXES[scaled["prefix"]], f"{scaled['what']}/s"
        known = unit_of(unit.replace("ex/s", "examples/s"))
        if known is None or known[0] not in RATES:
            return  # "epoch/s" or "file/s": not of steps
        total = int(match.group("total"))
        context = context_of(words(label)).over(heading).over(run.context)
        rate: dict[str, Scalar] = {"value": value, "unit": unit, **rates_of(known[0], value * known[1])}
        rate |= {
            "steps": int(match.group("done")),
            "elapsed_seconds": _clock(match.group("elapsed")),
            "complete": int(match.group("done")) == total,
        }
        run.bars[(label[:60], total)] = (line.number, line.text.strip()[:80], context, rate)
        self._lines.add(line.number)

    def _note(self, run: _Run) -> None:
        count = self._world_size(run)
        context = Context(num_gpus=run.context.num_gpus or count, strategy=run.context.strategy)
        for name, (value, number) in run.settings.items():
            self._notes.add(number, "training.setting", name=name, value=value)
        if "optimization_steps" in run.settings and context.num_gpus is not None:
            value, number = run.settings["optimization_steps"]
            self._notes.add(number, "training.steps", steps=value, **context.tags())
        for (_, total), (number, label, bar_context, rate) in run.bars.items():
            elapsed, steps, complete = rate.pop("elapsed_seconds"), rate.pop("steps"), rate.pop("complete")
            here = bar_context.over(context)
            tags = here.tags() | {"workload": None, "label": label, "framework": "progress bar", "lines": 1}
            scope = "global" if here.num_gpus == 1 else "unknown"
            if here.num_gpus is not None and total >= _MANY_STEPS:
                self._notes.add(number, "training.steps", steps=total, **tags)
            self._notes.add(number, "training.rate", **rate, scope=scope, **tags)
            if complete and elapsed:
                self._notes.add(number, "training.run_time", seconds=elapsed, steps=steps, per=None, **tags)
        step: dict[str, float] = {}
        data: dict[str, float] = {}
        for (framework, what), values in run.values.items():
            number, label = run.last[(framework, what)]
            typical = statistics.median(values)
            self._figure(number, framework, what, typical, len(values), context, label[:80])
            if what in ("step", "data"):
                (step if what == "step" else data)[framework] = typical
        for framework in [name for name in step if name in data]:
            if step[framework] > 0:
                number, label = run.last[(framework, "data")]
                self._notes.add(
                    number,
                    "training.data_wait",
                    step_seconds=step[framework],
                    data_seconds=data[framework],
                    fraction=data[framework] / step[framework],
                    **context.tags(),
                    workload="training",
                    label=label[:80],
                    framework=framework,
                    lines=len(run.values[(framework, "data")]),
                )

    def _figure(self, number: int, framework: str, what: str, value: float, lines: int, context: Context, label: str) -> None:
        tags: dict[str, Scalar] = context.tags() | {"workload": "training", "label": label, "framework": framework, "lines": lines}
        if what == "run":
            self._notes.add(number, "training.run_time", seconds=value, steps=None, per="run", **tags)
        elif what in ("forward", "backward", "optimizer", "communication", "data", "step"):
            self._notes.add(number, "training.phase", phase=what, seconds=value, includes=None, **tags)
        else:
            dimension = what.removesuffix("_each").removesuffix("_all")
            scope = "per_process" if what.endswith("_each") else "global" if what.endswith("_all") or context.num_gpus == 1 else "unknown"
            self._notes.add(number, "training.rate", value=value, unit=dimension, **{dimension: value}, scope=scope, **tags)

    @staticmethod
    def _world_size(run: _Run) -> int | None:
        """Processes, from what the Trainer says of batch sizes: total = per device x accumulation x processes."""
        values = {name: value for name, (value, _) in run.settings.items()}
        if "num_gpus" in values:
            return values["num_gpus"]
        each = values.get("per_device_batch", 0) * values.get("accumulation_steps", 1)
        total = values.get("global_batch", 0)
        return total // each if each and total and total % each == 0 else None


def _gpus(program: str, arguments: str, line: str) -> int | None:
    """The GPUs that a command uses on all its hosts; None where it does not say."""
    counts = _COMMAND_COUNT.finditer(arguments)
    # "python train.py -n 100" can mean anything; the launchers' short options mean processes.
    count = next((found for found in counts if len(found["name"]) > 2 or not program.startswith("python")), None)
    if count is None:
        visible = _VISIBLE.search(line)
        return len(visible.group(1).split(",")) if visible else None
    nodes = _COMMAND_NODES.search(arguments) if count["name"].startswith(("nproc", "num-gpus", "num_gpus")) else None
    if nodes and not nodes[1].isdecimal():
        return None  # an elastic job: "1:4"
    return int(count["count"]) * (int(nodes[1]) if nodes else 1)


def _clock(value: str) -> float:
    seconds = 0.0
    for part in value.strip(".:").split(":"):
        seconds = seconds * 60 + float(part or 0) if re.fullmatch(r"\d*(?:\.\d*)?", part) else seconds
    return seconds
