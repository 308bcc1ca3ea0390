"""NCCL's topology dump: tree, NVLinks, NICs, and XML that means harm."""

from __future__ import annotations

from typing import Any

import pytest

from wiretax.model.reading import unexplained
from wiretax.probe.readers.input import read_bytes
from wiretax.probe.readers.nccl_topology import FORMAT
from wiretax.probe.readers.piece import Piece


def card(bus: str, dev: int | None = None, *, width: str = "16", speed: str = "16.0 GT/s PCIe", links: str = "", sm: int = 80) -> str:
    gpu = f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">\n{links}</gpu>\n' if dev is not None else ""
    return f'<pci busid="{bus}" class="0x030200" link_speed="{speed}" link_width="{width}">\n{gpu}</pci>\n'


def link(target: str, count: int, switch: bool = False) -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{"0x068000" if switch else "0x030200"}"/>\n'


def switch(bus: str, *inside: str) -> str:
    return f'<pci busid="{bus}" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">\n{"".join(inside)}</pci>\n'


def cpu(numa: int, *inside: str, vendor: str = "AuthenticAMD", host: str = "0x1") -> str:
    about = f'numaid="{numa}" affinity="ff" arch="x86_64" vendor="{vendor}" familyid="143" modelid="49"'
    return f'<cpu host_hash="{host}" {about}>\n{"".join(inside)}</cpu>\n'


def system(*cpus: str) -> str:
    return f'<system version="1">\n{"".join(cpus)}</system>\n'


def read(text: str) -> list[Piece]:
    return [piece for piece in read_bytes("topo.xml", text.encode())[0] if piece.format == FORMAT]


def paths(text: str) -> dict[tuple[int, int], str]:
    return {
        (int(str(entry.values["source_gpu"])), int(str(entry.values["target_gpu"]))): str(entry.values["path"])
        for piece in read(text)
        for entry in piece.observations
        if entry.kind == "nccl.topology_pair"
    }


def observed(text: str, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.values) for piece in read(text) for entry in piece.observations if entry.kind == kind]


TWO_SOCKETS = system(
    cpu(0, switch("0000:01:00.0", card("0000:07:00.0", 0), card("0000:0a:00.0", 1))),
    cpu(
        1,
        switch("0000:80:00.0", switch("0000:81:00.0", card("0000:87:00.0", 2)), switch("0000:82:00.0", card("0000:8a:00.0", 3))),
        card("0000:90:00.0", 4),
    ),
)


def test_the_tree_gives_the_distance_of_every_pair() -> None:
    found = paths(TWO_SOCKETS)

    assert (found[0, 1], found[2, 3], found[2, 4], found[0, 2], found[4, 0]) == ("PIX", "PXB", "PHB", "SYS", "SYS")
    assert len(found) == 20


def test_only_what_nccl_cannot_blur_becomes_the_path_of_a_pair() -> None:
    machine = read(TWO_SOCKETS)[0].machine

    assert machine is not None
    across, near = machine.pair(0, 2), machine.pair(0, 1)
    assert across is not None
    assert across.path == "SYS"
    assert near is not None
    assert near.path is None
    assert "PIX" in near.missing["path"]
    assert list(unexplained(machine)) == []


def test_nvlinks_between_cards_are_counted_and_partial_meshes_keep_their_holes() -> None:
    text = system(
        cpu(
            0,
            card("0000:07:00.0", 0, links=link("0000:0a:00.0", 4)),
            card("0000:0a:00.0", 1, links=link("0000:07:00.0", 4)),
            card("0000:0b:00.0", 2),
        ),
    )
    machine = read(text)[0].machine

    assert paths(text)[0, 1] == "NV4"
    assert paths(text)[0, 2] == "PHB"
    assert machine is not None
    assert [gpu.nvlinks_active for gpu in machine.gpus] == [4, 4, 0]


def test_cards_on_nvswitches_are_joined_by_all_their_links() -> None:
    links = "".join(link(f"0000:c{number}:00.0", 3, switch=True) for number in range(6))
    text = system(cpu(0, *(card(f"0000:0{number}:00.0", number, links=links, sm=90) for number in range(4))))

    assert set(paths(text).values()) == {"NV18"}
    assert observed(text, "nccl.topology_dump") == [{"num_gpus": 4, "num_cpus": 1, "on_nvswitch": 4, "given": False}]


def test_facts_of_each_card() -> None:
    text = system(
        cpu(
            3,
            card("0000:07:00.0", 0, width="8", speed="32.0 GT/s PCIe", sm=120),
            card("0000:08:00.0", 1, width="", speed=""),
            vendor="GenuineIntel",
        )
    )
    machine = read(text)[0].machine

    assert machine is not None
    first, second = machine.gpus
    assert (first.pcie.max_generation, first.pcie.max_width, first.compute_capability, first.numa_node) == (5, 8, "12.0", 3)
    assert (second.pcie.max_generation, second.pcie.max_width) == (None, None)
    assert machine.surroundings.cpu_vendor == "intel"


def test_network_cards() -> None:
    nic = '<nic>\n<net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x12" maxconn="131072" gdr="1"/>\n</nic>\n'

    assert observed(system(cpu(0, card("0000:07:00.0", 0), nic)), "nccl.topology_nic") == [
        {"device": "mlx5_0", "index": 0, "speed_bits_per_second": 200_000_000_000, "numa_node": 0, "gdr": True},
    ]


def test_a_file_that_a_cloud_gives_is_told_from_one_that_was_probed() -> None:
    text = '<?xml version="1.0"?>\n' + system(cpu(0, card("0001:00:00.0"), card("0002:00:00.0")))
    machine = read(text)[0].machine

    assert observed(text, "nccl.topology_dump")[0]["given"] is True
    assert machine is not None
    assert [gpu.pci_bus_id for gpu in machine.gpus] == ["00000001:00:00.0", "00000002:00:00.0"]
    assert "PCI addresses" in str(machine.origin_note)


def test_two_hosts_in_one_dump_are_two_machines() -> None:
    text = system(cpu(0, card("0000:07:00.0", 0), host="0x1"), cpu(0, card("0000:07:00.0", 0), host="0x2"))

    assert len([piece for piece in read(text) if piece.machine]) == 2


def test_the_graph_dump() -> None:
    about = 'id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="20" typeintra="PHB" typeinter="PIX"'
    text = f'<graphs version="1">\n<graph {about}/>\n</graphs>\n'

    assert observed(text, "nccl.graph") == [
        {
            "pattern": 4,
            "num_channels": 2,
            "intra_bandwidth_bytes_per_second": 20e9,
            "inter_bandwidth_bytes_per_second": 20e9,
            "intra_path": "PHB",
            "inter_path": "PIX",
        },
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TWO_SOCKETS[:-60], "ends before"),
        (TWO_SOCKETS.replace("</pci>", "</pic>", 1), "breaks off"),
        ('<system version="1">\n' + "<pci>\n" * 200, "larger than any topology"),
        ('<system version="1">\n' + '<cpu numaid="0">\n' + "<pci/>\n" * 120_000, "larger than any topology"),
    ],
)
def test_broken_or_monstrous_xml_is_damaged_and_read_up_to_there(text: str, words: str) -> None:
    pieces = read(text)

    assert len(pieces) == 1
    assert words in pieces[0].damaged[0][1]


def test_entities_are_refused_before_they_can_expand() -> None:
    bomb = (
        '<!DOCTYPE system [\n<!ENTITY a "aaaaaaaaaa">\n<!ENTITY b "&a;&a;&a;">\n]>\n<system version="1">\n<cpu numaid="&b;"/>\n</system>\n'
    )
    pieces = read(bomb)

    assert all("aaaa" not in repr(piece) for piece in pieces)
    assert pieces[0].damaged
