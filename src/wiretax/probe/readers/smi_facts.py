"""What ``nvidia-smi -q`` says, whether as text or as XML, old driver or new: one table of facts for both readers.

A reader turns its format into :class:`Leaf` objects under the text format's labels (lower case, ``_`` for blanks); this module knows
what they mean.

Observations:
    ``smi.attached``: ``attached`` (GPUs the driver counts), ``shown`` (GPUs in the text).
    ``gpu.index_assumed``: ``gpu``, ``pci_bus_id``: the text does not number its GPUs and shows not all of them, so the number is
    only the place in the text.
    ``gpu.performance_state``: ``gpu``, ``state`` (``P0`` .. ``P12``).
    ``gpu.pcie_limits``: ``gpu``, ``device_current_generation``, ``device_max_generation``, ``host_max_generation``.
    ``gpu.pcie_replays``: ``gpu``, ``replays``.
    ``gpu.virtualization``: ``gpu``, ``mode`` (``VGPU``, ``Pass-Through``, ``None``, ...).
    ``gpu.brand``: ``gpu``, ``brand``.
    ``gpu.bar1``: ``gpu``, ``bar1_bytes``, ``memory_bytes``.
    ``gpu.fabric``: ``gpu``, ``state``, ``status``, ``clique``, ``health`` (as printed).
    ``gpu.recovery_action``: ``gpu``, ``action``, where it is not None.
    ``gpu.remapped_rows``: ``gpu``, ``correctable``, ``uncorrectable``, ``pending``, ``failed``, where any is not zero or No.
    ``gpu.retired_pages``: ``gpu``, ``single_bit``, ``double_bit``, ``pending``, where any is not zero or No.
    ``gpu.ecc``: ``gpu``, ``volatile_uncorrected``, ``aggregate_uncorrected``, where either is not zero.
    ``gpu.process``: ``gpu``, ``pid``, ``type`` (``C``, ``G``, ``C+G``), ``name``, ``memory_bytes``.
    ``gpu.compute_mode``: ``gpu``, ``mode``, where it is not Default.
    ``gpu.reading_failed``: ``gpu``, ``field``: the driver answered ERR! or Unknown Error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wiretax.model.machine import Gpu, Software
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece
from wiretax.probe.readers.streams import Stream

REASONS = {
    "idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "display_clock_setting": "display_clock_setting",
    "display_clocks_setting": "display_clock_setting",
}
"""Labels of "Clocks Event Reasons" (drivers before 535: "Clocks Throttle Reasons") to NVML's words."""
_REASON_SECTIONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_POWER_SECTIONS = ("gpu_power_readings", "power_readings")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One label with its value, and the headings it stands under, outermost first."""

    line: int
    headings: tuple[str, ...]
    label: str
    value: str

    @property
    def section(self) -> str:
        """The heading right above."""
        return self.headings[-1] if self.headings else ""


@dataclass(slots=True)
class Block:
    """The leaves of one GPU. ``bus_id`` is empty where the text is an excerpt without the line that begins a GPU."""

    bus_id: str
    line: int
    leaves: list[Leaf] = field(default_factory=list)

    def text(self, label: str, *sections: str) -> str | None:
        """The first value of the label, under one of the sections if any are named; None where absent or ``N/A``."""
        for leaf in self.leaves:
            if leaf.label == label and (not sections or leaf.section in sections):
                return pasted.said(leaf.value)
        return None

    def line_of(self, label: str, *sections: str) -> int:
        """The line of that value, or of the GPU where it is absent."""
        return next((x.line for x in self.leaves if x.label == label and (not sections or x.section in sections)), self.line)


@dataclass(slots=True)
class Log:
    """One output of ``nvidia-smi -q``."""

    format: str
    head: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    damaged: list[tuple[int, str]] = field(default_factory=list)


def key(label: str) -> str:
    """A label or heading in the form of the fact table: ``"GPU Link Info"`` is ``gpu_link_info``."""
    return "_".join(re.sub(r"[^a-z0-9]+", " ", label.lower()).split())


def piece_of(source: str, stream: Stream, log: Log) -> Piece:
    """The machine and observations of one output."""
    notes = pasted.Notes(source, stream.lines)
    attached = pasted.whole(log.head.get("attached_gpus"))
    first = min(log.lines)
    if attached is not None:
        notes.add(first, "smi.attached", attached=attached, shown=len(log.blocks))
    assumed = bool(log.blocks) and (attached != len(log.blocks) or any(not block.bus_id for block in log.blocks))
    gpus = []
    for index, block in enumerate(log.blocks):
        if assumed:
            bus = pasted.pci_bus_id(block.bus_id) if block.bus_id else None
            notes.add(block.line, "gpu.index_assumed", gpu=index, pci_bus_id=bus)
        gpus.append(_gpu(index, block, notes))
        _note_details(index, block, notes)
    software = Software(driver=pasted.said(log.head.get("driver_version")), cuda=pasted.said(log.head.get("cuda_version")))
    return Piece(
        source=source,
        format=log.format,
        first_line=first,
        machine=pasted.machine(
            log.format, hostname=stream.host, gpus=gpus, software=software, origin_note=pasted.NUMBERED_BY_PLACE if assumed else None
        ),
        observations=notes.observations(),
        understood=frozenset(log.lines),
        damaged=tuple(sorted(log.damaged)),
    )


def _gpu(index: int, block: Block, notes: pasted.Notes) -> Gpu:
    missing: dict[str, str] = {}
    name = block.text("product_name")
    state = _fabric_word(block.text("state", "fabric"))
    if state is None and block.line_of("state", "fabric") != block.line:
        missing["fabric_state"] = "the driver says N/A"
    utilization = pasted.number(block.text("gpu", "utilization"))
    mig = block.text("current", "mig_mode")
    volatile = _uncorrected(block, "volatile")
    if volatile is None:
        missing["ecc_uncorrected_errors"] = "no volatile ECC counts in the text"
    attached = block.text("display_attached") or block.text("display_mode")
    for label in ("product_name", "performance_state", "gpu_current_temp"):
        for leaf in block.leaves:
            if leaf.label == label and re.search(r"ERR!|Unknown Error|GPU is lost", leaf.value):
                notes.add(leaf.line, "gpu.reading_failed", gpu=index, field=label)
    return Gpu(
        index=index,
        name=name,
        uuid=block.text("gpu_uuid"),
        pci_bus_id=pasted.pci_bus_id(block.bus_id) if block.bus_id else None,
        memory_bytes=pasted.num_bytes(block.text("total", "fb_memory_usage")),
        memory_used_bytes=pasted.num_bytes(block.text("used", "fb_memory_usage")),
        pcie=pasted.pcie_link(
            block.text("current", "pcie_generation") or block.text("device_current", "pcie_generation"),
            block.text("max", "pcie_generation"),
            block.text("current", "link_width"),
            block.text("max", "link_width"),
        ),
        mig="enabled" if mig == "Enabled" else "disabled" if mig == "Disabled" else None,
        power_limit_watts=_first_number(block, ("current_power_limit", "power_limit", "enforced_power_limit"), _POWER_SECTIONS),
        power_watts=_first_number(block, ("average_power_draw", "power_draw", "instantaneous_power_draw"), _POWER_SECTIONS),
        temperature_celsius=pasted.number(block.text("gpu_current_temp", "temperature")),
        sm_clock_mhz=pasted.whole(block.text("sm", "clocks")),
        max_sm_clock_mhz=pasted.whole(block.text("sm", "max_clocks")),
        throttle_reasons=_reasons(block),
        ecc_uncorrected_errors=volatile,
        fabric_state=state,
        fabric_status=block.text("status", "fabric"),
        display_attached={"Yes": True, "Enabled": True, "No": False, "Disabled": False}.get(attached or ""),
        utilization_fraction=None if utilization is None else utilization / 100,
        missing=missing,
    )


def _fabric_word(value: str | None) -> str | None:
    return None if value is None else key(value)


def _first_number(block: Block, labels: tuple[str, ...], sections: tuple[str, ...]) -> float | None:
    return next((found for label in labels if (found := pasted.number(block.text(label, *sections))) is not None), None)


def _reasons(block: Block) -> tuple[str, ...] | None:
    seen = [leaf for leaf in block.leaves if leaf.label in REASONS and any(name in leaf.headings for name in _REASON_SECTIONS)]
    return tuple(REASONS[leaf.label] for leaf in seen if leaf.value.strip() == "Active") if seen else None


def _uncorrected(block: Block, kind: str) -> int | None:
    """Uncorrected ECC errors; the label differs by driver and GPU, and old drivers sum them under ``Double Bit: Total``."""
    counts = []
    for leaf in block.leaves:
        if "ecc_errors" not in leaf.headings and leaf.section not in ("volatile", "aggregate", "double_bit"):
            continue
        if kind not in leaf.headings:
            continue
        uncorrectable = ("uncorrectable" in leaf.label) or (leaf.section == "double_bit" and leaf.label == "total")
        value = pasted.whole(leaf.value) if uncorrectable else None
        if value is not None:
            counts.append(value)
    return sum(counts) if counts else None


def _note_details(index: int, block: Block, notes: pasted.Notes) -> None:
    state = block.text("performance_state")
    if state:
        notes.add(block.line_of("performance_state"), "gpu.performance_state", gpu=index, state=state)
    limits = {
        f"{name}_generation": pasted.whole(block.text(name, "pcie_generation")) for name in ("device_current", "device_max", "host_max")
    }
    if any(value is not None for value in limits.values()):
        notes.add(block.line_of("device_max", "pcie_generation"), "gpu.pcie_limits", gpu=index, **limits)
    replays = pasted.whole(block.text("replays_since_reset"))
    if replays is not None:
        notes.add(block.line_of("replays_since_reset"), "gpu.pcie_replays", gpu=index, replays=replays)
    mode = next((leaf for leaf in block.leaves if leaf.label == "virtualization_mode"), None)
    if mode and mode.value.strip() not in ("", "N/A"):
        notes.add(mode.line, "gpu.virtualization", gpu=index, mode=mode.value.strip())
    brand = block.text("product_brand")
    if brand:
        notes.add(block.line_of("product_brand"), "gpu.brand", gpu=index, brand=brand)
    bar1 = pasted.num_bytes(block.text("total", "bar1_memory_usage"))
    if bar1 is not None:
        memory = pasted.num_bytes(block.text("total", "fb_memory_usage"))
        notes.add(block.line_of("total", "bar1_memory_usage"), "gpu.bar1", gpu=index, bar1_bytes=bar1, memory_bytes=memory)
    fabric = [leaf for leaf in block.leaves if "fabric" in leaf.headings]
    if fabric:
        health = "; ".join(f"{leaf.label} {leaf.value.strip()}" for leaf in fabric if "health" in leaf.headings and pasted.said(leaf.value))
        notes.add(
            block.line_of("state", "fabric"),
            "gpu.fabric",
            gpu=index,
            state=next((leaf.value.strip() for leaf in fabric if leaf.label == "state"), None),
            status=next((leaf.value.strip() for leaf in fabric if leaf.label == "status"), None),
            clique=block.text("cliqueid", "fabric"),
            health=health or None,
        )
    _note_trouble(index, block, notes)
    _note_processes(index, block, notes)


def _note_trouble(index: int, block: Block, notes: pasted.Notes) -> None:
    action = block.text("gpu_recovery_action")
    if action and action != "None":
        notes.add(block.line_of("gpu_recovery_action"), "gpu.recovery_action", gpu=index, action=action)
    mode = block.text("compute_mode")
    if mode and mode != "Default":
        notes.add(block.line_of("compute_mode"), "gpu.compute_mode", gpu=index, mode=mode)
    remapped = {
        "correctable": pasted.whole(block.text("correctable_error", "remapped_rows")),
        "uncorrectable": pasted.whole(block.text("uncorrectable_error", "remapped_rows")),
        "pending": block.text("pending", "remapped_rows"),
        "failed": block.text("remapping_failure_occurred", "remapped_rows"),
    }
    if any(value not in (None, 0, "No") for value in remapped.values()):
        notes.add(block.line_of("correctable_error", "remapped_rows"), "gpu.remapped_rows", gpu=index, **remapped)
    retired = {
        "single_bit": pasted.whole(block.text("single_bit_ecc", "retired_pages")),
        "double_bit": pasted.whole(block.text("double_bit_ecc", "retired_pages")),
        "pending": block.text("pending_page_blacklist", "retired_pages") or block.text("pending", "retired_pages"),
    }
    if any(value not in (None, 0, "No") for value in retired.values()):
        notes.add(block.line_of("single_bit_ecc", "retired_pages"), "gpu.retired_pages", gpu=index, **retired)
    volatile, aggregate = _uncorrected(block, "volatile"), _uncorrected(block, "aggregate")
    if volatile or aggregate:
        line = next((leaf.line for leaf in block.leaves if "volatile" in leaf.headings), block.line)
        notes.add(line, "gpu.ecc", gpu=index, volatile_uncorrected=volatile, aggregate_uncorrected=aggregate)


def _note_processes(index: int, block: Block, notes: pasted.Notes) -> None:
    current: dict[str, str] = {}
    line = block.line
    for leaf in [*(leaf for leaf in block.leaves if "processes" in leaf.headings), None]:
        if current.get("process_id") and (leaf is None or leaf.label in ("process_id", "gpu_instance_id")):
            notes.add(
                line,
                "gpu.process",
                gpu=index,
                pid=pasted.whole(current["process_id"]),
                type=pasted.said(current.get("type")),
                name=pasted.said(current.get("name")),
                memory_bytes=pasted.num_bytes(current.get("used_gpu_memory")),
            )
            current = {}
        if leaf is not None:
            if leaf.label == "process_id":
                line = leaf.line
            current[leaf.label] = leaf.value
