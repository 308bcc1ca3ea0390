"""Is there anything to measure: no GPU, one GPU, a driver that does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from wiretax.judge.checks.kernel import signs_of_a_hung_driver
from wiretax.judge.facts import evidence
from wiretax.model.finding import Finding
from wiretax.model.run import Run


def check(run: Run) -> Iterator[Finding]:
    """Looks at the driver's state and the number of GPUs; pasted text shows only a part of a machine and proves neither."""
    machine = run.machine
    if machine is None:
        return
    detail = f": {machine.driver_detail}" if machine.driver_detail else ""
    seen = (evidence(f"driver_state = {machine.driver_state}{detail}", "machine"),)
    if machine.driver_state == "hung" and any(signs_of_a_hung_driver(run)):
        return  # The kernel log names the GPU: that is the finding.
    if machine.driver_state == "hung":
        yield Finding(
            code="gpu-hung",
            severity="critical",
            confidence="certain",
            title="The GPU driver does not answer",
            evidence=seen,
            effect="Nothing that touches a GPU on this machine will come back.",
            remedy="Reboot the machine; on a rented one give it back. `sudo dmesg | grep -i xid` names the GPU.",
            confirm="timeout 20 nvidia-smi",
        )
    elif machine.driver_state == "mismatch":
        yield Finding(
            code="driver-library-mismatch",
            severity="critical",
            confidence="certain",
            title="The driver's library and its kernel module are of different versions",
            evidence=seen,
            effect="No CUDA program starts.",
            remedy="Reboot, or reload the module: `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`. "
            "In a container, recreate it so that it gets the host's library.",
            confirm="nvidia-smi",
        )
    elif machine.driver_state == "error" and any(o.kind == "gpu.lost" for o in run.observations):
        return  # The text says which GPU is gone: that is the finding.
    elif machine.driver_state == "error":
        yield Finding(
            code="driver-error",
            severity="problem",
            confidence="certain",
            title="The GPU driver answered with an error",
            evidence=seen,
            effect="The GPUs of this machine cannot be used until it answers.",
            remedy="Read the driver's own words with `nvidia-smi`; in a container, start it with `--gpus all`.",
            confirm="nvidia-smi",
        )
    elif machine.origin == "pasted":
        return
    elif machine.driver_state == "absent" or (machine.driver_state == "ok" and not machine.gpus):
        yield Finding(
            code="no-gpu",
            severity="info",
            confidence="certain",
            title="There is no GPU here",
            evidence=seen,
            effect="What was measured are CPU ranks over gloo, which says nothing about a GPU machine.",
            remedy="Run `wiretax check` on the machine with the GPUs; in a container, start it with `--gpus all`.",
            confirm="nvidia-smi -L",
        )
    elif machine.driver_state == "ok" and len(machine.gpus) == 1:
        yield Finding(
            code="single-gpu",
            severity="info",
            confidence="certain",
            title="There is one GPU: no wire to measure",
            evidence=(evidence(f"GPU 0 is the only one: {machine.gpus[0].name or 'name not read'}", "machine"),),
            effect="What one GPU shows: its compute, memory and host link, and that every wire's settings start. "
            "What it cannot show: how fast GPUs talk to each other.",
            remedy="Run `wiretax check` on a machine with two or more GPUs to see the wire.",
            confirm="nvidia-smi -L",
        )
