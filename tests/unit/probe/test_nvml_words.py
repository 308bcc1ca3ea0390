from __future__ import annotations

import pynvml
import pytest

from wiretax.model.machine import Gpu, NvLink
from wiretax.probe import nvml_words as words


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, ()),
        (0x1, ("gpu_idle",)),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x7FF, words._EVENT_REASONS),
        (0x1000, ("unknown_0x1000",)),
    ],
)
def test_event_reasons_are_named_bit_by_bit(mask: int, expected: tuple[str, ...]) -> None:
    assert words.event_reasons(mask) == expected


@pytest.mark.parametrize(
    ("name", "bit"),
    [
        ("gpu_idle", pynvml.nvmlClocksEventReasonGpuIdle),
        ("sw_power_cap", pynvml.nvmlClocksEventReasonSwPowerCap),
        ("hw_slowdown", pynvml.nvmlClocksEventReasonHwSlowdown),
        ("sync_boost", pynvml.nvmlClocksEventReasonSyncBoost),
        ("sw_thermal_slowdown", pynvml.nvmlClocksEventReasonSwThermalSlowdown),
        ("hw_thermal_slowdown", pynvml.nvmlClocksEventReasonHwThermalSlowdown),
        ("hw_power_brake_slowdown", pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
        ("display_clock_setting", pynvml.nvmlClocksEventReasonDisplayClockSetting),
    ],
)
def test_our_names_stand_for_nvmls_bits(name: str, bit: int) -> None:
    assert words.event_reasons(bit) == (name,)


def test_our_numbers_are_those_of_nvml_h() -> None:
    assert words.ReturnCode.GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert words.ReturnCode.LIB_RM_VERSION_MISMATCH == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert words.P2pIndex.WRITE == pynvml.NVML_P2P_CAPS_INDEX_WRITE
    assert words.P2pIndex.PCI == pynvml.NVML_P2P_CAPS_INDEX_PCI
    assert words.P2P_CODES[pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED] == "TNS"
    assert words.P2P_CODES[pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY] == "DR"
    assert words.P2P_CODES[pynvml.NVML_P2P_STATUS_UNKNOWN] == "U"
    assert words.ANCESTOR_PATHS[pynvml.NVML_TOPOLOGY_HOSTBRIDGE] == "PHB"
    assert words.ANCESTOR_PATHS[pynvml.NVML_TOPOLOGY_SYSTEM] == "SYS"
    assert words.Field.NVLINK_GET_SPEED == pynvml.NVML_FI_DEV_NVLINK_GET_SPEED
    assert words.Field.NVLINK_EFFECTIVE_ERRORS == pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS
    assert words.LEGACY_LINK_SPEED_FIELDS[6] == pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_L6
    assert words.NVLINK_GENERATIONS[pynvml.NVML_NVLINK_VERSION_5_0] == 5


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([56, 0, 1, 57, 83], "0-1,56-57,83"), ([6, 14, 22, 30], "6,14,22,30")],
)
def test_lists_are_written_as_linux_writes_them(numbers: list[int], text: str) -> None:
    assert words.list_text(numbers) == text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0000:e1:00.0", "00000000:E1:00.0"),
        ("00000000:00:06.0", "00000000:00:06.0"),
        ("e1:00.0", "00000000:E1:00.0"),
        ("10000:e1:00.0", "00010000:E1:00.0"),
        (" 0000:65:00.0\n", "00000000:65:00.0"),
        ("GPU-12", "GPU-12"),
        ("", ""),
        ("1:2:3:4.5", "1:2:3:4.5"),
    ],
)
def test_pci_addresses_are_written_as_nvidia_smi_writes_them(given: str, expected: str) -> None:
    assert words.bus_id(given) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, ()),
        (0x11AA, ()),  # every question answered with "no trouble"
        (0x1, ("degraded bandwidth",)),
        (0x2000, ("no partition assigned",)),
        (0x400, ("no partition",)),
        (0x10 | 0x500, ("route unhealthy", "insufficient NVLinks")),
    ],
)
def test_only_trouble_is_told_from_the_fabric_mask(mask: int, expected: tuple[str, ...]) -> None:
    assert words.fabric_troubles(mask) == expected


def gpu(index: int, *links: tuple[str, str | None]) -> Gpu:
    made = tuple(
        NvLink(index=number, active=kind != "down", remote_kind="unknown" if kind == "down" else kind, remote_pci_bus_id=address)  # type: ignore[arg-type]
        for number, (kind, address) in enumerate(links)
    )
    return Gpu(index=index, pci_bus_id=f"0000000{index}:00:00.0", nvlinks=made)


def test_no_links_is_no_nvlink_path_even_when_the_driver_says_nvlink_peers() -> None:
    assert words.nvlink_path(gpu(0), gpu(1), nvlink_peers=True) is None


def test_links_to_a_third_gpu_do_not_count() -> None:
    assert words.nvlink_path(gpu(0, ("gpu", "00000002:00:00.0")), gpu(1, ("gpu", "00000000:00:00.0")), nvlink_peers=False) is None


def test_a_gpu_without_an_address_is_not_the_end_of_a_link_without_one() -> None:
    nameless = Gpu(index=1, pci_bus_id=None, nvlinks=())
    assert words.nvlink_path(gpu(0, ("gpu", None)), nameless, nvlink_peers=False) is None
