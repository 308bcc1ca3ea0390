import pytest

from boxes import box, found, run
from real_texts import head, nccl, ring
from texts import text_run
from wiretax.judge.checks.network import across_hosts, check

WARN = "\nn1:1:2 [0] {} NCCL WARN {}\n"
NODES = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
SOCKET = "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
IBSTAT = "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: {}\n\t\tRate: 200\n"


def test_two_cards_in_one_subnet_are_found_and_two_subnets_are_fine():
    same = "$ ip -br addr\neth0 UP 192.168.1.10/24\neth1 UP 192.168.1.11/24\n"
    assert "eth0" in str(found(check, text_run(same))["nics-share-subnet"])
    assert found(check, text_run(same.replace("192.168.1.11", "192.168.2.11"))) == {}


def test_an_interface_that_leads_nowhere_is_wrong():
    log = "n1:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
    log += WARN.format("misc/socket.cc:480", "socketStartConnect: Connect to 172.17.0.1<45321> failed : Connection refused")
    assert "docker0" in found(check, text_run(log))["wrong-interface"].title


@pytest.mark.parametrize(
    ("texts", "code", "severity"),
    [
        ((head("2.21.5", "n1") + NODES + SOCKET, IBSTAT.format("Active")), "ib-library-missing", "warning"),
        ((head("2.21.5", "n1") + NODES + SOCKET,), "ib-library-missing", "info"),
        (("n1:1:2 [0] NCCL INFO NET/IB : No device found.\n" + NODES + SOCKET, IBSTAT.format("Active")), "ib-device-not-passed", "warning"),
        ((f"{nccl('n1')}NCCL_IB_DISABLE set by environment to 1\n" + NODES + SOCKET,), "ib-disabled-by-environment", "info"),
    ],
)
def test_why_nccl_takes_sockets_between_hosts(texts, code, severity):
    findings = found(check, text_run(*texts))
    assert findings[code].severity == severity and findings["sockets-between-hosts"].severity == "warning"


def test_a_closed_connection_is_an_echo():
    line = WARN.format("misc/socket.cc:49", "socketProgress: Connection closed by remote peer n2<41222>")
    assert found(check, text_run(line))["peer-closed"].severity == "info"


@pytest.mark.parametrize("subject", [text_run(head("2.21.5") + ring(2, "P2P/IPC")), text_run("eth0 is up\n"), run(box(2))])
def test_one_host_without_infiniband_is_no_finding(subject):
    assert found(check, subject) == {}
    assert not across_hosts(subject)
