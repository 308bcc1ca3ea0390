"""Reads what people watch GPUs with: ``nvidia-smi dmon`` and ``gpustat``.

Observations:
    ``gpu.samples``: ``gpu``, ``samples``, ``busiest_utilization_fraction``: several rows of one GPU; the machine holds their medians.
    ``gpu.process``: ``gpu``, ``pid`` (None), ``type`` (``C``), ``name``, ``memory_bytes``: a user of a GPU that ``gpustat`` names.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, Software
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, mentions, streams

DMON = "nvidia-smi dmon"
GPUSTAT = "gpustat"
_HEAD = re.compile(r"\s*#\s?(?:(?:Date\s{1,8})?Time\s{1,8})?gpu\s{1,8}(?:pwr|sm|pclk|mclk|gtemp|temp|rxpci)\b")
_COLUMNS = {"pwr": "power", "gtemp": "temperature", "temp": "temperature", "sm": "utilization", "pclk": "clock"}
_STAT = re.compile(
    r"\s*\[(\d{1,3})\] (\S.{1,50}?)\s{0,8}\|\s{0,4}(\d{1,3}|\?\?)'C,\s{0,6}(?:\d{1,3} %,\s{0,6})?(\d{1,3}|\?\?) %\s{0,4}"
    r"(?:,\s{0,6}(\d{1,4})(?: / {1,4}(\d{1,4}))? W\s{0,4})?\|\s{0,8}(\d{1,7}) / {1,8}(\d{1,7}) MB\s{0,4}\|?(.{0,300})$"
)
_STAT_HEAD = re.compile(r"(\S{1,64})\s{1,60}\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}\s{1,8}(\d{3}\.[\d.]{2,12})?\s*$")
_USER = re.compile(r"([\w.-]{1,32})(?::[\w./-]{1,60}(?:/\d{1,8})?)?\((\d{1,7})M\)")


@dataclass(slots=True)
class _Dmon:
    columns: list[str]
    lines: set[int] = field(default_factory=set)
    samples: dict[int, list[dict[str, float]]] = field(default_factory=dict)


def read(text: Text) -> tuple[Piece, ...]:
    """The watches of each stream, one piece a tool."""
    return tuple(
        piece for stream in streams(text) for piece in (_dmon(text.source, stream), _gpustat(text.source, stream)) if piece is not None
    )


def _dmon(source: str, stream: Stream) -> Piece | None:
    found: _Dmon | None = None
    for line in stream.lines:
        if len(line.text) > 300 or not line.text.strip():
            continue
        if _HEAD.match(line.text):
            columns = line.text.replace("#", " ").split()
            if found is None:
                found = _Dmon(columns)
            if found.columns == columns:
                found.lines.add(line.number)
        elif found is not None:
            _dmon_row(found, line)
    if found is None or not found.samples:
        return None
    notes = pasted.Notes(source, stream.lines)
    first = min(found.lines)
    gpus = []
    for index, samples in sorted(found.samples.items()):
        busiest = max((sample.get("utilization", 0.0) for sample in samples), default=0.0) / 100
        if len(samples) > 1:
            notes.add(first, "gpu.samples", gpu=index, samples=len(samples), busiest_utilization_fraction=busiest)
        middle = {name: statistics.median(values) for name in _COLUMNS.values() if (values := [x[name] for x in samples if name in x])}
        gpus.append(
            Gpu(
                index=index,
                power_watts=middle.get("power"),
                temperature_celsius=middle.get("temperature"),
                utilization_fraction=middle["utilization"] / 100 if "utilization" in middle else None,
                sm_clock_mhz=round(middle["clock"]) if "clock" in middle else None,
            )
        )
    return Piece(
        source=source,
        format=DMON,
        first_line=first,
        machine=pasted.machine(DMON, hostname=stream.host, gpus=gpus),
        observations=notes.observations(),
        understood=frozenset(found.lines),
    )


def _dmon_row(found: _Dmon, line: Line) -> None:
    cells = line.text.replace("#", " ").split()
    if line.text.lstrip().startswith("#"):
        # The second heading holds the units.
        found.lines.add(line.number)
        return
    if len(cells) != len(found.columns) or "gpu" not in found.columns:
        return
    row = dict(zip(found.columns, cells, strict=True))
    if not re.fullmatch(r"\d{1,3}", row["gpu"]):
        return
    values = {name: value for column, name in _COLUMNS.items() if (value := pasted.number(row.get(column))) is not None}
    found.samples.setdefault(int(row["gpu"]), []).append(values)
    found.lines.add(line.number)


def _gpustat(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    gpus: dict[int, Gpu] = {}
    host, driver = stream.host, None
    for line in stream.lines:
        text = line.text
        if len(text) > 500 or not mentions(text, ("'C", ":")):
            continue
        head = _STAT_HEAD.match(text)
        match = _STAT.match(text)
        if head and not lines:
            host, driver = head.group(1), head.group(2)
            lines.add(line.number)
        if not match:
            continue
        index, name, temperature, busy, power, limit, used, total, users = match.groups()
        gpus[int(index)] = Gpu(
            index=int(index),
            name=name.strip(),
            temperature_celsius=pasted.number(temperature),
            utilization_fraction=None if (fraction := pasted.number(busy)) is None else fraction / 100,
            power_watts=pasted.number(power),
            power_limit_watts=pasted.number(limit),
            memory_used_bytes=int(used) * 2**20,
            memory_bytes=int(total) * 2**20,
        )
        for user, megabytes in _USER.findall(users or ""):
            notes.add(line.number, "gpu.process", gpu=int(index), pid=None, type="C", name=user, memory_bytes=int(megabytes) * 2**20)
        lines.add(line.number)
    if not gpus:
        return None
    return Piece(
        source=source,
        format=GPUSTAT,
        first_line=min(lines),
        machine=pasted.machine(GPUSTAT, hostname=host, gpus=[gpus[index] for index in sorted(gpus)], software=Software(driver=driver)),
        observations=notes.observations(),
        understood=frozenset(lines),
    )
