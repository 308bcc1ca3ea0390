"""ncclras: text and JSON."""

from __future__ import annotations

import json
from typing import Any

from wiretax.probe.readers.input import read_bytes

REPORT = """NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank:
  Rank 13 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  26 ranks have launched up to operation 6650
  5 ranks have launched up to operation 6649
  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 7 has not launched any operations -- GPU 7 managed by process 483079 on node 172.16.64.210
"""


def observed(text: str, kind: str) -> list[dict[str, Any]]:
    pieces, _ = read_bytes("x", text.encode())
    return [
        {name: value for name, value in entry.values.items() if name != "text"}
        for piece in pieces
        for entry in piece.observations
        if entry.kind == kind
    ]


def test_the_job_and_its_communicators() -> None:
    assert observed(REPORT, "nccl.ras_job") == [{"num_nodes": 4, "num_ranks": 32}]
    assert observed(REPORT, "nccl.ras_group") == [
        {"communicators": 1, "num_nodes": 4, "num_ranks": 32, "status": "RUNNING", "errors": "INCOMPLETE"}
    ]


def test_dead_processes_and_missing_ranks_are_named() -> None:
    assert observed(REPORT, "nccl.ras_process") == [{"pid": "3487984", "host": "172.16.64.213", "gpu": "5"}]
    assert [(entry["problem"], entry.get("communicator_id")) for entry in observed(REPORT, "nccl.ras_problem")] == [
        ("DEAD", None),
        ("INCOMPLETE", "27a079b828ff1a75"),
        ("TIMEOUT", None),
        ("MISMATCH", "27a079b828ff1a75"),
    ]
    assert observed(REPORT, "nccl.ras_rank")[0] == {"rank": 13, "gpu": 5, "host": "172.16.64.213"}


def test_ranks_that_are_behind_are_counted_and_named() -> None:
    assert observed(REPORT, "nccl.ras_count") == [{"num_ranks": 26, "last_operation": 6650}, {"num_ranks": 5, "last_operation": 6649}]
    assert observed(REPORT, "nccl.ras_rank")[1:] == [
        {"rank": 2, "gpu": 2, "host": "172.16.64.210", "last_operation": 6649},
        {"rank": 7, "gpu": 7, "host": "172.16.64.210", "last_operation": 0},
    ]


def test_versions_reach_the_machine_and_no_line_is_left_over() -> None:
    pieces, problems = read_bytes("x", REPORT.encode())
    machine = next(piece.machine for piece in pieces if piece.machine)

    assert machine.software.nccl_loaded is not None
    assert (machine.software.nccl_loaded.version, machine.software.cuda) == ("2.24.3", "12.8")
    assert problems == []


def test_a_healthy_report_states_no_problem() -> None:
    text = REPORT[: REPORT.index("Errors\n===")].replace("INCOMPLETE", "OK")

    assert observed(text, "nccl.ras_problem") == []
    assert observed(text, "nccl.ras_group")[0]["errors"] == "OK"


def test_the_json_report() -> None:
    ranks = [{"rank": rank, "host": "h", "pid": 1, "collective_counts": {"AllReduce": 50 - (rank == 2)}} for rank in range(4)]
    document = {
        "nccl_version": "2.28.9",
        "cuda_driver_version": 13000,
        "communicators": [{"hash": "0x27a0", "size": 8, "ranks_count": 4, "missing_ranks_count": 4, "ranks": ranks}],
    }
    text = json.dumps(document, indent=2)

    assert observed(text, "nccl.ras_group") == [{"communicators": 1, "num_ranks": 8, "communicator_id": "0x27a0", "missing_ranks": 4}]
    assert observed(text, "nccl.ras_count") == [
        {"num_ranks": 1, "last_operation": 49, "communicator_id": "0x27a0"},
        {"num_ranks": 3, "last_operation": 50, "communicator_id": "0x27a0"},
    ]
