"""NVML's numbers in words. Pure tables and functions, from nvml.h; pynvml's own constants come and go with its versions.

One of them is even wrong: ``NVML_P2P_CAPS_INDEX_READ`` is written with a trailing comma, so it is a tuple and not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from wiretax.model.machine import Gpu, NvLink, P2pCode


class ReturnCode(IntEnum):
    """The ``nvmlReturn_t`` codes that mean something special here."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18


class P2pIndex(IntEnum):
    """``nvmlGpuP2PCapsIndex_t``: the five separate questions about a pair."""

    READ = 0
    WRITE = 1
    NVLINK = 2
    ATOMICS = 3
    PCI = 4


class Field(IntEnum):
    """``NVML_FI_DEV_*`` numbers asked through ``nvmlDeviceGetFieldValues``."""

    NVLINK_SPEED_MBPS_COMMON = 90
    NVLINK_LINK_COUNT = 91
    NVLINK_DL_REPLAY = 161
    NVLINK_DL_RECOVERY = 162
    NVLINK_DL_CRC = 163
    NVLINK_GET_SPEED = 164
    NVLINK_RECOVERY_EVENTS = 215
    NVLINK_EFFECTIVE_ERRORS = 219


LEGACY_LINK_SPEED_FIELDS = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
"""``NVML_FI_DEV_NVLINK_SPEED_MBPS_L0`` to ``L11``, for drivers older than :attr:`Field.NVLINK_GET_SPEED`."""

P2P_CODES: tuple[P2pCode, ...] = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
"""``nvmlGpuP2PStatus_t`` 0 to 6, as ``nvidia-smi topo -p2p`` prints them."""

ANCESTOR_PATHS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""``nvmlGpuTopologyLevel_t`` to the code of ``nvidia-smi topo -m``; 0 is two GPUs behind the switch of one board."""

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")

NVLINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")
"""``nvmlNvLinkErrorCounter_t`` 0 to 3."""

NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""``NVML_NVLINK_VERSION_*`` to the generation: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0."""

_PCI_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])")

_EVENT_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)

_FABRIC_HEALTH = (
    # (shift, mask, value that means trouble, words): NVML_GPU_FABRIC_HEALTH_MASK_*
    (0, 0x3, 1, "degraded bandwidth"),
    (2, 0x3, 1, "route recovery in progress"),
    (4, 0x3, 1, "route unhealthy"),
    (6, 0x3, 1, "access timeout recovery"),
    (12, 0x3, 2, "no partition assigned"),
)
_FABRIC_CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}


def event_reasons(mask: int) -> tuple[str, ...]:
    """Names of the clock event reasons that are set, in NVML's order; a bit that has no name yet keeps its number."""
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return tuple(_EVENT_REASONS[bit] if bit < len(_EVENT_REASONS) else f"unknown_{1 << bit:#x}" for bit in bits)


def fabric_troubles(health_mask: int) -> tuple[str, ...]:
    """What the fabric's health mask complains of; empty when healthy or when the driver does not know."""
    troubles = [words for shift, mask, bad, words in _FABRIC_HEALTH if health_mask >> shift & mask == bad]
    configuration = _FABRIC_CONFIGURATION.get(health_mask >> 8 & 0xF)
    return (*troubles, *([configuration] if configuration else ()))


def cuda_version(code: int) -> str:
    """CUDA's own number (12080) as people write it (``12.8``)."""
    return f"{code // 1000}.{code % 1000 // 10}"


def list_text(numbers: Iterable[int]) -> str:
    """CPU or node numbers as Linux and nvidia-smi write them: ``0-27,56-83``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def bus_id(text: str) -> str:
    """A PCI address as nvidia-smi prints it: eight digits of domain, upper case (``00000000:E1:00.0``).

    Text that is no PCI address comes back as it is.
    """
    match = _PCI_ADDRESS.fullmatch(text.strip())
    if match is None:
        return text
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08X}:{int(bus, 16):02X}:{int(device, 16):02X}.{function}"


def nvlink_path(source: Gpu, target: Gpu, *, nvlink_peers: bool) -> str | None:
    """The ``NV<k>`` of a pair, or None where no NVLink joins it: what ``nvidia-smi topo -m`` prints.

    Links that end at the other GPU count one by one. Where links end at NVSwitches, every pair is joined by as many as the lesser
    of the two GPUs has up.

    Args:
        source: a GPU with its links.
        target: the other.
        nvlink_peers: whether the driver says NVLink P2P works for the pair. Decides only where the driver tells no remote ends.
    """
    here, there = _active(source), _active(target)
    direct = sum(1 for link in here if link.remote_pci_bus_id is not None and link.remote_pci_bus_id == target.pci_bus_id)
    if direct:
        return f"NV{direct}"
    switched = min(sum(link.remote_kind == "switch" for link in links) for links in (here, there))
    if switched:
        return f"NV{switched}"
    nameless = all(links and all(link.remote_kind == "unknown" for link in links) for links in (here, there))
    return f"NV{min(len(here), len(there))}" if nameless and nvlink_peers else None


def _active(gpu: Gpu) -> tuple[NvLink, ...]:
    return tuple(link for link in gpu.nvlinks if link.active)
