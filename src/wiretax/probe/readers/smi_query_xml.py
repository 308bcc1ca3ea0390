"""Reads ``nvidia-smi -q -x``.

The XML is parsed with expat and no document type: entities cannot be declared, nothing is fetched, and a document that brings an
internal subset is refused. The observations are those of :mod:`wiretax.probe.readers.smi_facts`.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from wiretax.probe.readers import smi_facts
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.smi_facts import Block, Leaf, Log
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "nvidia-smi -q -x"
_MAX_DEPTH = 24
"""The driver nests six deep."""

# Headings and labels where the XML says another word than the text format.
_HEADINGS = {
    "pcie_gen": "pcie_generation",
    "link_widths": "link_width",
    "pci_gpu_link_info": "gpu_link_info",
    "process_info": "processes",
}
_LABELS = {
    "max_link_gen": "max",
    "current_link_gen": "current",
    "device_current_link_gen": "device_current",
    "max_device_link_gen": "device_max",
    "max_host_link_gen": "host_max",
    "max_link_width": "max",
    "current_link_width": "current",
    "current_mig": "current",
    "pending_mig": "pending",
    "uuid": "gpu_uuid",
    "replay_counter": "replays_since_reset",
    "gpu_util": "gpu",
    "memory_util": "memory",
    "gpu_temp": "gpu_current_temp",
    "instant_power_draw": "instantaneous_power_draw",
    "sm_clock": "sm",
    "mem_clock": "memory",
    "graphics_clock": "graphics",
    "remapped_row_corr": "correctable_error",
    "remapped_row_unc": "uncorrectable_error",
    "remapped_row_pending": "pending",
    "remapped_row_failure": "remapping_failure_occurred",
    "pid": "process_id",
    "process_name": "name",
    "used_memory": "used_gpu_memory",
    "pending_blacklist": "pending_page_blacklist",
}
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons?_(?:gpu_)?(\w+)")
_RETIRED = {"multiple_single_bit_retirement": "single_bit_ecc", "double_bit_retirement": "double_bit_ecc"}
_SKIPPED = {"supported_clocks", "accounted_processes"}


def read(text: Text) -> tuple[Piece, ...]:
    """All documents of a text, one piece each."""
    return tuple(smi_facts.piece_of(text.source, stream, log) for stream in streams(text) for log in _logs(stream))


def _logs(stream: Stream) -> list[Log]:
    logs: list[Log] = []
    lines = stream.lines
    start: int | None = None
    for position, line in enumerate(lines):
        if start is None and "<nvidia_smi_log" in line.text:
            start = position
        if start is not None and "</nvidia_smi_log" in line.text:
            logs.append(_parse(lines, start, position + 1))
            start = None
    if start is not None:
        logs.append(_parse(lines, start, len(lines)))
    return logs


def _parse(lines: tuple[Line, ...], start: int, end: int) -> Log:
    log = Log(FORMAT)
    for line in lines[max(0, start - 4) : start]:
        if re.match(r"\s*<(?:\?xml|!DOCTYPE nvidia_smi_log)\b", line.text[:200]):
            log.lines.add(line.number)
            if "[" in line.text:
                log.damaged.append((line.number, "the document declares entities of its own; those are not read"))
    part = lines[start:end]
    first = part[0].text.index("<nvidia_smi_log")
    handler = _Handler(log, part)
    try:
        handler.parser.Parse((part[0].text[first:] + "\n").encode("utf-8", "replace"), False)
        for line in part[1:]:
            handler.parser.Parse((line.text + "\n").encode("utf-8", "replace"), False)
            log.lines.add(line.number)
            if handler.done:
                break
    except expat.ExpatError as error:
        position = min(handler.parser.ErrorLineNumber - 1, len(part) - 1)
        log.damaged.append((part[position].number, f"the XML breaks off: {expat.ErrorString(error.code)}"))
    else:
        if not handler.done:
            log.damaged.append((part[-1].number, "the XML ends before </nvidia_smi_log>"))
    log.lines.add(part[0].number)
    return log


class _Handler:
    """Turns elements into leaves under the text format's words."""

    def __init__(self, log: Log, lines: tuple[Line, ...]) -> None:
        self.done = False
        self._log = log
        self._lines = lines
        self._path: list[str] = []
        self._text: list[str] = []
        self._block: Block | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def _number(self) -> int:
        return self._lines[min(self.parser.CurrentLineNumber - 1, len(self._lines) - 1)].number

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag.lower())
        self._text.clear()
        if tag == "gpu" and len(self._path) == 2:
            self._block = Block(attributes.get("id", ""), self._number())
            self._log.blocks.append(self._block)

    def _characters(self, data: str) -> None:
        if len(self._text) < 64:
            self._text.append(data)

    def _end(self, tag: str) -> None:
        value = "".join(self._text).strip()[:400]
        self._text.clear()
        path = self._path
        if value and len(path) <= _MAX_DEPTH and not _SKIPPED & set(path):
            if self._block is None:
                if len(path) == 2:
                    self._log.head.setdefault(path[-1], value)
            else:
                self._block.leaves.append(_leaf(self._number(), path[2:-1], path[-1], value))
        path.pop()
        if tag == "gpu" and len(path) == 1:
            self._block = None
        self.done = not path


def _leaf(line: int, headings: list[str], tag: str, value: str) -> Leaf:
    names = tuple(_HEADINGS.get(name, name) for name in headings)
    label = _LABELS.get(tag, tag)
    reason = _REASON.fullmatch(tag)
    if reason and names and names[-1] in ("clocks_event_reasons", "clocks_throttle_reasons"):
        label = reason.group(1)
    if tag == "retired_count" and headings[-1:] and headings[-1] in _RETIRED:
        names, label = names[:-1], _RETIRED[headings[-1]]
    return Leaf(line, names, label, value)
