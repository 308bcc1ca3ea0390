"""Building blocks of the readers: reasons for gaps, counted facts, sizes and addresses."""

from __future__ import annotations

import pytest

from wiretax.model.machine import Gpu, GpuPair
from wiretax.model.reading import unexplained
from wiretax.probe.readers.pasted import Notes, machine, num_bytes, number, pci_bus_id, pcie_link, said
from wiretax.probe.readers.streams import Line


def test_every_gap_of_a_machine_has_a_reason_and_better_ones_are_kept() -> None:
    found = machine("some tool", gpus=[Gpu(index=0, missing={"name": "it was cut off"})], pairs=[GpuPair(source_gpu=0, target_gpu=1)])
    assert list(unexplained(found)) == []
    assert found.gpus[0].missing["name"] == "it was cut off"
    assert found.gpus[0].pcie.missing["generation"] == "not in some tool"
    assert (found.origin, found.origin_note) == ("pasted", None)


def test_a_fact_that_comes_again_is_counted_at_its_first_line_with_its_text() -> None:
    notes = Notes("a.txt", [Line(1, "  first  "), Line(2, "second")])
    for line in (2, 1, 2):
        notes.add(line, "kind", value=line)
    assert [(entry.line, entry.values) for entry in notes.observations()] == [
        (2, {"value": 2, "count": 2, "text": "second"}),
        (1, {"value": 1, "text": "first"}),
    ]


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("143771 MiB", "", 143771 * 2**20),
        ("64M", "", 64 * 2**20),
        ("65536", "KiB", 65536 * 1024),
        ("1GB", "", 10**9),
        ("1.5G", "", 3 * 2**29),
        ("N/A", "", None),
        ("5 apples", "", None),
        ("1,024 MiB", "", 2**30),
        ("1,5 GiB", "", None),
    ],
)
def test_sizes(text: str, unit: str, expected: int | None) -> None:
    assert num_bytes(text, unit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e1:00.0", "00000000:E1:00.0"),
        ("0000:e1:00", "00000000:E1:00.0"),
        ("PCI:0000:E1:00", "00000000:E1:00.0"),
        ("00010000:07:00.0", "00010000:07:00.0"),
    ],
)
def test_addresses_in_the_long_form(text: str, expected: str) -> None:
    assert pci_bus_id(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("N/A", None), ("[Not Supported]", None), ("ERR!", None), (" 5 ", "5"), ("", None), (None, None)]
)
def test_what_the_tools_say_when_they_say_nothing(text: str | None, expected: str | None) -> None:
    assert said(text) == expected


def test_numbers_and_links() -> None:
    assert (number("119.52 W"), number("1,234"), number("none")) == (119.52, 1234.0, None)
    link = pcie_link("4", "N/A", "16x", "x16")
    assert (link.generation, link.max_generation, link.width, link.max_width) == (4, None, 16, 16)
