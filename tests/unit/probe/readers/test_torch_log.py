"""torch.distributed, DDP, gloo, CUDA and framework messages of torch 1.8 to 2.13."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wiretax.probe.readers.input import read_bytes

CASES = Path(__file__).parents[3] / "data" / "cases"


def observed(text: str, prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    pieces, _ = read_bytes("x", text.encode())
    return [
        (entry.kind, {name: value for name, value in entry.values.items() if name != "text"})
        for piece in pieces
        if piece.format == "torch log"
        for entry in piece.observations
        if entry.kind.startswith(prefix)
    ]


def only(text: str) -> tuple[str, dict[str, Any]]:
    found = observed(text)
    assert len(found) == 1, found
    return found[0]


WORK = (
    "WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, NumelOut=68124672, "
    "Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
)


@pytest.mark.parametrize(
    "line",
    [
        f"[rank3]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: {WORK}",
        f"[E ProcessGroupNCCL.cpp:474] [Rank 3] Watchdog caught collective operation timeout: {WORK}",
        (
            f"[rank3]:[E602 11:17:52.5 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog "
            f"caught collective operation timeout: {WORK}"
        ),
        (
            f"(train, rank=3, pid=99) [rank3]:[E ProcessGroupNCCL.cpp:563] [PG 0 (default_pg) Rank 3] Watchdog "
            f"caught collective operation timeout: {WORK}"
        ),
        f"  what():  [Rank 3] Watchdog caught collective operation timeout: {WORK}",
    ],
)
def test_watchdog_timeouts_of_every_generation(line: str) -> None:
    kind, values = only(line)

    assert kind == "torch.watchdog_timeout"
    assert {
        name: values[name]
        for name in ("rank", "sequence", "operation", "num_elements_in", "num_elements_out", "timeout_seconds", "ran_seconds")
    } == {
        "rank": 3,
        "sequence": 7753,
        "operation": "_REDUCE_SCATTER_BASE",
        "num_elements_in": 544997376,
        "num_elements_out": 68124672,
        "timeout_seconds": 600.0,
        "ran_seconds": 600.061,
    }


def test_the_oldest_form_has_no_sizes() -> None:
    kind, values = only(
        "[E ProcessGroupNCCL.cpp:566] [Rank 7] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1 milliseconds"
    )

    assert (kind, values["rank"], values["operation"]) == ("torch.watchdog_timeout", 7, "ALLREDUCE")
    assert "sequence" not in values


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                "[PG 0 (default_pg) Rank 0] Exception (either an error or timeout) detected by watchdog at work: "
                "7753, last enqueued NCCL work: 7755, last completed NCCL work: 7752."
            ),
            {"rank": 0, "process_group": "0", "failed_at": 7753, "last_enqueued": 7755, "last_completed": 7752},
        ),
        (
            "[Rank 2] Timeout at NCCL work: 5, last enqueued NCCL work: 6, last completed NCCL work: 4.",
            {"rank": 2, "failed_at": 5, "last_enqueued": 6, "last_completed": 4},
        ),
        (
            (
                "[PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from this "
                "local rank and we will try our best to dump the debug"
                " info. Last enqueued NCCL work: 6, last completed NCCL work: 5.This is most likely caused by incorrect usages"
            ),
            {"rank": 1, "process_group": "0", "last_enqueued": 6, "last_completed": 5},
        ),
        (
            (
                "[PG ID 1 PG GUID 3 Rank 4]  failure detected by watchdog at work sequence id: 9 PG status: last "
                "enqueued work: 9, last completed work: 8"
            ),
            {"rank": 4, "failed_at": 9, "last_enqueued": 9, "last_completed": 8},
        ),
        (
            (
                "[PG 0 Rank 4] Exception detected by watchdog at work: 9, last enqueued NCCL work: 9, last started "
                "NCCL work: 8, last completed NCCL work: 7."
            ),
            {"rank": 4, "last_enqueued": 9, "last_started": 8, "last_completed": 7},
        ),
    ],
)
def test_where_each_rank_stands(line: str, expected: dict[str, Any]) -> None:
    found = [values for kind, values in observed(line) if kind == "torch.work_status"]

    assert len(found) == 1
    assert {name: found[0].get(name) for name in expected} == expected


def test_the_same_timeout_told_three_times_counts_once_per_rank() -> None:
    line = f"[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: {WORK}\n"
    text = (
        line
        + line.replace("cpp:607", "cpp:1664")
        + f"  what():  [Rank 0] Watchdog caught collective operation timeout: {WORK}\n"
        + line.replace("Rank 0", "Rank 1")
    )

    assert [values["rank"] for _, values in observed(text, "torch.watchdog_timeout")] == [0, 1]


def test_ranks_at_different_operations_are_kept_apart() -> None:
    found = observed((CASES / "C71_framework_b.log").read_text())

    assert [(values["rank"], values["sequence"]) for _, values in found] == [(0, 96120), (7, 64088)]


def test_the_last_error_behind_an_exception_is_the_warning_that_caused_it() -> None:
    text = (
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error"
        " (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n"
        "Last error:\nError while creating shared memory segment /dev/shm/nccl-xyz (size 9637888)\n"
    )
    pieces, problems = read_bytes("x", text.encode())
    (piece,) = [piece for piece in pieces if piece.format == "torch log"]
    kinds = [(entry.kind, entry.values.get("category") or entry.values.get("error")) for entry in piece.observations]

    assert kinds == [
        ("torch.nccl_error", "unhandled system error"),
        ("torch.nccl_error", "ncclSystemError"),
        ("nccl.warning", "shm_segment"),
    ]
    assert piece.machine is not None
    assert piece.machine.software.nccl_loaded is not None
    assert piece.machine.software.nccl_loaded.version == "2.21.5"
    assert problems == []


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        ("RuntimeError: Distributed package doesn't have NCCL built in", "torch.nccl_missing", {}),
        ("NOTE: Redirects are currently not supported in Windows or MacOs.", "torch.no_redirects", {}),
        ("distributed_backend=gloo", "torch.backend", {"backend": "gloo"}),
        ("dist.init_process_group(backend='gloo', rank=0)", "torch.backend", {"backend": "gloo"}),
        ('torch.distributed.init_process_group("gloo")', "torch.backend", {"backend": "gloo"}),
        ("Using backend: nccl", "torch.backend", {"backend": "nccl"}),
        (
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            "torch.gloo_error",
            {},
        ),
        (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4711",
            "torch.gloo_error",
            {"error": "Connection closed by peer [10.0.0.2]:4711"},
        ),
        (
            (
                "[W ProcessGroupGloo.cpp:684] Warning: Unable to resolve hostname to a (local) address. Using the "
                "loopback address as fallback."
            ),
            "torch.gloo_loopback",
            {},
        ),
        (
            "[W socket.cpp:663] [c10d] The client socket has failed to connect to [host-a]:29500 (errno: 110 - Connection timed out).",
            "torch.connect_failed",
            {"host": "host-a", "port": 29500, "error": "errno: 110 - Connection timed out"},
        ),
        (
            "[E socket.cpp:957] [c10d] The client socket has timed out after 900s while trying to connect to (10.0.0.1, 29500).",
            "torch.connect_failed",
            {"host": "10.0.0.1", "port": 29500},
        ),
        ("Timed out after 901 seconds waiting for clients. 1/2 clients joined.", "torch.store_timeout", {"joined": 1, "expected": 2}),
        (
            "UserWarning: using GPU 0 as device used by this process is currently unknown. This can potentially cause a hang",
            "torch.device_guess",
            {"gpu": 0},
        ),
        (
            "Guessing device ID based on global rank. This can cause a hang if rank to GPU mapping is heterogeneous.",
            "torch.device_guess",
            {},
        ),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "torch.cuda_error",
            {"error": "an illegal memory access was encountered"},
        ),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "torch.cuda_error",
            {"error": "uncorrectable ECC error encountered"},
        ),
        (
            "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            "torch.cuda_init",
            {"error": "system not yet initialized"},
        ),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
            "torch.cuda_init",
            {"error": "The NVIDIA driver on your system is too old"},
        ),
        ("AssertionError: Torch not compiled with CUDA enabled", "torch.cpu_build", {}),
        (
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
            "torch.gpu_unsupported",
            {"capability": "sm_120"},
        ),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity "
                "of 23.65 GiB of which 1.19 GiB is free."
            ),
            "torch.out_of_memory",
            {"gpu": 1, "tried": "2.00 GiB", "capacity": "23.65 GiB"},
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9 GiB already allocated)",
            "torch.out_of_memory",
            {"gpu": 0},
        ),
        ("  rank      : 1 (local_rank: 1)", "torch.rank_failed", {"rank": 1, "local_rank": 1}),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 411) of binary: python",
            "torch.rank_failed",
            {"exit_code": -9, "local_rank": 3},
        ),
        (
            "Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
            "ddp.find_unused_parameters",
            {},
        ),
        (
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
            "ddp.unused_parameters",
            {},
        ),
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 10 params, while rank 1 has inconsistent 9 params.",
            "ddp.models_differ",
            {},
        ),
        ("UserWarning: Grad strides do not match bucket view strides.", "ddp.bucket_strides", {}),
        (
            (
                "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
                "CollectiveFingerPrint(OpType=ALLREDUCE"
            ),
            "torch.collective_mismatch",
            {},
        ),
        ("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms", "torch.barrier_missed", {"ranks": "1, 3"}),
        ("   - [0, 2] joined but didn't finish collective #14 (count from 1)", "torch.desync", {"ranks": "0, 2", "sequence": 14}),
        (
            "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
            "torch.watchdog_stuck",
            {"seconds": 480.0},
        ),
        (
            "WARNING 03-20 22:11:10 cuda.py:336] Detected different devices in the system: NVIDIA A, NVIDIA B. Please make sure",
            "gpus.differ",
            {"names": "NVIDIA A, NVIDIA B"},
        ),
        ("You may want to exclude GPU 1 which has less than 75% of the memory or cores of GPU 0.", "gpus.imbalance", {"gpu": 1, "than": 0}),
        (
            "WARNING custom_all_reduce.py:134] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
            "framework.custom_all_reduce",
            {"reason": "pcie_only"},
        ),
        (
            "WARNING Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
            "framework.custom_all_reduce",
            {"reason": "no_p2p"},
        ),
        (
            "Custom allreduce is disabled due to an unsupported world size: 3. Supported world sizes: [2, 4, 6, 8]",
            "framework.custom_all_reduce",
            {"reason": "world_size"},
        ),
        (
            (
                "Using RTX 3090 or 4000 series which doesn't support faster communication speedups. Ensuring P2P and "
                "IB communications are disabled."
            ),
            "framework.p2p_switched_off",
            {"framework": "accelerate"},
        ),
        (
            "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0; this can cause the process to hang.",
            "framework.old_kernel",
            {"found": "5.4.0", "needed": "5.5.0"},
        ),
        ("INFO 03-20 pynccl.py:63] vLLM is using nccl==2.20.5", "framework.nccl", {"version": "2.20.5"}),
    ],
)
def test_other_messages_have_their_kind_and_values(line: str, kind: str, values: dict[str, Any]) -> None:
    found_kind, found = only(line)

    assert found_kind == kind
    assert {name: found.get(name) for name in values} == values


def test_a_message_of_eight_workers_is_one_observation_with_a_count() -> None:
    line = "WARNING Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.\n"
    text = "".join(f"(VllmWorkerProcess pid={pid}) {line}" for pid in range(8))

    assert only(text) == ("framework.custom_all_reduce", {"reason": "no_p2p", "count": 8})


def test_stack_frames_and_announcements_are_not_reported_as_unknown() -> None:
    text = (
        f"[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: {WORK}\n"
        "Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:609 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in /lib/libc10.so)\n"
        "[E ProcessGroupNCCL.cpp:488] Some NCCL operations have failed or timed out. Due to the asynchronous "
        "nature of CUDA kernels, subsequent GPU operations might run\n"
        "[E ProcessGroupNCCL.cpp:494] To avoid data inconsistency, we are taking the entire process down.\n"
    )

    assert read_bytes("x", text.encode())[1] == []


@pytest.mark.parametrize(
    "line",
    ["epoch 3 loss 2.51 lr 1e-4", "the backend team met today", "rank and file", "I own a 4090 and it is fast", "our driver was late"],
)
def test_ordinary_text_is_left_alone(line: str) -> None:
    assert observed(line) == []


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL", {"rank": 2, "signal": 9}),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV", {"rank": 0, "signal": 11}),
        ("srun: error: node-1: task 3: Bus error (core dumped)", {"rank": 3, "signal": 7}),
        ("srun: error: node-1: tasks 0-3: Segmentation fault (core dumped)", {"rank": 0, "signal": 11}),
        ("CalledProcessError: Command '['python']' died with <Signals.SIGABRT: 6>.", {"signal": 6}),
    ],
)
def test_the_signal_that_ended_a_rank_has_its_number(line: str, values: dict[str, Any]) -> None:
    kind, found = only(line)
    assert (kind, found) == ("torch.rank_failed", values)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: unable to write to file </torch_11_22>: No space left on device (28)", "torch.shared_memory"),
        ("RuntimeError: unable to mmap 1024 bytes from file </torch_11_22>: Cannot allocate memory (12)", "torch.shared_memory"),
        ("forward compatibility was attempted on non supported HW", "torch.cuda_init"),
        ("RuntimeError: [../transport/tcp/pair.cc:598] Connection closed by peer", "torch.gloo_error"),
        ("store->get('0:0') got error: Broken pipe", "torch.store_closed"),
    ],
)
def test_a_message_without_any_of_the_common_words_is_not_passed_over(line: str, kind: str) -> None:
    assert only(line)[0] == kind
