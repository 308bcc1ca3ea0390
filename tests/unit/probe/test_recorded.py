from __future__ import annotations

import dataclasses
import ipaddress
import time

import msgspec
import pytest

from wiretax.errors import BadInput
from wiretax.model.machine import Gpu, Machine, NcclLibrary, Software, Surroundings
from wiretax.probe.recorded import redact, shipped_machine, shipped_machines
from wiretax.probe.redaction import Redactor

UUID = "GPU-3fa85f64-5717-4562-b3fc-2c963f66afa6"
OTHER = "GPU-9b2d1c44-aaaa-4562-b3fc-2c963f66afa6"

PRIVATE = Machine(
    hostname="gpu-node17.corp.example.com",
    gpus=(
        Gpu(index=0, uuid=UUID, name="NVIDIA H200", pci_bus_id="00000000:E1:00.0", missing={"mig": "asked from 10.1.2.3 by gpu-node17"}),
        Gpu(index=1, uuid=OTHER, missing={"pcie_path": "Linux shows no PCI device 0000:e2:00.0"}),
    ),
    software=Software(
        driver="580.159.04",
        nccl_found=(
            NcclLibrary(path="/home/bob/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", version="2.28.9"),
            NcclLibrary(path="/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3", version="2.19.3"),
        ),
        nccl_environment={
            "NCCL_COMM_ID": "gpu-node17:29500",
            "NCCL_RAS_ADDR": "node18:28028",
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_IB_HCA": "=mlx5_0:1",
            "NCCL_TOPO_FILE": "/home/bob/bobs_topo.xml",
            "NCCL_DEBUG_FILE": "/scratch/team/log.%h.%p",
            "NCCL_HOSTID": "host.example.com",
        },
        nccl_conf={"/home/bob/my.conf:NCCL_NET": "Socket", "/etc/nccl.conf:NCCL_DEBUG": "INFO", "~/.nccl.conf:NCCL_ALGO": "Ring"},
    ),
    surroundings=Surroundings(
        cloud="vast.ai",
        cuda_visible_devices=f"{OTHER[:12]},{UUID},MIG-11112222-5717-4562-b3fc-2c963f66afa6",
        network_interfaces={
            "eth0": "203.0.113.5/24",
            "eth1": "203.0.113.9/24",
            "ib0": "198.51.100.4/16",
            "lo": "127.0.0.1/8",
            "v6": "2001:db8:77::5/64",
            "ll": "fe80::42:acff:fe11:2/64",
        },
    ),
    driver_detail="Process of bob@gpu-node17 in /home/bob died; serial 1650324012345, mac 00:11:22:aa:bb:cc, see host9.example.org.",
)
SECRETS = (
    "gpu-node17", "example.com", "example.org", "node18", "host9", "bob", "3fa85f64", "9b2d1c44", "11112222", "203.0.113", "198.51.100",
    "2001:db8", "acff", "1650324012345", "00:11:22", "/scratch", "venv",
)  # fmt: skip


def test_every_shipped_machine_is_listed_and_opens() -> None:
    names = shipped_machines()
    assert {"h200x2", "rtx4090x4", "rtx5090x2-sys", "h100x8-sxm", "a100-pcie-bridged", "a100-mig", "gpu-lost", "no-gpu"} <= set(names)
    assert all(isinstance(shipped_machine(name), Machine) for name in names)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadInput, match="No machine named 'h300'") as caught:
        shipped_machine("h300")
    assert "rtx4090x4" in str(caught.value)


def test_nothing_private_is_left_anywhere() -> None:
    text = msgspec.json.encode(redact(PRIVATE)).decode()
    assert [secret for secret in SECRETS if secret in text] == []


def test_what_a_diagnosis_needs_is_left() -> None:
    found = redact(PRIVATE)
    assert (found.gpus[0].name, found.gpus[0].pci_bus_id, found.software.driver) == ("NVIDIA H200", "00000000:E1:00.0", "580.159.04")
    assert found.gpus[1].missing["pcie_path"] == "Linux shows no PCI device 0000:e2:00.0"
    assert found.software.nccl_environment["NCCL_SOCKET_IFNAME"] == "eth0"
    assert found.software.nccl_environment["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert found.software.nccl_conf["/etc/nccl.conf:NCCL_DEBUG"] == "INFO"
    assert found.software.nccl_conf["~/.nccl.conf:NCCL_ALGO"] == "Ring"
    assert [library.path.rsplit("/", 1)[1] for library in found.software.nccl_found or ()] == ["libnccl.so.2", "libnccl.so.2.19.3"]
    assert (found.software.nccl_found or ())[1].path == "/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3"
    assert found.surroundings.cloud == "vast.ai"


def test_the_same_thing_has_the_same_placeholder_everywhere() -> None:
    found = redact(PRIVATE)
    assert found.hostname == "host"
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", "GPU-1"]
    assert found.surroundings.cuda_visible_devices == "GPU-1,GPU-0,MIG-0"
    address = found.surroundings.network_interfaces["eth0"]
    assert found.gpus[0].missing["mig"] != address
    assert found.gpus[0].missing["mig"].endswith("by host")
    assert found.software.nccl_environment["NCCL_COMM_ID"] == "<host>:29500"


def test_interfaces_of_one_network_stay_in_one_network() -> None:
    addresses = {name: ipaddress.ip_interface(text) for name, text in redact(PRIVATE).surroundings.network_interfaces.items()}
    assert addresses["eth0"].network == addresses["eth1"].network != addresses["ib0"].network
    assert addresses["eth0"].ip != addresses["eth1"].ip
    assert [addresses[name].network.prefixlen for name in ("eth0", "ib0", "v6")] == [24, 16, 64]
    assert str(addresses["lo"]) == "127.0.0.1/8"
    assert addresses["ll"].ip.is_link_local
    assert all(address.is_private for address in addresses.values())


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(PRIVATE)
    again = redact(once)
    assert dataclasses.replace(again, surroundings=once.surroundings) == once


@pytest.mark.parametrize(
    "harmless",
    [
        "NVIDIA driver 580.159.04, CUDA 13.0, NCCL 2.28.9+cuda13.0, VBIOS 96.00.A5.00.1A",
        "8 GT/s x16, NV18, N/A, read/write",
        "kernel 6.18.44-fc at 12:30:45, see /proc/driver/nvidia/version",
        "std::vector of NVML: Not Supported",
        "127.0.0.1 and 0.0.0.0 and ::1",
        "PCI 0000:e1:00.0 and 00000000:E1:00.0",
    ],
)
def test_harmless_text_is_not_touched(harmless: str) -> None:
    assert Redactor().text(harmless) == harmless


@pytest.mark.parametrize(
    ("prefix", "address"), [(8, "172.16.5.4/8"), (12, "172.16.5.4/12"), (31, "192.0.2.6/31"), (32, "192.0.2.6/32"), (4, "240.0.0.9/4")]
)
def test_odd_prefix_lengths_still_give_valid_addresses(prefix: int, address: str) -> None:
    found = ipaddress.ip_interface(Redactor().interface(address))
    assert found.network.prefixlen == prefix
    assert str(found.ip) != address.partition("/")[0]


def test_a_host_that_names_nobody_is_not_searched_for_in_sentences() -> None:
    machine = Machine(hostname="vm", driver_detail="the vm has no GPU")
    assert redact(machine).driver_detail == "the vm has no GPU"
    assert redact(machine).hostname == "host"


def test_where_published_machines_come_from_is_kept() -> None:
    machine = shipped_machine("rtx4090x4")
    assert redact(machine).origin_note == machine.origin_note


@pytest.mark.parametrize("unit", ["1.", "a.b-", "abc.def", "ab:", "a.b+", "/a", "_"])
def test_a_long_value_is_redacted_in_time_that_grows_with_its_length(unit: str) -> None:
    began = time.perf_counter()
    Redactor().text(unit * (100_000 // len(unit)))
    assert time.perf_counter() - began < 2.0


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("at node-3.example.com:29500", "at <host>:29500"),
        ("*.example.com", "*.<host>"),
        ("_ldap._tcp.example.com", "<host>"),
        ("foo-.example.com", "foo-.<host>"),
        ("libnccl.so.2.28 log.txt", "libnccl.so.2.28 log.txt"),
    ],
)
def test_names_of_the_network_are_redacted_wherever_they_begin(text: str, redacted: str) -> None:
    assert Redactor().text(text) == redacted
