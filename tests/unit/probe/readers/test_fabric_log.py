"""The fabric manager's log."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.probe.readers.fabric_log import read
from wiretax.probe.readers.piece import Piece


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_a_bridge_without_switch_has_nothing_to_do() -> None:
    piece = read(case("C53_fm_neg.txt"))[0]
    assert [entry["event"] for entry in values(piece, "fabric.manager")] == ["starting", "nothing_to_do", "failed"]
    assert values(piece, "fabric.nvswitch") == [{"present": False}]
    assert piece.machine is not None
    assert piece.machine.hostname == "host-a"


@pytest.mark.parametrize(
    ("content", "events"),
    [
        (
            (
                "detected version mismatch: fabric manager NVIDIA GPU driver interface version 535.54.03 don't match "
                "with driver version 550.54.15."
            ),
            ["version_mismatch"],
        ),
        ("* nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded\n     Active: inactive (dead)", ["inactive"]),
        ("nvidia-fabricmanager.service - NVIDIA fabric manager service\n   Active: active (running) since Mon", ["running"]),
        ("nvidia-fabricmanager.service\n   Active: failed (Result: exit-code)", ["failed"]),
        ("[INFO] Fabric Manager: Successfully configured all the available GPUs and NVSwitches to route NVLink traffic.", ["configured"]),
    ],
)
def test_the_fabric_manager_in_other_words(content: str, events: list[str]) -> None:
    assert [entry["event"] for entry in values(read(text(content))[0], "fabric.manager")] == events


@pytest.mark.parametrize("content", ["", "Active: failed", "docker.service\n  Active: active (running)", "NVSwitch topology"])
def test_other_services_are_left_alone(content: str) -> None:
    assert read(text(content)) == ()
