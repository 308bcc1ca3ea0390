"""torch's flight recorder: JSON dumps and the analyser's report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wiretax.probe.readers.input import read_bytes


def dump(**changes: Any) -> str:
    entry = {
        "record_id": 5,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 6,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[1024, 4]],
        "state": "scheduled",
        "timeout_ms": 600000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 3}],
    }
    body = {
        "version": "2.4",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 6, "last_started_collective": 5, "last_completed_collective": 5}},
        "entries": [{**entry, "state": "completed", "collective_seq_id": 5}, entry],
    }
    return json.dumps({**body, **changes})


def observed(text: str, source: str = "nccl_trace_rank_3.json") -> list[tuple[str, dict[str, Any]]]:
    pieces, _ = read_bytes(source, text.encode())
    return [(entry.kind, dict(entry.values)) for piece in pieces for entry in piece.observations if entry.kind.startswith("torch.flight")]


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_a_dump_says_where_the_rank_stands_and_what_it_waits_for(indent: int | None) -> None:
    found = dict(observed(json.dumps(json.loads(dump()), indent=indent)))

    assert found["torch.flight_record"] == {
        "rank": 3,
        "process_group": "0",
        "last_enqueued": 6,
        "last_started": 5,
        "last_completed": 5,
        "num_entries": 2,
    }
    assert found["torch.flight_unfinished"] == {
        "rank": 3,
        "process_group": "0",
        "sequence": 6,
        "operation": "nccl:all_reduce",
        "state": "scheduled",
        "input_sizes": "[[1024, 4]]",
        "timeout_seconds": 600.0,
    }


def test_without_a_rank_in_the_file_name_the_rank_is_left_open() -> None:
    assert "rank" not in dict(observed(dump(), source="dump.json"))["torch.flight_record"]


@pytest.mark.parametrize(
    "changes",
    [{"entries": [1, None, {}]}, {"pg_status": 5}, {"pg_status": {"0": None}}, {"entries": [{"state": "started", "process_group": 3}]}],
)
def test_a_dump_of_nonsense_is_read_without_a_crash(changes: dict[str, Any]) -> None:
    found = observed(dump(**changes))
    assert all(isinstance(kind, str) and values for kind, values in found)


def test_a_long_dump_is_read_whole() -> None:
    entries = [json.loads(dump())["entries"][0] | {"record_id": number} for number in range(3000)] + [json.loads(dump())["entries"][1]]
    found = dict(observed(json.dumps(json.loads(dump(entries=entries)), indent=2)))

    assert found["torch.flight_record"]["num_entries"] == 3001
    assert found["torch.flight_unfinished"]["sequence"] == 6


def test_the_report_of_torchfrtrace() -> None:
    text = (
        "Not all ranks joining collective 5 at entry 4\n"
        "group info: 0:default_pg\n"
        "collective: nccl:all_reduce\n"
        "missing ranks: {1, 3}\n"
        "collective state: scheduled\n"
    )
    found = [values for kind, values in observed(text) if kind == "torch.flight_mismatch"]

    assert found[0]["sequence"] == 5
    assert (found[1]["missing_ranks"], found[1]["operation"]) == ("1, 3", "all_reduce")
