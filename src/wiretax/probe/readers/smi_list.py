"""Reads ``nvidia-smi -L``, MIG devices included, the same lines in ``collect_env``, and the list with which llama.cpp starts.

Observations:
    ``mig.device``: ``gpu``, ``device`` (its number on that GPU), ``profile`` (``3g.40gb``), ``uuid``.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import Line, Stream, streams

FORMAT = "nvidia-smi -L"
GPU_LINE = re.compile(r"\s{0,12}GPU\s?#?(\d{1,3}):\s{1,4}(\S[^(]{0,80}?)\s{0,4}(?:\(UUID:\s?(?:([\w-]{4,60})|[^()]{0,60})\)?)?\s*$")
"""A GPU with its name and, mostly, its UUID: the first line of a device in ``-L`` and in ``nvlink``."""
_MIG_LINE = re.compile(r"\s{0,12}MIG\s{1,8}([\w.+]{3,30})\s{1,12}Device\s{1,4}(\d{1,2}):\s{1,4}\(UUID:\s?([^()]{1,90})\)?")
_VENDOR = re.compile(r"nvidia|tesla|geforce|quadro|rtx|gtx|titan|grid|[ahlvb]\d{2,3}\b|gh200|gb[23]00", re.IGNORECASE)
_CUDA_DEVICE = re.compile(r"\s{0,12}Device (\d{1,3}): ((?:NVIDIA|Tesla|GeForce|Quadro)\s[^,]{1,60}), compute capability \d")
"""llama.cpp's list; its numbers are CUDA's."""
_OTHER_COMMAND = re.compile(r"\s*(?:NVML: )?(?:Link \d|.{0,40}nv-?link (?:information|queries)|Device does not have)", re.IGNORECASE)


@dataclass(slots=True)
class _List:
    gpus: dict[int, Gpu] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)


def read(text: Text) -> tuple[Piece, ...]:
    """All lists of a text; a number that comes again with another UUID or name begins the next list."""
    return tuple(piece for stream in streams(text) for piece in _pieces(text.source, stream))


def _pieces(source: str, stream: Stream) -> list[Piece]:
    pieces: list[Piece] = []
    notes = pasted.Notes(source, stream.lines)
    found = _List()
    last: int | None = None

    def close() -> None:
        nonlocal found, notes, last
        if found.gpus:
            pieces.append(
                Piece(
                    source=source,
                    format=FORMAT,
                    first_line=min(found.lines),
                    machine=pasted.machine(FORMAT, hostname=stream.host, gpus=[_plain(found.gpus[index]) for index in sorted(found.gpus)]),
                    observations=notes.observations(),
                    understood=frozenset(found.lines),
                )
            )
        found, notes, last = _List(), pasted.Notes(source, stream.lines), None

    for position, line in enumerate(stream.lines):
        if "GPU" not in line.text and "MIG" not in line.text and "Device" not in line.text:
            continue
        mig = _MIG_LINE.match(line.text)
        if mig and last is not None:
            profile, device, uuid = mig.groups()
            notes.add(line.number, "mig.device", gpu=last, device=int(device), profile=profile, uuid=uuid)
            found.gpus[last] = _with_mig(found.gpus[last])
            found.lines.add(line.number)
            continue
        gpu = gpu_of(line) or _cuda_device(line)
        if gpu is None or _begins_other_command(stream.lines, position):
            continue
        before = found.gpus.get(gpu.index)
        if before is not None and (before.uuid, before.name) != (gpu.uuid, gpu.name):
            close()
        found.gpus[gpu.index] = before if before is not None and gpu.index in found.gpus else gpu
        found.lines.add(line.number)
        last = gpu.index
    close()
    return pieces


def gpu_of(line: Line) -> Gpu | None:
    """The GPU of a ``GPU 0: name (UUID: ...)`` line, or None where the line is something else."""
    match = GPU_LINE.match(line.text) if len(line.text) < 300 else None
    if match is None:
        return None
    index, name, uuid = match.groups()
    if uuid is None and not _VENDOR.search(name):
        return None
    return Gpu(index=int(index), name=name.strip(), uuid=uuid)


def _cuda_device(line: Line) -> Gpu | None:
    match = _CUDA_DEVICE.match(line.text) if len(line.text) < 300 else None
    return Gpu(index=int(match[1]), cuda_ordinal=int(match[1]), name=match[2]) if match else None


def _with_mig(gpu: Gpu) -> Gpu:
    return dataclasses.replace(gpu, mig="enabled")


def _plain(gpu: Gpu) -> Gpu:
    return gpu if gpu.mig else dataclasses.replace(gpu, missing={"mig": f"{FORMAT} shows MIG only where instances exist"})


def _begins_other_command(lines: tuple[Line, ...], position: int) -> bool:
    following = next((line.text for line in lines[position + 1 : position + 3] if line.text.strip()), "")
    return _OTHER_COMMAND.match(following[:120]) is not None
