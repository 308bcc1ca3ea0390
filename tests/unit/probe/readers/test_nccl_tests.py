"""nccl-tests: text of every generation, broken tables, and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wiretax.model.measurement import Collective
from wiretax.model.reading import unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.nccl_tests_run import factor
from wiretax.probe.readers.piece import Piece

CASES = Path(__file__).parents[3] / "data" / "cases"
H200 = Path(__file__).parents[3] / "data" / "h200x2"

HEADER = """# nThread 1 nGpus {n} minBytes 1048576 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
#
# Using devices
"""
COLUMNS = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def read(text: str) -> list[Piece]:
    return [piece for piece in read_bytes("x", text.encode())[0] if piece.format.startswith("nccl-tests")]


def collectives(pieces: list[Piece]) -> list[Collective]:
    return [collective for piece in pieces for collective in piece.measurements.collectives]


def observed(pieces: list[Piece], kind: str) -> list[dict[str, Any]]:
    return [dict(entry.values) for piece in pieces for entry in piece.observations if entry.kind == kind]


def devices(count: int, name: str = "NVIDIA H100 80GB HBM3") -> str:
    return "".join(
        f"#  Rank {rank:2d} Group  0 Pid   4100 on     host-a device {rank:2d} [0000:{rank + 16:02x}:00] {name}\n" for rank in range(count)
    )


@pytest.mark.parametrize(
    ("name", "operation", "points", "last_busbw"),
    [
        ("all_reduce_default", "all_reduce", 28, 331.92e9),
        ("all_reduce_shm", "all_reduce", 28, 27.15e9),
        ("all_reduce_net", "all_reduce", 26, 3.29e9),
        ("all_gather", "all_gather", 6, 266.11e9),
        ("reduce_scatter", "reduce_scatter", 6, 273.05e9),
        ("sendrecv", "send_recv", 6, 360.59e9),
    ],
)
def test_the_recorded_h200_sweeps(name: str, operation: str, points: int, last_busbw: float) -> None:
    pieces = read((H200 / f"nccl_tests_{name}.txt").read_text())
    (collective,) = collectives(pieces)

    assert (collective.operation, collective.world_size, collective.mode, collective.verified) == (operation, 2, "eager", True)
    assert len(collective.points) == points
    assert collective.points[-1].busbw_bytes_per_second == pytest.approx(last_busbw, rel=2e-3)
    assert observed(pieces, "nccl_tests.table")[0]["complete"] is True
    assert list(unexplained(collective)) == []


def test_every_row_agrees_with_the_rates_it_prints() -> None:
    text = (H200 / "nccl_tests_all_gather.txt").read_text()
    printed = [line.split() for line in text.splitlines() if line.strip() and line.lstrip()[0].isdigit()]
    (collective,) = collectives(read(text))

    for words, point in zip(printed, collective.points, strict=True):
        assert point.num_bytes == int(words[0])
        assert point.seconds == pytest.approx(float(words[5]) * 1e-6)
        assert point.algbw_bytes_per_second / 1e9 == pytest.approx(float(words[6]), rel=1e-3, abs=0.006)
        assert point.busbw_bytes_per_second / 1e9 == pytest.approx(float(words[7]), rel=1e-3, abs=0.006)


@pytest.mark.parametrize(
    ("operation", "size", "expected"), [("all_reduce", 8, 1.75), ("all_gather", 4, 0.75), ("reduce_scatter", 2, 0.5), ("send_recv", 8, 1.0)]
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(operation: Any, size: int, expected: float) -> None:
    assert factor(operation, size) == expected


def test_a_table_that_stops_says_where_and_with_what_error() -> None:
    pieces = read((CASES / "C15_bw.txt").read_text())

    table = observed(pieces, "nccl_tests.table")[0]
    assert (table["rows"], table["last_bytes"], table["max_bytes"], table["complete"]) == (2, 262144, 16777216, False)
    failure = observed(pieces, "nccl_tests.failure")[0]
    assert (failure["error"], failure["library"], failure["after_bytes"]) == ("an illegal memory access was encountered", "CUDA", 262144)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "node1: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '",
            "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        ),
        (
            "node1: Test NCCL failure all_reduce.cu:12 'remote process exited or there was a network error / socketProgress'",
            "remote process exited or there was a network error",
        ),
        ("node1: Test timeout (60s) common.cu:523", "timeout after 60 s"),
    ],
)
def test_failures_in_other_words(line: str, error: str) -> None:
    assert observed(read(HEADER.format(n=2) + devices(2) + COLUMNS + line + "\n"), "nccl_tests.failure")[0]["error"] == error


def test_devices_of_old_and_new_versions() -> None:
    old = observed(read((CASES / "C28_nccl.log").read_text()), "nccl_tests.device")
    hexadecimal = observed(read((CASES / "C25_nccl.log").read_text()), "nccl_tests.device")

    assert [(entry["rank"], entry["bus_id"], entry["name"]) for entry in old] == [
        (0, "00000000:86:00.0", "Tesla T4"),
        (1, "00000000:AF:00.0", "Tesla T4"),
    ]
    assert len(hexadecimal) == 8
    assert hexadecimal[3]["bus_id"] == "00000000:5A:00.0"


def test_the_machine_of_each_host_has_its_gpus_by_cuda_ordinal() -> None:
    text = (
        HEADER.format(n=8)
        + devices(2)
        + devices(2).replace("host-a", "host-b").replace("Rank  0", "Rank  2").replace("Rank  1", "Rank  3")
        + COLUMNS
    )
    pieces = read(text)

    assert [(piece.machine.hostname, len(piece.machine.gpus)) for piece in pieces if piece.machine] == [("host-a", 2), ("host-b", 2)]
    assert pieces[0].machine is not None
    assert "CUDA ordinals" in str(pieces[0].machine.origin_note)


def row(size: int, microseconds: float, ratio: float, wrong: str = "0", redop: str = "sum", root: str = "-1", in_place: str = "0") -> str:
    algbw = size / microseconds / 1e3
    half = f"{microseconds:9.2f} {algbw:7.2f} {algbw * ratio:7.2f}"
    return f"{size:12d} {size // 4:13d} {'float':>9} {redop:>7} {root:>7} {half} {wrong:>6} {half} {in_place:>6}\n"


@pytest.mark.parametrize(
    ("count", "ratio", "redop", "in_place", "operation"),
    [
        (4, 1.5, "sum", "0", "all_reduce"),
        (8, 1.75, "sum", "0", "all_reduce"),
        (2, 1.0, "sum", "0", "all_reduce"),
        (8, 0.875, "sum", "0", "reduce_scatter"),
        (2, 1.0, "sum", "N/A", None),
        (4, 0.75, "none", "0", None),
    ],
)
def test_an_operation_that_no_line_names_is_worked_out_or_left_open(
    count: int, ratio: float, redop: str, in_place: str, operation: str | None
) -> None:
    pieces = read(HEADER.format(n=count) + devices(count) + COLUMNS + row(2**28, 3000, ratio, redop=redop, in_place=in_place))

    assert [collective.operation for collective in collectives(pieces)] == ([operation] if operation else [])
    table = observed(pieces, "nccl_tests.table")[0]
    assert table.get("operation_inferred", False) is bool(operation)
    assert table["peak_busbw_bytes_per_second"] == pytest.approx(2**28 / 3000 * 1e6 * ratio, rel=1e-2)


def test_the_program_named_on_the_command_line_settles_the_operation() -> None:
    text = (
        "$ mpirun -np 4 ./build/alltoall_perf -b 1M -e 1G\n"
        + HEADER.format(n=1)
        + devices(4)
        + COLUMNS
        + row(2**28, 9000, 0.75, redop="none", in_place="N/A")
    )

    assert [(collective.operation, collective.world_size) for collective in collectives(read(text))] == [("all_to_all", 4)]


def test_the_world_size_is_worked_out_from_the_ratio_when_the_list_of_ranks_was_cut() -> None:
    text = "# Collective test starting: all_reduce_perf\n" + HEADER.format(n=1) + COLUMNS + row(2**30, 5000, 1.75)

    assert [collective.world_size for collective in collectives(read(text))] == [8]


def test_wrong_results_are_counted_by_size() -> None:
    pieces = read(HEADER.format(n=4) + devices(4) + COLUMNS + row(2**20, 100, 1.5) + row(2**24, 900, 1.5, wrong="17"))

    assert collectives(pieces)[0].verified is False
    assert observed(pieces, "nccl_tests.wrong") == [{"num_bytes": 2**24, "wrong": 17}]


def test_a_run_without_checks_is_not_called_verified() -> None:
    (collective,) = collectives(read(HEADER.format(n=4) + devices(4) + COLUMNS + row(2**26, 900, 1.5, wrong="N/A", in_place="N/A")))

    assert collective.verified is None
    assert collective.missing["verified"]


def test_the_table_of_2019_without_a_root_column_is_read() -> None:
    text = (
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
        "    33554432       8388608   float     sum   2987.5   11.23   16.85  1e-06   2988.1   11.23   16.84  1e-06\n"
    )

    table = observed(read("#   Rank  0 Pid 1 on h device  0 [0x1a] V100\n" + text), "nccl_tests.table")[0]
    assert (table["rows"], table["operation"]) == (1, "all_reduce")


def test_per_iteration_columns_do_not_shift_the_in_place_block() -> None:
    text = (
        HEADER.format(n=4)
        + devices(4)
        + (
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    "
            "i_max    i_p99    i_cv%     time   algbw   busbw"
            "  #wrong    i_min    i_max    i_p99    i_cv%\n"
            "   268435456      67108864     float     sum      -1  3000.00   89.48  134.22       0  2900.0  "
            "3100.0  3090.0     1.2  3000.00   89.48  134.22"
            "       0  2900.0  3100.0  3090.0     1.2\n"
        )
    )

    assert collectives(read(text))[0].points[0].busbw_bytes_per_second == pytest.approx(134.2e9, rel=1e-3)


def test_a_graph_run_is_marked() -> None:
    text = HEADER.format(n=4).replace("graph: 0", "graph: 20") + devices(4) + COLUMNS + row(2**26, 900, 1.5)

    assert collectives(read(text))[0].mode == "graph"


def test_a_row_that_contradicts_itself_is_damaged_not_believed() -> None:
    broken = row(2**26, 900, 1.5).replace(f"{2**26 / 900 / 1e3:7.2f}", "   9.99")
    pieces = read(HEADER.format(n=4) + devices(4) + COLUMNS + row(2**24, 300, 1.5) + broken)

    assert len(collectives(pieces)[0].points) == 1
    assert [what for _, what in pieces[0].damaged] == ["a row of the nccl-tests table that does not fit its heading"]


def test_an_unknown_unit_is_reported_and_nothing_is_converted() -> None:
    pieces = read(HEADER.format(n=4) + devices(4) + COLUMNS.replace("(GB/s)", "(Gbps)") + row(2**26, 900, 1.5))

    assert collectives(pieces) == []
    assert observed(pieces, "nccl_tests.unit")[0]["unit"] == "Gbps"


def test_the_average_line_alone_is_an_observation_and_no_measurement() -> None:
    pieces = read((CASES / "C19_nccl.log").read_text())

    assert observed(pieces, "nccl_tests.average")[0]["busbw_bytes_per_second"] == pytest.approx(0.899417e9)
    assert collectives(pieces) == []


def test_output_behind_a_launchers_prefix_is_read() -> None:
    text = HEADER.format(n=4) + devices(4) + COLUMNS + row(2**26, 900, 1.5)
    prefixed = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())

    assert len(collectives(read(prefixed))) == 1


def report(**changes: Any) -> str:
    block = {"time": 900.0, "alg_bw": 74.56, "bus_bw": 111.85, "nwrong": 0.0}
    document = {
        "version": 1,
        "args": ["./build/all_reduce_perf", "-b", "64M", "-J", "out.json"],
        "env": ["NCCL_P2P_LEVEL=SYS", "SECRET_TOKEN=abc"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": 4,
            "maximum_bytes": 67108864,
            "graph": 0,
            "devices": [
                {
                    "rank": rank,
                    "group": 0,
                    "pid": 7,
                    "hostname": "host-a",
                    "device": rank,
                    "device_hex": f"[0000:{rank + 1:02x}:00]",
                    "device_info": "NVIDIA L40S",
                }
                for rank in range(4)
            ],
        },
        "results": [
            {
                "size": 67108864,
                "count": 16777216,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": block,
                "in_place": block,
            }
        ],
        "average_bus_bandwidth": {"bandwidth": 55.0, "okay": "unchecked"},
        "end_time": "now",
    }
    return json.dumps({**document, **changes})


@pytest.mark.parametrize("indent", [None, 2])
def test_the_json_report(indent: int | None) -> None:
    pieces = read(json.dumps(json.loads(report()), indent=indent))
    (collective,) = collectives(pieces)

    assert (collective.operation, collective.world_size, collective.verified) == ("all_reduce", 4, True)
    assert collective.points[0].busbw_bytes_per_second == pytest.approx(111.85e9, rel=1e-3)
    assert pieces[0].machine is not None
    assert pieces[0].machine.software.nccl_loaded is not None
    assert pieces[0].machine.software.nccl_loaded.version == "2.28.9"
    assert [gpu.pci_bus_id for gpu in pieces[0].machine.gpus][:2] == ["00000000:01:00.0", "00000000:02:00.0"]


def test_only_nccl_settings_are_taken_from_the_environment_in_a_report() -> None:
    pieces = read(report())

    assert observed(pieces, "nccl.environment") == [{"name": "NCCL_P2P_LEVEL", "value": "SYS"}]
    assert "abc" not in repr(pieces)


@pytest.mark.parametrize(
    "changes", [{"results": [1, None, {"size": "x"}, {"size": 8, "out_of_place": {"time": -1}}]}, {"config": 3}, {"args": None, "env": [5]}]
)
def test_a_report_of_nonsense_is_read_without_a_crash(changes: dict[str, Any]) -> None:
    assert len(read(report(**changes))) == 1


def test_a_sentence_about_the_program_is_left_to_those_who_read_prose() -> None:
    found, _ = read_bytes("x", b"# all_reduce_perf hangs with 2 GPUs; NCCL_P2P_DISABLE=1 -> ok\n")
    assert {piece.format for piece in found} >= {"notes in prose"} and "nccl-tests" not in {piece.format for piece in found}
