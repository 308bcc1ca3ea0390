"""Reads ``nvidia-smi nvlink`` with ``-s`` (state), ``-c`` (capabilities), ``-e`` (errors), ``-p`` and ``-R`` (the other end).

Observations:
    ``nvlink.links``: one a GPU with a state list; ``gpu``, ``active``, ``inactive``, ``gigabytes_per_second`` (of one link, one way;
    None where links differ).
    ``nvlink.inactive``: ``gpu``, ``link``: a link that is there and down.
    ``nvlink.none_active``: ``gpu``, ``why`` (``all_inactive``: no bridge or no partner; ``not_supported``; ``mig``: not told in MIG mode).
    ``nvlink.error``: ``gpu``, ``link``, ``counter``, ``value``: a counter that is not zero.
    ``nvlink.capability``: ``gpu``, ``link``, ``capability``, ``supported`` (only those that are false).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, NvLink
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.smi_list import gpu_of
from wiretax.probe.readers.streams import Stream, streams

FORMAT = "nvidia-smi nvlink"
_STATE = re.compile(r"\s*Link\s{1,4}(\d{1,2}):\s{1,8}(?:(\d{1,4}(?:\.\d{1,4})?)\s?GB/s|<?(inactive|disabled|off|n/a)>?)\s*$", re.IGNORECASE)
_REMOTE = re.compile(rf"\s*Link\s{{1,4}}(\d{{1,2}}):\s{{1,8}}(?:Remote Device )?({pasted.BUS_ID})\b")
_ERROR = re.compile(r"\s*Link\s{1,4}(\d{1,2}):\s{1,8}([A-Za-z][A-Za-z ]{2,60}?):\s{1,8}(\d{1,18})\s*$")
_CAPABILITY = re.compile(r"\s*Link\s{1,4}(\d{1,2}),\s{1,8}([A-Za-z0-9][\w ]{2,60}?):\s{1,8}(true|false)\s*$", re.IGNORECASE)
_ALL_INACTIVE = re.compile(r"Unable to retrieve nvlink information as all links are inactive", re.IGNORECASE)
_NOT_SUPPORTED = re.compile(r"Device does not have or support nvlink|nvlink (?:is )?not supported", re.IGNORECASE)
_MIG = re.compile(r"nvlink queries are not supported for devices in MIG mode", re.IGNORECASE)
_ELLIPSIS = re.compile(r"\s*\W{0,2}(?:\.{3,8}|\u2026)\W{0,2}\s*$")
_COUNTERS = {
    "replay errors": "replay",
    "recovery errors": "recovery",
    "crc errors": "crc_flit",
    "crc flit errors": "crc_flit",
    "crc data errors": "crc_data",
}


@dataclass(slots=True)
class _Device:
    gpu: Gpu
    line: int
    states: dict[int, float | None] = field(default_factory=dict)
    remotes: dict[int, str] = field(default_factory=dict)
    errors: dict[int, dict[str, int]] = field(default_factory=dict)
    none_active: str | None = None
    is_cut: bool = False
    """Whoever pasted it left out the rest of its links."""


@dataclass(slots=True)
class _Block:
    devices: dict[int, _Device] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)


def read(text: Text) -> tuple[Piece, ...]:
    """All link lists of a text; a second state list of the same GPU that differs is another piece (another moment or machine)."""
    return tuple(piece for stream in streams(text) for piece in _pieces(text.source, stream))


def _pieces(source: str, stream: Stream) -> list[Piece]:
    pieces: list[Piece] = []
    block, notes = _Block(), pasted.Notes(source, stream.lines)
    device: _Device | None = None
    header: tuple[int, Gpu] | None = None

    def close() -> None:
        nonlocal block, notes, device
        if block.devices:
            pieces.append(_piece(source, stream.host, block, notes))
        block, notes, device = _Block(), pasted.Notes(source, stream.lines), None

    for line in stream.lines:
        text = line.text
        if device is not None and _ELLIPSIS.match(text):
            device.is_cut = True
        if ("ink" not in text and "GPU" not in text) or len(text) > 400:
            continue
        gpu = gpu_of(line) if "GPU" in text else None
        if gpu is not None:
            header, device = (line.number, gpu), None
            continue
        if header is None:
            continue
        state, remote = _STATE.match(text), _REMOTE.match(text)
        error, capability = _ERROR.match(text), _CAPABILITY.match(text)
        why = "all_inactive" if _ALL_INACTIVE.search(text) else "not_supported" if _NOT_SUPPORTED.search(text) else None
        why = why or ("mig" if _MIG.search(text) else None)
        if not (state or remote or error or capability or why):
            continue
        number, gpu = header
        known = block.devices.get(gpu.index)
        differs = known is not None and (known.gpu.uuid, known.gpu.name) != (gpu.uuid, gpu.name)
        if state and known is not None:
            speed = float(state.group(2)) if state.group(2) else None
            differs = differs or known.states.get(int(state.group(1)), speed) != speed
        if differs:
            close()
        if device is None or gpu.index not in block.devices:
            device = block.devices.setdefault(gpu.index, _Device(gpu, number))
        block.lines.update((number, line.number))
        if state:
            device.states[int(state.group(1))] = float(state.group(2)) if state.group(2) else None
            if not state.group(2):
                notes.add(line.number, "nvlink.inactive", gpu=gpu.index, link=int(state.group(1)))
        elif remote:
            device.remotes[int(remote.group(1))] = pasted.pci_bus_id(remote.group(2))
        elif error:
            link, label, value = int(error.group(1)), " ".join(error.group(2).lower().split()), int(error.group(3))
            counter = _COUNTERS.get(label, label.replace(" ", "_"))
            device.errors.setdefault(link, {})[counter] = value
            if value and ("error" in label or "recovery" in label):
                notes.add(line.number, "nvlink.error", gpu=gpu.index, link=link, counter=counter, value=value)
        elif capability:
            if capability.group(3).lower() == "false":
                what = "_".join(capability.group(2).lower().removesuffix(" is supported").removesuffix(" supported").split())
                notes.add(line.number, "nvlink.capability", gpu=gpu.index, link=int(capability.group(1)), capability=what, supported=False)
        elif why:
            device.none_active = why
            notes.add(line.number, "nvlink.none_active", gpu=gpu.index, why=why)
    close()
    return pieces


def _piece(source: str, host: str | None, block: _Block, notes: pasted.Notes) -> Piece:
    for index, device in sorted(block.devices.items()):
        if device.states and not device.is_cut:
            speeds = {speed for speed in device.states.values() if speed is not None}
            active = sum(speed is not None for speed in device.states.values())
            each = speeds.pop() if len(speeds) == 1 else None
            notes.add(
                device.line, "nvlink.links", gpu=index, active=active, inactive=len(device.states) - active, gigabytes_per_second=each
            )
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(block.lines),
        machine=pasted.machine(FORMAT, hostname=host, gpus=[_gpu(device) for _, device in sorted(block.devices.items())]),
        observations=notes.observations(),
        understood=frozenset(block.lines),
    )


def _gpu(device: _Device) -> Gpu:
    links = tuple(
        NvLink(
            index=link,
            active=speed is not None,
            bandwidth_bytes_per_second=None if speed is None else speed * 1e9,
            remote_pci_bus_id=device.remotes.get(link),
            errors=device.errors.get(link, {}),
            missing={} if speed is not None else {"bandwidth_bytes_per_second": "the link is inactive"},
        )
        for link, speed in sorted(device.states.items())
    )
    active: int | None = None
    missing = dict(device.gpu.missing)
    if device.is_cut:
        missing["nvlinks_active"] = "the list of its links was cut short"
    elif links:
        active = sum(link.active for link in links)
    elif device.none_active in ("all_inactive", "not_supported"):
        active = 0
    elif device.none_active == "mig":
        missing["nvlinks_active"] = "the driver does not tell in MIG mode"
    mig = "enabled" if device.none_active == "mig" else None
    if mig:
        missing.pop("mig", None)
    return dataclasses.replace(device.gpu, nvlinks=links, nvlinks_active=active, mig=mig, missing=missing)  # type: ignore[arg-type]
