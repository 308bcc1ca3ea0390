"""Documents survive the way to bytes and back; everything else is one clear error with file and path."""

import dataclasses
import json
import math

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiretax.errors import BadDocument
from wiretax.model.machine import Gpu, Machine
from wiretax.model.measurement import Collective, Measurements, Point
from wiretax.model.reading import REASON_NOT_RECORDED, explain, not_finite, unexplained
from wiretax.model.run import SCHEMA_VERSION, Run, Tool
from wiretax.store import codec, schema


def make_run(**values):
    return Run(run_id="20261130T000000-abcdef", created_at="2026-11-30T00:00:00+00:00", tool=Tool(version="1"), **values)


def series(*points):
    return Collective(backend="gloo", operation="all_reduce", wire="gloo", world_size=2, mode="eager", points=points)


def test_a_run_comes_back_as_it_was_written():
    point = Point(num_bytes=8, seconds=1e-5, algbw_bytes_per_second=8e5, busbw_bytes_per_second=8e5, samples_seconds=(1e-5, 1.1e-5))
    run = explain(
        make_run(machine=Machine(gpus=(Gpu(index=0, name="NVIDIA H200"),)), measurements=Measurements(collectives=(series(point),)))
    )
    assert codec.decode_run(codec.encode(run), "x") == run
    assert codec.decode_run(codec.encode(run, indent=False), "x") == run


def test_a_null_nobody_explained_gets_a_reason_that_says_so_and_the_measurement_is_kept():
    raw = json.loads(codec.encode(make_run(machine=Machine(gpus=(Gpu(index=0),)))))
    assert raw["machine"]["gpus"][0]["name"] is None
    assert raw["machine"]["gpus"][0]["missing"]["name"] == REASON_NOT_RECORDED
    assert list(unexplained(codec.decode_run(json.dumps(raw).encode(), "x"))) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_with_its_path_in_both_directions(value):
    point = Point(num_bytes=8, seconds=value, algbw_bytes_per_second=1.0, busbw_bytes_per_second=1.0)
    run = make_run(measurements=Measurements(collectives=(series(point),)))
    assert list(not_finite(run)) == ["$.measurements.collectives[0].points[0].seconds"]
    with pytest.raises(BadDocument, match=r"\$\.measurements\.collectives\[0\]\.points\[0\]\.seconds"):
        codec.encode(run)
    text = codec.encode(make_run()).decode().replace('"command": ""', f'"command": {json.dumps(value)}')
    with pytest.raises(BadDocument, match=r"NaN|Infinity"):
        codec.decode_run(text.encode(), "x")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1"),
        (b"[]", r"\$ is \[\]"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"{}", r"\$\.schema_version is null"),
        (b'{"schema_version": 99}', "newer than"),
        (b'{"schema_version": true}', "whole number"),
        (b'{"schema_version": 0}', "whole number"),
        (b'{"schema_version": "1"}', "whole number"),
        (b'{"schema_version": 1}', "run_id"),
        (b'{"schema_version": 1, "run_id": 1e999}', "run_id"),
        (b"[" * 100000, "x"),
        (b'{"a":' * 100000, "x"),
    ],
)
def test_what_is_not_a_run_is_one_error_that_names_file_and_place(data, said):
    with pytest.raises(BadDocument, match=said) as caught:
        codec.decode_run(data, "x.json")
    assert "x.json" in str(caught.value)


def test_a_wrong_type_deep_inside_is_named_by_its_path():
    text = codec.encode(make_run(machine=Machine(gpus=(Gpu(index=0),)))).replace(b'"index": 0', b'"index": "zero"')
    with pytest.raises(BadDocument, match=r"\$\.machine\.gpus\[0\]\.index: Expected `int`, got `str`"):
        codec.decode_run(text, "x")


def test_a_guess_raised_to_an_alarm_by_hand_is_refused():
    text = codec.encode(make_run()).replace(
        b'"findings": []', b'"findings": [{"code": "straggler", "severity": "critical", "confidence": "possible", "title": "x"}]'
    )
    with pytest.raises(BadDocument, match="possible"):
        codec.decode_run(text, "x")


def test_keys_of_a_later_minor_version_are_ignored():
    raw = json.loads(codec.encode(make_run()))
    raw["invented_later"] = {"a": 1}
    assert codec.decode_run(json.dumps(raw).encode(), "x").run_id == "20261130T000000-abcdef"


def test_upgrades_are_applied_in_order(monkeypatch):
    def upgrade(raw):
        return {**raw, "schema_version": 1, "run_id": raw["id"]}

    raw = json.loads(codec.encode(make_run()))
    raw["id"] = raw.pop("run_id")
    raw["schema_version"] = 1
    monkeypatch.setattr(codec, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(codec.UPGRADES, 1, upgrade)
    assert codec.decode_run(json.dumps(raw).encode(), "x").run_id == "20261130T000000-abcdef"


def test_a_machine_is_read_from_a_recording_and_from_a_whole_run():
    machine = explain(Machine(hostname="box", gpus=(Gpu(index=0),)))
    assert codec.decode_machine(codec.encode(machine), "m") == machine
    assert codec.decode_machine(codec.encode(make_run(machine=machine)), "r") == machine
    with pytest.raises(BadDocument, match="holds no machine"):
        codec.decode_machine(codec.encode(make_run()), "r")
    with pytest.raises(BadDocument, match="not a recorded machine"):
        codec.decode_machine(b'{"some": "json"}', "j")


def test_the_published_schema_is_the_generated_one_and_a_full_document_fits_it():
    assert schema.published() == schema.generate(), "run: python -m wiretax.store.schema"
    document = json.loads(codec.encode(make_run(machine=Machine(gpus=(Gpu(index=0),)))))
    jsonschema.Draft202012Validator(json.loads(schema.published())).validate(document)
    assert document["schema_version"] == SCHEMA_VERSION
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(schema.published())).validate({**document, "run_id": 5})


VALID = codec.encode(make_run(machine=Machine(gpus=(Gpu(index=0),)), measurements=Measurements(collectives=(series(),))))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.integers(0, len(VALID)))
def test_any_damage_is_an_error_of_ours_or_still_a_run(changes, length):
    data = bytearray(VALID)
    for position, value in changes:
        data[position] = value
    try:
        run = codec.decode_run(bytes(data[:length]), "damaged")
    except BadDocument as error:
        assert str(error).startswith("damaged")
    else:
        assert isinstance(run, Run)


def test_every_dataclass_of_the_document_with_optional_fields_can_explain_them():
    def walk(kind, seen):
        if not dataclasses.is_dataclass(kind) or kind in seen:
            return
        seen.add(kind)
        for field in msgspec.inspect.type_info(kind).fields:
            collect(field.type, seen)

    def collect(info, seen):
        if isinstance(info, msgspec.inspect.DataclassType):
            walk(info.cls, seen)
        for attribute in ("types", "item_types"):
            for inner in getattr(info, attribute, ()) or ():
                collect(inner, seen)
        for attribute in ("item_type", "value_type"):
            if getattr(info, attribute, None) is not None:
                collect(getattr(info, attribute), seen)

    seen = set()
    walk(Run, seen)
    assert Machine in seen and Point in seen
    for kind in seen:
        names = {field.name for field in dataclasses.fields(kind)}
        optional = {name for name, hint in kind.__annotations__.items() if "None" in str(hint) and name in names}
        unexplainable = optional - getattr(kind, "none_is_an_answer", frozenset())
        assert not unexplainable or "missing" in names, f"{kind.__name__}: {unexplainable} can be null without a reason"
