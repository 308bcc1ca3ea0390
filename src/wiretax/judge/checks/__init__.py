"""One file a subject; each has ``check(run)``, a generator of findings that says nothing when it cannot know.

A new check is one file here and one line in :data:`ALL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wiretax.judge.checks import (
    amd,
    backend,
    collectives,
    distributed,
    fabric,
    gpu_health,
    gpus_text,
    host,
    ipc,
    kernel,
    mixed_gpus,
    network,
    nics,
    nvlink,
    p2p_absent,
    p2p_environment,
    p2p_hang,
    p2p_policy,
    p2p_slow,
    p2p_truth,
    pairs,
    pasted_input,
    pcie,
    presence,
    rates_text,
    rdma,
    shared_uplink,
    shm,
    shm_text,
    software,
    software_text,
    straggler,
    subset,
    training,
    transport,
    transport_text,
    unit_traps,
    virtual,
)
from wiretax.model.finding import Finding
from wiretax.model.run import Run

Check = Callable[[Run], Iterator[Finding]]

ALL: tuple[Check, ...] = (
    presence.check,
    kernel.check,
    gpu_health.check,
    software.check,
    software_text.check,
    fabric.check,
    nvlink.check,
    virtual.check,
    collectives.check,
    distributed.check,
    p2p_truth.check,
    p2p_hang.check,
    p2p_absent.check,
    p2p_environment.check,
    p2p_policy.check,
    p2p_slow.check,
    transport.check,
    transport_text.check,
    rates_text.check,
    backend.check,
    shm.check,
    shm_text.check,
    ipc.check,
    rdma.check,
    network.check,
    nics.check,
    amd.check,
    pcie.check,
    shared_uplink.check,
    pairs.check,
    subset.check,
    mixed_gpus.check,
    gpus_text.check,
    straggler.check,
    host.check,
    training.check,
    unit_traps.check,
    pasted_input.check,
)
"""In the order in which findings of equal severity are shown: what explains other findings first."""
