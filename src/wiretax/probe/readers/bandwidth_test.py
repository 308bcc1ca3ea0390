"""Output of CUDA's ``bandwidthTest``, which newer samples left out in favour of nvbandwidth: tables and ``--csv``.

Pinned copies between host memory and one GPU become :class:`Copy` objects, the largest size of each way: small and pageable copies
say nothing of the link, and figures of several devices are their sum. Device to device is a GPU's own memory, read plus written.
GPUs are CUDA ordinals.

========================= ======================================================================================================
kind                      values
========================= ======================================================================================================
bandwidth_test.rate       way (host_to_device, device_to_host, device_to_device), memory (pinned, pageable), num_gpus, num_bytes,
                          bytes_per_second: the largest size of a table
p2p_test.own_memory       as in :mod:`wiretax.probe.readers.p2p_bandwidth`
========================= ======================================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu
from wiretax.model.measurement import Copy, Measurements
from wiretax.probe.readers.pasted import Notes, explained, machine, positive
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "bandwidthTest"
_START = re.compile(r"\[CUDA Bandwidth Test\]|bandwidthTest(?:\.\w{1,8})? Starting")
_DEVICE = re.compile(r"\s{0,12}Device (\d{1,3}): (\S.{0,80}?)\s*$")
_WAY = re.compile(r"\s*((?:Host|Device) to (?:Host|Device)) Bandwidth, (\d{1,3}) Device\(s\)")
_MEMORY = re.compile(r"\s*(PINNED|PAGEABLE) Memory Transfers")
_HEADING = re.compile(r"(?:^|Enabled|\s)\s*Transfer Size \(Bytes\)\s{1,20}Bandwidth\((MB|GB)/s\)\s*$")
_ROW = re.compile(r"\s*(\d{1,12})\s{1,40}(\d{1,8}(?:\.\d{1,4})?)\s*$")
_CSV = re.compile(
    r"\s*bandwidthTest-(?P<way>H2D|D2H|D2D)(?:-(?P<memory>Pinned|Paged))?[\w-]{0,20}, Bandwidth = (?P<rate>\d{1,8}(?:\.\d{1,4})?) "
    r"(?P<unit>MB|GB)/s, Time = [\d.]{1,20} s, Size = (?P<size>\d{1,12}) bytes, NumDevsUsed = (?P<devices>\d{1,3})"
)
_HARMLESS = re.compile(
    r"\s*(?:Running on\.\.\.|(?:Quick|Range|Shmoo) Mode|Result = PASS|NOTE: The CUDA Samples are not|Write-Combined Memory)"
)
# The sample's MB is 1000 x 1024 bytes (it counts 1/1024 of a byte a millisecond); its GB is 10^9 (bandwidthTest.cu of
# https://github.com/NVIDIA/cuda-samples, before and after 10.1).
_UNITS = {"MB": 1_024_000.0, "GB": 1e9}
_WAYS = {"H2D": "host_to_device", "D2H": "device_to_host", "D2D": "device_to_device"}


@dataclass(slots=True)
class _Test:
    """One run of the program: its devices, and (way, memory, number of devices) to the largest copy as (bytes, rate, line)."""

    devices: dict[int, str] = field(default_factory=dict)
    largest: dict[tuple[str, str, int], tuple[int, float, int]] = field(default_factory=dict)

    def add(self, what: tuple[str, str, int], num_bytes: int, rate: float | None, line: int) -> None:
        if rate is not None and num_bytes >= self.largest.get(what, (0, 0.0, 0))[0]:
            self.largest[what] = (num_bytes, rate, line)


def read(text: Text) -> tuple[Piece, ...]:
    """The runs in each stream, as one piece a stream."""
    if not any("Device(s)" in line or "bandwidthTest-" in line for line in text.lines):
        return ()
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    tests = [_Test()]
    lines: set[int] = set()
    way, memory, num_gpus, unit = "", "pinned", 1, ""
    started = False
    for line in stream.lines:
        text = line.text
        if len(text) > 300 or not text.strip():
            continue
        if _START.search(text):
            tests.append(_Test())
            started = True
        elif started and (match := _DEVICE.match(text)):
            tests[-1].devices[int(match[1])] = match[2]
        elif match := _WAY.match(text):
            way, num_gpus, unit = match[1].lower().replace(" ", "_"), int(match[2]), ""
        elif way and (match := _MEMORY.match(text)):
            memory = match[1].lower()
        elif way and (match := _HEADING.search(text)):
            unit = match[1]
        elif unit and (match := _ROW.match(text)):
            rate = positive(match[2])
            tests[-1].add((way, memory, num_gpus), int(match[1]), rate and rate * _UNITS[unit], line.number)
        elif match := _CSV.match(text):
            rate = positive(match["rate"])
            what = (_WAYS[match["way"]], "pageable" if match["memory"] == "Paged" else "pinned", int(match["devices"]))
            tests[-1].add(what, int(match["size"]), rate and rate * _UNITS[match["unit"]], line.number)
        elif not ((started or way) and _HARMLESS.match(text)):
            # A row behind other text belongs to no table.
            unit = ""
            continue
        lines.add(line.number)
    if not any(test.largest for test in tests):
        return None
    notes = Notes(source, stream.lines)
    copies = [copy for test in tests for copy in _copies(test, notes)]
    devices = {index: name for test in tests for index, name in test.devices.items()}
    found = machine(
        "the output of bandwidthTest",
        hostname=stream.host,
        gpus=[Gpu(index=index, cuda_ordinal=index, name=name) for index, name in sorted(devices.items())],
        origin_note="GPU numbers are CUDA ordinals: the sample does not state NVML indices",
    )
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=found if devices else None,
        measurements=Measurements(copies=tuple(explained(tuple(copies), "not in the output of bandwidthTest"))),
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _copies(test: _Test, notes: Notes) -> list[Copy]:
    """What a run says of the links of its one GPU; where it used several, or does not name it, only the observations stay."""
    gpu = next(iter(test.devices)) if len(test.devices) == 1 else None
    copies = []
    for (way, memory, num_gpus), (num_bytes, rate, line) in test.largest.items():
        notes.add(line, "bandwidth_test.rate", way=way, memory=memory, num_gpus=num_gpus, num_bytes=num_bytes, bytes_per_second=rate)
        if gpu is None or num_gpus != 1:
            continue
        if way == "device_to_device":
            notes.add(line, "p2p_test.own_memory", gpu=gpu, bytes_per_second=rate)
        elif memory == "pinned":
            ends = (None, gpu) if way == "host_to_device" else (gpu, None)
            copies.append(
                Copy(
                    source_gpu=ends[0],
                    target_gpu=ends[1],
                    route="host",
                    direction="one_way",
                    num_bytes=num_bytes,
                    bandwidth_bytes_per_second=rate,
                )
            )
    return copies
