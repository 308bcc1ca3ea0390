"""The benchmark script that sets our collectives beside nccl-tests."""

import json

import pytest

from loading import ROOT, load

DATA = ROOT / "tests" / "data" / "nccl_tests"
FAST = DATA / "nccl_tests_all_reduce_default.txt"
SOCKET = DATA / "nccl_tests_all_reduce_net.txt"

against = load("benchmarks/against_nccl_tests.py")


def run_document(path, figures, *, scale=lambda size: 1.0, wire="default", slower_mode=False):
    """A run that measured nccl-tests' own medians, each time ``scale`` times as long."""
    points = []
    for size, found in figures.items():
        times = sorted(seconds for seconds, _ in found)
        seconds = (times[0] + times[1]) / 2 * scale(size)
        points.append({"num_bytes": size, "seconds": seconds, "busbw_bytes_per_second": size / seconds})
    series = {"backend": "nccl", "operation": "all_reduce", "wire": wire, "world_size": 2, "mode": "graph", "points": points}
    collectives = [series, {**series, "backend": "gloo", "points": []}]
    if slower_mode:
        slow = [
            {**point, "seconds": 3 * point["seconds"], "busbw_bytes_per_second": point["busbw_bytes_per_second"] / 3} for point in points
        ]
        collectives.append({**series, "mode": "eager", "points": slow})
    path.write_text(json.dumps({"measurements": {"collectives": collectives}}))
    return str(path)


def figures(path=FAST):
    return against.read_nccl_tests(path.read_text(), path.name)[2]


def test_the_output_of_nccl_tests_is_read_with_both_placements():
    operation, ranks, found = against.read_nccl_tests(FAST.read_text(), "x")
    assert (operation, ranks) == ("all_reduce", 2)
    assert len(found) == 28
    assert found[2**30] == [(pytest.approx(3234.92e-6), 331.92e9), (pytest.approx(3270.15e-6), 328.35e9)]


def test_equal_figures_agree(tmp_path, capsys):
    assert against.main([f"default={FAST}", run_document(tmp_path / "run.json", figures())]) == 0
    assert "median busbw ratio from 16 MiB up: 1.000" in capsys.readouterr().out


def test_the_better_of_both_modes_counts(tmp_path):
    assert against.main([f"default={FAST}", run_document(tmp_path / "run.json", figures(), slower_mode=True)]) == 0


@pytest.mark.parametrize(
    ("scale", "complaint"),
    [
        (lambda size: 1.05 if size >= 2**24 else 1.0, "median busbw ratio from 16 MiB up is 0.952, below 0.97"),
        (lambda size: 1.1 if size == 2**26 else 1.0, "lowest busbw ratio from 16 MiB up is 0.909, below 0.94"),
        (lambda size: 1.2 if size == 2**21 else 1.0, "lowest busbw ratio from 1 to 8 MiB is 0.833, below 0.9"),
        (lambda size: 1.05 if size <= 2**16 else 1.0, "median latency ratio up to 64 KiB is 1.050, above 1.0"),
    ],
)
def test_each_acceptance_number_is_held_to(tmp_path, capsys, scale, complaint):
    assert against.main([f"default={FAST}", run_document(tmp_path / "run.json", figures(), scale=scale)]) == 1
    assert complaint in capsys.readouterr().out


def test_sockets_must_lie_inside_their_own_range_ten_percent_wider(tmp_path, capsys):
    near = run_document(tmp_path / "near.json", figures(SOCKET), wire="socket", scale=lambda size: 1.05)
    far = run_document(tmp_path / "far.json", figures(SOCKET), wire="socket", scale=lambda size: 1.3)
    assert against.main([f"socket={SOCKET}", near]) == 0
    assert against.main([f"socket={SOCKET}", far]) == 1
    assert "outside" in capsys.readouterr().out


def test_the_median_over_runs_counts(tmp_path):
    runs = [
        run_document(tmp_path / f"{number}.json", figures(), scale=lambda size, by=by: by) for number, by in enumerate((0.99, 1.0, 9.0))
    ]
    assert against.main([f"default={FAST}", *runs]) == 0


def test_a_run_without_that_wire_does_not_agree(tmp_path, capsys):
    assert against.main([f"default={FAST}", run_document(tmp_path / "run.json", figures(), wire="p2p_off")]) == 1
    assert "nothing to compare with" in capsys.readouterr().out


def test_one_document_on_request(tmp_path, capsys):
    against.main(["--json", f"default={FAST}", run_document(tmp_path / "run.json", figures())])
    (document,) = json.loads(capsys.readouterr().out)
    assert document["rows"][-1]["busbw_ratio"] == pytest.approx(1.0)
    assert document["failures"] == []


@pytest.mark.parametrize("content", ["not json", "[]", '{"measurements": {}}'])
def test_a_file_that_is_no_run_is_named(tmp_path, capsys, content):
    (tmp_path / "run.json").write_text(content)
    assert against.main([f"default={FAST}", str(tmp_path / "run.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_a_file_that_is_no_output_of_nccl_tests_is_named(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("hello")
    assert against.main([f"default={tmp_path / 'x.txt'}", run_document(tmp_path / "run.json", figures())]) == 2
    assert "x.txt" in capsys.readouterr().err
