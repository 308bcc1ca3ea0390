import pytest

from boxes import box, found, run
from real_texts import pairs, topo
from texts import text_run
from wiretax.judge.checks.nics import check

OFF = "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"
LINK = "{}:1:2 [0] NCCL INFO Channel 00/0 : {}[0] -> {}[0] [{}] via NET/IB/0{}\n"


def test_a_card_behind_the_other_socket_is_named_with_its_gpus():
    text = topo(pairs(4, "SYS", p01="NODE", p23="NODE"), numa=["0", "0", "1", "1"], nics={"mlx5_0": ["PIX", "NODE", "SYS", "SYS"]})
    finding = found(check, text_run(text))["nic-far-from-gpu"]
    assert finding.severity == "info" and finding.title.startswith("GPUs 2 and 3: every network card (mlx5_0)")


def test_in_a_job_over_several_hosts_it_is_a_warning():
    text = topo(pairs(2, "SYS"), numa=["0", "1"], nics={"mlx5_0": ["PIX", "SYS"]})
    log = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n"
    assert found(check, text_run(text, log + LINK.format("n1", 2, 0, "receive", "")))["nic-far-from-gpu"].severity == "warning"


def test_gpudirect_that_is_off_is_certain():
    finding = found(check, text_run(OFF + LINK.format("n1", 1, 0, "receive", "")))["gdr-missing"]
    assert finding.confidence == "certain" and "nvidia-peermem" in finding.remedy


def test_distance_is_nccls_own_rule_and_a_note():
    text = "n1:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 9 > 5)\n"
    assert found(check, text_run(text))["gdr-missing"].severity == "info"


@pytest.mark.parametrize(
    "subject",
    [
        text_run(topo(pairs(2, "SYS"), nics={"mlx5_0": ["SYS", "SYS"]})),
        text_run(topo(pairs(2, "SYS"), nics={"mlx5_0": ["PIX", "SYS"], "mlx5_1": ["SYS", "PIX"]})),
        text_run(LINK.format("n1", 8, 0, "receive", "/GDRDMA")),
        text_run("ibstat is not installed\n"),
        run(box(2)),
    ],
    ids=["all far", "each has one", "direct", "silence", "live"],
)
def test_near_cards_and_silence_are_no_finding(subject):
    assert found(check, subject) == {}
