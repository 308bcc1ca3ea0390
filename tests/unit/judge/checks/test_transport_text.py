import pytest

from boxes import box, found, run, wire
from real_texts import head, nccl, p2p, pairs, ring, topo
from texts import text_run
from wiretax.judge.checks.transport_text import check

DECLINED = f"{nccl()}Check P2P Type isAllDirectP2p 0 directMode 0 isAllCudaP2p {{}}\n"
NODES = f"{nccl()}comm 0x1 rank 0 nRanks 2 nNodes {{}} localRanks {{}} localRank 0 MNNVL 0\n"


def test_nccl_that_declines_what_cuda_offers_is_certain():
    finding = found(check, text_run(head("2.28.9") + DECLINED.format(1) + ring(2, "SHM/direct/direct"), topo(pairs(2, "SYS"))))[
        "p2p-level-too-low"
    ]
    assert finding.confidence == "certain" and "NCCL_P2P_LEVEL=SYS wiretax check" in finding.remedy


def test_without_the_drivers_answer_it_has_to_be_asked():
    log = head("2.21.5") + f"{nccl()}Check P2P Type isAllDirectP2p 0 directMode 0\n" + ring(2, "SHM/direct/direct")
    finding = found(check, text_run(log, topo(pairs(2, "NODE"))))["p2p-level-too-low"]
    assert finding.confidence == "likely" and "topo -p2p r" in finding.remedy


def test_nvlink_that_nccl_leaves_aside_is_unexpected():
    finding = found(check, text_run(ring(2, "SHM/direct/direct"), topo(pairs(2, "NV4"))))["transport-unexpected"]
    assert finding.severity == "problem" and "0-1" in finding.title


def test_a_refusal_over_nvlink_is_critical_even_before_any_connection():
    log = "\ngpu-box:1:2 [0] graph/paths.cc:307 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0.\n"
    assert found(check, text_run(log))["p2p-unsupported"].severity == "critical"


def test_sockets_within_a_stated_host_are_isolated_ranks():
    log = head("2.21.5") + NODES.format(1, 2) + ring(2, "NET/Socket/0")
    assert found(check, text_run(log))["isolated-ranks-tcp"].severity == "problem"


def test_a_network_card_within_a_host_is_a_note():
    log = head("2.21.5") + NODES.format(1, 2) + ring(2, "NET/IB/0")
    assert found(check, text_run(log))["transport-unexpected"].severity == "info"


@pytest.mark.parametrize(
    "subject",
    [
        text_run(ring(2, "P2P/IPC"), topo(pairs(2, "NV4"))),
        text_run(
            head("2.21.5") + f"{nccl()}NCCL_P2P_DISABLE set by environment to 1\n" + ring(2, "SHM/direct/direct"), topo(pairs(2, "NV4"))
        ),
        text_run(ring(2, "SHM/direct/direct"), topo(pairs(2, "SYS")), p2p(2, "CNS")),
        text_run(topo(pairs(2, "NV4"))),
        run(box(2, "NV4"), wire(kind="staged")),
    ],
    ids=["as it should be", "a variable explains it", "the driver refuses", "no log", "live"],
)
def test_explained_and_unread_ways_are_no_finding(subject):
    assert found(check, subject) == {}
