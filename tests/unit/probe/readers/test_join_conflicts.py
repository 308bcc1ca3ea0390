"""Which spellings name one card, and which conflicts weigh most."""

from __future__ import annotations

import pytest

from pasted_text import text
from wiretax.probe.readers import smi_csv, smi_list, smi_topology
from wiretax.probe.readers.join_conflicts import Conflict, conflict, is_complete, names_agree, same_machine
from wiretax.probe.readers.piece import Piece


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("NVIDIA GeForce RTX 3090", "RTX 3090", True),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090", True),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
        ("NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4080 SUPER", False),
        ("NVIDIA A100-SXM4-80GB", "A100", True),
        ("NVIDIA A10", "NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA A100-SXM...", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA GeForce ...", "NVIDIA GeForce RTX 4090", True),
        ("NVIDIA GeForce ...", "NVIDIA A40", True),
        ("Tesla V100-PCIE...", "Tesla T4", False),
        ("Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_spellings_of_a_card(one: str, other: str, agree: bool) -> None:
    assert names_agree(one, other) is agree
    assert names_agree(other, one) is agree


def cards(*rows: str, index: bool = True) -> Piece:
    head = "index, name, pci.bus_id" if index else "name, pci.bus_id"
    return smi_csv.read(text("\n".join([head, *rows])))[0]


def test_a_machine_conflict_outweighs_a_state() -> None:
    one = cards("0, NVIDIA A40, 00000000:01:00.0", "1, NVIDIA A40, 00000000:41:00.0")
    other = cards("0, NVIDIA A40, 00000000:01:00.0", "1, NVIDIA L40S, 00000000:41:00.0")
    assert conflict(one, other) == Conflict("machine", "GPU 1: it is NVIDIA A40 in one and NVIDIA L40S in the other")


def test_numbers_that_mean_other_things_are_compared_by_address() -> None:
    numbered = cards("0, NVIDIA A40, 00000000:01:00.0", "1, NVIDIA L40S, 00000000:41:00.0")
    by_place = cards("NVIDIA L40S, 00000000:41:00.0", index=False)
    assert conflict(numbered, by_place) is None
    elsewhere = cards("NVIDIA L40S, 00000000:C1:00.0", index=False)
    assert conflict(numbered, elsewhere) == Conflict("machine", "they list GPUs at different PCI addresses")


def test_two_addresses_tie_pieces_together_and_one_does_not() -> None:
    one, two = ["0, NVIDIA A40, 00000000:01:00.0"], ["0, NVIDIA A40, 00000000:01:00.0", "1, NVIDIA A40, 00000000:41:00.0"]
    assert same_machine(cards(*two), cards(*two))
    assert not same_machine(cards(*one), cards(*one))


def test_placeholder_identities_prove_nothing() -> None:
    redacted = smi_list.read(text("GPU 0: NVIDIA A40 (UUID: GPU-00000000-0000-0000-0000-000000000000)"))[0]
    real = smi_list.read(text("GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)"))[0]
    assert conflict(redacted, real) is None
    assert not same_machine(redacted, redacted)


def test_only_lists_of_all_gpus_are_complete() -> None:
    assert is_complete(smi_topology.read(text("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X "))[0])
    assert not is_complete(cards("NVIDIA A40, 00000000:01:00.0", index=False))
