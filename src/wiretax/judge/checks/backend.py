"""The user's own backend is gloo although there are GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge import facts
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.run import Run
from wiretax.units import rate, size


def check(run: Run) -> Iterator[Finding]:
    """Fires only when the ``default`` wire itself ran over gloo on GPUs; gloo measured for comparison is no fault."""
    if len(facts.usable_gpus(run.machine)) < 2:
        return
    own = [c for c in facts.user_collectives(run) if c.backend == "gloo" and c.gpus]
    if not own or any(c.backend == "nccl" for c in facts.user_collectives(run)):
        return
    head = facts.headline(own)
    reached = f": all-reduce of {size(head[1].num_bytes)} at {rate(head[1].busbw_bytes_per_second)}" if head else ""
    yield Finding(
        code="backend-gloo",
        severity="problem",
        confidence="certain",
        title=f"Ranks on GPUs talk over gloo{reached}",
        evidence=(evidence("the default wire ran over gloo; no NCCL collective was measured"),),
        effect="gloo copies GPU memory to the host and sends it over TCP: ten to a hundred times slower than NCCL.",
        remedy='Use NCCL: `torch.distributed.init_process_group("nccl")`, or "cpu:gloo,cuda:nccl" where both are needed.',
        confirm='python -c "import torch.distributed as d; print(d.is_nccl_available())"',
    )
