"""Colours with a meaning: one a wire, one a step of speed. The CSS of the page defines the same names for light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SPEED_STEPS = (2e9, 6e9, 20e9, 60e9, 150e9, 400e9)
"""Bytes per second at which the colour of a link changes: sockets, shared or narrow PCIe, PCIe 3 and 4, PCIe 5, bridges, NVLink."""

SPEED_COLOURS = ("#b8371d", "#e2743a", "#f0b45b", "#a9c6a0", "#56a8a6", "#2a7fae", "#234f96")
"""From slow to fast; told apart by lightness too, so that the picture survives without colour."""

SPEED_WORDS = ("below 2", "2 to 6", "6 to 20", "20 to 60", "60 to 150", "150 to 400", "above 400")


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours one drawing uses, by role."""

    ink: str
    quiet: str
    line: str
    paper: str
    good: str
    bad: str
    wires: Mapping[str, str]
    spare: tuple[str, ...]
    """For wires of other names."""
    runs: tuple[str, ...]
    phases: tuple[str, ...]
    """Forward (and computing), backward, optimizer, other, waiting for the wire, slowed by it."""

    def wire(self, name: str, others: list[str]) -> str:
        """The colour of a wire; one of an unknown name takes the next spare one."""
        if name in self.wires:
            return self.wires[name]
        unknown = [other for other in others if other not in self.wires]
        return self.spare[unknown.index(name) % len(self.spare)]


WIRE_COLOURS = {
    "default": ("#0b6e8f", "#4cc2e6"),
    "clean": ("#2f7d3b", "#7bd389"),
    "p2p_forced": ("#5b54c9", "#a9a4ff"),
    "p2p_off": ("#b45f06", "#f2a65a"),
    "ethernet": ("#7a5230", "#c9a27e"),
    "socket": ("#b3264a", "#ff7a97"),
    "gloo": ("#6d4a9c", "#c39bf0"),
}
"""Light theme, dark theme."""


def _variables(names: Mapping[str, object]) -> dict[str, str]:
    return {name: f"var(--wire-{name.replace('_', '-')})" for name in names}


PAGE = Palette(
    ink="var(--ink)",
    quiet="var(--quiet)",
    line="var(--line)",
    paper="var(--card)",
    good="var(--good)",
    bad="var(--bad)",
    wires=_variables(WIRE_COLOURS),
    spare=("var(--spare-1)", "var(--spare-2)", "var(--spare-3)"),
    runs=("var(--run-1)", "var(--run-2)", "var(--run-3)", "var(--run-4)", "var(--run-5)", "var(--run-6)"),
    phases=("var(--phase-1)", "var(--phase-2)", "var(--phase-3)", "var(--phase-4)", "var(--tax)", "var(--tax-soft)"),
)
PAPER = Palette(
    ink="#1b1e24",
    quiet="#5d6470",
    line="#dfe1e5",
    paper="#ffffff",
    good="#1f7a4d",
    bad="#b3261e",
    wires={name: light for name, (light, _) in WIRE_COLOURS.items()},
    spare=("#00695c", "#8d6e00", "#455a64"),
    runs=("#0b6e8f", "#b45f06", "#6d4a9c", "#2f7d3b", "#b3264a", "#455a64"),
    phases=("#1f5f7a", "#4f93ad", "#9cc7d6", "#c9ced6", "#d9822b", "#f4d9b8"),
)


def speed_step(bytes_per_second: float) -> int:
    """Which step of :data:`SPEED_COLOURS` a rate belongs to."""
    return sum(bytes_per_second >= edge for edge in SPEED_STEPS)
