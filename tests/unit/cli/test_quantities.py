from dataclasses import dataclass
from typing import Literal

import click
import pytest

from wiretax.cli.quantities import Counts, Parameters, Rate, ShortTime, Size, Whole, levers
from wiretax.errors import UsageError


def converted(kind, text):
    return kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("200MB", 200e6),
        ("200 MB", 200e6),
        ("1.5GiB", 1.5 * 2**30),
        ("64KiB", 65536),
        ("3kB", 3000),
        ("3KB", 3000),
        ("2TB", 2e12),
        ("200000000", 2e8),
        ("2e8", 2e8),
        ("8B", 8),
    ],
)
def test_sizes_are_decimal_with_mb_and_binary_with_mib(text, num_bytes):
    assert converted(Size(), text) == num_bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("200Mb", "counts bits; write 25.0MB for those, or 200MB for bytes"),
        ("200Mbit", "counts bits"),
        ("200mb", "write 200MB for bytes or 200Mbit for bits"),
        ("200M", "can be MB (decimal) or MiB (binary)"),
        ("200 parsecs", "unknown unit 'parsecs'"),
        ("-3MB", "is no size"),
        ("0MB", "must be more than nothing"),
        ("1e999B", "more than there can be"),
        ("9" * 400, "more than there can be"),
        ("1e7TB", "more than there can be"),
        ("1e-320B", "less than there can be"),
        ("nan", "is no size"),
        ("inf", "is no size"),
        ("1,5GB", "is no size"),
        ("", "is no size"),
        ("MB", "is no size"),
    ],
)
def test_a_size_that_can_be_read_in_two_ways_or_none_is_refused_with_what_to_write(text, words):
    with pytest.raises(click.BadParameter) as error:
        converted(Size(), text)
    assert words in error.value.message


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("22GB/s", 22e9),
        ("22 GB/s", 22e9),
        ("22GBps", 22e9),
        ("22 GB/sec", 22e9),
        ("850MB/s", 850e6),
        ("20GiB/s", 20 * 2**30),
        ("176Gbit/s", 22e9),
        ("176Gb/s", 22e9),
        ("176Gbps", 22e9),
        ("100Mbit/s", 12.5e6),
    ],
)
def test_rates_know_bits_from_bytes(text, rate):
    assert converted(Rate(), text) == rate


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("22", "has no unit that is a rate"),
        ("22GB", "is an amount, not a rate; write 22GB/s"),
        ("22gb/s", "write 22GB/s for bytes or 22Gbit/s for bits"),
        ("22G/s", "can be GB (decimal) or GiB (binary)"),
        ("32GT/s", "counts transfers"),
        ("0GB/s", "more than nothing"),
        ("-1GB/s", "has no unit that is a rate"),
        ("22GB/h", "has no unit that is a rate"),
    ],
)
def test_a_rate_without_its_unit_is_refused_with_what_to_write(text, words):
    with pytest.raises(click.BadParameter) as error:
        converted(Rate(), text)
    assert words in error.value.message


@pytest.mark.parametrize(("text", "count"), [("7e9", 7e9), ("1.7B", 1.7e9), ("1.7b", 1.7e9), ("124M", 124e6), ("1000", 1000)])
def test_parameters_are_counted_as_people_write_them(text, count):
    assert converted(Parameters(), text) == pytest.approx(count)


@pytest.mark.parametrize("text", ["7GB", "many", "-7e9", "0"])
def test_what_is_no_count_of_parameters_is_refused(text):
    with pytest.raises(click.BadParameter):
        converted(Parameters(), text)


@pytest.mark.parametrize(("text", "seconds"), [("90ms", 0.09), ("0.09s", 0.09), ("15us", 15e-6), ("15µs", 15e-6)])
def test_short_times_have_their_unit(text, seconds):
    assert converted(ShortTime(), text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["90", "1m", "0ms", "soon"])
def test_a_time_without_its_unit_is_refused(text):
    with pytest.raises(click.BadParameter):
        converted(ShortTime(), text)


def test_lists_of_counts_keep_their_order_and_drop_repeats():
    assert converted(Counts("GPUs"), "8, 2,4,2") == (8, 2, 4)


@pytest.mark.parametrize("text", ["0", "2,-4", "2;4", "two", "1.5", "", "2,,4", "99999999", "9" * 5000, "\uff12"])
def test_what_is_no_list_of_counts_is_refused(text):
    with pytest.raises(click.BadParameter, match="no list of GPUs"):
        converted(Counts("GPUs"), text)


@dataclass(frozen=True)
class Some:
    bucket_cap_mb: float | None = None
    prefetch: int = 0
    static_graph: bool = False
    hook: Literal["a", "b"] | None = None


def test_levers_are_read_by_their_kind():
    assert levers(["bucket_cap_mb=50", "static-graph=true", "hook=b"], Some, prefetch=2) == Some(50.0, 2, True, "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bucket_cap_mb", "is no lever"),
        ("bucket_cap=50", "Did you mean bucket_cap_mb"),
        ("zzz=1", "There are bucket_cap_mb, prefetch"),
        ("prefetch=two", "prefetch cannot be 'two'"),
        ("hook=c", "hook cannot be 'c'"),
    ],
)
def test_a_lever_that_is_not_there_or_cannot_be_so_is_refused(text, words):
    with pytest.raises(UsageError) as error:
        levers([text], Some)
    assert words in str(error.value)


def test_a_lever_set_twice_is_refused():
    with pytest.raises(UsageError, match="set twice"):
        levers(["prefetch=1"], Some, prefetch=2)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Rate(), "1e999GB/s"),
        (Rate(), "1e-300GB/s"),
        (Rate(), "9" * 400 + "bit/s"),
        (Parameters(), "1e300"),
        (Parameters(), "1e8T"),
        (Parameters(), "1e-5"),
        (ShortTime(), "1e308s"),
        (ShortTime(), "1e-320s"),
        (Whole(1, 100), "101"),
        (Whole(1, 100), "0"),
        (Whole(1, 100), "9" * 5000),
        (Whole(1, 100), "1e1"),
        (Whole(1, 100), "-1"),
        (Whole(1, 100), True),
        (Whole(1, 100), 1.5),
    ],
)
def test_figures_that_nothing_has_are_refused_in_a_short_sentence(kind, text):
    with pytest.raises(click.BadParameter) as error:
        converted(kind, text)
    assert len(error.value.message) < 120


@pytest.mark.parametrize("value", ["7", " 7 ", 7])
def test_a_whole_number_is_taken_as_text_or_from_a_file(value):
    assert converted(Whole(1, 100), value) == 7
