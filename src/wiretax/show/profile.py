"""What one GPU said of a training step: its phases on the clocks, each strategy with communication free, memory, and what was noticed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.profile import PhaseTimes, Profile, StepTimes
from wiretax.model.run import Run
from wiretax.show.figures import Figures
from wiretax.show.plain import Symbols, indented, spread_fraction
from wiretax.show.prediction import milliseconds
from wiretax.units import flops, memory, percent, rate, significant


def profiles(run: Run, symbols: Symbols) -> list[RenderableType]:
    """A block a profile.

    Args:
        run: a cleaned run.
        symbols: the sign set of the stream.
    """
    parts: list[RenderableType] = []
    for one in run.training.profiles:
        parts += [indented(Text(_title(one, symbols), style="bold")), indented(_table(one, symbols)), *_lines(one, symbols)]
    return parts


def _title(profile: Profile, symbols: Symbols) -> str:
    work = profile.workload
    parts = [f"{work.name}, batch {work.batch_size}"]
    if work.sequence_length is not None:
        parts[0] += f" x {work.sequence_length}"
    parts.append(f"{profile.device_name}, {work.dtype}")
    parts += [f"{work.accumulation_steps} micro-steps"] if work.accumulation_steps > 1 else []
    parts += ["activations checkpointed"] if work.activation_checkpointing else []
    parts += ["compiled"] if work.compiled else []
    return symbols.dot.join(parts)


def _table(profile: Profile, symbols: Symbols) -> Figures:
    """The bare step and each strategy's; host and device apart where they are two."""
    two_clocks = profile.bare.forward.host is not None and profile.bare.forward.device is not None and profile.device == "cuda"
    with_memory = bool(profile.memory)
    table = Figures()
    table.add_column("step", no_wrap=True)
    headings = (
        ["in all", "forward", "backward", "optimizer"]
        + (["host", "device"] if two_clocks else [])
        + (["peak memory"] if with_memory else [])
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    rows: list[tuple[str, str, StepTimes]] = [("bare", "none", profile.bare)]
    rows += [(_free_name(one.strategy, one.world_size), one.strategy, one.times) for one in profile.free_steps]
    for name, strategy, times in rows:
        phases = (times.forward, times.backward, times.optimizer)
        cells: list[Text | str] = [Text(name, style="bold"), _with_spread(times, symbols)]
        cells += [milliseconds(phase.elapsed.seconds) for phase in phases]
        if two_clocks:
            cells += [_sum(phases, "host", symbols), _sum(phases, "device", symbols)]
        if with_memory:
            cells.append(_peak(profile, strategy, symbols))
        table.add_row(*cells)
    return table


def _free_name(strategy: str, world_size: int) -> str:
    """``fsdp2 of 8``: what the strategy thought; DDP runs at world size 1 and its own cost does not depend on it."""
    return strategy if world_size == 1 else f"{strategy} of {world_size}"


def _with_spread(times: StepTimes, symbols: Symbols) -> Text:
    spread = spread_fraction(times.step.samples_seconds)
    text = Text(milliseconds(times.step.seconds))
    return text if spread is None else text.append(f" {symbols.plus_minus}{percent(spread)}", style="yellow" if spread > 0.1 else "dim")


def _sum(phases: Sequence[PhaseTimes], clock: str, symbols: Symbols) -> str:
    spans = [getattr(phase, clock) for phase in phases]
    return symbols.dash if any(span is None for span in spans) else milliseconds(sum(span.seconds for span in spans))


def _peak(profile: Profile, strategy: str, symbols: Symbols) -> str:
    peaks = [one.peak_bytes for one in profile.memory if one.strategy == strategy and one.batch_size == profile.workload.batch_size]
    return memory(max(peaks)) if peaks else symbols.dash


def _lines(profile: Profile, symbols: Symbols) -> list[RenderableType]:
    """Sizes and rates in two lines, then what was noticed."""
    count = sum(one.num_elements for one in profile.parameters)
    gradients = sum(one.gradient_bytes for one in profile.parameters)
    sizes = [f"{count / 1e6:.4g} M parameters", f"{significant(gradients / 1e6)} MB of gradients"]
    sizes += [f"{len(profile.segments)} segments"] if profile.segments else ["not cut into segments"]
    rates = [f"matrix products {flops(profile.matmul_flops_per_second)}"] if profile.matmul_flops_per_second else []
    rates += [f"memory {rate(profile.memory_bytes_per_second)}"] if profile.memory_bytes_per_second else []
    per_sample = profile.workload.flops_per_sample
    if per_sample and profile.matmul_flops_per_second and profile.bare.step.seconds > 0:
        achieved = per_sample * profile.workload.batch_size / profile.bare.step.seconds  # of one micro-step
        rates.append(f"the step reaches {flops(achieved)}, {percent(achieved / profile.matmul_flops_per_second)} of that")
    if profile.input_pipeline is not None:
        rates.append(f"next batch in {milliseconds(profile.input_pipeline.seconds)}")
    lines = [Text(symbols.dot.join(group), style="dim") for group in (sizes, rates) if group]
    lines += [Text(f"{symbols.severity['info']} {note}") for note in profile.notes]
    return [indented(line) for line in lines]
