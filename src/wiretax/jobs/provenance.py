"""Leads findings of pasted texts back to the lines they come from: file, line number, and the line itself.

A check speaks of the machine ("0-1: read and write status CNS"); a reader of the answer wants to see the line. What a piece was read
from is known by its line numbers, so the text is looked up again, only where a finding rests on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import BinaryIO

from wiretax.errors import BadInput
from wiretax.model.finding import Evidence, Finding
from wiretax.model.machine import Machine
from wiretax.model.observation import Observation
from wiretax.probe.readers.join import Group
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.unpack import chunks
from wiretax.show.plain import clean

MOST_LINES = 4
"""Lines shown for one statement about the machine."""

LONGEST = 240

KEPT_OF_STDIN = 8 * 2**20
"""Standard input cannot be read twice; this much of its start is kept for looking lines up."""

_MOST_LOOKED_UP = 4000
_CODE = re.compile(r"\b(NV\d+|PIX|PXB|PHB|NODE|SYS|CNS|GNS|TNS|DR|NS|OK|XGMI)\b")


class Kept:
    """Standard input that keeps its start while it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.start = bytearray()

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as the stream gives them."""
        data = self._stream.read(size)
        if len(self.start) < KEPT_OF_STDIN:
            self.start += data[: KEPT_OF_STDIN - len(self.start)]
        return data


class Lines:
    """Lines of the inputs by number; a file is read again up to the last line asked for, and only once for each question.

    Args:
        stdin: the kept standard input, where ``-`` was among the names.
    """

    def __init__(self, stdin: Kept | None = None) -> None:
        self._stdin = stdin
        self._known: dict[tuple[str, int], str] = {}

    def get(self, source: str, numbers: Iterable[int]) -> dict[int, str]:
        """The text of these lines; those that cannot be read again are left out."""
        wanted = sorted(set(numbers))[:_MOST_LOOKED_UP]
        fresh = {number for number in wanted if (source, number) not in self._known}
        if fresh:
            self._read(source, fresh)
        return {number: self._known[source, number] for number in wanted if self._known.get((source, number))}

    def _read(self, source: str, wanted: set[int]) -> None:
        for number in wanted:
            self._known[source, number] = ""
        if source != "-" and not os.path.isfile(source):
            return  # A pipe is empty by now.
        if source == "-" and self._stdin is None:
            return
        last, number, rest = max(wanted), 0, b""
        try:
            for chunk in chunks(source, [], _Again(self._stdin.start) if self._stdin is not None else None):  # type: ignore[arg-type]
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    number += 1
                    if number in wanted:
                        self._known[source, number] = clean(line.decode("utf-8", "replace"), LONGEST)
                if number >= last:
                    return
                rest = rest[: 2**20]
        except BadInput:
            return
        if number + 1 in wanted:
            self._known[source, number + 1] = clean(rest.decode("utf-8", "replace"), LONGEST)


class _Again:
    """The kept start of standard input as a stream of its own."""

    def __init__(self, data: bytearray) -> None:
        self._data = bytes(data)
        self._at = 0

    def read(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


def traced(findings: Sequence[Finding], groups: Sequence[Group], lines: Lines) -> tuple[Finding, ...]:
    """The findings with the lines behind each statement, and every quoted line as it stands in its file.

    Args:
        findings: of all groups together.
        groups: what was read, piece by piece.
        lines: where to look lines up.
    """
    sources = {piece.source for group in groups for piece in group.pieces}
    quoted: dict[tuple[str, int], list[str]] = {}
    for group in groups:
        for observation in group.observations:
            if observation.values.get("text"):
                quoted.setdefault((observation.source, observation.line), []).append(str(observation.values["text"]))
    return tuple(replace(finding, evidence=_evidence(finding, groups, lines, sources, quoted)) for finding in findings)


def _evidence(
    finding: Finding, groups: Sequence[Group], lines: Lines, sources: set[str], quoted: dict[tuple[str, int], list[str]]
) -> tuple[Evidence, ...]:
    found: list[Evidence] = []
    for evidence in finding.evidence:
        if evidence.source in sources:
            found.append(_verbatim(evidence, lines, quoted))
            continue
        found.append(evidence)
        for group in groups:
            behind = _behind(finding.code, evidence, group, lines)
            if behind:
                found += [_verbatim(each, lines, quoted) for each in behind]
                break
    once: dict[tuple[str, int | None, str], Evidence] = {}
    for evidence in found:
        once.setdefault((evidence.source, evidence.line, "" if evidence.line is not None else evidence.text), evidence)
    return tuple(once.values())


def _verbatim(evidence: Evidence, lines: Lines, quoted: dict[tuple[str, int], list[str]]) -> Evidence:
    """A reader's summary of a line gives way to the line; log lines are quoted already."""
    if evidence.line is None or evidence.text.startswith(tuple(quoted.get((evidence.source, evidence.line), ()))):
        return evidence
    text = lines.get(evidence.source, [evidence.line]).get(evidence.line)
    return evidence if not text or text.strip() in evidence.text else replace(evidence, text=text.strip())


def _behind(code: str, evidence: Evidence, group: Group, lines: Lines) -> list[Evidence]:
    """The lines of a group on which a statement about its machine rests; nothing where it does not rest on this group."""
    subject = evidence.source.split(".")[0]
    if evidence.source == "machine.pairs":
        return _pair_lines(evidence.text, group, lines)
    if evidence.source == "machine.gpus":
        return _gpu_lines(code, evidence.text, group, lines)
    if evidence.source == "measurements.copies":
        return _copy_lines(evidence.text, group, lines)
    if evidence.source in ("machine.software", "machine.surroundings"):
        return _said(evidence.text, group)
    if evidence.source == "measurements.peer_truth":
        return [_quote(o) for o in group.observations if o.kind == "peer.copy" and o.values.get("wrong")][:MOST_LINES]
    if subject == "measurements":
        return _sweep_lines(group, lines)
    if evidence.source == "machine":
        return [_first(piece, lines) for piece in group.pieces if piece.machine is not None][:1]
    return []


def _pair_lines(text: str, group: Group, lines: Lines) -> list[Evidence]:
    """Rows of a matrix: those of the first GPU of each pair named, with one of the codes named."""
    pairs = [(int(a), int(b)) for a, b in re.findall(r"\b(\d{1,3})-(\d{1,3})\b", text)]
    codes = set(_CODE.findall(text))
    about_p2p = any(word in text for word in ("status", "peer access", "CanAccessPeer"))
    found: list[Evidence] = []
    for piece in group.pieces:
        if piece.machine is None or not any(_states(piece.machine, pair, about_p2p) for pair in pairs):
            continue
        rows = {a for a, _ in pairs}
        for number, line in lines.get(piece.source, piece.understood).items():
            match = re.match(r"[\s|>(]*(?:\([^)]*\)\s*)?(?:GPU|Device=)\s?(\d{1,3})\b(?!.*\bGPU\d+\s+GPU)", line)
            named = re.search(r"(?:access|Access)[^\d]{0,24}\(?(\d{1,3})\s?,\s?(\d{1,3})", line)
            row = int(match[1]) if match else int(named[1]) if named else None
            if row in rows and (named or "Device=" in line or not codes or codes & set(_CODE.findall(line))):
                found.append(Evidence(source=piece.source, line=number, text=line.strip()))
            if len(found) >= MOST_LINES:
                return found
        if found:
            return found
    return found


def _states(machine: Machine, pair: tuple[int, int], about_p2p: bool) -> bool:
    for source, target in (pair, pair[::-1]):
        known = machine.pair(source, target)
        if known is not None and (known.p2p.read or known.p2p.write or known.peer_access is not None if about_p2p else known.path):
            return True
    return False


_KEYS: dict[str, tuple[str, ...]] = {
    "pcie-width-low": ("link width",),
    "pcie-generation-low": ("pcie generation", "pcie gen"),
    "pcie-idle-inconclusive": ("pcie generation", "pcie gen"),
    "fabric-not-ready": ("fabric",),
    "mig-no-p2p": ("mig mode",),
    "gpus-differ": ("product name",),
    "ecc-uncorrectable": ("uncorrectable",),
    "straggler-thermal": ("thermal slowdown",),
    "straggler-power": ("power cap", "power brake"),
}
"""Headings of ``nvidia-smi -q`` under which the value stands that a finding is about."""


def _gpu_lines(code: str, text: str, group: Group, lines: Lines) -> list[Evidence]:
    """The line that shows the property of one GPU, in whichever tool's output it stands."""
    match = re.search(r"GPU (\d{1,3})", text)
    machine = group.machine
    if match is None or machine is None:
        return []
    gpu = machine.gpu(int(match[1]))
    if gpu is None:
        return []
    for piece in group.pieces:
        places = [
            place
            for place, other in enumerate(piece.machine.gpus if piece.machine is not None else ())
            if other.index == gpu.index or (other.pci_bus_id is not None and other.pci_bus_id == gpu.pci_bus_id)
        ]
        if not places:
            continue
        text_of = lines.get(piece.source, piece.understood)
        chosen = (
            _in_block(code, text_of, places[0]) if piece.format.startswith("nvidia-smi -q") and "query" not in piece.format else None
        ) or next((number for number, line in text_of.items() if _is_row_of(gpu.index, line)), None)
        if chosen is not None:
            return [Evidence(source=piece.source, line=chosen, text=text_of[chosen].strip())]
    return []


def _in_block(code: str, text_of: dict[int, str], place: int) -> int | None:
    """Inside the block of one GPU of ``nvidia-smi -q``: the value under the heading that the finding is about."""
    heads = [number for number, line in text_of.items() if re.match(r"GPU [0-9A-Fa-f]{4,8}:", line)]
    if place >= len(heads):
        return None
    end = heads[place + 1] if place + 1 < len(heads) else max(text_of) + 1
    block = {number: line for number, line in text_of.items() if heads[place] <= number < end}
    under = False
    for number, line in block.items():
        name = line.partition(":")[0].strip().lower()
        if any(key in name for key in _KEYS.get(code, ())):
            if line.partition(":")[2].strip():
                return number
            under = True
        elif under and name in ("current", "state"):
            return number
    return heads[place]


def _is_row_of(index: int, line: str) -> bool:
    return re.match(rf"\s*(?:\|\s+{index}\s+\S|{index}\s*,|GPU\s?{index}(?::|\s)|#?\s*Rank\s+\d+.*\bdevice\s+{index}\b)", line) is not None


def _copy_lines(text: str, group: Group, lines: Lines) -> list[Evidence]:
    match = re.match(r"(\d{1,3})(?:-| to )(\d{1,3})", text)
    for piece in group.pieces:
        if not piece.measurements.copies:
            continue
        text_of = lines.get(piece.source, piece.understood)
        rows = [n for n, line in text_of.items() if match and re.match(rf"\s*{match[1]}\s+(?:N/A|\d)", line) and "." in line]
        heads = [n for n, line in text_of.items() if re.search(r"matrix|memcpy|bandwidth", line, re.IGNORECASE)]
        chosen = rows[:1] or heads[:1] or sorted(text_of)[:1]
        return [Evidence(source=piece.source, line=number, text=text_of[number].strip()) for number in chosen]
    return []


def _sweep_lines(group: Group, lines: Lines) -> list[Evidence]:
    """The row of each sweep that has its peak."""
    found = []
    for observation in group.observations:
        if observation.kind != "nccl_tests.table":
            continue
        numbers = {n for piece in group.pieces if piece.source == observation.source for n in piece.understood if n >= observation.line}
        rows = lines.get(observation.source, sorted(numbers)[:400])
        peak = observation.values.get("peak_bytes")
        row = next((n for n, line in rows.items() if re.match(rf"\D{{0,40}}\b{peak}\s+\d", line)), observation.line)
        found.append(Evidence(source=observation.source, line=row, text=rows.get(row, "").strip() or "a sweep of nccl-tests"))
    return found[:2]


def _said(text: str, group: Group) -> list[Evidence]:
    """Settings, versions and surroundings: the observation that names the same thing."""
    variable = re.search(r"\b(NCCL_[A-Z0-9_]+)=", text)
    for observation in group.observations:
        kind, values = observation.kind, observation.values
        if (
            (variable and kind in ("nccl.environment", "environment.variable") and values.get("name") == variable[1])
            or (kind == "nccl.version" and str(values.get("version")) in text and "NCCL" in text)
            or ("/dev/shm" in text and kind in ("host.dev_shm", "container.run", "container.setting", "container.inspect"))  # noqa: S108
            or ("iommu" in text.lower() and kind in ("iommu.state", "iommu.mention", "kernel.cmdline"))
            or ("ACS" in text and kind == "pci.acs")
            or ("driver" in text and kind in ("driver.module", "smi.versions"))
            or ("torch" in text and kind == "torch.build")
        ):
            return [_quote(observation)]
    return []


def _quote(observation: Observation) -> Evidence:
    text = observation.values.get("text") or observation.values.get("label") or observation.kind
    return Evidence(source=observation.source, line=observation.line or None, text=str(text))


def _first(piece: Piece, lines: Lines) -> Evidence:
    text = lines.get(piece.source, [piece.first_line]).get(piece.first_line, piece.format)
    return Evidence(source=piece.source, line=piece.first_line, text=text.strip() or piece.format)
