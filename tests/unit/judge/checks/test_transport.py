import pytest

from boxes import box, found, nccl, run, truth, unknown, wire
from wiretax.judge.checks.transport import check


def test_nvlink_left_unused_without_a_setting_is_unexpected():
    finding = found(check, run(box(2, "NV4"), wire(gigabytes=9, kind="staged")))["transport-unexpected"]
    assert (finding.severity, finding.confidence) == ("problem", "likely")
    assert "NVLink" in finding.title and "0-1" in finding.evidence[0].text


def test_peer_to_peer_under_one_switch_left_unused_is_unexpected():
    assert "PCIe" in found(check, run(box(2, "PIX"), wire(kind="staged")))["transport-unexpected"].title


def test_sockets_between_gpus_of_one_host_mean_isolated_ranks():
    finding = found(check, run(box(4, "NV12"), wire(gigabytes=2, world=4, kind="socket")))["isolated-ranks-tcp"]
    assert "--ipc=host" in finding.remedy and "2.00 GB/s" in finding.effect


def test_a_network_card_inside_one_host_is_worth_knowing():
    assert found(check, run(box(2), wire(kind="ib")))["transport-unexpected"].severity == "info"


@pytest.mark.parametrize(
    ("machine", "collective"),
    [
        (box(2, "NV4"), wire(kind="p2p")),
        (box(2, "PHB", "GNS"), wire(kind="staged")),
        (box(4, "SYS"), wire(kind="staged", world=4)),
        (box(2, "NV4"), wire("p2p_off", kind="staged")),
        (box(2, "NV4"), wire("socket", kind="socket")),
    ],
    ids=["peer to peer", "refused by the driver", "too far for NCCL", "asked for host memory", "asked for sockets"],
)
def test_the_way_that_links_driver_and_nccl_allow_is_expected(machine, collective):
    assert found(check, run(machine, collective)) == {}


@pytest.mark.parametrize(
    "setting", [{"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_LEVEL": "LOC"}, {"NCCL_SHM_DISABLE": "1"}, {"NCCL_NET": "Socket"}]
)
def test_a_setting_that_explains_it_is_another_checks_business(setting):
    assert found(check, run(box(2, "NV4", software=nccl("2.28.9", **setting)), wire(kind="staged"))) == {}


def test_a_pair_that_failed_its_test_rightly_goes_another_way():
    assert found(check, run(box(2, "PIX"), wire(kind="staged"), truth(0, 1, "hang"))) == {}


def test_without_a_log_or_with_unread_links_nothing_is_said():
    assert found(check, run(box(2, "NV4"), wire(kind=None))) == {}
    assert found(check, run(unknown(box(2)), wire(kind="staged"))) == {}
