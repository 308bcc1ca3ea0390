from boxes import box, found, gpu, nvlink, run, unknown, with_gpus
from wiretax.judge.checks.nvlink import check

ISLANDS = {(0, 1): "NV4", (2, 3): "NV4", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}


def linked(count, links=4, path="NV4"):
    return box(count, path, gpus=[gpu(k, nvlinks_active=links, nvlinks=tuple(nvlink(n) for n in range(links))) for k in range(count)])


def test_fewer_links_than_the_peers_is_certain_and_the_dead_ones_are_named():
    links = tuple(nvlink(n, active=n not in (3, 5)) for n in range(6))
    finding = found(check, run(with_gpus(linked(4, 6, "NV6"), gpu3={"nvlinks_active": 4, "nvlinks": links})))["nvlink-partial"]
    assert "GPU 3" in finding.title and "(down: 3, 5)" in finding.evidence[0].text
    assert (finding.severity, finding.confidence) == ("problem", "certain")


def test_a_model_that_has_fewer_links_by_design_is_compared_with_its_own_kind():
    machine = with_gpus(linked(2), gpu1={"name": "another card", "nvlinks_active": 2})
    assert "nvlink-partial" not in found(check, run(machine))


def test_bridged_pairs_are_islands_and_the_advice_stays_inside_one():
    machine = box(4, ISLANDS, gpus=[gpu(k, nvlinks_active=4) for k in range(4)])
    finding = found(check, run(machine))["nvlink-islands"]
    assert "0 and 1; 2 and 3" in finding.title and "CUDA_VISIBLE_DEVICES=0,1" in finding.remedy


def test_a_full_mesh_a_ring_and_a_switch_are_no_islands():
    assert found(check, run(linked(4))) == {}
    ring = box(4, {(0, 1): "NV2", (1, 2): "NV2", (2, 3): "NV2", (0, 3): "NV2", (0, 2): "PHB", (1, 3): "PHB"})
    assert found(check, run(ring)) == {}


def test_a_matrix_with_an_unread_pair_proves_no_island():
    machine = box(3, {(0, 1): "NV4", (0, 2): None, (1, 2): "SYS"})
    assert found(check, run(machine)) == {}


def test_ports_without_a_bridge_are_worth_knowing_and_cards_without_ports_are_not():
    idle = tuple(nvlink(n, active=False) for n in range(4))
    machine = box(2, "PHB", gpus=[gpu(k, nvlinks_active=0, nvlinks=idle) for k in range(2)])
    finding = found(check, run(machine))["no-nvlink-bridge"]
    assert finding.severity == "info"
    assert found(check, run(box(2, "PHB"))) == {}


def test_recoveries_are_named_and_crc_errors_that_hardware_retries_are_not():
    bad = (nvlink(0, recovery=1), nvlink(1))
    assert "nvlink-errors" in found(check, run(with_gpus(linked(2), gpu0={"nvlinks": bad})))
    few = (nvlink(0, crc_flit=403, replay=30), nvlink(1))
    assert found(check, run(with_gpus(linked(2), gpu0={"nvlinks": few}))) == {}


def test_nothing_is_said_of_a_machine_that_nobody_read():
    assert found(check, run(unknown(box(4)))) == {}
    assert found(check, run(None)) == {}
