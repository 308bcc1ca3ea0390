"""The text itself: lines of a known format that were bent on their way, so that a part had to be read by its words or left out."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.model.finding import Finding
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """What was not understood at all is listed apart; only damage to what looks like a tool's output is named here."""
    damaged = (*seen.of(run, "input.damaged"), *seen.of(run, "topology.incomplete"), *seen.of(run, "smi.table_cut"))
    crooked = seen.of(run, "topology.asymmetric")
    if not damaged and not crooked:
        return
    count = sum(seen.whole(o, "count") or 1 for o in (*damaged, *crooked))
    what = next((seen.text(o, "what") for o in damaged if o.values.get("what")), "")
    yield Finding(
        code="input-degraded",
        severity="info",
        confidence="certain",
        title=f"{count} {'line' if count == 1 else 'lines'} of a tool's output {'is' if count == 1 else 'are'} damaged"
        + (f": {what}" if what else ": the two halves of a matrix disagree" if crooked and not damaged else ""),
        evidence=seen.lines((*damaged, *crooked), 8),
        effect="What could not be read with certainty was left out, so a finding may be missing; nothing was guessed.",
        remedy="Paste the output again, unwrapped, as text between ``` lines, or attach it as a file: `nvidia-smi topo -m > topo.txt`.",
        confirm="nvidia-smi topo -m > topo.txt && wiretax diagnose topo.txt",
    )
