"""What a pasted text says of a machine, as model objects in which every gap has its reason."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from wiretax.model.machine import Gpu, GpuPair, Machine, PcieLink, Software, Surroundings
from wiretax.model.observation import Observation, Scalar
from wiretax.probe.readers.streams import Line

T = TypeVar("T")

_LONGEST_TEXT = 300

NOT_SAID = re.compile(
    r"\[?(?:n/?a|not (?:supported|available|applicable)|unknown(?: error)?|err!|unknown! error|insufficient permissions)\]?", re.IGNORECASE
)
"""Spellings with which NVIDIA's and AMD's tools say that they have no value."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,19})(?:\.\d{1,9})?"
"""No tool writes a comma for the point, and what is written so (``12,5``) is refused: it is not 125."""

NUMBERED_BY_PLACE = "GPUs are numbered by their place in the text, which does not show NVML indices"
NUMBERED_BY_ADDRESS = "GPUs are numbered in the order of their PCI addresses"
"""Notes on a machine whose GPU numbers are not NVML's; joining goes by addresses then."""

PCI_DEVICE = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}"
"""The address of a device without its function, as the driver's kernel messages write it."""
PCI_ADDRESS = rf"{PCI_DEVICE}\.[0-9A-Fa-f]"
"""A PCI address; the domain may be left out."""
BUS_ID = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
"""A PCI address with its domain, as ``nvidia-smi`` and ``amd-smi`` write it."""

_BYTE_UNITS = {
    "": 1, "b": 1, "bytes": 1, "byte": 1,
    "k": 2**10, "kib": 2**10, "m": 2**20, "mib": 2**20, "g": 2**30, "gib": 2**30, "t": 2**40, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip


def explained(value: T, reason: str) -> T:
    """A copy in which each ``None`` without a reason has this one, in every object inside as well."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        answers: frozenset[str] = getattr(value, "none_is_an_answer", frozenset())
        missing: dict[str, str] | None = dict(value.missing) if hasattr(value, "missing") else None
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if inner is None:
                if missing is not None and field.name not in answers:
                    missing.setdefault(field.name, reason)
            elif dataclasses.is_dataclass(inner) or (isinstance(inner, tuple) and inner):
                changes[field.name] = explained(inner, reason)
        if missing is not None:
            changes["missing"] = missing
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(explained(inner, reason) for inner in value)  # type: ignore[return-value]
    return value


def machine(
    tool: str,
    *,
    hostname: str | None = None,
    gpus: Iterable[Gpu] = (),
    pairs: Iterable[GpuPair] = (),
    software: Software | None = None,
    surroundings: Surroundings | None = None,
    driver_state: str | None = None,
    driver_detail: str | None = None,
    origin_note: str | None = None,
    missing: Mapping[str, str] | None = None,
) -> Machine:
    """A machine as one piece of pasted text shows it.

    Args:
        tool: the tool or text it was read from; each gap's reason names it.
        hostname: the host, where the text names it.
        gpus: the GPUs it lists.
        pairs: the ordered pairs it speaks of.
        software: versions it states.
        surroundings: what it says of container, limits and network.
        driver_state: a state of the driver that it proves.
        driver_detail: the words that prove it.
        origin_note: how the GPUs are numbered, where that is not NVML's way.
        missing: reasons that are better than "not in this text".
    """
    found = Machine(
        hostname=hostname,
        origin="pasted",
        origin_note=origin_note,
        gpus=tuple(gpus),
        pairs=tuple(pairs),
        software=software or Software(),
        surroundings=surroundings or Surroundings(),
        driver_state=driver_state,  # type: ignore[arg-type]
        driver_detail=driver_detail,
        missing=dict(missing or {}),
    )
    return explained(found, f"not in {tool}")


class Notes:
    """Collects the observations of one text, and joins repeats of one fact into one with a count and its first line.

    Args:
        source: the file.
        lines: the lines; an observation carries the ``text`` of its own, so that it can be shown as evidence.

    Attributes:
        num_added: facts so far, repeats included: whether a line said anything shows by whether it grew.
    """

    def __init__(self, source: str, lines: Iterable[Line] = ()) -> None:
        self._source = source
        self._lines = lines
        self._found: dict[tuple[str, tuple[tuple[str, Scalar], ...]], tuple[int, int]] = {}
        self.num_added = 0

    def add(self, line: int, kind: str, **values: Scalar) -> None:
        """Adds a fact; the same kind with the same values again only counts."""
        key = (kind, tuple(values.items()))
        first, count = self._found.get(key, (line, 0))
        self.num_added += 1
        self._found[key] = (first, count + 1)

    def observations(self) -> tuple[Observation, ...]:
        """All facts in order of first appearance; ``count`` is there where a fact came more than once."""
        wanted = {line for line, _ in self._found.values()}
        texts = {line.number: line.text.strip()[:_LONGEST_TEXT] for line in self._lines if line.number in wanted}
        found = []
        for (kind, values), (line, count) in self._found.items():
            entries: dict[str, Scalar] = dict(values)
            if count > 1:
                entries["count"] = count
            if texts.get(line):
                entries.setdefault("text", texts[line])
            found.append(Observation(source=self._source, line=line, kind=kind, values=entries))
        return tuple(found)


def said(value: str | None) -> str | None:
    """The value without blanks, or None where the tool says that it has none."""
    if value is None:
        return None
    value = value.strip()
    return None if not value or NOT_SAID.fullmatch(value) else value


def number(value: str | None) -> float | None:
    """The number at the start of ``"119.52 W"``, ``"16x"``, ``"100 %"`` or ``"1,234"``; None where there is none."""
    match = re.match(rf"\s*(-?{_NUMBER})(?![\d,])", said(value) or "")
    return float(match.group(1).replace(",", "")) if match else None


def whole(value: str | None) -> int | None:
    """Like :func:`number`, for values that are whole by nature (widths, counts, MHz)."""
    found = number(value)
    return None if found is None else int(found)


def positive(word: str) -> float | None:
    """A cell of a benchmark's table; None for zero, ``N/A`` and what no benchmark can print."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def num_bytes(value: str | None, default_unit: str = "") -> int | None:
    """Bytes of ``"143771 MiB"``, ``"64M"`` (df and ulimit mean binary units), ``"65536k"`` or a bare number in ``default_unit``."""
    match = re.fullmatch(rf"({_NUMBER})\s*([A-Za-z]*)", said(value) or "")
    if not match:
        return None
    scale = _BYTE_UNITS.get((match.group(2) or default_unit).lower())
    return None if scale is None else int(float(match.group(1).replace(",", "")) * scale)


def pci_bus_id(value: str) -> str:
    """A PCI address in NVML's long form (``00000000:E1:00.0``), from ``e1:00.0``, ``0000:e1:00`` or ``PCI:0000:E1:00``."""
    match = re.search(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-9A-Fa-f]))?$", value.strip())
    if not match:
        return value.strip()
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{(function or '0').upper()}"


def pcie_link(current_generation: str | None, max_generation: str | None, current_width: str | None, max_width: str | None) -> PcieLink:
    """A link from the four texts of a tool (``"4"``, ``"16x"``, ``"x16"``, ``"N/A"``). No link is wider than 32 lanes."""

    def digits(value: str | None) -> int | None:
        match = re.search(r"\d+", said(value) or "")
        return int(match.group()) if match and 1 <= int(match.group()) <= 32 else None

    return PcieLink(
        generation=digits(current_generation),
        max_generation=digits(max_generation),
        width=digits(current_width),
        max_width=digits(max_width),
    )
