"""Which names of metrics a run can have at all, so that a wrong one is refused before a minute is spent on measuring."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator

from wiretax.errors import UsageError
from wiretax.model.finding import SEVERITIES
from wiretax.model.measurement import OPERATIONS

NUMBER, WORD, TITLE = "#", "@", "~"
"""In a pattern of a name: some digits; a word without a dot (a wire or a strategy); a wire named after a file, dots and all."""

_UNITS: dict[str, tuple[str, ...]] = {
    "bytes_per_second": ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
    "flops_per_second": ("GFLOP/s", "TFLOP/s"),
    "seconds": ("us", "ms", "s"),
    "speedup": ("%",),
}
"""By a word of a metric's name."""

_DEEPEST = 200
"""Characters of a name: no metric has more."""


def check_metric(name: str) -> None:
    """Refuses a metric that no run can have.

    Args:
        name: of a metric, or with ``*`` for anything.

    Raises:
        UsageError: with the near names.
    """
    if len(name) <= _DEEPEST and any(_can_be(name, pattern) for pattern in _patterns()):
        return
    examples = [pattern.replace(WORD, "ddp" if TITLE in pattern else "default") for pattern in _patterns()]
    examples = [one.replace(TITLE, "default").replace(NUMBER, "2") for one in examples]
    near = difflib.get_close_matches(name[:_DEEPEST], examples, n=3, cutoff=0.3)
    raise UsageError(
        f"No run has a metric {name[:_DEEPEST]!r}.",
        why="The name is wrong: it is KIND.WIRE.GPUS, KIND.GPU or findings.SEVERITY.",
        do=f"Near names: {', '.join(near)}." if near else "Example: all_reduce_busbw_peak_bytes_per_second.default.2",
    )


def units_of(name: str) -> tuple[str, ...]:
    """Units that a value beside this metric may have; none where it is a plain number, all of its kinds where ``*`` leaves it open."""
    fitting: list[str] = []
    for pattern in _patterns():
        if _can_be(name, pattern):
            kind = pattern.partition(".")[0]
            of_kind = next((units for word, units in _UNITS.items() if word in kind), ())
            fitting += [unit for unit in of_kind if unit not in fitting]
    return tuple(fitting)


@functools.cache
def _patterns() -> tuple[str, ...]:
    return tuple(_all_patterns())


def _all_patterns() -> Iterator[str]:
    """The names that :func:`wiretax.judge.gate.as_metrics` gives."""
    for operation in OPERATIONS:
        yield f"{operation}_busbw_peak_bytes_per_second.{WORD}.{NUMBER}"
        yield f"{operation}_seconds.{WORD}.{NUMBER}.{NUMBER}"
        yield f"{operation}_latency_seconds.{WORD}.{NUMBER}"
    for route in ("direct", "staged"):
        yield from (f"pair_copy_bytes_per_second.{route}.{end}" for end in (f"{NUMBER}-{NUMBER}", "min"))
    for kind in ("host_copy_bytes_per_second", "matmul_flops_per_second", "memory_bytes_per_second"):
        yield from (f"{kind}.{end}" for end in (NUMBER, "min"))
    yield from (f"findings.{severity}" for severity in SEVERITIES)
    yield from (f"{kind}.{WORD}.{TITLE}.{NUMBER}" for kind in ("speedup", "step_seconds"))


def _can_be(name: str, pattern: str) -> bool:
    """Whether any text fits both the name with its ``*`` and the pattern."""

    @functools.cache
    def fits(at: int, on: int) -> bool:
        if at == len(name):
            return on == len(pattern)
        if name[at] == "*":
            return fits(at + 1, on) or (on < len(pattern) and fits(at, on + 1))
        if on == len(pattern):
            return False
        part = pattern[on]
        if part in (NUMBER, WORD, TITLE):
            allowed = name[at].isdigit() if part == NUMBER else part == TITLE or name[at] != "."
            return allowed and (fits(at + 1, on) or fits(at + 1, on + 1))
        return name[at] == part and fits(at + 1, on + 1)

    return fits(0, 0)
