from __future__ import annotations

import ipaddress
from pathlib import Path

import linux_trees as trees
from wiretax.probe.interfaces import network_interfaces, parse_if_inet6


def test_a_global_address_is_preferred_to_a_link_local_one() -> None:
    text = (
        "fe80000000000000020000fffe000001 02 40 20 80     eth0\n"
        "20010db8000000000000000000000005 02 40 00 80     eth0\n"
        "fe80000000000000020000fffe000002 03 40 20 80     ib0\n"
    )
    assert parse_if_inet6(text) == {"eth0": "2001:db8::5/64", "ib0": "fe80::200:ff:fe00:2/64"}


def test_damaged_lines_are_passed_over() -> None:
    assert parse_if_inet6("zz 02 40 20 80 eth0\n\n00 01\nfe80000000000000020000fffe000001 02 ff 20 80 eth0\n") == {}


def test_a_recorded_tree_gives_no_address_of_this_machine(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/net/if_inet6": ""})
    assert network_interfaces(tmp_path) == {}


def test_every_address_of_this_machine_has_a_prefix() -> None:
    found = network_interfaces()
    assert found["lo"] == "127.0.0.1/8"
    for address in found.values():
        assert ipaddress.ip_interface(address).network.prefixlen > 0
