"""Where predictions take profiles and wires from, and what they say of files that hold none."""

from dataclasses import replace
from pathlib import Path

import pytest

import profiles as made_up
from wiretax.errors import BadDocument, BadInput, UsageError
from wiretax.jobs.inputs import load_profiles, nearest_profile, typed_wire, wire_of, wire_of_tables, wires_of_run
from wiretax.model.measurement import Measurements
from wiretax.model.run import Run, Tool
from wiretax.model.training import Training
from wiretax.store.codec import encode

TABLES = Path(__file__).parents[2] / "data" / "h200x2"


def run_with(*collectives, profiles=()):
    return Run(
        run_id="r1",
        created_at="2026-11-30T00:00:00+00:00",
        tool=Tool(version="0"),
        measurements=Measurements(collectives=collectives),
        training=Training(profiles=tuple(profiles)),
    )


def curve(wire="default", world_size=2, **changes):
    return replace(made_up.sweep("all_reduce", world_size, [(2**20, 1e-3), (2**24, 1e-2)], wire=wire), **changes)


def test_profiles_come_from_a_file_of_their_own_and_from_a_run(tmp_path):
    one = made_up.profile()
    (tmp_path / "alone.json").write_bytes(encode(one))
    (tmp_path / "run.json").write_bytes(encode(run_with(profiles=[one, made_up.profile(batch_size=16)])))

    assert [each.workload.batch_size for each in load_profiles(str(tmp_path / "alone.json"))] == [8]
    assert [each.workload.batch_size for each in load_profiles(str(tmp_path / "run.json"))] == [8, 16]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("{}", BadDocument, "not a profile"),
        ("[1]", BadDocument, "is a JSON object"),
        ("{", BadDocument, "not valid JSON"),
        ('{"workload": 1, "parameters": [], "bare": {}}', BadDocument, "$.workload"),
        (encode(run_with()).decode(), BadDocument, "profiled nothing"),
    ],
)
def test_a_file_without_a_profile_says_what_it_lacks(tmp_path, text, kind, words):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(kind) as error:
        load_profiles(str(path))
    assert words in str(error.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(BadInput, match=r"nowhere\.json"):
        load_profiles("nowhere.json")


def test_the_profile_nearest_to_the_batch_is_taken_by_ratio():
    found = [made_up.profile(batch_size=size) for size in (2, 16)]
    assert nearest_profile(found, "made up", None).workload.batch_size == 2
    assert nearest_profile(found, "made up", 5).workload.batch_size == 2
    assert nearest_profile(found, "made up", 6).workload.batch_size == 16
    assert nearest_profile(found, "made up", 64).workload.batch_size == 16


def test_a_run_gives_the_wire_that_a_job_gets_unless_others_are_asked_for():
    run = run_with(curve(), curve("p2p_off"), curve("gloo", world_size=1))
    assert [one.wire.name for one in wires_of_run(run, None)] == ["default"]
    assert [one.wire.name for one in wires_of_run(run, ["p2p_off", "default"])] == ["p2p_off", "default"]
    assert [one.wire.name for one in wires_of_run(run_with(curve("gloo")), None)] == ["gloo"]


@pytest.mark.parametrize(
    ("run", "names", "words"),
    [
        (run_with(), None, "measured no wire between two ranks"),
        (run_with(curve(world_size=1)), None, "measured no wire between two ranks"),
        (run_with(curve("socket"), curve("gloo")), None, "Say which with --wires"),
        (run_with(curve()), ["socket"], "Measured wires: default"),
    ],
)
def test_a_wire_that_was_not_measured_is_refused_with_those_that_were(run, names, words):
    with pytest.raises(UsageError) as error:
        wires_of_run(run, names)
    assert words in str(error.value)


def test_a_wire_that_took_another_transport_than_asked_for_is_found_by_the_name_asked_for():
    measured = Measurements(collectives=(curve("socket", wire_requested="p2p_off"),))
    assert wire_of(measured, "p2p_off").name == "p2p_off"
    assert wire_of(measured, "p2p_off").curves == wire_of(measured, "socket").curves


def test_tables_of_several_operations_make_one_wire():
    found, worries = wire_of_tables(
        [str(TABLES / f"nccl_tests_{name}.txt") for name in ("all_reduce_default", "all_gather", "reduce_scatter")]
    )
    assert worries == []
    assert {(one.operation, one.world_size) for one in found.wire.curves} == {("all_reduce", 2), ("all_gather", 2), ("reduce_scatter", 2)}
    assert found.wire.curve("all_reduce", 2).busbw(2**30) == pytest.approx(332e9, rel=0.02)
    assert "nccl_tests_all_gather.txt" in found.source


def test_two_tables_of_one_operation_are_two_wires_and_refused():
    with pytest.raises(UsageError, match="both hold all_reduce on 2 GPUs"):
        wire_of_tables([str(TABLES / f"nccl_tests_all_reduce_{name}.txt") for name in ("default", "shm")])


def test_a_damaged_row_of_a_table_is_told_and_the_others_are_used(tmp_path):
    lines = (TABLES / "nccl_tests_all_reduce_default.txt").read_text().splitlines()
    row = next(index for index, line in enumerate(lines) if line.split()[:1] == ["1048576"])
    lines[row] = lines[row][:60]
    path = tmp_path / "cut.txt"
    path.write_text("\n".join(lines))
    found, worries = wire_of_tables([str(path)])
    assert len(worries) == 1 and f"line {row + 1}" in worries[0]
    assert found.wire.curve("all_reduce", 2).busbw(2**30) == pytest.approx(332e9, rel=0.02)


@pytest.mark.parametrize(("text", "words"), [("hello", "holds no table"), ("", "is empty"), (None, "")])
def test_a_file_without_a_table_is_refused(tmp_path, text, words):
    path = tmp_path / "x.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput) as error:
        wire_of_tables([str(path)])
    assert words in str(error.value) and "x.txt" in str(error.value)


def test_a_typed_wire_is_the_same_at_every_size():
    found = typed_wire(22e9, 0.0)
    assert found.wire.name == "typed 22.0 GB/s"
    assert found.wire.curve("all_reduce", 2).busbw(200e6) == pytest.approx(22e9, rel=1e-6)
