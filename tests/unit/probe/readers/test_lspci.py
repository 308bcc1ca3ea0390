"""``lspci -vv`` and ``-tv``: links, ACS, and what lies above a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import text
from wiretax.model.reading import unexplained
from wiretax.probe.readers import lspci, lspci_tree
from wiretax.probe.readers.piece import Piece

SWITCHED = """\
00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=04, sec-latency=0
\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <64us
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
00:03.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge
\tBus: primary=00, secondary=09, subordinate=09, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
01:00.0 PCI bridge: PLX Technology, Inc. PEX 8747 48-Lane, 5-Port PCI Express Gen 3 (8.0 GT/s) Switch (rev ca)
\tBus: primary=01, secondary=02, subordinate=04, sec-latency=0
\tCapabilities: [68] Express (v2) Upstream Port, MSI 00
02:08.0 PCI bridge: PLX Technology, Inc. PEX 8747 (rev ca)
\tBus: primary=02, secondary=03, subordinate=03, sec-latency=0
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
03:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1) (prog-if 00 [VGA controller])
\tIOMMU group: 16
\tNUMA node: 1
\tRegion 0: Memory at f4000000 (32-bit, non-prefetchable) [size=16M]
\tRegion 1: Memory at d0000000 (64-bit, prefetchable) [size=256M]
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)
\tKernel driver in use: nvidia
09:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000] (rev 41)
\tCapabilities: <access denied>
"""


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_a_gpu_behind_a_switch_and_what_lies_above_it() -> None:
    piece = lspci.read(text(SWITCHED))[0]
    assert piece.machine is not None
    assert len(piece.machine.gpus) == 1
    gpu = piece.machine.gpus[0]
    assert (gpu.name, gpu.pci_bus_id, gpu.numa_node) == ("GeForce RTX 3090", "00000000:03:00.0", 1)
    assert (gpu.pcie.generation, gpu.pcie.width, gpu.pcie.max_generation, gpu.pcie.max_width) == (1, 4, 4, 16)
    assert [(hop.address, hop.kind, hop.acs_redirects) for hop in gpu.pcie_path] == [
        ("00000000:03:00.0", "gpu", None),
        ("00000000:02:08.0", "switch_down", True),
        ("00000000:01:00.0", "switch_up", None),
        ("00000000:00:01.1", "root_port", False),
    ]
    assert gpu.pcie_path[3].link.width == 8
    assert piece.machine.surroundings.acs == "on"
    assert list(unexplained(piece.machine)) == []


def test_details_of_the_gpu() -> None:
    piece = lspci.read(text(SWITCHED))[0]
    assert values(piece, "pci.driver") == [{"address": "00000000:03:00.0", "driver": "nvidia"}]
    assert values(piece, "pci.iommu_group") == [{"address": "00000000:03:00.0", "group": 16}]
    assert values(piece, "pci.bar") == [{"address": "00000000:03:00.0", "largest_bytes": 256 * 2**20}]
    assert values(piece, "pci.unreadable") == [{"devices": 1}]
    downgraded = [(entry["address"], entry["downgraded"]) for entry in values(piece, "pci.link") if entry["is_gpu"]]
    assert downgraded == [("00000000:03:00.0", True)]


def test_acs_of_a_bridge_that_leads_elsewhere_does_not_count() -> None:
    content = SWITCHED.replace(
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n03:00.0", "03:00.0"
    )
    piece = lspci.read(text(content))[0]
    assert piece.machine is not None
    assert piece.machine.surroundings.acs == "off"


@pytest.mark.parametrize(("sign", "state"), [("+", "on"), ("-", "off")])
def test_grepped_acs_lines_have_no_device(sign: str, state: str) -> None:
    line = f"\t\tACSCtl:\tSrcValid{sign} TransBlk- ReqRedir{sign} CmpltRedir{sign} UpstreamFwd{sign} EgressCtrl- DirectTrans-"
    piece = lspci.read(text(f"$ sudo lspci -vvv | grep ACSCtl\n{line}\n{line}"))[0]
    assert piece.machine is not None
    assert piece.machine.surroundings.acs == state
    assert values(piece, "pci.acs")[0]["address"] is None


@pytest.mark.parametrize(
    ("speed", "generation"), [("2.5GT/s", 1), ("5GT/s", 2), ("8GT/s", 3), ("16GT/s", 4), ("32GT/s", 5), ("64GT/s", 6), ("16.0 GT/s", 4)]
)
def test_each_speed_is_a_generation(speed: str, generation: int) -> None:
    piece = lspci.read(
        text(f"41:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)\n\t\tLnkSta:\tSpeed {speed} (ok), Width x16 (ok)")
    )[0]
    assert piece.machine is not None
    assert piece.machine.gpus[0].pcie.generation == generation
    assert values(piece, "pci.link")[0]["downgraded"] is False


def test_numeric_ids_and_domains() -> None:
    piece = lspci.read(
        text(
            "0001:41:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)\n"
            "\t\tLnkSta:\tSpeed 16GT/s, Width x16"
        )
    )[0]
    assert piece.machine is not None
    assert (piece.machine.gpus[0].name, piece.machine.gpus[0].pci_bus_id) == ("A100 SXM4 80GB", "00000001:41:00.0")


def test_an_amd_processor_display_beside_nvidia_cards_is_no_gpu_of_the_job() -> None:
    piece = lspci.read(
        text(
            "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n"
            "0b:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Raphael (rev c1)"
        )
    )[0]
    assert piece.machine is not None
    assert [gpu.name for gpu in piece.machine.gpus] == ["GeForce RTX 4090"]


@pytest.mark.parametrize(
    "content", ["", "the VGA controller is slow", "00:1f.3 Audio device: Intel Corporation Device 7ad0", "3:00.0 text: more"]
)
def test_other_text_is_left_alone(content: str) -> None:
    assert lspci.read(text(content)) == ()


TREE = r"""
$ lspci -tv
-+-[0000:80]-+-00.0  Advanced Micro Devices, Inc. [AMD] Starship/Matisse Root Complex
 |           +-01.1-[81]--+-00.0  NVIDIA Corporation GA102 [GeForce RTX 3090]
 |           |            \-00.1  NVIDIA Corporation GA102 High Definition Audio Controller
 |           \-08.1-[82]----00.0  Advanced Micro Devices, Inc. [AMD] Starship Reserved SPP
 \-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Starship/Matisse Root Complex
             +-01.1-[01-05]----00.0-[02-05]--+-00.0-[03]----00.0  NVIDIA Corporation GA102 [GeForce RTX 3090]
             |                               \-08.0-[04]----00.0  NVIDIA Corporation GA102 [GeForce RTX 3090]
             \-03.1-[06]----00.0  NVIDIA Corporation GA102GL [A40]
"""


def test_the_tree_shows_which_gpus_share_an_uplink() -> None:
    piece = lspci_tree.read(text(TREE))[0]
    assert piece.machine is not None
    chains = {gpu.pci_bus_id: [hop.address for hop in gpu.pcie_path[1:]] for gpu in piece.machine.gpus}
    assert chains == {
        "00000000:03:00.0": ["00000000:02:00.0", "00000000:01:00.0", "00000000:00:01.1"],
        "00000000:04:00.0": ["00000000:02:08.0", "00000000:01:00.0", "00000000:00:01.1"],
        "00000000:06:00.0": ["00000000:00:03.1"],
        "00000000:81:00.0": ["00000000:80:01.1"],
    }
    assert [gpu.name for gpu in piece.machine.gpus] == ["GeForce RTX 3090", "GeForce RTX 3090", "A40", "GeForce RTX 3090"]
    assert [entry["root_port"] for entry in values(piece, "pci.tree")] == [
        "00000000:00:01.1",
        "00000000:00:01.1",
        "00000000:00:03.1",
        "00000000:80:01.1",
    ]


@pytest.mark.parametrize("content", ["", "-[0000:00]-+-00.0  Intel Corporation Device", "\\-[0000:00] text", "a -[ b ] 0000: c"])
def test_a_tree_without_gpus_says_nothing(content: str) -> None:
    assert lspci_tree.read(text(content)) == ()


def test_accelerators_without_a_display_are_gpus_too() -> None:
    line = "c{}:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X] (rev 01)"
    (piece,) = lspci.read(text(line.format(1) + "\n" + line.format(2)))
    assert piece.machine is not None
    assert [(gpu.name, gpu.pci_bus_id) for gpu in piece.machine.gpus] == [
        ("Instinct MI300X", "00000000:C1:00.0"),
        ("Instinct MI300X", "00000000:C2:00.0"),
    ]


def test_a_link_without_a_width_has_none() -> None:
    (piece,) = lspci.read(text("01:00.0 3D controller: NVIDIA Corporation GH100 [H100]\n\t\tLnkSta:\tSpeed unknown, Width x0"))
    assert piece.machine is not None
    assert (piece.machine.gpus[0].pcie.generation, piece.machine.gpus[0].pcie.width) == (None, None)
