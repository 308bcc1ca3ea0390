import pytest

from boxes import found
from texts import text_run
from wiretax.judge.checks.rdma import check

WARN = "\nn1:1:2 [0] {} NCCL WARN {}\n"
NODES = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
SOCKET = "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
IBSTAT = "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: {}\n\t\tRate: 200\n"
LOCKED = WARN.format("misc/ibvwrap.cc:245", "Call to ibv_reg_mr failed with error Cannot allocate memory")
COMPLETION = WARN.format(
    "transport/net_ib.cc:1295", "NET/IB : Got completion from peer 10.0.0.2<53249> with error {}, opcode 0, len 0, vendor err 81 (Send)"
)


def test_memory_that_cannot_be_locked_is_certain_with_the_limit_in_sight():
    assert found(check, text_run(LOCKED))["memlock-limit"].confidence == "likely"
    finding = found(check, text_run(LOCKED, "max locked memory       (kbytes, -l) 64\n"))["memlock-limit"]
    assert finding.confidence == "certain" and "64 KiB" in finding.title


def test_an_unlimited_shell_makes_it_a_question():
    finding = found(check, text_run(LOCKED, "max locked memory       (kbytes, -l) unlimited\n"))["memlock-limit"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_resending_that_was_given_up_points_at_the_fabric():
    line = WARN.format(
        "transport/net_ib.cc:839", "NET/IB : Got completion from peer 10.1.1.2<33333> with error 12, opcode 0, len 0, vendor err 129"
    )
    assert found(check, text_run(line))["ib-retry-exceeded"].severity == "problem"


def test_an_inactive_port_matters_in_a_job_over_hosts():
    assert found(check, text_run(IBSTAT.format("Down")))["check-fabric"].severity == "info"
    assert found(check, text_run(IBSTAT.format("Down"), NODES + SOCKET))["check-fabric"].severity == "warning"


@pytest.mark.parametrize(("status", "named"), [(4, True), (10, True), (9, False)])
def test_a_card_that_was_refused_the_memory_is_told_apart(status, named):
    finding = found(check, text_run(COMPLETION.format(status)))["check-fabric"]
    assert ("NCCL_NET_GDR_LEVEL" in finding.remedy) is named


def test_a_transfer_that_failed_in_libfabric_is_the_fabrics():
    line = WARN.format("ofi_process_cq:1039", "NET/OFI Request completed with error. RC: 21. Error: unknown error")
    assert "libfabric" in found(check, text_run(line))["check-fabric"].title
