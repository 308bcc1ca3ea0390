"""Reads ``nvidia-smi -q`` as text: whole, of one GPU, of one section (``-d``), or an excerpt that somebody grepped out of it.

The observations are those of :mod:`wiretax.probe.readers.smi_facts`.
"""

from __future__ import annotations

import re

from wiretax.probe.readers import smi_facts
from wiretax.probe.readers.pasted import BUS_ID
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.smi_facts import Block, Leaf, Log, key
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "nvidia-smi -q"
_GPU = re.compile(rf"\s*GPU\s{{1,4}}({BUS_ID})\s*$")
_TITLE = re.compile(r"={4,40}NVSMI LOG={4,40}")
_HEADING = re.compile(r"\s*[A-Za-z][\w ./()-]{1,60}\s*$")
_HEAD_LABELS = {"timestamp", "driver_version", "cuda_version", "cuda_umd_version", "kmd_version", "attached_gpus", "vgpu_driver_capability"}
# An excerpt without the line of its GPU is read only from headings that no other text has.
_EXCERPT = {"pcie_generation", "fabric", "clocks_event_reasons", "clocks_throttle_reasons", "gpu_link_info", "gpu_virtualization_mode"}
_KNOWN_SECTIONS = _EXCERPT | {"link_width", "remapped_rows", "utilization", "mig_mode", "bar1_memory_usage", "fb_memory_usage", "pci"}


def read(text: Text) -> tuple[Piece, ...]:
    """All outputs of a text, one piece each."""
    return tuple(
        smi_facts.piece_of(text.source, stream, log) for stream in streams(text) for log in _logs(stream) if log.blocks or log.head
    )


def _logs(stream: Stream) -> list[Log]:
    logs: list[Log] = []
    log: Log | None = None
    reader: _BlockReader | None = None
    for line in stream.lines:
        text = line.text
        if len(text) > 500:
            reader = None
            continue
        if _TITLE.search(text):
            log, reader = Log(FORMAT, lines={line.number}), None
            logs.append(log)
            continue
        gpu = _GPU.match(text) if "GPU" in text else None
        if gpu:
            if log is None or any(block.bus_id == gpu.group(1) for block in log.blocks):
                log = Log(FORMAT)
                logs.append(log)
            block = Block(gpu.group(1), line.number)
            log.blocks.append(block)
            log.lines.add(line.number)
            reader = _BlockReader(log, block, _indent(text))
            continue
        # grep -A sets its matches apart with two dashes.
        if reader is not None and (text.strip() in ("", "--") or reader.take(line)):
            continue
        if reader is not None and not reader.block.bus_id and _again(line, reader):
            reader = _BlockReader(reader.log, _new_block(reader.log, line), -1)
            reader.take(line)
            continue
        if log is not None and _head(log, line):
            continue
        if reader is None and key(text) in _EXCERPT and (_HEADING.match(text) is not None) and log is None:
            log = Log(f"{FORMAT} (an excerpt)")
            logs.append(log)
            reader = _BlockReader(log, _new_block(log, line), -1)
            reader.take(line)
        elif text.strip():
            reader = None
            if log is not None and not (log.blocks and log.blocks[-1].bus_id):
                log = log if not log.blocks else None
    return [log for log in logs if log.lines]


def _new_block(log: Log, line: Line) -> Block:
    block = Block("", line.number)
    log.blocks.append(block)
    return block


def _indent(text: str) -> int:
    expanded = text.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def _head(log: Log, line: Line) -> bool:
    """Takes one of the lines above the first GPU."""
    label, colon, value = line.text.partition(":")
    if not colon or key(label) not in _HEAD_LABELS:
        return not line.text.strip()
    name = {"kmd_version": "driver_version", "cuda_umd_version": "cuda_version"}.get(key(label), key(label))
    log.head.setdefault(name, value.strip())
    log.lines.add(line.number)
    return True


def _again(line: Line, reader: _BlockReader) -> bool:
    """Whether a heading of an excerpt comes back, which is the next GPU."""
    return key(line.text) in _EXCERPT and any(key(line.text) in leaf.headings for leaf in reader.block.leaves)


class _BlockReader:
    """Reads the lines of one GPU by their indentation, or by the last heading where a paste lost it."""

    def __init__(self, log: Log, block: Block, indent: int) -> None:
        self.log = log
        self.block = block
        self._indent = indent
        self._flat: bool | None = None
        self._headings: list[tuple[int, str]] = []

    def take(self, line: Line) -> bool:
        """Whether the line belongs to this GPU; it is kept then."""
        text = line.text.rstrip()
        indent = _indent(text)
        label, colon, value = text.partition(":")
        is_leaf = bool(colon) and 0 < len(label.strip()) <= 60
        if not is_leaf and not _HEADING.match(text):
            return False
        if self._flat is None:
            self._flat = indent <= self._indent
        excerpt = not self.block.bus_id
        name = key(label if is_leaf else text)
        if not self._flat and not excerpt and indent <= self._indent:
            return False
        if self._flat and name in _HEAD_LABELS:
            return False
        if excerpt:
            if (not is_leaf and name not in _KNOWN_SECTIONS) or self._repeats(name, is_leaf):
                return False
            if is_leaf and not self._headings:
                return False
        if self._flat:
            # Without indentation only the last heading, and which of the two ECC counts it is, can be known.
            if not is_leaf:
                keep = [heading for heading in self._headings if heading[1] in ("volatile", "aggregate", "ecc_errors")]
                ecc = name in ("single_bit", "double_bit")
                self._headings = ([*keep] if ecc or name in ("volatile", "aggregate") else []) + [(0, name)]
                if name in ("volatile", "aggregate"):
                    self._headings = [(0, "ecc_errors"), (0, name)]
        else:
            while self._headings and self._headings[-1][0] >= indent:
                self._headings.pop()
            if not is_leaf:
                self._headings.append((indent, name))
        if is_leaf:
            if name == "processes":
                self._headings = [heading for heading in self._headings if heading[1] != "processes"]
            headings = tuple(heading for _, heading in self._headings)
            self.block.leaves.append(Leaf(line.number, headings, name, value.strip()))
        self.log.lines.add(line.number)
        return True

    def _repeats(self, name: str, is_leaf: bool) -> bool:
        if not is_leaf:
            return name in _EXCERPT and any(name in leaf.headings for leaf in self.block.leaves)
        section = self._headings[-1][1] if self._headings else ""
        return any(leaf.label == name and leaf.section == section for leaf in self.block.leaves)
