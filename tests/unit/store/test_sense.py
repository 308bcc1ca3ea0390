"""Documents that the types allow and that no machine can be."""

import json
import re
from dataclasses import replace

import msgspec
import pytest

import sample_runs
from boxes import box, run
from profiles import ddp_free
from profiles import profile as made_profile
from wiretax.cli.main import run as command_line
from wiretax.errors import BadDocument
from wiretax.model.profile import MemoryPoint
from wiretax.model.run import Training
from wiretax.store.codec import decode_machine, decode_profiles, decode_run, encode
from wiretax.store.sense import as_text


def changed(**values):
    raw = msgspec.to_builtins(box(2))
    for path, value in values.items():
        kind, number, name = path.split("__")
        raw[kind][int(number)][name] = value
    return msgspec.json.encode(raw)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed(gpus__1__index=0), r"m.json: \$\.gpus\[1\]\.index: 0 is there twice"),
        (changed(gpus__0__index=-5), r"\$\.gpus\[0\]\.index: -5 is less than 0"),
        (changed(gpus__0__memory_bytes=-1), r"\$\.gpus\[0\]\.memory_bytes: -1 is less than 0"),
        (changed(pairs__0__target_gpu=0), r"\$\.pairs\[0\]: both ends are GPU 0"),
        (changed(gpus__0__name="?").replace(b'"?"', rb'"\ud800"'), "half of a surrogate pair"),
        (b'{"gpus": [], "schema": ' + b"9" * 5000 + b"}", "thousands of digits"),
    ],
)
def test_nonsense_is_refused_with_its_place(data, words):
    with pytest.raises(BadDocument, match=words):
        decode_machine(data, "m.json")


def damaged(**values):
    own = made_profile(free_steps=[ddp_free()], memory=[MemoryPoint(strategy="none", batch_size=8, peak_bytes=10**9)], input_seconds=0.1)
    raw = msgspec.to_builtins(own)
    for path, value in values.items():
        *way, last = (int(part) if part.isdigit() else part for part in path.split("__"))
        target = raw
        for part in way:
            target = target[part]
        target[last] = value
    return msgspec.json.encode(raw)


def test_a_profile_as_taken_is_read_alone_and_in_a_run():
    (read,) = decode_profiles(damaged(), "p.json")
    (kept,) = decode_run(encode(replace(run(box(1)), training=Training(profiles=(read,)))), "r.json").training.profiles
    assert (kept.bare.step, kept.parameters[0].num_bytes) == (read.bare.step, read.parameters[0].num_bytes)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (damaged(bare__step__seconds=0), r"p.json: \$\.bare\.step\.seconds: a step that takes no time"),
        (damaged(bare__backward__elapsed__seconds=-1), r"\$\.bare\.backward\.elapsed\.seconds: -1.* is less than 0"),
        (damaged(bare__step__samples_seconds=[1.0, -2.0]), r"samples_seconds\[1\]: -2.0 is less than 0"),
        (damaged(parameters__0__gradient_bytes=-4), r"\$\.parameters\[0\]\.gradient_bytes: -4 is less than 0"),
        (damaged(parameters__0__segment=99), r"parameters\[0\]\.segment: 99, and there are 6"),
        (damaged(parameters=[]), r"gradient_ready\[0\]\.parameter: \d, and there are 0"),
        (damaged(gradient_ready__0__parameter=1, gradient_ready__1__parameter=1), "one parameter is there twice"),
        (damaged(workload__batch_size=0), r"workload\.batch_size: 0 is less than 1"),
        (damaged(memory__0__batch_size=0), r"memory\[0\]\.batch_size: 0 is less than 1"),
        (damaged(free_steps__0__world_size=0), r"free_steps\[0\]\.world_size: 0 is less than 1"),
        (damaged(free_steps__0__options={"bucket_cap_mb": "abc"}), r"options\.bucket_cap_mb: 'abc' is no number above 0"),
        (damaged(free_steps__0__options={"shard_group_size": "2.5"}), r"options\.shard_group_size: '2.5' is no number above 0"),
        (damaged(memory_bytes_per_second=-1.0), r"\$\.memory_bytes_per_second: -1.0 is less than 0"),
        (damaged(parameters__0__num_bytes=2**63), r"num_bytes is too large for a number"),
    ],
)
def test_a_profile_of_what_no_step_can_be_is_refused_with_the_place(data, words):
    with pytest.raises(BadDocument, match=words):
        decode_profiles(data, "p.json")


def test_a_whole_pair_of_surrogates_is_a_character():
    data = changed(gpus__0__name="?").replace(b'"?"', rb'"\ud83d\ude00"')
    assert decode_machine(data, "m.json").gpus[0].name == "\N{GRINNING FACE}"


def test_what_the_system_gave_in_bytes_that_are_no_text_is_written_with_marks_of_replacement():
    document = run(replace(box(2), hostname="caf\udce9"))
    assert decode_run(encode(document), "run").machine.hostname == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain \N{GREEK SMALL LETTER ALPHA}", "plain \N{GREEK SMALL LETTER ALPHA}"),
        ("\udcc3\udca9", "\N{LATIN SMALL LETTER E WITH ACUTE}"),  # both bytes of one character
        ("\ud800x", "\N{REPLACEMENT CHARACTER}x"),
        ({"\udcff": ["\udcff", 1, None]}, {"\N{REPLACEMENT CHARACTER}": ["\N{REPLACEMENT CHARACTER}", 1, None]}),
    ],
)
def test_as_text(value, text):
    assert as_text(value) == text


def numbers(value, path=()):
    """The paths of all numbers of plain data; of a list, of its first element."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from numbers(one, (*path, key))
    elif isinstance(value, list):
        yield from numbers(value[0], (*path, 0)) if value else ()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def with_number(value, path, number):
    if not path:
        return number
    changed = value.copy()
    changed[path[0]] = with_number(value[path[0]], path[1:], number)
    return changed


@pytest.mark.parametrize(("sample", "number"), [("h200_pair", 0), ("cpu_only", -1), ("cpu_only", 10**30), ("four_4090", 1e300)])
def test_whatever_number_a_run_holds_it_is_shown_or_refused_by_its_path(tmp_path, capfd, sample, number):
    whole = json.loads(encode(getattr(sample_runs, sample)()))
    file, base = tmp_path / "run.json", tmp_path / "base.json"
    base.write_text(json.dumps(whole))
    for path in numbers(whole):
        file.write_text(json.dumps(with_number(whole, path, number)))
        for command in (["runs", "show", file], ["compare", base, file]):
            code = command_line([str(part) for part in command])
            out, err = capfd.readouterr()
            assert code in (0, 2), (path, command[0], err)
            assert code == 0 or "run.json: $." in err or command[0] == "compare", (path, err)
            assert not re.search(r"\b(nan|inf)\b", out), (path, command[0])


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (("measurements", "collectives", 0, "points", 0, "num_bytes"), 0),
        (("measurements", "collectives", 0, "points", 0, "seconds"), -1e-6),
        (("measurements", "collectives", 0, "world_size"), 0),
        (("expectations", 0, "expected_bytes_per_second"), 0.0),
        (("forecasts", 0, "num_gpus"), 0),
        (("forecasts", 0, "step_seconds", "low"), 0.0),
    ],
)
def test_what_everybody_divides_by_is_more_than_nothing(path, number):
    whole = json.loads(encode(sample_runs.h200_pair()))
    with pytest.raises(BadDocument, match=re.escape(f"{path[-1]}: {number} is not more than 0")):
        decode_run(json.dumps(with_number(whole, path, number)).encode(), "r.json")
