"""What people write about their machine."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.model.machine import Software
from wiretax.model.reading import unexplained
from wiretax.probe.readers.machine_prose import read
from wiretax.probe.readers.piece import Piece


def software(piece: Piece) -> Software:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.software


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def outcomes(content: str) -> list[tuple[Any, Any, Any]]:
    return [(entry["subject"], entry["value"], entry["outcome"]) for piece in read(text(content)) for entry in values(piece, "outcome")]


def test_the_case_of_two_drivers() -> None:
    piece = read(case("C80_env.txt"))[0]
    found = [(entry["subject"], entry["value"], entry["outcome"]) for entry in values(piece, "outcome")]
    assert found == [("driver", "560", "hang"), ("driver", "570", "ok"), ("NCCL_P2P_DISABLE", "1", "ok")]
    assert values(piece, "symptom")[0]["what"] == "hang"
    assert values(piece, "symptom")[0]["with_p2p"] is True
    assert piece.machine is None


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("driver 545.29.06 hangs, but driver 535.129.03 works", [("driver", "545.29.06", "hang"), ("driver", "535.129.03", "ok")]),
        ("Downgrading the driver from 545 to 535 fixed it.", [("driver", "545", "fail"), ("driver", "535", "ok")]),
        ("NCCL 2.16.2 is slow; NCCL 2.14.3 is fine", [("nccl", "2.16.2", "slow"), ("nccl", "2.14.3", "ok")]),
        ("driver 570 does not hang", [("driver", "570", "ok")]),
        ("With NCCL_P2P_DISABLE=1 everything works", [("NCCL_P2P_DISABLE", "1", "ok")]),
        ("driver 560 | stuck in init", []),
        ("the driver is fine", []),
    ],
)
def test_outcomes_as_people_write_them(sentence: str, expected: list[tuple[str, str, str]]) -> None:
    assert outcomes(sentence) == expected


def test_one_full_version_is_the_machines_and_two_are_a_comparison() -> None:
    one = read(text("4x RTX 4090, driver 595.71.05, NCCL 2.28.9"))[0]
    assert software(one).driver == "595.71.05"
    assert values(one, "gpu.mention") == [{"count": 4, "name": "RTX 4090"}]
    assert {(entry["subject"], entry["version"]) for entry in values(one, "version.mention")} == {
        ("driver", "595.71.05"),
        ("nccl", "2.28.9"),
    }
    two = read(text("driver 545.29.06 hangs, but driver 535.129.03 works"))[0]
    assert two.machine is None


@pytest.mark.parametrize(
    ("sentence", "count", "name"),
    [
        ("8x A100-SXM4 in one box", 8, "A100-SXM4"),
        ("2 x RTX 3090 Ti on PCIe", 2, "RTX 3090 Ti"),
        ("4xH100 and a lot of patience", 4, "H100"),
        ("I rented 4\u00d7 RTX 4090s", 4, "RTX 4090"),
        ("8x MI300X over xGMI", 8, "MI300X"),
        ("2x NVIDIA RTX PRO 6000", 2, "NVIDIA RTX PRO 6000"),
    ],
)
def test_cards_that_are_counted(sentence: str, count: int, name: str) -> None:
    assert values(read(text(sentence))[0], "gpu.mention") == [{"count": count, "name": name}]


@pytest.mark.parametrize(
    ("sentence", "state"),
    [
        ("AMD-Vi enabled, translated", "translated"),
        ("IOMMU is off in the BIOS", "off"),
        ("booted with iommu=pt", "passthrough"),
        ("VT-d enabled", "on"),
    ],
)
def test_the_iommu_in_words(sentence: str, state: str) -> None:
    piece = read(text(sentence))[0]
    assert values(piece, "iommu.mention") == [{"state": state}]
    assert (piece.machine.surroundings.iommu if piece.machine else None) == ("translated" if state == "translated" else None)


def test_a_rented_box_names_its_cloud() -> None:
    assert values(read(text("Machine: 4x RTX 4090 on vast.ai"))[0], "cloud.mention") == [{"provider": "vast.ai"}]


@pytest.mark.parametrize(
    "content", ["", "nccl 22 GB/s, gloo 1.7 GB/s", "| NVIDIA-SMI 580.1   Driver Version: 580.1 |", "CUDA 0 is busy", "a driver of the bus"]
)
def test_numbers_that_are_no_versions(content: str) -> None:
    assert [entry for piece in read(text(content)) for entry in values(piece, "version.mention")] == []


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("5090 + 3090 Ti, tensor parallel", [{"first": "5090", "second": "3090 Ti"}]),
        ("RTX 4080 SUPER + RTX 3060 in one box", [{"first": "RTX 4080 SUPER", "second": "RTX 3060"}]),
        ("RTX 3090 + RTX 3090", []),
        ("1 + 2", []),
    ],
)
def test_cards_that_are_mixed(sentence: str, expected: list[dict[str, str]]) -> None:
    assert [entry for piece in read(text(sentence)) for entry in values(piece, "gpu.mix")] == expected


@pytest.mark.parametrize(
    ("sentence", "backend"),
    [
        ("Backend: gloo", "gloo"),
        ("distributed_backend=gloo", None),
        ("init with backend='nccl'", "nccl"),
        ("it uses the gloo backend", "gloo"),
        ("gloo is slow", None),
    ],
)
def test_the_backend_in_words(sentence: str, backend: str | None) -> None:
    found = [entry["backend"] for piece in read(text(sentence)) for entry in values(piece, "backend.mention")]
    assert found == ([backend] if backend else [])


def test_what_changed_nothing() -> None:
    assert outcomes("Setting NCCL_P2P_DISABLE=1 makes no difference.") == [("NCCL_P2P_DISABLE", "1", "no_change")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Training hangs unless NCCL_P2P_DISABLE=1 is set.", [("NCCL_P2P_DISABLE", "1", "ok")]),
        ("After disabling IOMMU in the BIOS the hang is gone.", [("iommu", "off", "ok")]),
        ("Disabling ACS makes no difference, it still hangs.", [("acs", "off", "no_change")]),
        ("NCCL hangs; with iommu=pt it works", [("iommu", "passthrough", "ok")]),
        ("# NCCL hang ; iommu=off -> ok", [("iommu", "off", "ok")]),
        ("Since upgrading torch from 2.6 to 2.7 it hangs.", [("torch", "2.6", "ok"), ("torch", "2.7", "hang")]),
        ("Driver 555.42 hangs; after upgrade to 560.35 it works.", [("driver", "555.42", "hang"), ("driver", "560.35", "ok")]),
        ("Upgrading the driver did not fix the hang.", []),
        ("Should I disable the IOMMU?", []),
    ],
)
def test_cures_and_moves_between_versions(content: str, expected: list[tuple[Any, Any, Any]]) -> None:
    assert outcomes(content) == expected


@pytest.mark.parametrize("content", ["loss becomes NaN with P2P", "copies between GPUs return zeros with peer access"])
def test_wrong_data_has_many_names(content: str) -> None:
    (symptom,) = [entry for piece in read(text(content)) for entry in values(piece, "symptom")]
    assert symptom["what"] == "wrong_data" and symptom["with_p2p"] is True


@pytest.mark.parametrize("provider", ["TensorDock", "SageMaker", "Colab", "RunPod", "vast.ai"])
def test_every_cloud_it_knows_is_heard(provider: str) -> None:
    (piece,) = read(text(f"I rented two cards on {provider} yesterday"))
    assert [entry.values["provider"] for entry in piece.observations if entry.kind == "cloud.mention"] == [provider]
