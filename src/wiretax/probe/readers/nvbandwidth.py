"""Output of nvbandwidth, text and JSON.

Each test copies 512 MiB (unless ``--bufferSize`` says otherwise) and verifies it, so a passed copy is verified. The arrow in a
matrix's title gives the way the data goes; bidirectional figures are those of one direction while the other runs, as our
:class:`Copy` wants them (https://github.com/NVIDIA/nvbandwidth, README). GPUs are CUDA ordinals.

======================== =======================================================================================================
kind                     values
======================== =======================================================================================================
nvbandwidth.test         name, status (passed, waived, error, not_found), sum_bytes_per_second
nvbandwidth.total        name, gpu, bytes_per_second: all to one, one to all, own memory: no copy of one pair
nvbandwidth.latency      name, source_gpu, target_gpu, latency_seconds: a load by an SM, not a copy
nvbandwidth.wrong_data   test, text: the copied data was not what was sent
nvbandwidth.failure      test, text
nvbandwidth.process      num_ranks: at least so many processes, each with a GPU of its own (multinode)
nvbandwidth.unit         unit: not known, the matrix was left alone
======================== =======================================================================================================
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from wiretax.model.machine import Gpu, Software
from wiretax.model.measurement import Copy, Measurements
from wiretax.probe.nvml_words import cuda_version
from wiretax.probe.readers import json_text
from wiretax.probe.readers.pasted import Notes, explained, machine, pci_bus_id, positive
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, mentions, streams

FORMAT = "nvbandwidth"
NUM_BYTES = 512 * 2**20
_MAX_LINE = 3_000

_VERSION = re.compile(r"\s*nvbandwidth Version: (\S{1,40})")
_DRIVER = re.compile(r"\s*Driver Version: (\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)\s*$")
_CUDA = re.compile(r"\s*CUDA (Runtime|Driver) Version: (\d{4,6})\s*$")
_DEVICE = re.compile(
    r"\s*(?:Process (?P<process>\d{1,6}) \([^)]{1,80}\): )?[Dd]evice (?P<index>\d{1,3}): (?P<name>[^(\n]{1,80}?)\s*"
    r"(?:\((?P<bus>[0-9a-fA-F:.]{7,16})\).{0,80})?$"
)
_LISTED = re.compile(r"(?P<index>\d{1,3}): (?P<name>[^(\n]{1,80}?) ?\((?P<bus>[0-9a-fA-F:.]{7,16})\)(?:: \((?P<host>[^()]{1,255})\))?")
_RUNNING = re.compile(r"\s*Running ([a-z]\w{2,80})\.?\s*$")
_TITLE = re.compile(r"\s*(?:memcpy|memory latency|multicast)\b.{0,120}\((?P<unit>[^()]{1,12})\)\s*$")
_ARROW = re.compile(r"(CPU|GPU)\(row\) (->|<->|<-) (CPU|GPU)\(column\)")
_COLUMNS = re.compile(r"\s*\d{1,3}(?:\s{1,20}\d{1,3}){0,127}\s*$")
_CELLS = re.compile(r"\s*(\d{1,3})((?:\s{1,20}(?:N/A|-?[\d.]{1,20}(?:e[+-]?\d{1,3})?)){1,128})\s*$")
_SUM = re.compile(r"\s*(SUM|MIN|MAX|AVG) (\w{3,80}) (\S{1,40})")
_WAIVING = re.compile(r"\s*Waiving ([a-z]\w{2,80})\.?\s*$")
_WAIVED = re.compile(r"\s*(?:Waived:|WAIVED|.{0,40}\bis waived\b)", re.IGNORECASE)
_WRONG = re.compile(r"Invalid value when checking the pattern|h_errorFlag == 0")
_FAILURE = re.compile(r"ASSERT in expression|\[?CUDA_ERROR_\w{1,60}\]?|ERROR: Testcase|An error occurred")
_HARMLESS = re.compile(
    r"\s*(?:Built from Git version|MPI version|NOTE: (?:This tool reports|The reported results)|Additional system-specific tuning"
    r"|Performance can vary with software|Current offset|Invalid value when)"
)


@dataclass(slots=True)
class _Found:
    notes: Notes
    gpus: dict[int, Gpu] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    understood: set[int] = field(default_factory=set)
    damaged: list[tuple[int, str]] = field(default_factory=list)
    driver: str | None = None
    cuda: str | None = None
    host: str | None = None


def read(text: Text) -> tuple[Piece, ...]:
    """Reads the text output and the JSON report."""
    found: list[Piece] = []
    reports = [
        (document, report)
        for document in json_text.documents(text)
        if isinstance(report := json_text.field(document.value, "nvbandwidth"), dict)
    ]
    in_reports: frozenset[int] = frozenset().union(*(document.numbers(text) for document, _ in reports))
    for stream in streams(text):
        lines = tuple(Line(line.number, line.text[:_MAX_LINE]) for line in stream.lines if line.number not in in_reports)
        if any(mentions(line.text, ("memcpy", "memory latency", "nvbandwidth")) for line in lines):
            found += _read(text.source, lines)
    found += [_from_json(text, document, report) for document, report in reports]
    return tuple(found)


def _read(source: str, lines: tuple[Line, ...]) -> list[Piece]:
    seen = _Found(Notes(source))
    test, ran = "", False
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if match := _RUNNING.match(line.text):
            test, ran = match[1], True
        elif _TITLE.match(line.text):
            ran = True
            rows, position = _rows(lines, position, seen)
            seen.notes.add(line.number, "nvbandwidth.test", name=test or "unnamed", status="passed")
            _matrix(line.number, test, line.text.strip(), rows, seen)
        elif match := _WAIVING.match(line.text):
            test, ran = match[1], True
            seen.notes.add(line.number, "nvbandwidth.test", name=test, status="waived")
        elif match := _SUM.match(line.text):
            pass
        elif ran and _WAIVED.match(line.text):
            seen.notes.add(line.number, "nvbandwidth.test", name=test or "unnamed", status="waived")
        elif _WRONG.search(line.text):
            seen.notes.add(line.number, "nvbandwidth.wrong_data", test=test, text=line.text.strip()[:300])
        elif _FAILURE.search(line.text):
            seen.notes.add(line.number, "nvbandwidth.failure", test=test, text=line.text.strip()[:300])
        elif not _heading(line, seen):
            continue
        seen.understood.add(line.number)
    if not ran and not any("nvbandwidth" in line.text for line in lines):
        return []
    return [_piece(source, FORMAT, seen)] if seen.understood else []


def _heading(line: Line, seen: _Found) -> bool:
    if match := _DRIVER.match(line.text):
        seen.driver = match[1]
    elif match := _CUDA.match(line.text):
        if match[1] == "Driver":
            seen.cuda = cuda_version(int(match[2]))
    elif match := _DEVICE.match(line.text):
        if match["process"]:
            seen.notes.add(line.number, "nvbandwidth.process", num_ranks=int(match["process"]) + 1)
        _add_gpu(match, seen)
    elif not (_VERSION.match(line.text) or _HARMLESS.match(line.text)):
        return False
    return True


def _add_gpu(match: re.Match[str], seen: _Found) -> None:
    index = int(match["index"])
    bus = match["bus"]
    seen.gpus[index] = Gpu(
        index=index,
        cuda_ordinal=index,
        name=match["name"].strip(),
        pci_bus_id=pci_bus_id(bus if "." in bus else bus + ".0") if bus else None,
    )


def _piece(source: str, format_: str, seen: _Found, host: str | None = None) -> Piece:
    found = machine(
        "the output of nvbandwidth",
        hostname=host,
        gpus=[seen.gpus[index] for index in sorted(seen.gpus)],
        software=Software(driver=seen.driver, cuda=seen.cuda),
    )
    note = "GPU numbers are CUDA ordinals: nvbandwidth does not state NVML indices"
    return Piece(
        source=source,
        format=format_,
        first_line=min(seen.understood),
        machine=dataclasses.replace(found, origin_note=note) if seen.gpus or seen.driver else None,
        measurements=Measurements(copies=tuple(explained(tuple(seen.copies), "not in the output of nvbandwidth"))),
        observations=seen.notes.observations(),
        understood=frozenset(seen.understood),
        damaged=tuple(seen.damaged),
    )


def _rows(lines: tuple[Line, ...], position: int, seen: _Found) -> tuple[list[tuple[int, dict[int, str]]], int]:
    """The rows below a title, and where they end."""
    found: list[tuple[int, dict[int, str]]] = []
    columns: list[int] | None = None
    while position < len(lines):
        line = lines[position]
        if columns is None and _COLUMNS.match(line.text):
            columns = [int(word) for word in line.text.split()]
        elif columns is not None and (match := _CELLS.match(line.text)):
            words = match[2].split()
            if len(words) == len(columns):
                found.append((int(match[1]), dict(zip(columns, words, strict=True))))
            else:
                seen.damaged.append((line.number, f"a row of {len(words)} cells under {len(columns)} columns"))
        else:
            break
        seen.understood.add(line.number)
        position += 1
    return found, position


def _matrix(number: int, test: str, title: str, rows: Iterable[tuple[int, dict[int, str]]], seen: _Found) -> None:
    what = _TITLE.match(title)
    if what is None:
        return
    quantity, unit = "latency" if "latency" in title else "bandwidth", what["unit"]
    if (quantity, unit) not in (("bandwidth", "GB/s"), ("latency", "ns")):
        seen.notes.add(number, "nvbandwidth.unit", unit=unit)
        return
    arrow = _ARROW.search(title)
    crowded = "all_to_" in test or "host_to_all" in test or "one_to_all" in test
    pair_total = "Total" in title or " total " in title or "all_to_one" in test or "one_to_all" in test
    for row, cells in rows:
        for column, cell in cells.items():
            value = positive(cell)
            if value is None or (arrow and arrow[1] == arrow[3] == "GPU" and row == column):
                continue
            if quantity == "latency":
                ends = {"source_gpu": row} if arrow and arrow[1] == "GPU" else {}
                seen.notes.add(number, "nvbandwidth.latency", name=test, **ends, target_gpu=column, latency_seconds=value * 1e-9)
            elif arrow is None or pair_total or "Total" in title:
                if "Total" not in title:
                    seen.notes.add(number, "nvbandwidth.total", name=test, gpu=column, bytes_per_second=value * 1e9)
            else:
                seen.copies.append(_copy(arrow, title, test, row, column, value * 1e9, crowded))


def _copy(arrow: re.Match[str], title: str, test: str, row: int, column: int, rate: float, crowded: bool) -> Copy:
    """One cell. Read2 and Write2 are the opposite direction of the same pair; a CPU row is host memory."""
    both = arrow[2] == "<->"
    backwards = arrow[2] == "<-" or "Read2" in title or "Write2" in title or (both and test.startswith(("device_to_host", "all_to_host")))
    first = row if arrow[1] == "GPU" else None
    second = column if arrow[3] == "GPU" else None
    source, target = (second, first) if backwards else (first, second)
    route: Literal["direct", "host"] = "direct" if source is not None and target is not None else "host"
    return Copy(
        source_gpu=source,
        target_gpu=target,
        route=route,
        direction="both_ways" if both else "one_way",
        concurrency="all_pairs" if crowded else "alone",
        num_bytes=NUM_BYTES,
        bandwidth_bytes_per_second=rate,
        verified=True,
    )


def _from_json(text: Text, document: json_text.Document, report: dict[str, Any]) -> Piece:
    seen = _Found(Notes(text.source))
    number = text.numbers[document.first]
    seen.understood = set(document.numbers(text))
    driver = report.get("Driver Version")
    seen.driver = driver if isinstance(driver, str) and re.fullmatch(r"[\d.]{3,20}", driver) else None
    hosts: list[str] = []
    for entry in report.get("GPU Device list") or []:
        if isinstance(entry, str) and (match := _LISTED.match(entry)):
            _add_gpu(match, seen)
            hosts.append(match["host"] or "")
    for test in report.get("testcases") or []:
        name, status = str(json_text.field(test, "name") or "unnamed")[:80], str(json_text.field(test, "status") or "unknown")
        total = json_text.number(json_text.field(test, "sum"))
        values = {"sum_bytes_per_second": total * 1e9} if total is not None else {}
        seen.notes.add(number, "nvbandwidth.test", name=name, status=status.lower().replace(" ", "_"), **values)
        error = json_text.field(test, "error")
        if isinstance(error, str):
            kind = "nvbandwidth.wrong_data" if _WRONG.search(error) else "nvbandwidth.failure"
            seen.notes.add(number, kind, test=name, text=error[:300])
        matrix, title = json_text.field(test, "bandwidth_matrix"), json_text.field(test, "bandwidth_description")
        if isinstance(matrix, list) and isinstance(title, str) and len(matrix) <= 256:
            rows = [
                (index, {column: str(cell) for column, cell in enumerate(row[:256])})
                for index, row in enumerate(matrix)
                if isinstance(row, list)
            ]
            _matrix(number, name, title[:200], rows, seen)
    for key in ("error", "warning"):
        if isinstance(report.get(key), str):
            seen.notes.add(number, "nvbandwidth.failure", test="", text=report[key][:300])
    return _piece(text.source, FORMAT + " JSON", seen, host=next(iter(filter(None, hosts)), None))
