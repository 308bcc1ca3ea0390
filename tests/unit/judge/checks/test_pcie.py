import pytest

from boxes import box, compute, found, gpu, host_copies, run, unknown
from wiretax.judge.checks.pcie import check
from wiretax.model.machine import PcieHop, PcieLink


def link(generation, width, max_generation=4, max_width=16):
    return PcieLink(generation=generation, width=width, max_generation=max_generation, max_width=max_width)


def hop(generation, width, kind="switch_up"):
    return PcieHop(address="0000:40:01.0", kind=kind, link=link(generation, width, generation, 16))


def with_links(*links, **values):
    return box(len(links), gpus=[gpu(k, pcie=each) for k, each in enumerate(links)], **values)


def test_a_quarter_of_the_lanes_under_load_is_a_problem_and_half_a_warning():
    machine = with_links(link(4, 4), link(4, 16))
    finding = found(check, run(machine, compute(0, pcie=(4, 4)), compute(1, pcie=(4, 16))))["pcie-width-low"]
    assert (finding.severity, finding.confidence) == ("problem", "certain")
    assert "x4 of x16 under load" in finding.evidence[0].text and "25 %" in finding.effect
    halved = with_links(link(4, 8), link(4, 8))
    assert found(check, run(halved, compute(0, pcie=(4, 8))))["pcie-width-low"].severity == "warning"


def test_lanes_do_not_shift_at_idle_so_a_narrow_idle_link_is_likely():
    assert found(check, run(with_links(link(4, 8), link(4, 16))))["pcie-width-low"].confidence == "likely"


def test_the_hop_that_is_narrow_is_named():
    machine = box(2, gpus=[gpu(0, pcie_path=(hop(4, 4),)), gpu(1, pcie_path=(hop(4, 16),))])
    finding = found(check, run(machine, compute(0, pcie=(4, 16))))["pcie-width-low"]
    assert "0000:40:01.0 (switch_up)" in finding.evidence[0].text


def test_a_virtual_machines_hops_are_not_believed():
    machine = box(2, gpus=[gpu(0, pcie_path=(hop(1, 1),)), gpu(1)], surroundings={"virtual_machine": "kvm"})
    assert found(check, run(machine)) == {}


def test_a_low_generation_under_load_is_named_and_two_steps_down_is_a_problem():
    machine = with_links(link(4, 16), link(4, 16))
    finding = found(check, run(machine, compute(0, pcie=(2, 16)), compute(1, pcie=(4, 16))))["pcie-generation-low"]
    assert finding.severity == "problem" and "GPU 0" in finding.title


def test_a_board_that_can_do_no_more_is_no_fault_of_the_link():
    machine = box(2, gpus=[gpu(k, pcie=link(4, 16, 5), pcie_path=(hop(4, 16, "root_port"),)) for k in range(2)])
    assert found(check, run(machine, compute(0, pcie=(4, 16)))) == {}


def test_a_low_generation_at_idle_proves_nothing_and_says_so():
    findings = found(check, run(with_links(link(1, 16), link(1, 16))))
    assert {code: finding.severity for code, finding in findings.items()} == {"pcie-idle-inconclusive": "info"}


def test_an_idle_reading_is_forgotten_once_it_was_read_under_load():
    assert found(check, run(with_links(link(1, 16), link(4, 16)), compute(0, pcie=(4, 16)))) == {}


def test_a_pasted_text_of_a_working_gpu_counts_as_under_load():
    machine = box(2, origin="pasted", gpus=[gpu(0, pcie=link(2, 16, 5), utilization_fraction=1.0), gpu(1)])
    assert found(check, run(machine))["pcie-generation-low"].confidence == "likely"
    idle = box(2, origin="pasted", gpus=[gpu(0, pcie=link(2, 16, 5), utilization_fraction=1.0, throttle_reasons=("gpu_idle",)), gpu(1)])
    assert list(found(check, run(idle))) == ["pcie-idle-inconclusive"]


def test_a_copy_faster_than_the_reading_allows_refutes_the_reading():
    machine = with_links(link(4, 4), link(4, 16))
    assert found(check, run(machine, *host_copies(25.0, 25.0), compute(0, pcie=(4, 4)))) == {}


@pytest.mark.parametrize("machine", [with_links(link(4, 16), link(4, 16)), unknown(box(2)), None])
def test_full_links_and_unread_ones_say_nothing(machine):
    assert found(check, run(machine)) == {}
