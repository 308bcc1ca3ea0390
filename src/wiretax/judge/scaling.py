"""How many GPUs pay, from predicted or from measured steps: one sentence, and never a guess where the interval leaves it open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wiretax.judge.verdict import WORTH_SPEEDUP
from wiretax.model.finding import Verdict
from wiretax.model.forecast import Forecast
from wiretax.model.training import StepTiming
from wiretax.units import percent, significant

KEEP_BOX = "depends on the price: `wiretax plan` weighs it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Throughput of some GPUs over that of one."""

    num_gpus: int
    strategy: str
    wire: str
    low: float
    expected: float
    high: float

    @property
    def factor(self) -> str:
        """``1.61x to 1.84x``; one figure where both ends are alike."""
        low, high = (significant(end, 3) for end in (self.low, self.high))
        return f"{low}x" + (f" to {high}x" if high != low else "")

    @property
    def way(self) -> str:
        """``ddp over default``."""
        return f"{self.strategy} over {self.wire}"


def predicted_verdict(forecasts: Sequence[Forecast]) -> Verdict | None:
    """The number of GPUs to use for one workload and batch; None where no step on several GPUs was predicted.

    Args:
        forecasts: of one workload at one batch, the step on one GPU among them; strategies and wires may differ.
    """
    single = next((one.step_seconds for one in forecasts if one.num_gpus == 1 and one.step_seconds is not None), None)
    found = []
    for one in forecasts:
        step = one.step_seconds
        if step is None or one.num_gpus < 2 or one.speedup is None or one.fits is False or step.low <= 0:
            continue
        # Like beside like: the best step of one GPU against the best of many, the worst against the worst.
        slow, fast = (single.high / single.expected, single.low / single.expected) if single is not None else (1.0, 1.0)
        ends = sorted((one.speedup * step.expected / step.high * slow, one.speedup * step.expected / step.low * fast))
        low, high = min(ends[0], one.speedup), max(ends[1], one.speedup)
        found.append(Speedup(num_gpus=one.num_gpus, strategy=one.strategy, wire=one.wire, low=low, expected=one.speedup, high=high))
    return _verdict(found, "are predicted to train") if found else None


def measured_verdict(steps: Sequence[StepTiming], *, on_gpus: bool) -> Verdict | None:
    """The same from real steps of one workload and scaling; None where none on several GPUs has its efficiency.

    Args:
        steps: with ``efficiency_fraction``.
        on_gpus: whether GPUs trained; CPU ranks say nothing about a GPU machine.
    """
    found = [
        Speedup(
            num_gpus=one.num_gpus,
            strategy=one.strategy,
            wire=one.wire,
            low=one.efficiency_fraction * one.num_gpus,
            expected=one.efficiency_fraction * one.num_gpus,
            high=one.efficiency_fraction * one.num_gpus,
        )
        for one in steps
        if one.num_gpus > 1 and one.efficiency_fraction is not None
    ]
    if not found:
        return None
    if on_gpus:
        return _verdict(found, "trained")
    best = max(found, key=lambda one: one.expected)
    reason = "CPU ranks were trained, which says nothing about GPUs"
    sentence = f"{best.num_gpus} CPU ranks trained {best.factor} as fast as one ({best.way}); no GPU was trained on."
    missing = {"num_gpus": reason, "keep_box": reason}
    return Verdict(decision="cannot_judge", num_gpus=None, keep_box=None, sentence=sentence, missing=missing)


def worth_using(speedups: Sequence[Speedup]) -> Speedup | None:
    """The best strategy on the most GPUs that still do ``WORTH_SPEEDUP`` times what fewer do; None where one GPU is the better deal."""
    chosen: Speedup | None = None
    for count in sorted({one.num_gpus for one in speedups}):
        best = max((one for one in speedups if one.num_gpus == count), key=lambda one: one.expected)
        if best.expected >= WORTH_SPEEDUP * (chosen.expected if chosen is not None else 1.0):
            chosen = best
    return chosen


def _verdict(speedups: Sequence[Speedup], does: str) -> Verdict:
    most = max(one.num_gpus for one in speedups)
    chosen = worth_using(speedups)
    best = max(speedups, key=lambda one: one.expected)
    decision: Literal["use_all", "use_fewer", "use_one"]
    if chosen is None:
        decision, count = "use_one", 1
        firmly = best.high < WORTH_SPEEDUP
        sentence = (
            f"{'Do not scale here' if firmly else 'One GPU is probably the better deal'}: at best {best.num_gpus} GPUs {does} "
            f"{best.factor} as fast as one GPU ({best.way})."
        )
    else:
        decision, count = ("use_all" if chosen.num_gpus == most else "use_fewer"), chosen.num_gpus
        tax = percent(max(1 - chosen.expected / count, 0.0))
        more = f"; {most} GPUs add less than {percent(WORTH_SPEEDUP - 1)} to that" if decision == "use_fewer" else ""
        less = ", though it may be less than what makes them worth their price" if chosen.low < WORTH_SPEEDUP else ""
        sentence = f"{count} GPUs {does} {chosen.factor} as fast as one GPU ({chosen.way}), a wire tax of {tax}{more}{less}."
    return Verdict(
        decision=decision,
        num_gpus=count,
        keep_box=None,
        sentence=sentence,
        missing={"keep_box": KEEP_BOX},
    )
