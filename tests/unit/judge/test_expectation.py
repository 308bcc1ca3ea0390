from dataclasses import replace

import pytest

import recording
from boxes import box, copy, gpu, host_copies, nccl, nvlink, run, unknown, wire
from wiretax.judge.expectation import (
    Expectation,
    best_class,
    class_of,
    copy_standing,
    expect_collective,
    expect_copy,
    expect_measured,
    expectations,
)
from wiretax.judge.limits import Unknown
from wiretax.model.machine import PcieHop, PcieLink

MIB = 2**20
SWITCHED = {"nvlinks_active": 18, "compute_capability": "9.0"}


def expected(run, gpus, wire_class, **values):
    found = expect_collective(run, wire_class, gpus, **values)
    assert isinstance(found, Expectation), found
    assert found.low < found.expected < found.high
    assert found.because
    return found


@pytest.mark.parametrize("launch", ["", "launch2_"])
@pytest.mark.parametrize(
    ("wire_name", "wire_class"), [("default", "nvlink"), ("p2p_off", "staged"), ("socket", "socket"), ("gloo", "gloo")]
)
def test_each_recorded_wire_is_named_rightly_and_lies_in_its_own_range(launch, wire_name, wire_class):
    recorded = recording.run(launch)
    measured = [c for c in recorded.measurements.collectives if c.wire == wire_name and c.operation == "all_reduce"]
    if not measured:
        assert (launch, wire_name) == ("launch2_", "gloo")
        return
    for collective in measured:
        assert class_of(recorded, collective) == wire_class
        for point in collective.points:
            if point.num_bytes >= 32 * MIB:
                found = expect_measured(recorded, collective, point.num_bytes)
                assert found.standing(point.busbw_bytes_per_second) == "within", (
                    point.num_bytes,
                    point.busbw_bytes_per_second / 1e9,
                    found,
                )


def test_the_other_operations_of_the_recording_lie_in_their_ranges_too():
    recorded = recording.run("launch2_")
    outside = [
        (c.operation, c.wire, p.num_bytes)
        for c in recorded.measurements.collectives
        for p in c.points
        if p.num_bytes >= 128 * MIB and expect_measured(recorded, c, p.num_bytes).standing(p.busbw_bytes_per_second) != "within"
    ]
    assert outside == []


def test_a_slow_wire_of_the_recording_is_far_below_what_nvlink_would_give():
    recorded = recording.run()
    best = expected(recorded, (0, 1), "nvlink")
    for slower in ("p2p_off", "socket", "gloo"):
        reached = max(p.busbw_bytes_per_second for c in recorded.measurements.collectives if c.wire == slower for p in c.points)
        assert best.standing(reached) == "below"


def test_the_recorded_pair_copy_is_healthy_and_its_limit_is_18_links_of_25():
    recorded = recording.run()
    found = expect_copy(recorded, 0, 1, "direct")
    assert found.limit == pytest.approx(450e9)
    assert {copy_standing(recorded, c) for c in recorded.measurements.copies if c.route == "direct"} == {"within"}


@pytest.mark.parametrize(
    ("count", "path", "links", "capability", "busbw", "nvls"),
    [
        (8, "NV18", 18, "9.0", 480, "1"),  # 8x H200 with NVLink SHARP
        (8, "NV18", 18, "9.0", 368, "0"),  # the same without
        (8, "NV12", 12, "8.0", 235, "1"),  # 8x A100: no SHARP on this generation
        (2, "NV12", 12, "8.0", 208, "1"),  # a bridged pair: the gate of a cloud
        (8, "NV18", 18, "10.0", 838, "1"),  # 8x B200
    ],
)
def test_published_figures_of_healthy_nvlink_machines_are_within_the_range(count, path, links, capability, busbw, nvls):
    gpus = [gpu(k, nvlinks_active=links, compute_capability=capability) for k in range(count)]
    machine = box(count, path, gpus=gpus, software=nccl("2.28.9", NCCL_NVLS_ENABLE=nvls))
    found = expected(run(machine), tuple(range(count)), "nvlink", num_bytes=8 * 2**30)
    assert found.standing(busbw * 1e9) == "within", found


@pytest.mark.parametrize(
    ("count", "generation", "width", "busbw"),
    [(4, 4, 16, 18.0), (2, 4, 16, 7.4), (2, 4, 8, 4.0), (4, 4, 8, 5.5), (2, 5, 16, 27.2)],
    ids=["4x 4090", "2x 4090", "2x L4 x8", "4x L4 x8", "2x H200 P2P off"],
)
def test_published_figures_through_host_memory_are_within_the_range(count, generation, width, busbw):
    link = PcieLink(generation=generation, width=width, max_generation=generation, max_width=16)
    machine = box(count, "PHB", "CNS", gpus=[gpu(k, pcie=link) for k in range(count)])
    found = expected(run(machine), tuple(range(count)), "staged")
    assert found.standing(busbw * 1e9) == "within", found


def test_the_published_shm_direct_fault_is_below_the_range():
    found = expected(run(box(4, "PHB", "CNS")), (0, 1, 2, 3), "staged")
    assert found.standing(2.2e9) == "below"


def test_a_small_message_is_expected_to_reach_less_than_a_large_one():
    recorded = recording.run()
    small, large = (expected(recorded, (0, 1), "nvlink", num_bytes=size) for size in (MIB, 1024 * MIB))
    assert small.high < 0.4 * large.expected
    # The recorded machine reaches 49 to 59 GB/s at 1 MiB.
    assert small.low < 49e9 < small.high


def test_a_narrow_hop_above_the_gpu_bounds_what_is_expected_through_host_memory():
    hop = PcieHop(address="0000:00:01.0", kind="root_port", link=PcieLink(generation=4, width=4, max_generation=4, max_width=16))
    wide = expected(run(box(2, "PHB", "CNS")), (0, 1), "staged")
    narrow = expected(run(box(2, "PHB", "CNS", gpus=[gpu(0, pcie_path=(hop,)), gpu(1)])), (0, 1), "staged")
    assert narrow.limit == pytest.approx(wide.limit / 4)
    assert any("0000:00:01.0" in reason for reason in narrow.because)


def test_hops_that_a_virtual_machine_shows_are_not_believed():
    hop = PcieHop(address="0000:00:01.0", kind="root_port", link=PcieLink(generation=1, width=1, max_generation=1, max_width=1))
    machine = box(2, "PHB", "CNS", gpus=[gpu(0, pcie_path=(hop,)), gpu(1)], surroundings={"virtual_machine": "kvm"})
    assert expected(run(machine), (0, 1), "staged").limit == pytest.approx(31.5e9, rel=0.01)


def test_slow_host_copies_lower_what_is_expected_through_host_memory():
    machine = box(2, "PHB", "CNS")
    assert (
        expected(run(machine, *host_copies(12.0, 24.0)), (0, 1), "staged").expected
        < 0.6 * expected(run(machine, *host_copies(27.0, 27.0)), (0, 1), "staged").expected
    )


def test_the_link_under_load_counts_and_not_the_idle_one():
    idle = PcieLink(generation=1, width=16, max_generation=4, max_width=16)
    machine = box(2, "PHB", "CNS", gpus=[gpu(0, pcie=idle), gpu(1, pcie=idle)])
    assert expected(run(machine), (0, 1), "staged").limit == pytest.approx(31.5e9, rel=0.01)


def test_links_of_a_mesh_add_up_and_links_to_a_switch_do_not():
    mesh = box(4, "NV4", gpus=[gpu(k, nvlinks_active=12, compute_capability="8.0") for k in range(4)])
    switch = box(8, "NV12", gpus=[gpu(k, nvlinks_active=12, compute_capability="8.0") for k in range(8)])
    assert expected(run(mesh), (0, 1, 2, 3), "nvlink").limit == pytest.approx(300e9)
    assert expected(run(switch), tuple(range(8)), "nvlink").limit == pytest.approx(300e9)
    assert expected(run(mesh), (0, 1), "nvlink").limit == pytest.approx(100e9)


def test_two_bridged_pairs_make_no_nvlink_ring_over_four_gpus():
    path = {(0, 1): "NV12", (2, 3): "NV12", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    islands = run(box(4, path))
    assert best_class(islands, (0, 1)) == "nvlink"
    assert best_class(islands, (0, 1, 2, 3)) == "staged"
    assert isinstance(expect_collective(islands, "nvlink", (0, 1, 2, 3)), Unknown)


@pytest.mark.parametrize(
    ("path", "code", "vendor", "count", "settings", "best"),
    [
        ("PIX", "OK", "intel", 2, {}, "pcie"),
        ("PHB", "OK", "intel", 2, {}, "staged"),
        ("SYS", "OK", "amd", 2, {}, "pcie"),
        ("SYS", "OK", "amd", 4, {}, "staged"),
        ("SYS", "OK", "intel", 4, {"NCCL_P2P_LEVEL": "SYS"}, "pcie"),
        ("PIX", "GNS", "intel", 2, {}, "staged"),
        ("PIX", "OK", "intel", 2, {"NCCL_P2P_DISABLE": "1"}, "staged"),
        ("PIX", "OK", "intel", 2, {"NCCL_P2P_DISABLE": "0"}, "pcie"),
    ],
)
def test_the_best_way_follows_links_driver_and_nccls_policy(path, code, vendor, count, settings, best):
    machine = box(count, path, code, software=nccl("2.28.9", **settings), surroundings={"cpu_vendor": vendor})
    assert best_class(run(machine), tuple(range(count))) == best


def test_unknown_status_version_or_topology_makes_the_best_way_unknown():
    assert isinstance(best_class(run(box(2, "PIX", None)), (0, 1)), Unknown)
    assert isinstance(best_class(run(box(2, "PHB", software=nccl(None))), (0, 1)), Unknown)
    assert isinstance(best_class(run(box(2, None)), (0, 1)), Unknown)
    assert isinstance(best_class(run(box(2, "PHB", surroundings={"cpu_vendor": None})), (0, 1)), Unknown)


def test_where_nothing_was_read_nothing_is_expected_and_the_reason_is_said():
    blank = run(unknown(box(2)), wire(kind=None), copy(0, 1, 10.0))
    for wire_class in ("nvlink", "pcie", "staged"):
        found = expect_collective(blank, wire_class, (0, 1))
        assert isinstance(found, Unknown) and found.reason
    assert isinstance(expect_copy(blank, 0, 1, "direct"), Unknown)
    assert expectations(blank) == ()


def test_an_unknown_nvlink_generation_is_unknown_and_not_assumed():
    machine = box(2, "NV4", gpus=[gpu(k, nvlinks_active=4, compute_capability="99.0") for k in range(2)])
    assert isinstance(expect_copy(run(machine), 0, 1, "direct"), Unknown)
    stated = box(
        2, "NV4", gpus=[gpu(k, nvlinks=tuple(replace(nvlink(n), bandwidth_bytes_per_second=77e9) for n in range(4))) for k in range(2)]
    )
    assert expect_copy(run(stated), 0, 1, "direct").limit == pytest.approx(4 * 77e9)


@pytest.mark.parametrize(
    ("collective", "named"),
    [
        (wire(kind="p2p"), "pcie"),
        (wire(kind="staged"), "staged"),
        (wire(kind="socket"), "socket"),
        (wire("gloo", backend="gloo", kind=None), "gloo"),
        (wire("p2p_off", kind=None), "staged"),
        (wire("socket", kind=None), "socket"),
        (wire(kind=None), "pcie"),
    ],
)
def test_the_class_of_a_wire_comes_from_the_log_and_from_its_name_only_without_one(collective, named):
    assert class_of(run(box(2)), collective) == named


def test_a_network_card_and_processor_ranks_have_no_expectation_here():
    assert isinstance(class_of(run(box(2)), wire(kind="ib")), Unknown)
    assert isinstance(class_of(run(None), wire("gloo", backend="gloo", kind=None, gpus=())), Unknown)


def test_one_gpu_talks_to_nobody():
    assert isinstance(expect_collective(run(box(1)), "nvlink", (0,)), Unknown)


def test_the_document_gets_one_row_for_each_wire_operation_and_pair():
    rows = expectations(recording.run())
    keys = [(row.subject, row.wire, row.world_size, row.source_gpu, row.target_gpu) for row in rows]
    assert len(keys) == len(set(keys))
    assert ("all_reduce", "default", 2, None, None) in keys
    assert ("pair_copy", "direct", None, 0, 1) in keys
    assert all(row.low_bytes_per_second < row.expected_bytes_per_second < row.high_bytes_per_second and row.because for row in rows)
