"""From timed steps to what a profile holds: medians, segments, groups, arrivals, buckets. Arithmetic only, no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from wiretax.model.profile import (
    BucketTimes,
    CommunicationCall,
    GradientReady,
    GroupTimes,
    Phase,
    PhaseTimes,
    Segment,
    Span,
    StepTimes,
)
from wiretax.train.stopwatch import PHASES, Label, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Steps timed on each clock; ``host`` and ``device`` are empty where that clock could not be had, with the reason.

    The detailed ones carry marks, whose hooks cost a little: they say how a phase divides, the others how long it is.
    """

    elapsed: Sequence[StepRecord]
    host: Sequence[StepRecord] = ()
    device: Sequence[StepRecord] = ()
    host_detail: Sequence[StepRecord] = ()
    device_detail: Sequence[StepRecord] = ()
    why_one_clock: str = ""
    one_clock: bool = False
    """A CPU rank: host and device are one, and equal to elapsed."""


def span(seconds: Sequence[float]) -> Span:
    """Median and samples, the latter to six digits."""
    return Span(seconds=median(seconds), samples_seconds=tuple(float(f"{one:.6g}") for one in seconds))


def step_times(samples: Samples) -> StepTimes:
    """The step and its phases on the clocks there are."""

    def phase(name: Phase) -> PhaseTimes:
        elapsed = span([one.phases[name] for one in samples.elapsed])
        if samples.one_clock:
            return PhaseTimes(elapsed=elapsed, device=elapsed, host=elapsed)
        if not samples.host or not samples.device:
            return PhaseTimes(elapsed=elapsed, missing=dict.fromkeys(("device", "host"), samples.why_one_clock))
        return PhaseTimes(
            elapsed=elapsed,
            device=span([one.phases[name] for one in samples.device]),
            host=span([one.phases[name] for one in samples.host]),
        )

    return StepTimes(
        step=span([one.step_seconds for one in samples.elapsed]),
        forward=phase("forward"),
        backward=phase("backward"),
        optimizer=phase("optimizer"),
    )


def device_seconds(times: StepTimes, name: Phase) -> float:
    """A phase on the device's clock, or the nearest there is."""
    phase: PhaseTimes = getattr(times, name)
    return (phase.device or phase.elapsed).seconds


def host_seconds(times: StepTimes, name: Phase) -> float | None:
    """A phase on the host's clock."""
    phase: PhaseTimes = getattr(times, name)
    return None if phase.host is None else phase.host.seconds


@dataclass(frozen=True, slots=True)
class Cut:
    """Where one phase passes the blocks: seconds of the part before, of each block, and of the part after."""

    before: float
    blocks: tuple[float, ...]
    after: float
    own: tuple[float, ...]
    """Of each block from entering to leaving it, without what lies between two blocks."""

    def scaled(self, total: float) -> Cut:
        """The same division of another total."""
        now = self.before + sum(self.blocks) + self.after
        factor = total / now if now > 0 else 0.0
        return Cut(
            self.before * factor, tuple(one * factor for one in self.blocks), self.after * factor, tuple(one * factor for one in self.own)
        )

    @property
    def rest(self) -> float:
        """All that is not inside a block."""
        return self.before + sum(self.blocks) + self.after - sum(self.own)


class NotInOrder(Exception):
    """The blocks were not passed once each, one after the other; says how."""


def forward_cut(record: StepRecord, num_blocks: int) -> Cut:
    """How a forward pass divides.

    Raises:
        NotInOrder: a block ran twice, not at all, or out of turn.
    """
    marks = record.marks["forward"]
    entered = [(label[1], when) for label, when in marks if label[0] == "enter"]
    left = [(label[1], when) for label, when in marks if label[0] == "leave"]
    if [number for number, _ in entered] != list(range(num_blocks)) or [number for number, _ in left] != list(range(num_blocks)):
        raise NotInOrder("the blocks are not run once each in the order given, so the step cannot be cut between them")
    starts, ends, total = [when for _, when in entered], [when for _, when in left], record.phases["forward"]
    bounds = [*starts, ends[-1]]
    return Cut(
        starts[0],
        tuple(second - first for first, second in itertools.pairwise(bounds)),
        total - ends[-1],
        tuple(end - start for start, end in zip(starts, ends, strict=True)),
    )


def backward_cut(record: StepRecord, num_blocks: int) -> Cut:
    """How a backward pass divides; the blocks' seconds in forward order.

    Raises:
        NotInOrder: the gradient of a block's output did not come, or out of turn.
    """
    when = {label[1]: seconds for label, seconds in record.marks["backward"] if label[0] == "back"}
    order = [label[1] for label, _ in record.marks["backward"] if label[0] == "back"]
    if order not in (list(range(num_blocks - 1, -1, -1)), list(range(num_blocks - 1, -2, -1))):
        raise NotInOrder("backward does not pass the blocks once each in reverse order, so it cannot be cut between them")
    total = record.phases["backward"]
    last = when.get(-1, total)  # nothing before the first block is trained
    ends = [last, *(when[number] for number in range(num_blocks - 1))]
    blocks = tuple(max(end - when[number], 0.0) for number, end in enumerate(ends))
    return Cut(total - last, blocks, when[num_blocks - 1], blocks)


def median_cut(cuts: Sequence[Cut]) -> Cut:
    """Part by part."""
    return Cut(
        median(one.before for one in cuts),
        tuple(median(parts) for parts in zip(*(one.blocks for one in cuts), strict=True)),
        median(one.after for one in cuts),
        tuple(median(parts) for parts in zip(*(one.own for one in cuts), strict=True)),
    )


@dataclass(frozen=True, slots=True)
class Cuts:
    """Both passes on both clocks, in the seconds of the undisturbed step."""

    forward: Cut
    backward: Cut
    forward_host: Cut | None
    backward_host: Cut | None


def cuts_of(samples: Samples, times: StepTimes, num_blocks: int) -> Cuts:
    """How the step divides.

    Raises:
        NotInOrder: it cannot be cut between its blocks.
    """
    forward = median_cut([forward_cut(one, num_blocks) for one in samples.device_detail]).scaled(device_seconds(times, "forward"))
    backward = median_cut([backward_cut(one, num_blocks) for one in samples.device_detail]).scaled(device_seconds(times, "backward"))
    forward_total, backward_total = host_seconds(times, "forward"), host_seconds(times, "backward")
    if forward_total is None or backward_total is None or not samples.host_detail:
        return Cuts(forward, backward, None, None)
    return Cuts(
        forward,
        backward,
        median_cut([forward_cut(one, num_blocks) for one in samples.host_detail]).scaled(forward_total),
        median_cut([backward_cut(one, num_blocks) for one in samples.host_detail]).scaled(backward_total),
    )


def segments_of(
    cuts: Cuts, *, parameter_bytes: Sequence[int], gradient_bytes: Sequence[int], output_bytes: Sequence[int | None]
) -> tuple[Segment, ...]:
    """The parts of the model: ``before``, each block, ``after``; the sequences are in this order."""

    def parts(cut: Cut | None) -> list[float | None]:
        return [None] * (len(cuts.forward.blocks) + 2) if cut is None else [cut.before, *cut.blocks, cut.after]

    names = ["before", *(f"block {number}" for number in range(len(cuts.forward.blocks))), "after"]
    found = []
    for number, name in enumerate(names):
        values = [parts(cut)[number] for cut in (cuts.forward, cuts.backward, cuts.forward_host, cuts.backward_host)]
        missing = (
            {}
            if values[2] is not None
            else dict.fromkeys(("forward_host_seconds", "backward_host_seconds"), "the host's clock could not be had")
        )
        if output_bytes[number] is None:
            missing["output_bytes"] = "the output holds no tensor"
        found.append(
            Segment(
                name=name,
                role="before" if number == 0 else "after" if number == len(names) - 1 else "block",
                parameter_bytes=parameter_bytes[number],
                gradient_bytes=gradient_bytes[number],
                forward_seconds=values[0] or 0.0,
                backward_seconds=values[1] or 0.0,
                forward_host_seconds=values[2],
                backward_host_seconds=values[3],
                output_bytes=output_bytes[number],
                missing=missing,
            )
        )
    return tuple(found)


def groups_of(cuts: Cuts, *, parameter_bytes: Sequence[int], gradient_bytes: Sequence[int]) -> tuple[GroupTimes, ...]:
    """The root's group first, then one a block. The sequences hold ``before``, the blocks, ``after``."""
    last = len(cuts.forward.blocks) + 1
    host_forward, host_backward = cuts.forward_host or cuts.forward, cuts.backward_host or cuts.backward
    root = GroupTimes(
        segments=(0, last),
        parameter_bytes=parameter_bytes[0] + parameter_bytes[last],
        gradient_bytes=gradient_bytes[0] + gradient_bytes[last],
        forward_host_seconds=host_forward.rest,
        forward_device_seconds=cuts.forward.rest,
        backward_host_seconds=host_backward.rest,
        backward_device_seconds=cuts.backward.rest,
    )
    blocks = [
        GroupTimes(
            segments=(number + 1,),
            parameter_bytes=parameter_bytes[number + 1],
            gradient_bytes=gradient_bytes[number + 1],
            forward_host_seconds=host_forward.own[number],
            forward_device_seconds=cuts.forward.own[number],
            backward_host_seconds=host_backward.own[number],
            backward_device_seconds=cuts.backward.own[number],
        )
        for number in range(last - 1)
    ]
    return (root, *blocks)


def arrivals(records: Sequence[StepRecord], total: float) -> dict[int, float]:
    """When each parameter's gradient was there, in seconds from the start of a backward pass that lasts ``total``."""
    found: dict[int, list[float]] = {}
    for record in records:
        factor = total / record.phases["backward"] if record.phases["backward"] > 0 else 0.0
        latest = {label[1]: when for label, when in record.marks["backward"] if label[0] == "ready"}  # a tied one arrives twice
        for parameter, when in latest.items():
            found.setdefault(parameter, []).append(when * factor)
    return {parameter: median(values) for parameter, values in found.items()}


def gradient_ready(arrived: Mapping[int, float]) -> tuple[GradientReady, ...]:
    """In order of arrival."""
    return tuple(GradientReady(parameter=one, seconds=arrived[one]) for one in sorted(arrived, key=lambda one: (arrived[one], one)))


def bucket_times(
    layout: Sequence[tuple[int, Sequence[int]]],
    *,
    device: tuple[Mapping[int, float], float],
    host: tuple[Mapping[int, float], float],
    bare_device: tuple[Mapping[int, float], float],
    bare_host: tuple[Mapping[int, float], float],
) -> tuple[BucketTimes, ...]:
    """What each bucket costs beyond the bare step.

    DDP works between the arrival of one gradient and the work that leads to the next, so a bucket's cost is what these gaps grew
    by: summed over its parameters, bare subtracted.

    Args:
        layout: bytes and parameters of each bucket, in the order in which they became ready.
        device: arrivals and the length of backward under DDP, on the device's clock.
        host: the same on the host's.
        bare_device: the same for the bare step.
        bare_host: the same for the bare step.
    """
    more_device, more_host = _growth(device, bare_device), _growth(host, bare_host)
    return tuple(
        BucketTimes(
            num_bytes=num_bytes,
            num_parameters=len(members),
            host_seconds=max(sum(more_host.get(one, 0.0) for one in members), 0.0),
            device_seconds=max(sum(more_device.get(one, 0.0) for one in members), 0.0),
            parameters=tuple(members),
        )
        for num_bytes, members in layout
    )


def _growth(wrapped: tuple[Mapping[int, float], float], bare: tuple[Mapping[int, float], float]) -> dict[int, float]:
    """By how much the gap after each parameter's arrival grew."""
    now, before = _gaps(*wrapped), _gaps(*bare)
    return {parameter: gap - before.get(parameter, 0.0) for parameter, gap in now.items()}


def _gaps(arrived: Mapping[int, float], total: float) -> dict[int, float]:
    order = sorted(arrived, key=lambda one: (arrived[one], one))
    ends = [*(arrived[one] for one in order[1:]), total]
    return {parameter: end - arrived[parameter] for parameter, end in zip(order, ends, strict=True)}


def calls_of(device: Sequence[StepRecord], host: Sequence[StepRecord], times: StepTimes, num_blocks: int) -> tuple[CommunicationCall, ...]:
    """The collectives of the step, in the order of issue.

    Args:
        device: steps on the device's clock in which they were noted.
        host: the same steps' like on the host's clock; empty where it could not be had.
        times: of the undisturbed step, to which the moments are scaled phase by phase.
        num_blocks: how many blocks were marked.
    """
    if not device:
        return ()
    first = device[0]
    same_host = [one for one in host if len(one.calls) == len(first.calls)]
    same_device = [one for one in device if len(one.calls) == len(first.calls)]
    found = []
    for number, call in enumerate(first.calls):
        on_host = host_seconds(times, call.phase)
        issued = None
        if on_host is not None and same_host:
            issued = median(_scaled(one, number, on_host) for one in same_host)
        found.append(
            CommunicationCall(
                operation=call.operation,
                num_bytes=call.num_bytes,
                phase=call.phase,
                blocking=call.blocking,
                segment=_segment(first.marks[call.phase][: call.position], call.phase, num_blocks),
                host_seconds=issued,
                device_seconds=median(_scaled(one, number, device_seconds(times, call.phase)) for one in same_device),
                missing={} if issued is not None else {"host_seconds": "the host's clock could not be had"},
            )
        )
    return tuple(found)


def _scaled(record: StepRecord, number: int, total: float) -> float:
    call = record.calls[number]
    length = record.phases[call.phase]
    return call.seconds * total / length if length > 0 else 0.0


def _segment(marks: Iterable[tuple[Label, float]], phase: Phase, num_blocks: int) -> int | None:
    """Which part was running after these marks; None outside forward and backward, or where nothing was marked."""
    if num_blocks == 0 or phase == PHASES[2]:
        return None
    where = 0 if phase == "forward" else num_blocks + 1
    for (kind, number), _ in marks:
        if kind == "enter" or kind == "back":
            where = number + 1
        elif kind == "leave":
            where = num_blocks + 1 if number == num_blocks - 1 else number + 1
    return where
