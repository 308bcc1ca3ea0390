"""Reads the table that ``nvidia-smi`` prints without arguments, of drivers from 340 to 610, MIG and processes included.

Observations (those of :mod:`wiretax.probe.readers.smi_facts` are not repeated where the table says the same):
    ``smi.versions``: ``smi``, ``driver``, ``cuda``: the tool's own version differs from the driver's inside WSL.
    ``gpu.performance_state``, ``gpu.process``, ``gpu.compute_mode``, ``gpu.reading_failed``: as there.
    ``gpu.no_processes``: the table says that no process runs (a container hides those of others).
    ``gpu.driver_model``: ``gpu``, ``model`` (``WDDM``, ``TCC``, ``MCDM``): Windows.
    ``mig.instance``: ``gpu``, ``gpu_instance``, ``compute_instance``, ``device``.
    ``smi.table_cut``: ``gpus``: a table that ends before its lower edge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, Software
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "nvidia-smi"
_HEAD = re.compile(r"NVIDIA-SMI\s{1,8}([\d.]{3,20})\s{1,40}(?:Driver|KMD) Version:\s{0,6}([\d.]{3,20}|N/A)")
_OLD_HEAD = re.compile(r"NVIDIA-SMI\s{1,8}([\d.]{3,20})")
_CUDA = re.compile(r"CUDA(?: UMD)? Version:\s{0,6}([\d.]{3,8}|N/A|ERR!)")
_FIRST = re.compile(
    r"\s*\|\s{1,6}(\d{1,3})\s{1,4}(\S[^|]{0,60}?)\s{1,40}(On|Off|N/A|WDDM|TCC|MCDM|ERR!|Unknown)\s{0,6}\|"
    rf"\s{{1,8}}({pasted.BUS_ID})\s{{1,4}}(\S{{2,8}})\s{{0,4}}\|([^|]{{0,60}})\|?\s*$"
)
_PROCESS = re.compile(
    r"\s*\|\s{1,8}(\d{1,3})\s{1,8}(?:(N/A|\d{1,2})\s{1,8}(N/A|\d{1,2})\s{1,8})?(\d{1,8})\s{1,8}(C\+G|M\+C|C|G)\s{1,8}(\S[^|]*)\|?\s*$"
)
_PROCESS_MEMORY = re.compile(r"\s(\d{1,7}MiB|N/A)\s*$")
_MIG = re.compile(r"\s*\|\s{1,6}(\d{1,3})\s{1,8}(\d{1,3})\s{1,6}(\d{1,3})\s{1,6}(\d{1,3})\s{0,6}\|\s{1,16}(\d{1,7})MiB\s?/")
_MEMORY = re.compile(r"(\d{1,8})MiB\s?/\s{0,8}(\d{1,8})MiB")
_POWER = re.compile(r"(\d{1,4})W\s?/\s{0,8}(\d{1,4})W")
_BORDER = set("+-|= ")


@dataclass(slots=True)
class _Row:
    gpu: int
    line: int
    name: str
    bus_id: str
    display: str
    ecc: str
    second: list[str] = field(default_factory=list)
    third: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Table:
    lines: set[int] = field(default_factory=set)
    rows: list[_Row] = field(default_factory=list)
    software: Software = field(default_factory=Software)
    in_gpus: bool = True
    processes: dict[int, int] | None = None
    no_processes: bool = False
    damaged: list[tuple[int, str]] = field(default_factory=list)


def read(text: Text) -> tuple[Piece, ...]:
    """All tables of a text, one piece each."""
    return tuple(piece for stream in streams(text) for piece in _pieces(text.source, stream))


def _pieces(source: str, stream: Stream) -> list[Piece]:
    pieces: list[Piece] = []
    table: _Table | None = None
    notes = pasted.Notes(source, stream.lines)

    def close() -> None:
        nonlocal table, notes
        if table is not None and (table.rows or table.software.driver):
            pieces.append(_piece(source, stream.host, table, notes))
        table, notes = None, pasted.Notes(source, stream.lines)

    outside = 0
    for line in stream.lines:
        text = line.text
        if len(text) > 400:
            continue
        head = _OLD_HEAD.search(text) if "NVIDIA-SMI" in text else None
        if head:
            close()
            table = _Table(software=_software(text, notes, line.number), lines={line.number})
            outside = 0
            continue
        first = _FIRST.match(text) if "|" in text else None
        if first and (table is None or any(row.gpu == int(first.group(1)) for row in table.rows)):
            close()
            table = _Table()
        if table is None:
            continue
        if _take(table, line, first, notes):
            table.lines.add(line.number)
            outside = 0
        elif text.strip():
            outside += 1
            if outside > 3:
                close()
    close()
    return pieces


def _software(text: str, notes: pasted.Notes, number: int) -> Software:
    head, cuda = _HEAD.search(text), _CUDA.search(text)
    old = _OLD_HEAD.search(text)
    smi = old.group(1) if old else None
    driver = pasted.said(head.group(2)) if head else None
    version = pasted.said(cuda.group(1)) if cuda else None
    notes.add(number, "smi.versions", smi=smi, driver=driver, cuda=version)
    return Software(driver=driver, cuda=version)


def _take(table: _Table, line: Line, first: re.Match[str] | None, notes: pasted.Notes) -> bool:
    """Whether the line belongs to the table; what it says is kept."""
    text = line.text
    if first:
        index, name, model, bus, display, ecc = first.groups()
        table.rows.append(_Row(int(index), line.number, name, bus, display, ecc.strip()))
        if model in ("WDDM", "TCC", "MCDM"):
            notes.add(line.number, "gpu.driver_model", gpu=int(index), model=model)
        return True
    if set(text.strip()) <= _BORDER:
        return bool(text.strip())
    if not text.lstrip().startswith("|"):
        return False
    if "Processes" in text or "MIG devices" in text:
        table.in_gpus = False
        return True
    if "No running processes found" in text:
        notes.add(line.number, "gpu.no_processes")
        table.no_processes = True
        return True
    mig = _MIG.match(text)
    if mig:
        gpu, instance, compute, device = (int(mig.group(position)) for position in range(1, 5))
        notes.add(line.number, "mig.instance", gpu=gpu, gpu_instance=instance, compute_instance=compute, device=device)
        return True
    process = _PROCESS.match(text)
    if process:
        gpu, kind, rest = int(process.group(1)), process.group(5), process.group(6).rstrip(" |")
        memory = _PROCESS_MEMORY.search(rest)
        notes.add(
            line.number,
            "gpu.process",
            gpu=gpu,
            pid=int(process.group(4)),
            type=kind,
            name=(rest[: memory.start()] if memory else rest).strip(),
            memory_bytes=pasted.num_bytes(memory.group(1)) if memory else None,
        )
        table.processes = table.processes or {}
        table.processes[gpu] = table.processes.get(gpu, 0) + ("C" in kind)
        return True
    cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
    row = table.rows[-1] if table.rows else None
    if row is not None and table.in_gpus and len(cells) == 3:
        if not row.second:
            row.second = cells
        elif not row.third:
            row.third = cells
    return True


def _piece(source: str, host: str | None, table: _Table, notes: pasted.Notes) -> Piece:
    gpus = [_gpu(row, table, notes) for row in table.rows]
    last = max(table.lines)
    damaged = list(table.damaged)
    if table.rows and not table.rows[-1].second:
        damaged.append((table.rows[-1].line, "the table breaks off in the middle of a GPU"))
        notes.add(last, "smi.table_cut", gpus=len(gpus))
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(table.lines),
        machine=pasted.machine(FORMAT, hostname=host, gpus=gpus, software=table.software),
        observations=notes.observations(),
        understood=frozenset(table.lines),
        damaged=tuple(damaged),
    )


def _gpu(row: _Row, table: _Table, notes: pasted.Notes) -> Gpu:
    index = row.gpu
    left, memory, load = (row.second + ["", "", ""])[:3]
    missing: dict[str, str] = {}
    failed = [name for name, cell in (("state", left), ("memory", memory), ("utilization", load)) if "ERR!" in cell or "Unknown" in cell]
    for name in failed:
        notes.add(row.line, "gpu.reading_failed", gpu=index, field=name)
    state = re.search(r"\bP\d{1,2}\b", left)
    if state:
        notes.add(row.line, "gpu.performance_state", gpu=index, state=state.group())
    mode = load.partition("%")[2].strip() or None
    if mode not in (None, "Default", "N/A") and "ERR" not in mode:
        notes.add(row.line, "gpu.compute_mode", gpu=index, mode=mode)
    temperature, power, amount = re.search(r"(\d{1,3})C\b", left), _POWER.search(left), _MEMORY.search(memory)
    used_watts = re.search(r"(\d{1,4})W\s?/", left)
    busy = re.search(r"(\d{1,3})%", load)
    mig_word = row.third[2].rstrip("*") if len(row.third) == 3 else ""
    mig = {"Enabled": "enabled", "Disabled": "disabled"}.get(mig_word)
    if mig is None:
        missing["mig"] = "this GPU has no MIG" if mig_word == "N/A" else f"not in {FORMAT}"
    others: int | None = None
    if table.processes is not None:
        missing["other_processes"] = f"the table lists {table.processes.get(index, 0)} compute processes, but not whose they are"
    elif table.no_processes:
        others = 0
    return Gpu(
        index=index,
        name=row.name,
        pci_bus_id=pasted.pci_bus_id(row.bus_id),
        memory_bytes=int(amount.group(2)) * 2**20 if amount else None,
        memory_used_bytes=int(amount.group(1)) * 2**20 if amount else None,
        mig=mig,  # type: ignore[arg-type]
        status="unusable" if len(failed) >= 2 else "ok",
        status_reason=f"nvidia-smi shows ERR! for {', '.join(failed)}" if len(failed) >= 2 else None,
        power_watts=float(used_watts.group(1)) if used_watts else None,
        power_limit_watts=float(power.group(2)) if power else None,
        temperature_celsius=float(temperature.group(1)) if temperature else None,
        ecc_uncorrected_errors=int(row.ecc) if row.ecc.isdecimal() else None,
        display_attached=True if row.display == "On" else None,
        other_processes=others,
        utilization_fraction=int(busy.group(1)) / 100 if busy else None,
        missing=missing,
    )
