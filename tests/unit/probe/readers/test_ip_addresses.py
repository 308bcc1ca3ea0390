"""Interfaces, routes and InfiniBand."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import case, text
from wiretax.model.machine import Surroundings
from wiretax.model.reading import unexplained
from wiretax.probe.readers.ip_addresses import read
from wiretax.probe.readers.piece import Piece


def around(piece: Piece) -> Surroundings:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.surroundings


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_two_interfaces_in_one_subnet() -> None:
    piece = read(case("C39_ip.txt"))[0]
    assert around(piece).network_interfaces == {"lo": "127.0.0.1/8", "eno1": "10.0.3.15/20", "enp37s0f0": "10.0.5.15/20"}
    assert [(entry["name"], entry["is_up"], entry["is_virtual"]) for entry in values(piece, "network.interface")] == [
        ("lo", True, True),
        ("eno1", True, False),
        ("eno2", False, False),
        ("enp37s0f0", True, False),
    ]
    assert values(piece, "network.same_subnet") == [{"first": "eno1", "second": "enp37s0f0", "subnet": "10.0.0.0/20"}]


IFCONFIG = """\
eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500
        inet 172.17.0.2  netmask 255.255.0.0  broadcast 172.17.255.255
        ether 02:42:ac:11:00:02  txqueuelen 0  (Ethernet)
eth1: flags=4098<BROADCAST,MULTICAST>  mtu 1500
        inet 172.17.1.2  netmask 255.255.0.0  broadcast 172.17.255.255
"""
OLD_IFCONFIG = """\
eth0      Link encap:Ethernet  HWaddr 02:42:ac:11:00:02
          inet addr:172.17.0.2  Bcast:172.17.255.255  Mask:255.255.0.0
          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1
"""
BRIEF = (
    "lo               UNKNOWN        127.0.0.1/8 ::1/128\n"
    "eth0             UP             172.17.0.2/16 fe80::1/64\n"
    "docker0          DOWN           172.18.0.1/16"
)


@pytest.mark.parametrize("content", [IFCONFIG, OLD_IFCONFIG, BRIEF])
def test_other_tools_list_interfaces_in_other_ways(content: str) -> None:
    piece = read(text(content))[0]
    assert around(piece).network_interfaces["eth0"] == "172.17.0.2/16"
    up = {entry["name"]: entry["is_up"] for entry in values(piece, "network.interface")}
    assert up["eth0"] is True
    assert up.get("eth1", up.get("docker0", False)) is False
    assert values(piece, "network.same_subnet") == []


def test_virtual_interfaces_may_share_a_subnet() -> None:
    content = BRIEF.replace("172.18.0.1/16", "172.17.9.1/16").replace("DOWN", "UP  ")
    assert values(read(text(content))[0], "network.same_subnet") == []


def test_infiniband_and_routes() -> None:
    content = (
        "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n"
        "\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n"
        "mlx5_1 port 1 ==> ibs2 (Down)\ndefault via 10.0.0.1 dev eno1 proto dhcp"
    )
    piece = read(text(content))[0]
    assert values(piece, "network.infiniband") == [
        {"device": "mlx5_0", "port": 1, "state": "Active", "rate_gbit_per_second": 200.0, "link_layer": "InfiniBand"},
        {"device": "mlx5_1", "port": 1, "state": "Down", "rate_gbit_per_second": None, "link_layer": None},
    ]
    assert values(piece, "network.route") == [{"destination": "default", "via": "10.0.0.1", "device": "eno1"}]


def test_the_speed_that_ethtool_states() -> None:
    piece = read(text("Settings for eno1:\n\tSupported ports: [ TP ]\n\tSpeed: 1000Mb/s\n\tDuplex: Full"))[0]
    assert values(piece, "network.speed") == [{"name": "eno1", "mbit_per_second": 1000}]


@pytest.mark.parametrize("content", ["", "eth0 is slow", "1: first\n2: second", "inet 10.0.0.1"])
def test_other_text_lists_no_interfaces(content: str) -> None:
    assert read(text(content)) == ()


def test_addresses_of_one_line_each_do_not_say_whether_their_interface_is_up() -> None:
    content = (
        "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n"
        "2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever preferred_lft forever\n"
        "2: eth0    inet6 fe80::1/64 scope link \\       valid_lft forever preferred_lft forever\n"
        "3: eth1    inet 10.0.0.2/24 brd 10.0.0.255 scope global eth1\\       valid_lft forever preferred_lft forever"
    )
    (piece,) = read(text(content))
    assert piece.machine is not None
    assert piece.machine.surroundings.network_interfaces == {"lo": "127.0.0.1/8", "eth0": "10.0.0.1/24", "eth1": "10.0.0.2/24"}
    assert {entry.kind for entry in piece.observations} == {"network.interface"}
    assert [entry.values["is_up"] for entry in piece.observations] == [None, None, None]
    assert piece.understood == {1, 2, 3, 4}
