"""The measuring engine against a truth it does not know: hosts whose cables are shaped to an exact rate.

Each host is a network namespace on one machine, joined by a bridge in a namespace of its own; both ends of a host's cable are
shaped with a token bucket. Gloo's all-reduce is a ring here, so its bus bandwidth is the rate of the slowest cable less the headers:
1448 bytes of data in each Ethernet frame of 1514 (MTU 1500, TCP with time stamps).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import pytest

from measure_ranks import Left, run_ranks
from wiretax.measure.collectives import sweep

PAYLOAD = 1448 / 1514
RATE_MBIT, SLOW_MBIT = 250, 50
BURST = "128kb"  # at least 2 ms of the rate: what the two cores leave waiting longer than that is lost for good
HOSTS = 4
NETNS_FOLDER = "/run/netns"

missing = next((tool for tool in ("ip", "tc") if shutil.which(tool) is None), None)
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="THE KNOWN TRUTH IS NOT CHECKED: network namespaces need root"),
    pytest.mark.skipif(missing is not None, reason=f"THE KNOWN TRUTH IS NOT CHECKED: iproute2's {missing} is not installed"),
]


def command(line: str, *, check: bool = True) -> None:
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        if "Operation not permitted" in done.stderr or "Cannot create namespace" in done.stderr:
            pytest.skip(f"THE KNOWN TRUTH IS NOT CHECKED: this machine forbids namespaces: {done.stderr.strip()}")
        raise AssertionError(f"{line}: {done.stderr}")


class Network:
    """A switch and hosts; names hold the process id, so that runs do not meet."""

    def __init__(self) -> None:
        self.switch = f"wts{os.getpid()}"
        self.hosts = [f"wth{os.getpid()}-{number}" for number in range(HOSTS)]

    def make(self) -> None:
        self.delete()
        command(f"ip netns add {self.switch}")
        command(f"ip netns exec {self.switch} sysctl -qw net.bridge.bridge-nf-call-iptables=0", check=False)
        command(f"ip -n {self.switch} link add br0 type bridge stp_state 0 forward_delay 0")
        command(f"ip -n {self.switch} link set br0 up")
        for number, host in enumerate(self.hosts):
            command(f"ip netns add {host}")
            command(f"ip link add eth0 netns {host} type veth peer name p{number} netns {self.switch}")
            command(f"ip -n {host} link set lo up")
            command(f"ip -n {host} addr add 10.77.0.{number + 1}/24 dev eth0")
            command(f"ip -n {host} link set eth0 up")
            command(f"ip -n {self.switch} link set p{number} master br0 up")
            self.shape(number, RATE_MBIT)

    def shape(self, number: int, rate_mbit: int, *, uplink_only: bool = False) -> None:
        shaper = f"root tbf rate {rate_mbit}mbit burst {BURST} latency 50ms"
        command(f"tc -n {self.hosts[number]} qdisc replace dev eth0 {shaper}")
        if not uplink_only:
            command(f"tc -n {self.switch} qdisc replace dev p{number} {shaper}")

    def delete(self) -> None:
        for name in (*self.hosts, self.switch):
            command(f"ip netns del {name}", check=False)

    def enter(self, number: int) -> None:
        """Moves this process into a host (Python has os.setns only from 3.12 on)."""
        libc = ctypes.CDLL(None, use_errno=True)
        handle = os.open(f"{NETNS_FOLDER}/{self.hosts[number]}", os.O_RDONLY)
        name = f"h{number}".encode()
        for failed in (libc.setns(handle, 0x40000000), libc.unshare(0x04000000), libc.sethostname(name, len(name))):
            if failed:
                raise OSError(ctypes.get_errno(), "could not enter the namespace")
        os.close(handle)


@pytest.fixture
def network():
    network = Network()
    try:
        network.make()
        yield network
    finally:
        network.delete()


def measure(network: Network, folder, sizes: list[int], operations: list[str]) -> Left:
    left = run_ranks(
        folder,
        HOSTS,
        sweep,
        deadline_seconds=40,
        enter=network.enter,
        by_file=True,  # a network store would need an address of its own in every namespace
        variables={"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
        backend="gloo",
        wire="ethernet",
        operations=operations,
        sizes=sizes,
        modes=["eager"],
        world_sizes=[HOSTS],
        seconds=9,
    )
    assert left.exit_codes == [0] * HOSTS, "\n".join(left.errors)
    return left


def truth_bytes_per_second(rate_mbit: float) -> float:
    return rate_mbit * 1e6 / 8 * PAYLOAD


def best_busbw(network: Network, folder, sizes: list[int], truth: float) -> dict[int, float]:
    """Bytes per second by size, the best of up to three sweeps: a shaped cable lets nothing through faster, other guests slow us down."""
    best: dict[int, float] = {}
    for attempt in range(3):
        left = measure(network, folder / str(attempt), sizes, ["all_reduce"])
        (series,) = left.series.values()
        assert series.verified is True
        assert series.transport == "gloo/tcp"
        for num_bytes, point in left.points["all_reduce", "eager", HOSTS].items():
            best[num_bytes] = max(best.get(num_bytes, 0.0), point.busbw_bytes_per_second)
        if all(one == pytest.approx(truth, rel=0.05) for size, one in best.items() if size >= 2**20):
            break
    return best


def test_all_reduce_reads_the_rate_to_which_the_cables_are_shaped(network, tmp_path):
    truth = truth_bytes_per_second(RATE_MBIT)

    found = best_busbw(network, tmp_path, [2**20, 2**21, 2**22], truth)

    assert found == {size: pytest.approx(truth, rel=0.05) for size in (2**20, 2**21, 2**22)}


def test_all_reduce_is_as_slow_as_the_slowest_uplink_even_if_only_that_direction_is_slow(network, tmp_path):
    network.shape(2, SLOW_MBIT, uplink_only=True)
    truth = truth_bytes_per_second(SLOW_MBIT)

    found = best_busbw(network, tmp_path, [2**18, 2**20], truth)

    assert found[2**20] == pytest.approx(truth, rel=0.05)
