"""Watchdogs, flight recorders and NCCL's own report of a running job: who waited for whom, and at which operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from wiretax.judge import seen
from wiretax.judge.facts import gpus_list
from wiretax.model.finding import Finding
from wiretax.model.observation import Observation
from wiretax.model.run import Run

_CRASHES = frozenset({4, 8, 11})
"""SIGILL, SIGFPE and SIGSEGV: the program's own; SIGTERM and SIGABRT are mostly the launcher's or the watchdog's."""
_RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"


def check(run: Run) -> Iterator[Finding]:
    """A time-out tells that ranks waited; sequence numbers tell whether they were at the same operation."""
    timeouts = seen.of(run, "torch.watchdog_timeout")
    desync = [*_diverged(timeouts), *_stated(run)]
    echoes = [*seen.of(run, "torch.timeout_elsewhere"), *(o for o in seen.of(run, "torch.work_status") if o.values.get("failed_at"))]
    if timeouts:
        yield _timeout(run, timeouts, bool(desync))
    elif echoes:
        yield _timeout_elsewhere(echoes)
    elif seen.of(run, "torch.watchdog_stuck"):
        yield Finding(
            code="collective-hang",
            severity="problem",
            confidence="likely",
            title="torch's own watchdog hangs in a CUDA or NCCL call: the driver or a collective does not come back",
            evidence=seen.lines(seen.of(run, "torch.watchdog_stuck")),
            effect="The job stands still, and ends only because a second watchdog kills it.",
            remedy="Look for an Xid (`sudo dmesg | grep -i xid`), then find the guilty way: `wiretax check` tries each pair under a "
            "deadline.",
            confirm="wiretax check --quick",
        )
    if desync:
        yield _desynchronised(desync)
    if not timeouts and not desync:
        yield from _stuck_together(run)
    yield from _benchmark_stuck(run)
    yield from _ras(run, bool(desync))
    yield from _gloo(run)
    yield from _first_causes(run)


def _stuck_together(run: Run) -> Iterator[Finding]:
    """The desync debugger names ranks that joined a collective and did not finish it, and none elsewhere."""
    stuck = [o for o in seen.of(run, "torch.desync") if "didn't finish" in seen.text(o, "state")]
    if stuck:
        yield Finding(
            code="collective-timeout",
            severity="problem",
            confidence="certain",
            title=f"Rank {seen.text(stuck[0], 'ranks')} joined collective {seen.text(stuck[0], 'sequence')} and did not finish it",
            evidence=seen.lines(stuck),
            effect="All ranks stop; what follows in the log are echoes.",
            remedy="Look at the ranks that are not named: one of them is dead, late, or never came to this operation. "
            f"Repeat with `{_RECORDER}`, and let `torchfrtrace` compare the dumps.",
            confirm=f"{_RECORDER} torchrun ...  # then: torchfrtrace -p /tmp/nccl_trace_rank_",
        )


def _benchmark_stuck(run: Run) -> Iterator[Finding]:
    """nccl-tests were given a time limit (-T) and did not come back from one size."""
    stuck = [o for o in seen.of(run, "nccl_tests.failure") if seen.text(o, "error").startswith("timeout")]
    if stuck:
        after = seen.whole(stuck[0], "after_bytes")
        yield Finding(
            code="collective-hang",
            severity="problem",
            confidence="certain",
            title="A collective of nccl-tests does not come back" + (f", behind the size of {after} bytes" if after else ""),
            evidence=seen.lines(stuck, 3),
            effect="A training job would stand still here until its watchdog ends it.",
            remedy="Find the guilty way: `NCCL_P2P_DISABLE=1`, then `NCCL_IB_DISABLE=1`, then `NCCL_PROTO=Simple`, one at a time; and "
            "pairs of ranks alone: `wiretax check` tries each pair under a deadline.",
            confirm="wiretax check --quick",
        )


def _timeout(run: Run, timeouts: tuple[Observation, ...], diverged: bool) -> Finding:
    ranks = sorted({rank for o in timeouts if (rank := seen.whole(o, "rank")) is not None})
    operations = Counter(seen.text(o, "operation") for o in timeouts).most_common(2)
    seconds = max((value for o in timeouts if (value := seen.number(o, "timeout_seconds")) is not None), default=None)
    what = " and ".join(name for name, _ in operations)
    span = f" for {seconds:.0f} s" if seconds else ""
    sources = {o.source for o in timeouts}
    world = max((n for o in seen.of(run, "training.setting", name="num_gpus") if (n := seen.whole(o, "value"))), default=None)
    missing = [rank for rank in range(world) if rank not in ranks] if world and len(sources) == 1 and world <= 1024 and ranks else []
    silent = f" Rank {gpus_list(missing[:8])} did not complain: look there first." if missing and len(missing) < (world or 0) else ""
    return Finding(
        code="collective-timeout",
        severity="problem",
        confidence="certain",
        title=f"{what} waited{span} and {'were' if len(operations) > 1 else 'was'} given up"
        + (f" (seen by rank {gpus_list(ranks[:8])})" if ranks else ""),
        evidence=seen.lines((*timeouts, *seen.of(run, "torch.work_status"))),
        effect="All ranks stop; what follows in the log are echoes.",
        remedy=(
            "The ranks were not at the same operation: the program, not the wire (below)."
            if diverged
            else "The ranks that complain were all at the same operation, so one rank was dead or very late, or a link stands still. "
            "Find the "
            f"rank without such a line, its last output, and Xids on its host.{silent} "
            "If one rank evaluates, saves or tokenises alone for long, a larger timeout is right; else it only delays the end."
        )
        + f" Repeat with `{_RECORDER}`, and let `torchfrtrace` compare the dumps.",
        confirm=f"{_RECORDER} torchrun ...  # then: torchfrtrace -p /tmp/nccl_trace_rank_",
    )


def _timeout_elsewhere(echoes: list[Observation]) -> Finding:
    """What is left of a time-out where the first line of it was not pasted: another rank's word, or the place it stood at."""
    ranks = sorted({rank for o in echoes if (rank := seen.whole(o, "from_rank")) is not None})
    places = sorted({at for o in echoes if (at := seen.whole(o, "failed_at")) is not None})
    where = f", first seen by rank {gpus_list(ranks[:8])}" if ranks else ""
    where += f", at operation {gpus_list(places[:4])}" if places else ""
    return Finding(
        code="collective-timeout",
        severity="problem",
        confidence="likely",
        title=f"A collective timed out{where}",
        evidence=seen.lines(echoes),
        effect="All ranks stop; these lines are echoes of it.",
        remedy="Look at the output of "
        + (f"rank {gpus_list(ranks[:8])}" if ranks else "all ranks")
        + " for the line 'Watchdog caught collective operation timeout', which names the operation, and for the rank without one: it is "
        f"dead or late. Repeat with `{_RECORDER}`, and let `torchfrtrace` compare the dumps.",
        confirm=f"{_RECORDER} torchrun ...  # then: torchfrtrace -p /tmp/nccl_trace_rank_",
    )


def _diverged(timeouts: tuple[Observation, ...]) -> list[Observation]:
    """Time-outs of one job in which ranks stood at different operations.

    Files may be of different jobs, so each is compared alone, unless each holds one rank of its own: the logs of a launcher.
    """
    ranks: dict[str, set[int]] = {}
    for observation in timeouts:
        if (rank := seen.whole(observation, "rank")) is not None:
            ranks.setdefault(observation.source, set()).add(rank)
    own = [next(iter(of)) for of in ranks.values() if len(of) == 1]
    one_job = len(own) == len(ranks) == len(set(own))
    groups: dict[tuple[str, str], list[Observation]] = {}
    for observation in timeouts:
        groups.setdefault(("" if one_job else observation.source, _group_name(seen.text(observation, "process_group"))), []).append(
            observation
        )
    found: list[Observation] = []
    for same in groups.values():
        first: dict[int, Observation] = {}
        for observation in same:
            rank = seen.whole(observation, "rank")
            if rank is not None:
                first.setdefault(rank, observation)
        places = {(o.values.get("sequence"), seen.text(o, "operation")) for o in first.values() if o.values.get("sequence") is not None}
        sizes = {o.values.get("num_elements_in") for o in first.values()} - {None}
        if len(places) > 1 or (len(places) == 1 and len(sizes) > 1 and not _gathers(first)):
            found += first.values()
    return found


def _group_name(text: str) -> str:
    return re.sub(r"\s*Rank \d+", "", text)


def _gathers(first: dict[int, Observation]) -> bool:
    """Operations whose ranks may bring different sizes by design."""
    return any(re.search(r"GATHER|SCATTER|ALLTOALL|_V$", seen.text(o, "operation").upper()) for o in first.values())


def _stated(run: Run) -> list[Observation]:
    """Tools that say themselves that ranks run different collectives."""
    found = [
        *seen.of(run, "torch.collective_mismatch"),
        *seen.of(run, "torch.flight_mismatch"),
        *seen.of(run, "framework.stall"),
        *seen.of(run, "ddp.models_differ"),
        *seen.warnings(run, "collective_mismatch"),
        *(o for o in seen.of(run, "nccl.ras_problem") if seen.text(o, "problem") == "MISMATCH"),
    ]
    states = {(o.source, seen.whole(o, "sequence")) for o in seen.of(run, "torch.desync")}
    if len({sequence for _, sequence in states}) > 1 or any("didn't join" in seen.text(o, "state") for o in seen.of(run, "torch.desync")):
        found += seen.of(run, "torch.desync")
    return found


def _desynchronised(found: list[Observation]) -> Finding:
    timeouts = [o for o in found if o.kind == "torch.watchdog_timeout" and seen.whole(o, "rank") is not None]
    telling = next((name for name in ("sequence", "operation", "num_elements_in") if len({o.values.get(name) for o in timeouts}) > 1), None)
    form = {"operation": "in {}", "num_elements_in": "with {} elements"}.get(telling or "", "at {}")
    places = [f"rank {seen.whole(o, 'rank')} {form.format(o.values.get(telling or 'sequence'))}" for o in timeouts]
    where = f": {', '.join(places[:4])}" if places else ""
    missing = next((seen.text(o, "missing_ranks") for o in found if o.values.get("missing_ranks")), "")
    return Finding(
        code="ranks-desynchronised",
        severity="problem",
        confidence="likely",
        title=f"The ranks are at different operations{where}" + (f" (missing: rank {missing})" if missing else ""),
        evidence=seen.lines(found),
        effect="Each waits for a partner that is elsewhere; no network setting cures it.",
        remedy="Look for what ranks do differently: a branch on the data or on the rank, an uneven number of batches (drop_last, join), an "
        f"exception that only one rank catches, saving or evaluating on rank 0 alone. `{_RECORDER}` names the operations; "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL stops at the first mismatch.",
        confirm="TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
    )


def _ras(run: Run, diverged: bool) -> Iterator[Finding]:
    problems = [o for o in seen.of(run, "nccl.ras_problem") if seen.text(o, "problem") != "MISMATCH"]
    late = seen.of(run, "nccl.ras_rank")
    dead = seen.of(run, "nccl.ras_process")
    if not problems and not dead and not (late and not diverged):
        return
    yield Finding(
        code="collective-hang",
        severity="problem",
        confidence="likely",
        title="NCCL's report of the running job shows ranks that are dead, silent or behind",
        evidence=seen.lines((*problems, *dead, *late)),
        effect="All others wait for them.",
        remedy="Look at these ranks' hosts: is the process alive (`ps`), does the GPU answer (`nvidia-smi`), is there an Xid in dmesg? "
        "`py-spy dump --pid PID` shows where a living one stands.",
        confirm="ncclras -v",
    )


def _gloo(run: Run) -> Iterator[Finding]:
    """Gloo that cannot join its ranks, or waits in vain; frameworks use it beside NCCL for what lies in host memory."""
    errors = seen.of(run, "torch.gloo_error")
    waited = [o for o in errors if "imed out waiting" in seen.text(o, "error")]
    mesh = [o for o in errors if "connectFullMesh" in seen.text(o, "text")]
    loopback = seen.of(run, "torch.gloo_loopback")
    if mesh and loopback:
        yield Finding(
            code="wrong-interface",
            severity="problem",
            confidence="likely",
            title="gloo took the loopback address, because this host's name leads to none of its own: other hosts cannot reach it",
            evidence=seen.lines((*loopback, *mesh), 4),
            effect="The ranks of different hosts do not find each other, and the job ends at its start.",
            remedy="`export GLOO_SOCKET_IFNAME=eth0` (the interface that joins the hosts, by its name on each), or put the host's real "
            "address in the place of 127.0.1.1 in /etc/hosts.",
            confirm="getent hosts $(hostname) && ip -br addr",
        )
    elif mesh:
        yield Finding(
            code="rendezvous-failed",
            severity="problem",
            confidence="likely",
            title="gloo cannot connect all ranks with each other",
            evidence=seen.lines(mesh, 4),
            effect="The job ends at its start. Frameworks use gloo beside NCCL, so this comes before any GPU talks.",
            remedy="On each host its own name must lead to the address that the others see (not 127.0.1.1 in /etc/hosts): "
            "`export GLOO_SOCKET_IFNAME=eth0`, and let no firewall close the high ports between the hosts.",
            confirm="getent hosts $(hostname) && ip -br addr",
        )
    if waited and not seen.of(run, "torch.watchdog_timeout"):
        yield Finding(
            code="collective-timeout",
            severity="problem",
            confidence="likely",
            title="A rank waited for another over gloo and gave up",
            evidence=seen.lines(waited, 4),
            effect="The job ends; the rank that did not come is not this one.",
            remedy="Find the rank that died, or that does something alone (saving, downloading, tokenising): its last lines tell. "
            "If it is only slow, a larger timeout in init_process_group is right.",
            confirm="py-spy dump --pid PID  # of each rank while they wait",
        )


def _first_causes(run: Run) -> Iterator[Finding]:
    """What ends a rank and leaves the others waiting."""
    memory = seen.of(run, "torch.out_of_memory")
    # NCCL asks CUDA for its own buffers beside torch: it meets a GPU that torch or an inference engine has filled.
    in_nccl = [o for o in seen.warnings(run, "cuda_failure", "memory", "nvls_failure") if _is_gpu_memory(seen.text(o, "message"))]
    if memory or in_nccl:
        multicast = not memory and any(o.values.get("category") == "nvls_failure" for o in in_nccl)
        yield Finding(
            code="gpu-out-of-memory",
            severity="problem" if not multicast else "info",
            confidence="certain" if memory else "possible" if multicast else "likely",
            title="A rank ran out of GPU memory"
            if memory
            else "NCCL found too little free GPU memory for NVLink SHARP's buffers, or no room for them in the fabric"
            if multicast
            else "NCCL found too little free GPU memory for its buffers",
            evidence=seen.lines((*memory, *in_nccl), 3),
            effect="It dies, and all other ranks hang until their watchdog ends them.",
            remedy="Smaller batch with gradient accumulation, activation checkpointing, or sharding (FSDP)."
            if memory
            else ("Without them: `export NCCL_NVLS_ENABLE=0`. " if multicast else "")
            + "Leave it room: a smaller batch, a smaller share for the engine (`--gpu-memory-utilization 0.85`), no other process on the "
            "GPU, and not all ranks on one GPU; `NCCL_BUFFSIZE=1048576` and `NCCL_MAX_NCHANNELS=4` make its buffers smaller.",
            confirm="nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv",
        )
    killed = [*seen.of(run, "kernel.oom"), *seen.of(run, "launcher.out_of_memory")]
    counted = bool(killed)
    killed += [o for o in seen.of(run, "torch.rank_failed") if o.values.get("signal") == 9 or o.values.get("exit_code") in (-9, 137)]
    if killed:
        yield Finding(
            code="host-out-of-memory",
            severity="problem",
            confidence="certain" if counted else "likely",
            title="A rank was killed for want of host memory" if counted else "A rank was killed (signal 9)",
            evidence=seen.lines(killed, 4),
            effect="All other ranks hang until their watchdog ends them.",
            remedy="Fewer data loader workers, no copy of the data set in each rank, a larger memory limit of the container or job.",
            confirm="sudo dmesg | grep -i 'killed process'",
        )
    crashed = [o for o in seen.of(run, "torch.rank_failed") if (o.values.get("signal") or _signal_of(o)) in _CRASHES]
    if crashed:
        yield Finding(
            code="rank-died",
            severity="problem",
            confidence="certain",
            title=f"A rank crashed (signal {seen.whole(crashed[0], 'signal') or _signal_of(crashed[0])})",
            evidence=seen.lines(crashed, 4),
            effect="All other ranks hang until their watchdog ends them.",
            remedy="Read its own last lines, in C++ as well (`python -X faulthandler`): mostly a library built for another version of "
            "torch, CUDA or Python, or a full /dev/shm in a container.",
            confirm="sudo dmesg | grep -iE 'segfault|trap|killed process'",
        )
    unused = seen.of(run, "ddp.unused_parameters")
    if unused:
        yield Finding(
            code="ddp-unused-parameters",
            severity="problem",
            confidence="certain",
            title="DDP waits for gradients of parameters that took no part in the loss",
            evidence=seen.lines(unused, 3),
            effect="The step stops with an error, or ranks hang where only some use them.",
            remedy="Use every parameter in the loss, or `DistributedDataParallel(..., find_unused_parameters=True)` at some cost a step.",
            confirm="TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
        )
    yield from _announced(run)
    late = [*seen.of(run, "torch.store_timeout"), *seen.of(run, "torch.barrier_missed"), *seen.warnings(run, "rank_count")]
    yield from _still_waiting(run, late)
    # On Windows a first try of the host's IPv6 name fails and means nothing; elsewhere torch tries again, and ranks that met have met.
    refused = [o for o in seen.of(run, "torch.connect_failed") if "10049" not in seen.text(o, "error")]
    met = any(seen.of(run, kind) for kind in ("launcher.all_met", "nccl.init", "torch.watchdog_timeout", "torch.nccl_missing"))
    if late or (refused and not met):
        yield Finding(
            code="rendezvous-failed",
            severity="problem",
            confidence="certain" if late else "likely",
            title="The ranks did not all meet at the start",
            evidence=seen.lines((*late, *refused), 4),
            effect="The job does not start.",
            remedy="Check that MASTER_ADDR is the first host's address as the others see it, that MASTER_PORT is free and open, and "
            "that every "
            "host started its ranks with the same world size.",
            confirm="nc -vz MASTER_ADDR MASTER_PORT",
        )


def _is_gpu_memory(message: str) -> bool:
    """Whether NCCL's words mean the memory of the GPU; "Cannot allocate memory" is the host's, or a limit."""
    return re.search(r"out of memory|Failed to CUDA (?:m|c)alloc", message) is not None


def _signal_of(failed: Observation) -> int | None:
    """The signal that a negative exit code stands for, as Python and the launchers count."""
    code = seen.whole(failed, "exit_code")
    return -code if code is not None and code < 0 else None


def _still_waiting(run: Run, late: list[Observation]) -> Iterator[Finding]:
    """Ranks that told again and again how many have come, and never that all have."""
    waiting = [o for o in seen.of(run, "torch.store_waiting") if (seen.whole(o, "joined") or 0) < (seen.whole(o, "expected") or 0)]
    if not waiting or late or seen.of(run, "launcher.all_met") or seen.of(run, "nccl.init"):
        return
    last = waiting[-1]
    yield Finding(
        code="rendezvous-failed",
        severity="warning",
        confidence="likely",
        title=f"Only {seen.whole(last, 'joined')} of {seen.whole(last, 'expected')} ranks have come, and the others wait",
        evidence=seen.lines(waiting, 4),
        effect="The job stands at its start until the last rank comes, or its time is over.",
        remedy="Look for the ranks that do not wait here: did they start on every host, with this world size and a rank of their own, and "
        "did one fail before it came this far?",
        confirm="grep -c 'Waiting in store based barrier' RANK_LOGS",
    )


def _announced(run: Run) -> Iterator[Finding]:
    """Ranks that Lightning announced, and that never met: the same number twice, or fewer than there should be."""
    ranks = [o for o in seen.of(run, "launcher.rank") if seen.whole(o, "rank") is not None]
    if not ranks or seen.of(run, "launcher.all_met"):
        return
    twice = [o for o in ranks if (seen.whole(o, "count") or 1) > 1]
    world = max(seen.whole(o, "of") or 0 for o in ranks)
    here = {seen.whole(o, "rank") for o in ranks}
    if not twice and len(here) >= world:
        return
    yield Finding(
        code="rendezvous-failed",
        severity="problem" if twice else "info",
        confidence="likely" if twice else "possible",
        title=f"Two processes call themselves rank {seen.whole(twice[0], 'rank')}: each host counts from zero"
        if twice
        else f"Only {len(here)} of {world} ranks announced themselves here, and they have not met",
        evidence=seen.lines(twice or ranks, 4),
        effect="The job waits at its start for ranks that never come.",
        remedy="Let the launcher and the trainer agree: under Slurm `srun` with `--ntasks-per-node` equal to the GPUs of a host and "
        "`--nodes` equal to num_nodes; elsewhere a different NODE_RANK on each host, and the same MASTER_ADDR and MASTER_PORT. A stray "
        "NODE_RANK, SLURM_NTASKS or WORLD_SIZE in the environment confuses it too.",
        confirm="srun env | grep -E 'SLURM_(PROCID|LOCALID|NTASKS)|NODE_RANK|WORLD_SIZE|MASTER'",
    )
