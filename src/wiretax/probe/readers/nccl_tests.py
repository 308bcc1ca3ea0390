"""Output of nccl-tests (``all_reduce_perf`` and its kin), text of any version and JSON.

Sizes, algbw and busbw are kept as nccl-tests defines them (https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md); printed GB/s
are 10^9 bytes. Rates are recomputed from size and time, since the table rounds small ones to 0.00. Out-of-place times become the
points of a :class:`Collective`; the wire is ``default``, for the tool ran in the environment as its user found it.

========================= ======================================================================================================
kind                      values
========================= ======================================================================================================
nccl_tests.table          operation, world_size, rows, first_bytes, last_bytes, max_bytes (asked for), complete,
                          peak_busbw_bytes_per_second, peak_bytes, dtype, operation_inferred (from busbw over algbw)
nccl_tests.average        busbw_bytes_per_second: the mean over all sizes and both placements, which says little; settings: ``NAME=value``
                          of NCCL's variables that the text names above it, since the average before
nccl_tests.device         rank, device (CUDA ordinal), bus_id, name, host
nccl_tests.wrong          num_bytes, wrong: results that did not verify
nccl_tests.out_of_bounds  count, failed (the tool's own word for it)
nccl_tests.failure        error, file, after_bytes (the last size that passed), library (NCCL, CUDA)
nccl_tests.unit           unit: a unit that is not known; the numbers are left alone
========================= ======================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from wiretax.model.measurement import Measurements
from wiretax.probe.readers import json_text
from wiretax.probe.readers.nccl_tests_run import Row, Run, collective, host_machine
from wiretax.probe.readers.pasted import Notes, pci_bus_id
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import streams

FORMAT = "nccl-tests"

_MAX_HOSTS = 256
_MAX_LINE = 600

_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf\b")
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]{2,40})\s?=\s?(\w[\w./-]{0,40})")
_SAID = re.compile(r"\b(?:hang\w{0,4}|hung|stuck|crash\w{0,3}|fail\w{0,3}|slow\w{0,3}|busbw|GB/s|works?|ok)\b|->", re.IGNORECASE)
"""A comment that tells of the program what came of it is somebody's sentence, and others read it."""
_CONFIG = re.compile(
    r"#?\s*nThread[: ]+\d+ nGpus[: ]+(?P<gpus>\d+) minBytes[: ]+\d+ maxBytes[: ]+(?P<max>\d+)\b(?:.*\bgraph: (?P<graph>\d+))?"
)
_RANK = re.compile(
    r"(?:#|^)\s{1,8}Rank\s{1,8}(?P<rank>\d{1,6}) (?:\s{0,8}Group\s{1,8}\d{1,6})?\s{0,8}Pid\s{1,8}\d{1,10} on\s{1,60}(?P<host>\S{1,255})"
    r" device\s{1,8}(?P<device>\d{1,4}) \[(?P<bus>(?:0x)?[0-9A-Fa-f]{1,4}|[0-9A-Fa-f]{2,8}(?::[0-9A-Fa-f]{1,4}){1,2})\]"
    r" (?P<name>\S.{0,100})"
)
_ROW = re.compile(r"\s{0,40}\d{1,16}\s{1,20}\d{1,16}\s{1,20}[a-z]\w{1,12}\s.{10,300}$")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s{0,20}: (?P<value>\d{1,12}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?)(?![\d.])")
_BOUNDS = re.compile(r"\bOut of bounds values\s{0,20}: ?(?P<count>\d{1,12})(?: (?P<verdict>OK|FAILED)\b)?", re.IGNORECASE)
_BARE_HEADINGS = ("Out of bounds values", "Avg bus bandwidth", "nThread", " Pid ", "busbw")
"""Forums take the leading ``#`` for a heading and swallow it."""
WRONG_DELTA = 0.1
"""Before 2.13 nccl-tests printed the largest difference in place of a count: rounding stays far below this, wrong data does not."""
_FAILURE = re.compile(
    r"(?:(?P<host>\S{1,255}): )?Test (?P<library>NCCL|CUDA|HIP) failure (?P<file>\S{1,200}:\d{1,6})\s{1,4}'(?P<error>[^'\n]{1,200})'?"
)
_TIMEOUT = re.compile(r"(?:(?P<host>\S{1,255}): )?Test timeout \((?P<seconds>\d{1,6})s\) (?P<file>\S{1,200}:\d{1,6})")
_HARMLESS = re.compile(
    r"#\s*(?:Using devices|nccl-tests version|Collective test|Blocking Enabled|Per-Iteration|Parallel Init|Reducing maxBytes|Writing JSON)"
    r"|#\s{20,}out-of-place\s{10,}in-place|\s{0,4}\.\. \S{1,255} pid \d{1,10}: Test failure |#\s{10,}\(B\)"
)
_TYPE_BYTES = {
    "int8": 1, "uint8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "bfloat16": 2, "float16": 2,
    "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip


def read(text: Text) -> tuple[Piece, ...]:
    """Reads all tables and JSON reports of nccl-tests in a text."""
    found: list[Piece] = []
    for stream in streams(text):
        reader = _Reader(text.source)
        for line in stream.lines:
            reader.take(line.number, line.text)
        found += reader.piece()
    for document in json_text.documents(text):
        if isinstance(json_text.field(document.value, "results"), list) and json_text.field(document.value, "nccl_version") is not None:
            found += _from_json(text, document)
    return tuple(found)


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._notes = Notes(source)
        self._runs: list[Run] = []
        self._program: str | None = None
        self._said: dict[str, str] = {}
        self._understood: set[int] = set()
        self._damaged: list[tuple[int, str]] = []

    def take(self, number: int, line: str) -> None:
        """Looks at one line; any that belongs to the tool is marked as understood."""
        line = line[:_MAX_LINE]
        if "NCCL_" in line:
            self._said.update(_SETTING.findall(line))
        if "_perf" in line and (program := _PROGRAM.search(line)):
            self._program = program[1]
            if line.lstrip().startswith("#") and not _SAID.search(line):
                self._understood.add(number)
                if "starting" in line:
                    self._open(number).program = program[1]
                return
        head = line.lstrip()[:1]
        bare = head != "#" and any(words in line for words in _BARE_HEADINGS)
        if (
            ((head == "#" or bare) and self._heading(number, line, bare))
            or (head.isdecimal() and self._row(number, line))
            or self._failure(number, line)
        ):
            self._understood.add(number)

    def _open(self, number: int) -> Run:
        """The run that a heading line belongs to: a new one after rows were seen."""
        if not self._runs or self._runs[-1].rows or self._runs[-1].finished:
            self._runs.append(Run(number, program=self._program))
        return self._runs[-1]

    def _heading(self, number: int, line: str, bare: bool = False) -> bool:
        if match := _CONFIG.match(line.strip()):
            run = self._open(number)
            run.max_bytes, run.graph = int(match["max"]), (match["graph"] or "0") != "0"
        elif match := _RANK.search(line):
            bus = match["bus"].removeprefix("0x")
            bus_id = pci_bus_id(bus + ".0") if ":" in bus else f"00000000:{int(bus or '0', 16) & 0xFF:02X}:00.0"
            rank, device = int(match["rank"]), int(match["device"])
            self._open(number).devices[rank] = (match["host"], device, bus_id, match["name"].strip())
            self._notes.add(
                number, "nccl_tests.device", rank=rank, device=device, bus_id=bus_id, name=match["name"].strip(), host=match["host"]
            )
        elif "busbw" in line and "size" in line and "algbw" in line:
            self._open(number).columns = line.replace("#wrong", "wrong").replace("#", " ").split()
        elif not bare and ("(B)" in line or "(us)" in line):
            self._units(number, line)
        elif match := _AVERAGE.match(line.strip()):
            said = " ".join(f"{name}={value}" for name, value in sorted(self._said.items())[:8])
            self._said.clear()
            value = float(match["value"]) * 1e9
            self._notes.add(number, "nccl_tests.average", busbw_bytes_per_second=value, settings=said, text=line.strip())
            self._close()
        elif match := _BOUNDS.search(line):
            failed = match["verdict"].upper() == "FAILED" if match["verdict"] else int(match["count"]) > 0
            self._notes.add(number, "nccl_tests.out_of_bounds", count=int(match["count"]), failed=failed, text=line.strip()[:300])
            self._close()
        elif bare or not _HARMLESS.match(line.strip()):
            return False
        return True

    def _close(self) -> None:
        if self._runs:
            self._runs[-1].finished = True

    def _units(self, number: int, line: str) -> None:
        unknown = [unit for unit in re.findall(r"\(([^()]{1,20})\)", line) if unit not in ("B", "elements", "us", "GB/s", "%")]
        for unit in unknown:
            self._open(number).unit_known = False
            self._notes.add(number, "nccl_tests.unit", unit=unit)

    def _row(self, number: int, line: str) -> bool:
        if not _ROW.match(line):
            return False
        words = line.split()
        if words[2] not in _TYPE_BYTES and not self._runs:
            return False
        if not self._runs or self._runs[-1].finished:
            self._runs.append(Run(number, program=self._program))
        run = self._runs[-1]
        row = _parse_row(number, words, run.columns)
        if row is None:
            if run.columns:
                self._damaged.append((number, "a row of the nccl-tests table that does not fit its heading"))
            return bool(run.columns)
        if run.unit_known:
            run.rows.append(row)
        return True

    def _failure(self, number: int, line: str) -> bool:
        after = self._runs[-1].rows[-1].num_bytes if self._runs and self._runs[-1].rows else None
        if "Test " not in line:
            return bool(_HARMLESS.match(line))
        if match := _FAILURE.search(line):
            values: dict[str, Any] = {"error": match["error"].split(" / ")[0], "file": match["file"], "library": match["library"]}
        elif match := _TIMEOUT.search(line):
            values = {"error": f"timeout after {match['seconds']} s", "file": match["file"], "library": "nccl-tests"}
        else:
            return bool(_HARMLESS.match(line))
        if after is not None:
            values["after_bytes"] = after
        self._notes.add(number, "nccl_tests.failure", **values, text=line.strip()[:300])
        return True

    def piece(self) -> list[Piece]:
        """What the lines gave: one piece with all tables, or nothing."""
        collectives = []
        for run in self._runs:
            for key in dict.fromkeys((row.dtype, row.redop, row.root) for row in run.rows):
                rows = [row for row in run.rows if (row.dtype, row.redop, row.root) == key]
                result = collective(run, rows, self._notes)
                if result is not None:
                    collectives.append(result)
        if not self._understood:
            return []
        devices = {rank: device for run in self._runs for rank, device in run.devices.items()}
        hosts = list(dict.fromkeys(host for host, *_ in devices.values()))
        first = min(self._understood)
        return [
            Piece(
                source=self._source,
                format=FORMAT,
                first_line=first,
                machine=host_machine(devices, hosts[0], None) if hosts else None,
                measurements=Measurements(collectives=tuple(collectives)),
                observations=self._notes.observations(),
                understood=frozenset(self._understood),
                damaged=tuple(self._damaged),
            ),
            *(
                Piece(source=self._source, format=FORMAT, first_line=first, machine=host_machine(devices, host, None))
                for host in hosts[1:_MAX_HOSTS]
            ),
        ]


def _parse_row(number: int, words: list[str], columns: list[str]) -> Row | None:
    """One row by its heading, or, where the heading is missing or of another length, by the only layout that fits."""
    size, dtype, rest = int(words[0]), words[2], words[3:]
    redop = rest.pop(0) if rest and re.fullmatch(r"[a-z]\w*", rest[0]) else None
    has_root = "root" in columns if columns else len(rest) % 4 == 1
    root = None
    if has_root and rest and re.fullmatch(r"-?\d{1,6}", rest[0]):
        root = int(rest.pop(0))
    numbers = [_number(word) for word in rest]
    if len(numbers) < 3 or None in numbers[:3] or not _plausible(columns, words):
        return None
    microseconds, printed_algbw, printed_busbw = (float(value or 0.0) for value in numbers[:3])
    if microseconds <= 0 or size <= 0:
        return None
    algbw = size / (microseconds * 1e-6)
    if abs(algbw / 1e9 - printed_algbw) > 0.03 + 0.03 * algbw / 1e9:
        return None
    busbw = algbw * (printed_busbw / printed_algbw) if printed_algbw >= 0.5 else algbw
    block = 8 if "i_min" in columns else 4
    in_place = numbers[block : block + 4]
    wrong = numbers[3] if len(numbers) > 3 else None
    if wrong is not None and ("error" in columns or (not columns and "e" in rest[3])):
        wrong = None if wrong < WRONG_DELTA else 1.0
    return Row(
        number, size, dtype, redop, root, microseconds * 1e-6, algbw, busbw, wrong,
        len(in_place) == 4 and in_place[3] is not None,
    )  # fmt: skip


def _plausible(columns: list[str], words: list[str]) -> bool:
    """Whether a row is as long as its heading; a timestamp may follow, and sendrecv prints N/A for what it cannot check."""
    return not columns or len(columns) - 1 <= len(words) <= len(columns) + 2


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e300 else None


def _from_json(text: Text, document: json_text.Document) -> Iterator[Piece]:
    notes = Notes(text.source)
    line = text.numbers[document.first]
    value = document.value
    arguments = " ".join(str(word) for word in value.get("args") or [] if isinstance(word, str))[:2000]
    program = _PROGRAM.search(arguments)
    run = Run(line, program=program[1] if program else None, finished="end_time" in value)
    maximum = json_text.number(json_text.field(value, "config", "maximum_bytes"))
    run.max_bytes = int(maximum) if maximum is not None else None
    run.graph = bool(json_text.number(json_text.field(value, "config", "graph")))
    for entry in json_text.field(value, "config", "devices") or []:
        rank, device = json_text.number(json_text.field(entry, "rank")), json_text.number(json_text.field(entry, "device"))
        if rank is not None and device is not None:
            bus_id = pci_bus_id(str(entry.get("device_hex", "")).strip("[]") + ".0")
            host, name = str(entry.get("hostname", "")), str(entry.get("device_info", "")).strip()
            run.devices[int(rank)] = (host, int(device), bus_id, name)
            notes.add(line, "nccl_tests.device", rank=int(rank), device=int(device), bus_id=bus_id, name=name, host=host)
    for entry in value["results"]:
        row = _json_row(line, entry)
        if row is not None:
            run.rows.append(row)
    average = json_text.number(json_text.field(value, "average_bus_bandwidth", "bandwidth"))
    if average is not None:
        notes.add(line, "nccl_tests.average", busbw_bytes_per_second=average * 1e9)
    result = collective(run, run.rows, notes) if run.rows else None
    code = json_text.number(value.get("nccl_version"))
    version = f"{int(code) // 10000}.{int(code) // 100 % 100}.{int(code) % 100}" if code and 10000 <= code < 1e7 else None
    for setting in value.get("env") or []:
        # The report holds the whole environment, secrets too: only NCCL's settings are looked at.
        name, _, content = str(setting).partition("=")
        if name.startswith("NCCL_"):
            notes.add(line, "nccl.environment", name=name, value=content[:300])
    hosts = [host for host, *_ in run.devices.values()]
    yield Piece(
        source=text.source,
        format=FORMAT + " JSON",
        first_line=line,
        machine=host_machine(run.devices, hosts[0], version) if hosts else None,
        measurements=Measurements(collectives=(result,) if result else ()),
        observations=notes.observations(),
        understood=document.numbers(text),
    )


def _json_row(line: int, entry: Any) -> Row | None:
    size = json_text.number(json_text.field(entry, "size"))
    block = json_text.field(entry, "out_of_place") or json_text.field(entry, "in_place")
    microseconds = json_text.number(json_text.field(block, "time"))
    if microseconds is None:
        microseconds = json_text.number(json_text.field(block, "cpu_time"))
    printed_algbw, printed_busbw = json_text.number(json_text.field(block, "alg_bw")), json_text.number(json_text.field(block, "bus_bw"))
    if not size or size < 1 or not microseconds or microseconds <= 0 or size > 2**60:
        return None
    algbw = size / (microseconds * 1e-6)
    busbw = algbw * printed_busbw / printed_algbw if printed_algbw and printed_busbw else algbw
    root = json_text.number(str(json_text.field(entry, "root")).strip())
    root = int(root) if root is not None and abs(root) < 1e6 else None
    return Row(
        line, int(size), str(entry.get("type", "")), str(entry.get("redop") or "none"), root,
        microseconds * 1e-6, algbw, busbw, json_text.number(json_text.field(block, "nwrong")),
        json_text.field(entry, "in_place", "nwrong") is not None,
    )  # fmt: skip
