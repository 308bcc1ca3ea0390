"""All through the real pynvml, a real library and a real child process; only the library's answers are made up."""

from __future__ import annotations

import pytest

from fake_nvml.fake import FakeNvml
from wiretax.model.machine import Gpu, GpuPair
from wiretax.model.reading import unexplained
from wiretax.probe.nvml_answer import NvmlAnswer

GEFORCE = """
gpus=4
name=NVIDIA GeForce RTX 4090
memory=25757220864
cc=8.9
links=none
mig=-
ecc=-
p2p=1,1,5,1,1
path=50
path.0.1=30
path.1.0=30
path.2.3=30
path.3.2=30
"""


def path(answer: NvmlAnswer, source: int, target: int) -> str | None:
    return next(pair.path for pair in answer.pairs if (pair.source_gpu, pair.target_gpu) == (source, target))


def matrix(answer: NvmlAnswer) -> list[list[str | None]]:
    count = len(answer.gpus)
    return [[None if source == target else path(answer, source, target) for target in range(count)] for source in range(count)]


def test_every_reading_of_a_gpu_has_its_value_in_the_units_of_its_name(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=1\nused_v2=5000000\nutilization=37\nreasons=0x44\nfabric=3\nlinks=s*18\ncpus=0xf000f\n")
    assert (answer.driver_state, answer.driver_detail, answer.driver, answer.cuda) == ("ok", None, "580.159.04", "13.0")
    gpu = answer.gpus[0]
    assert (gpu.name, gpu.uuid, gpu.pci_bus_id) == ("NVIDIA H200", "GPU-00000001-0000-4000-8000-000000000000", "00000000:10:00.0")
    assert (gpu.memory_bytes, gpu.memory_used_bytes) == (143771 * 2**20, 5_000_000)
    assert (gpu.pcie.generation, gpu.pcie.width, gpu.pcie.max_generation, gpu.pcie.max_width) == (5, 16, 5, 16)
    assert (gpu.power_watts, gpu.power_limit_watts, gpu.temperature_celsius) == (119.0, 700.0, 40.0)
    assert (gpu.sm_clock_mhz, gpu.max_sm_clock_mhz) == (360, 1980)
    assert gpu.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert (gpu.mig, gpu.compute_capability, gpu.ecc_uncorrected_errors) == ("disabled", "9.0", 0)
    assert (gpu.fabric_state, gpu.fabric_status) == ("completed", "success")
    assert (gpu.utilization_fraction, gpu.display_attached, gpu.other_processes) == (0.37, False, 0)
    assert (gpu.numa_node, gpu.cpu_affinity) == (0, "0-3,16-19")


def test_a_seen_null_always_has_its_reason(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask(GEFORCE + "lost=2\npower.1=-\nclock.0=-\n")
    allowed = {f"$.gpus[{index}].cuda_ordinal" for index in range(4)} | {f"$.pairs[{index}].peer_access" for index in range(12)}
    assert set(unexplained(answer)) <= allowed  # those two are added by whoever knows the environment and has no rank


def test_a_reading_the_driver_refuses_is_null_with_the_drivers_words(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.ask("gpus=1\nmig=-\necc=-\npower=-\nrefuse=nvmlDeviceGetUtilizationRates:4\n").gpus[0]
    assert (gpu.mig, gpu.ecc_uncorrected_errors, gpu.power_watts, gpu.utilization_fraction) == (None, None, None, None)
    assert gpu.missing["mig"] == gpu.missing["power_watts"] == "NVML: Not Supported"
    assert gpu.missing["utilization_fraction"] == "NVML: Insufficient Permissions"
    assert gpu.temperature_celsius == 40.0


@pytest.mark.parametrize(("answer", "field"), [("gen=0", "generation"), ("width=0", "width"), ("max_gen=0", "max_generation")])
def test_a_zero_that_cannot_be_true_is_missing_and_not_zero(fake_nvml: FakeNvml, answer: str, field: str) -> None:
    pcie = fake_nvml.ask(f"gpus=1\n{answer}\n").gpus[0].pcie
    assert getattr(pcie, field) is None
    assert pcie.missing[field] == "NVML: answered 0"


def test_a_utilization_above_100_percent_is_missing(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.ask("gpus=1\nutilization=4294967295\n").gpus[0]
    assert gpu.utilization_fraction is None
    assert "4294967295" in gpu.missing["utilization_fraction"]


def test_four_geforce_cards_have_their_phb_and_sys_matrix_and_no_p2p(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask(GEFORCE)
    assert matrix(answer) == [
        [None, "PHB", "SYS", "SYS"],
        ["PHB", None, "SYS", "SYS"],
        ["SYS", "SYS", None, "PHB"],
        ["SYS", "SYS", "PHB", None],
    ]
    assert len(answer.pairs) == 12
    for pair in answer.pairs:
        assert (pair.p2p.read, pair.p2p.write, pair.p2p.nvlink, pair.p2p.atomics, pair.p2p.pci) == ("CNS", "CNS", "NS", "CNS", "CNS")


@pytest.mark.parametrize(
    ("level", "code"), [("0", "PIX"), ("10", "PIX"), ("20", "PXB"), ("30", "PHB"), ("40", "NODE"), ("50", "SYS"), ("-", None), ("35", None)]
)
def test_the_path_is_the_code_nvidia_smi_prints(fake_nvml: FakeNvml, level: str, code: str | None) -> None:
    pair = fake_nvml.ask(f"gpus=2\nlinks=none\npath={level}\n").pairs[0]
    assert pair.path == code
    assert (code is None) == ("path" in pair.missing)


def test_the_five_p2p_questions_are_five_answers_and_an_unheard_code_is_missing(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nlinks=none\np2p.0.1=0,2,3,4,6\np2p.1.0=0,9,0,0,0\n")
    there, back = answer.pairs
    assert (there.p2p.read, there.p2p.write, there.p2p.nvlink, there.p2p.atomics, there.p2p.pci) == ("OK", "GNS", "TNS", "DR", "U")
    assert (back.p2p.read, back.p2p.write) == ("OK", None)
    assert back.p2p.missing == {"write": "NVML: P2P status 9 has no name yet"}


def test_behind_nvswitches_every_pair_is_joined_by_all_links(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=8\nlinks=s*18\n")
    assert {pair.path for pair in answer.pairs} == {"NV18"}
    assert [gpu.nvlinks_active for gpu in answer.gpus] == [18] * 8
    link = answer.gpus[3].nvlinks[17]
    assert (link.index, link.active, link.bandwidth_bytes_per_second, link.version, link.remote_kind) == (17, True, 26.562e9, 4, "switch")
    assert link.errors == {"replay": 0, "recovery": 0, "crc_flit": 0}


def test_a_gpu_with_links_down_lowers_its_own_pairs_behind_a_switch(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=3\nlinks=s*4\nlinks.2=s,s,s,-\n")
    assert (path(answer, 0, 1), path(answer, 0, 2), path(answer, 2, 1)) == ("NV4", "NV3", "NV3")
    down = answer.gpus[2].nvlinks[3]
    assert (down.active, down.bandwidth_bytes_per_second) == (False, None)
    assert down.missing["bandwidth_bytes_per_second"] == "the link is not active"


def test_bridged_pairs_count_only_the_links_that_end_at_each_other(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=4\nlinks.0=1,1,1,1\nlinks.1=0,0,0,0\nlinks.2=3,3,-,-\nlinks.3=2,2,-,-\npath=50\nlink_version=4\n")
    assert matrix(answer) == [
        [None, "NV4", "SYS", "SYS"],
        ["NV4", None, "SYS", "SYS"],
        ["SYS", "SYS", None, "NV2"],
        ["SYS", "SYS", "NV2", None],
    ]
    assert [gpu.nvlinks_active for gpu in answer.gpus] == [4, 4, 2, 2]
    assert answer.gpus[0].nvlinks[0].remote_pci_bus_id == answer.gpus[1].pci_bus_id
    assert answer.gpus[0].nvlinks[0].version == 3


def test_links_to_a_cpu_do_not_join_gpus(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nlinks.0=1,1,1,n,n,n\nlinks.1=0,0,0,n,n,n\n")
    assert path(answer, 0, 1) == "NV3"
    assert [link.remote_kind for link in answer.gpus[0].nvlinks] == ["gpu"] * 3 + ["cpu"] * 3


@pytest.mark.parametrize(("nvlink_status", "expected"), [(0, "NV2"), (5, "SYS")])
def test_where_the_far_ends_are_not_told_the_p2p_status_decides(fake_nvml: FakeNvml, nvlink_status: int, expected: str) -> None:
    answer = fake_nvml.ask(f"gpus=2\nlinks=?,?\np2p=0,0,{nvlink_status},0,5\n")
    assert path(answer, 0, 1) == expected
    assert answer.gpus[0].nvlinks[0].missing["remote_pci_bus_id"] == "NVML: Not Supported"


def test_a_driver_that_tells_no_link_count_is_asked_link_by_link(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nlinks=s*12\nlink_count=-\n")
    assert [gpu.nvlinks_active for gpu in answer.gpus] == [12, 12]
    assert path(answer, 0, 1) == "NV12"


def test_a_gpu_without_nvlink_has_no_count_but_a_reason(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.ask("gpus=1\nlinks=none\n").gpus[0]
    assert (gpu.nvlinks_active, gpu.nvlinks) == (None, ())
    assert gpu.missing["nvlinks_active"] == "NVML: Not Supported"


def test_newer_links_have_newer_error_counters(fake_nvml: FakeNvml) -> None:
    none = "gpus=1\nlinks=s*2\nlink_errors=-\nlink_field_errors=-\n"
    link = fake_nvml.ask(f"{none}new_link_errors=7\nlink_version=7\nlink_speed=53125\n").gpus[0].nvlinks[0]
    assert link.errors == {"recovery": 7, "effective": 7}
    assert (link.version, link.bandwidth_bytes_per_second) == (5, 53.125e9)
    without = fake_nvml.ask(none).gpus[0].nvlinks[0]
    assert (without.errors, without.missing["errors"]) == ({}, "NVML: Not Supported")


@pytest.mark.parametrize(
    ("version", "errors"),
    [
        (4, {"replay": 3, "recovery": 3, "crc_flit": 3, "crc_data": 3}),
        (6, {"replay": 3, "recovery": 3, "crc_flit": 3}),  # a counter that means nothing from NVLink 4 on
    ],
)
def test_drivers_without_the_fields_are_asked_counter_by_counter(fake_nvml: FakeNvml, version: int, errors: dict[str, int]) -> None:
    link = fake_nvml.ask(f"gpus=1\nlinks=s*2\nlink_errors=3\nlink_field_errors=-\nlink_version={version}\n").gpus[0].nvlinks[1]
    assert link.errors == errors


def test_switches_whose_addresses_are_hidden_still_join_the_gpus(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nlinks=h,h,h\n")
    link = answer.gpus[0].nvlinks[0]
    assert (link.remote_kind, link.remote_pci_bus_id) == ("switch", None)
    assert link.missing["remote_pci_bus_id"] == "NVML: the far end's address is hidden"
    assert path(answer, 0, 1) == "NV3"


def test_an_unheard_nvlink_version_is_missing(fake_nvml: FakeNvml) -> None:
    link = fake_nvml.ask("gpus=1\nlinks=s*1\nlink_version=42\n").gpus[0].nvlinks[0]
    assert (link.version, link.missing["version"]) == (None, "NVML: NVLink version code 42 has no name yet")


@pytest.mark.parametrize(
    ("answers", "state", "status"),
    [
        ("fabric=0", "not_supported", None),
        ("fabric=1", "not_started", None),
        ("fabric=2", "in_progress", None),
        ("fabric=3", "completed", "success"),
        ("fabric=3\nfabric_status=23", "completed", "fake error 23"),
        ("fabric=3\nfabric_health=0x2002", "completed", "success; health: no partition assigned"),
        ("fabric=3\nfabric_health=0x1", "completed", "success; health: degraded bandwidth"),
        ("fabric=3\nfabric_health=0x512", "completed", "success; health: route unhealthy, insufficient NVLinks"),
        ("fabric=9", None, None),
        ("fabric=-", None, None),
    ],
)
def test_fabric_registration_is_told_in_words(fake_nvml: FakeNvml, answers: str, state: str | None, status: str | None) -> None:
    gpu = fake_nvml.ask(f"gpus=1\n{answers}\n").gpus[0]
    assert (gpu.fabric_state, gpu.fabric_status) == (state, status)
    assert (state is None) == ("fabric_state" in gpu.missing)
    assert (status is None) == ("fabric_status" in gpu.missing)


def test_a_lost_gpu_leaves_the_others_readable(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=4\nlost=1\nlinks=s*18\n")
    assert [gpu.status for gpu in answer.gpus] == ["ok", "lost", "ok", "ok"]
    lost = answer.gpus[1]
    assert (lost.name, lost.status_reason, lost.missing["name"]) == (None, "NVML: GPU is lost", "NVML: GPU is lost")
    assert answer.driver_state == "ok"
    assert path(answer, 0, 2) == "NV18"
    with_lost = next(pair for pair in answer.pairs if (pair.source_gpu, pair.target_gpu) == (0, 1))
    assert (with_lost.path, with_lost.missing["path"], with_lost.p2p.missing["read"]) == (None, "GPU 1 is lost", "GPU 1 is lost")


def test_a_gpu_that_dies_while_it_is_read_is_lost_and_not_asked_again(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nlost_late=0\nlinks=s*18\n")
    assert [gpu.status for gpu in answer.gpus] == ["lost", "ok"]
    assert answer.gpus[0].status_reason == "NVML: GPU is lost"
    assert set(answer.gpus[0].missing.values()) == {"NVML: GPU is lost"}
    assert answer.gpus[1].nvlinks_active == 18


@pytest.mark.parametrize("function", ["nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkErrorCounter"])
def test_a_gpu_that_dies_between_its_links_is_lost(fake_nvml: FakeNvml, function: str) -> None:
    gpu = fake_nvml.ask(f"gpus=1\nlinks=s*18\nlink_field_errors=-\nrefuse={function}:15\n").gpus[0]
    assert (gpu.status, gpu.nvlinks, gpu.nvlinks_active) == ("lost", (), None)


def test_a_gpu_that_needs_a_reset_is_unusable(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nrefuse=nvmlDeviceGetName:16\nhang_gpu=1\n")
    assert [gpu.status for gpu in answer.gpus] == ["ok", "unusable"]
    assert answer.gpus[1].status_reason == "NVML: GPU requires restart"


def test_a_gpu_this_container_may_not_use_is_unusable_and_not_lost(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nforbidden=0\n")
    assert (answer.gpus[0].status, answer.gpus[0].status_reason) == ("unusable", "NVML: Insufficient Permissions")
    assert answer.gpus[1].status == "ok"


def test_mig_slices_are_listed_with_their_gpu(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\nmig.1=1\nmig_devices.1=2\nmig_uuid.0=MIG-aaa\nmig_uuid.1=MIG-bbb\n")
    assert [gpu.mig for gpu in answer.gpus] == ["disabled", "enabled"]
    assert answer.mig_devices == {"MIG-aaa": 1, "MIG-bbb": 1}


def test_processes_of_others_are_counted_and_our_own_are_not(fake_nvml: FakeNvml) -> None:
    assert fake_nvml.ask("gpus=1\npids=self,parent,1,999999\n").gpus[0].other_processes == 2
    assert fake_nvml.ask("gpus=1\nrefuse=nvmlDeviceGetComputeRunningProcesses_v3:4\n").gpus[0].other_processes is None


@pytest.mark.parametrize(
    ("answers", "attached"),
    [("display=1", True), ("display=0", False), ("display=-\ndisplay_active=1", True), ("display=-\ndisplay_active=0", None)],
)
def test_a_display_in_use_tells_where_the_question_about_the_connector_is_withdrawn(
    fake_nvml: FakeNvml, answers: str, attached: bool | None
) -> None:
    gpu = fake_nvml.ask(f"gpus=1\n{answers}\n").gpus[0]
    assert gpu.display_attached is attached


def test_an_old_driver_without_the_new_functions_is_read_through_the_old_ones(old_nvml: FakeNvml) -> None:
    answer = old_nvml.ask("gpus=2\nlinks=s*6\nlink_version=4\nused=9000\npids=1,999999\n")
    gpu = answer.gpus[0]
    assert (gpu.throttle_reasons, gpu.temperature_celsius, gpu.memory_used_bytes) == (("gpu_idle",), 40.0, 9000)
    assert gpu.other_processes == 2
    assert gpu.nvlinks[0].bandwidth_bytes_per_second == 26.562e9
    assert gpu.missing["fabric_state"] == "this driver has no nvmlDeviceGetGpuFabricInfo"
    assert gpu.missing["numa_node"] == "this driver has no nvmlDeviceGetMemoryAffinity"
    assert path(answer, 0, 1) == "NV6"


def test_gpus_and_pairs_decode_into_the_models_own_classes(fake_nvml: FakeNvml) -> None:
    answer = fake_nvml.ask("gpus=2\n")
    assert all(isinstance(gpu, Gpu) for gpu in answer.gpus)
    assert all(isinstance(pair, GpuPair) for pair in answer.pairs)
