"""Documents that the types allow and that no machine can be."""

from dataclasses import replace

import msgspec
import pytest

from boxes import box, run
from wiretax.errors import BadDocument
from wiretax.store.codec import decode_machine, decode_run, encode
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
