import pytest

from boxes import box, gpu, host_copies, run, unknown
from wiretax.judge.limits import Limit, Unknown, host_limit, nvlink_rate, nvlink_ring, peer_limit, staged_limit
from wiretax.model.machine import PcieHop, PcieLink

CUBE = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV2"}


def voltas(path, count=4, links=6):
    return run(box(count, path, gpus=[gpu(k, nvlinks_active=links, compute_capability="7.0") for k in range(count)]))


def test_a_ring_needs_no_full_mesh():
    ring = {(0, 1): "NV2", (1, 2): "NV2", (2, 3): "NV2", (0, 3): "NV2", (0, 2): "PHB", (1, 3): "PHB"}
    found = nvlink_ring(voltas(ring), (0, 1, 2, 3))
    assert found.bytes_per_second == pytest.approx(4 * 25e9)


def test_many_gpus_that_are_all_joined_are_a_ring_without_a_search():
    assert (
        nvlink_ring(run(box(20, "NV18", gpus=[gpu(k, nvlinks_active=18, compute_capability="9.0") for k in range(20)])), range(20))
        is not None
    )


def test_a_chain_that_does_not_close_is_no_ring():
    chain = {(0, 1): "NV2", (1, 2): "NV2", (2, 3): "NV2", (0, 3): "SYS", (0, 2): "SYS", (1, 3): "SYS"}
    assert nvlink_ring(voltas(chain), (0, 1, 2, 3)) is None
    assert nvlink_ring(voltas(chain), (0, 1)).bytes_per_second == pytest.approx(50e9)


def test_two_triangles_that_share_a_gpu_close_no_ring():
    inside = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
    path = {(a, b): "NV1" if (a, b) in inside else "SYS" for a in range(5) for b in range(a + 1, 5)}
    assert nvlink_ring(voltas(path, 5), (0, 1, 2, 3, 4)) is None


def test_the_weakest_gpu_of_an_uneven_mesh_bounds_the_ring():
    assert nvlink_ring(voltas(CUBE), (0, 1, 2, 3)).bytes_per_second == pytest.approx(4 * 25e9)


def test_links_that_the_driver_refuses_do_not_join():
    refused = run(box(2, "NV4", "NS", gpus=[gpu(k, nvlinks_active=4, compute_capability="8.6") for k in range(2)]))
    assert nvlink_ring(refused, (0, 1)) is None


def test_whether_links_go_to_a_switch_or_to_peers_is_not_guessed():
    unread = [gpu(k, nvlinks_active=None, compute_capability=None) for k in range(3)]
    assert isinstance(nvlink_ring(run(box(3, "NV4", gpus=unread)), (0, 1, 2)), Unknown)


def test_gpus_of_one_switch_are_bounded_by_their_own_links_and_others_by_the_whole_way():
    uplink = PcieHop(address="0000:00:01.0", kind="switch_up", link=PcieLink(generation=4, width=4, max_generation=4, max_width=16))
    gpus = [gpu(k, pcie_path=(uplink,)) for k in range(2)]
    inside, across = (peer_limit(run(box(2, path, gpus=gpus)), 0, 1) for path in ("PIX", "SYS"))
    assert inside.bytes_per_second == pytest.approx(4 * across.bytes_per_second)
    assert (inside.through_cpu, across.through_cpu) == (False, True)


def test_measured_host_copies_lower_a_limit_and_never_raise_it():
    machine = box(2, "PHB", "GNS")
    bare = staged_limit(run(machine), (0, 1)).bytes_per_second
    assert staged_limit(run(machine, *host_copies(10, 25)), (0, 1)).bytes_per_second < 0.4 * bare
    assert staged_limit(run(machine, *host_copies(60, 60)), (0, 1)).bytes_per_second == bare


def test_what_was_not_read_is_unknown_with_a_reason():
    blank = run(unknown(box(2)))
    for found in (host_limit(blank, 0), peer_limit(blank, 0, 1), staged_limit(blank, (0, 1)), nvlink_rate(blank, 0), host_limit(blank, 9)):
        assert isinstance(found, Unknown) and found.reason


def test_a_generation_nobody_built_is_unknown():
    odd = PcieLink(generation=9, width=16, max_generation=9, max_width=16)
    assert isinstance(host_limit(run(box(2, gpus=[gpu(0, pcie=odd), gpu(1)])), 0), Unknown)
    assert isinstance(host_limit(run(box(2)), 1), Limit)
