"""One file a subject; each has ``check(run)``, a generator of findings that says nothing when it cannot know.

A new check is one file here and one line in :data:`ALL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wiretax.judge.checks import (
    backend,
    collectives,
    fabric,
    gpu_health,
    host,
    mixed_gpus,
    nvlink,
    p2p_absent,
    p2p_environment,
    p2p_policy,
    p2p_slow,
    p2p_truth,
    pairs,
    pcie,
    presence,
    shared_uplink,
    shm,
    software,
    straggler,
    subset,
    transport,
)
from wiretax.model.finding import Finding
from wiretax.model.run import Run

Check = Callable[[Run], Iterator[Finding]]

ALL: tuple[Check, ...] = (
    presence.check,
    gpu_health.check,
    software.check,
    fabric.check,
    nvlink.check,
    collectives.check,
    p2p_truth.check,
    p2p_absent.check,
    p2p_environment.check,
    p2p_policy.check,
    p2p_slow.check,
    transport.check,
    backend.check,
    shm.check,
    pcie.check,
    shared_uplink.check,
    pairs.check,
    subset.check,
    mixed_gpus.check,
    straggler.check,
    host.check,
)
"""In the order in which findings of equal severity are shown: what explains other findings first."""
