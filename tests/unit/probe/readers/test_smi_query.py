"""``nvidia-smi -q`` of old and new drivers, whole and in excerpts, as text and as XML."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from pasted_text import DATA, case, recording, text
from wiretax.model.machine import Gpu
from wiretax.model.reading import unexplained
from wiretax.probe.readers import smi_query, smi_query_xml
from wiretax.probe.readers.piece import Piece

XML = text((DATA / "smi" / "h200x2_q.xml").read_text(encoding="utf-8"), "h200x2_q.xml")


def gpus(piece: Piece) -> tuple[Gpu, ...]:
    assert piece.machine is not None
    return piece.machine.gpus


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


def test_the_recording_says_all_that_matters() -> None:
    piece = smi_query.read(recording("nvidia_smi_q.txt"))[0]
    first = gpus(piece)[0]
    assert (first.index, first.name, first.uuid) == (0, "NVIDIA H200", "GPU-00000001-0000-4000-8000-000000000001")
    assert (first.pci_bus_id, first.memory_bytes, first.memory_used_bytes) == ("00000000:00:06.0", 143771 * 2**20, 0)
    assert (first.pcie.generation, first.pcie.width, first.pcie.max_generation, first.pcie.max_width) == (5, 16, 5, 16)
    assert (first.mig, first.fabric_state, first.fabric_status) == ("disabled", "completed", "Success")
    assert (first.power_limit_watts, first.power_watts, first.temperature_celsius) == (700.0, 83.27, 39.0)
    assert (first.sm_clock_mhz, first.max_sm_clock_mhz, first.throttle_reasons) == (360, 1980, ("gpu_idle",))
    assert (first.ecc_uncorrected_errors, first.utilization_fraction, first.display_attached) == (0, 0.0, True)
    assert piece.machine is not None
    assert (piece.machine.software.driver, piece.machine.software.cuda) == ("580.159.04", "13.0")
    assert values(piece, "gpu.virtualization") == [{"gpu": index, "mode": "Pass-Through"} for index in (0, 1)]
    assert values(piece, "gpu.pcie_replays") == [{"gpu": 0, "replays": 1}, {"gpu": 1, "replays": 0}]
    assert values(piece, "gpu.bar1")[0] == {"gpu": 0, "bar1_bytes": 2**38, "memory_bytes": 143771 * 2**20}
    assert piece.damaged == ()
    assert list(unexplained(piece.machine)) == []


def test_text_and_xml_say_the_same() -> None:
    """Only what changes between two calls may differ: power, clocks."""
    as_text, as_xml = smi_query.read(recording("nvidia_smi_q.txt"))[0], smi_query_xml.read(XML)[0]
    for one, other in zip(gpus(as_text), gpus(as_xml), strict=True):
        steady = {"power_watts": None, "sm_clock_mhz": None, "missing": {}}
        assert dataclasses.replace(one, **steady) == dataclasses.replace(other, **steady)
    assert as_text.machine is not None
    assert as_xml.machine is not None
    assert (as_text.machine.software.driver, as_text.machine.software.cuda) == (
        as_xml.machine.software.driver,
        as_xml.machine.software.cuda,
    )
    kinds = {entry.kind for entry in as_text.observations}
    for kind in kinds:
        assert values(as_text, kind) == values(as_xml, kind), kind
    assert kinds == {entry.kind for entry in as_xml.observations}


def test_a_card_at_generation_two_under_load() -> None:
    piece = smi_query.read(case("C54_smi_q.txt"))[0]
    assert [(gpu.pci_bus_id, gpu.pcie.generation, gpu.pcie.max_generation) for gpu in gpus(piece)] == [
        ("00000000:E1:00.0", 5, 5),
        ("00000000:E3:00.0", 2, 5),
    ]
    assert [(gpu.utilization_fraction, gpu.throttle_reasons) for gpu in gpus(piece)] == [(1.0, ()), (1.0, ())]
    assert [entry["state"] for entry in values(piece, "gpu.performance_state")] == ["P1", "P1"]
    assert values(piece, "gpu.pcie_limits")[1] == {
        "gpu": 1,
        "device_current_generation": 2,
        "device_max_generation": 5,
        "host_max_generation": None,
    }
    assert values(piece, "smi.attached") == [{"attached": 2, "shown": 2}]


def test_a_card_with_four_lanes() -> None:
    piece = smi_query.read(case("C54_smi_q_b.txt"))[0]
    assert [(gpu.name, gpu.pcie.width, gpu.pcie.max_width) for gpu in gpus(piece)] == [
        ("NVIDIA GeForce RTX 3090", 16, 16),
        ("NVIDIA GeForce RTX 3090", 4, 16),
    ]


def test_one_card_shown_of_seven_gets_a_number_that_is_marked_as_assumed() -> None:
    piece = smi_query.read(case("C53_smi_q.txt"))[0]
    assert [(gpu.index, gpu.fabric_state, gpu.fabric_status) for gpu in gpus(piece)] == [(0, "in_progress", None)]
    assert values(piece, "gpu.index_assumed") == [{"gpu": 0, "pci_bus_id": "00000000:1B:00.0"}]
    assert values(piece, "gpu.fabric") == [{"gpu": 0, "state": "In Progress", "status": "N/A", "clique": None, "health": None}]
    assert piece.machine is not None
    assert piece.machine.origin_note is not None


OLD = """
==============NVSMI LOG==============

Timestamp                           : Thu Feb  6 10:00:00 2020
Driver Version                      : 440.33.01
CUDA Version                        : 10.2

Attached GPUs                       : 1
GPU 00000000:3B:00.0
    Product Name                    : Tesla V100-PCIE-32GB
    Product Brand                   : Tesla
    Display Mode                    : Enabled
    Display Active                  : Disabled
    MIG Mode
        Current                     : N/A
        Pending                     : N/A
    GPU UUID                        : GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee
    PCI
        Bus Id                      : 00000000:3B:00.0
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 1
            Link Width
                Max                 : 16x
                Current             : 8x
        Replays since reset         : 12
    Performance State               : P0
    Clocks Throttle Reasons
        Idle                        : Not Active
        Applications Clocks Setting : Active
        SW Power Cap                : Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Active
            HW Power Brake Slowdown : Not Active
        Sync Boost                  : Not Active
        SW Thermal Slowdown         : Not Active
    FB Memory Usage
        Total                       : 32510 MiB
        Used                        : 100 MiB
        Free                        : 32410 MiB
    BAR1 Memory Usage
        Total                       : 32768 MiB
        Used                        : 2 MiB
    Compute Mode                    : Exclusive_Process
    Utilization
        Gpu                         : 97 %
        Memory                      : 31 %
    Ecc Mode
        Current                     : Enabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : 4
                Total               : 4
            Double Bit
                Device Memory       : 2
                L2 Cache            : 0
                Total               : 2
        Aggregate
            Double Bit
                Device Memory       : 5
                Total               : 5
    Retired Pages
        Single Bit ECC              : 1
        Double Bit ECC              : 3
        Pending                     : Yes
    Temperature
        GPU Current Temp            : 84 C
    Power Readings
        Power Management            : Supported
        Power Draw                  : 249.50 W
        Power Limit                 : 250.00 W
    Clocks
        Graphics                    : 900 MHz
        SM                          : 900 MHz
    Max Clocks
        SM                          : 1380 MHz
    Processes
        Process ID                  : 4242
            Type                    : C
            Name                    : python
            Used GPU Memory         : 20000 MiB
"""


def check_old(piece: Piece) -> None:
    card = gpus(piece)[0]
    assert (card.name, card.mig, card.display_attached) == ("Tesla V100-PCIE-32GB", None, True)
    assert (card.pcie.generation, card.pcie.max_generation, card.pcie.width, card.pcie.max_width) == (1, 3, 8, 16)
    assert card.throttle_reasons == ("applications_clocks_setting", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")
    assert (card.utilization_fraction, card.power_watts, card.power_limit_watts, card.temperature_celsius) == (0.97, 249.5, 250.0, 84.0)
    assert (card.sm_clock_mhz, card.max_sm_clock_mhz, card.memory_bytes) == (900, 1380, 32510 * 2**20)
    assert card.ecc_uncorrected_errors == 2
    assert values(piece, "gpu.ecc") == [{"gpu": 0, "volatile_uncorrected": 2, "aggregate_uncorrected": 5}]
    assert values(piece, "gpu.retired_pages") == [{"gpu": 0, "single_bit": 1, "double_bit": 3, "pending": "Yes"}]
    assert values(piece, "gpu.pcie_replays") == [{"gpu": 0, "replays": 12}]
    assert values(piece, "gpu.compute_mode") == [{"gpu": 0, "mode": "Exclusive_Process"}]
    assert values(piece, "gpu.process") == [{"gpu": 0, "pid": 4242, "type": "C", "name": "python", "memory_bytes": 20000 * 2**20}]


def test_an_old_driver_uses_other_labels() -> None:
    check_old(smi_query.read(text(OLD))[0])


@pytest.mark.parametrize(
    "bend",
    [
        lambda content: "\n".join(line.strip() for line in content.split("\n")),  # indentation lost
        lambda content: "\n".join(re.sub(r"\s+:", ":", line) for line in content.split("\n")),  # alignment lost
        lambda content: "\n".join(f"> {line}" for line in content.split("\n")),
        lambda content: "\n".join(f"[1,0]<stdout>:{line}" for line in content.split("\n")),
        lambda content: content.replace("    ", "\t"),
    ],
)
def test_an_old_output_survives_a_rough_paste(bend: Any) -> None:
    check_old(smi_query.read(text(bend(OLD)))[0])


def test_the_newest_labels_of_the_head() -> None:
    piece = smi_query.read(
        text("==============NVSMI LOG==============\n\nKMD Version : 610.43.02\nCUDA UMD Version : 13.3\nAttached GPUs : 0\n")
    )[0]
    assert piece.machine is not None
    assert (piece.machine.software.driver, piece.machine.software.cuda) == ("610.43.02", "13.3")


def test_a_grepped_excerpt_is_read_card_by_card_with_assumed_numbers() -> None:
    one = (
        "            PCIe Generation\n                Max                       : 4\n"
        "                Current                   : {0}\n"
        "            Link Width\n                Max                       : 16x\n"
        "                Current                   : {1}x"
    )
    piece = smi_query.read(text("$ nvidia-smi -q | grep -i -A2 'gen\\|width'\n" + one.format(4, 16) + "\n--\n" + one.format(1, 4)))[0]
    assert [(gpu.pcie.generation, gpu.pcie.width) for gpu in gpus(piece)] == [(4, 16), (1, 4)]
    assert len(values(piece, "gpu.index_assumed")) == 2


def test_fabric_alone_is_enough() -> None:
    piece = smi_query.read(
        text(
            "    Fabric\n        State                             : Completed\n"
            "        Status                            : Insufficient resources"
        )
    )[0]
    assert (gpus(piece)[0].fabric_state, gpus(piece)[0].fabric_status) == ("completed", "Insufficient resources")


def test_a_virtual_gpu_says_so() -> None:
    content = OLD.replace(
        "Performance State               : P0",
        (
            "GPU Virtualization Mode\n        Virtualization Mode         : VGPU\n"
            "        Host VGPU Mode              : N/A\n"
            "    Performance State               : P0"
        ),
    )
    assert values(smi_query.read(text(content))[0], "gpu.virtualization") == [{"gpu": 0, "mode": "VGPU"}]


def test_remapped_rows_and_a_recovery_action() -> None:
    content = OLD.replace(
        "    Temperature\n",
        (
            "    GPU Recovery Action             : Reset\n"
            "    Remapped Rows\n        Correctable Error           : 0\n"
            "        Uncorrectable Error         : 2\n"
            "        Pending                     : Yes\n"
            "        Remapping Failure Occurred  : No\n"
            "    Temperature\n"
        ),
    )
    piece = smi_query.read(text(content))[0]
    assert values(piece, "gpu.remapped_rows") == [{"gpu": 0, "correctable": 0, "uncorrectable": 2, "pending": "Yes", "failed": "No"}]
    assert values(piece, "gpu.recovery_action") == [{"gpu": 0, "action": "Reset"}]


@pytest.mark.parametrize(
    "content", ["", "GPU 0: NVIDIA H200", "Current : 4\nMax : 16", "Status : ok\nState : running", "Utilization\nGpu : high"]
)
def test_other_text_is_left_alone(content: str) -> None:
    assert smi_query.read(text(content)) == ()


# XML


def xml(body: str, head: str = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">') -> str:
    return (
        f"{head}\n<nvidia_smi_log>\n<driver_version>470.57.02</driver_version>\n<attached_gpus>1</attached_gpus>\n{body}\n</nvidia_smi_log>"
    )


CARD = """<gpu id="00000000:07:00.0">
<product_name>NVIDIA A100-SXM4-40GB</product_name>
<clocks_throttle_reasons><clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown></clocks_throttle_reasons>
<utilization><gpu_util>55 %</gpu_util></utilization>
<ecc_errors><volatile><double_bit><device_memory>1</device_memory><total>1</total></double_bit></volatile></ecc_errors>
<retired_pages><double_bit_retirement><retired_count>2</retired_count></double_bit_retirement></retired_pages>
<processes><process_info><pid>7</pid><type>C</type><process_name>python</process_name><used_memory>10 MiB</used_memory></process_info>
<process_info><pid>8</pid><type>G</type><process_name>Xorg</process_name><used_memory>1 MiB</used_memory></process_info></processes>
</gpu>"""


def test_an_old_document() -> None:
    piece = smi_query_xml.read(text(xml(CARD)))[0]
    card = gpus(piece)[0]
    assert (card.name, card.throttle_reasons, card.utilization_fraction) == ("NVIDIA A100-SXM4-40GB", ("hw_thermal_slowdown",), 0.55)
    assert card.ecc_uncorrected_errors == 1
    assert values(piece, "gpu.retired_pages") == [{"gpu": 0, "single_bit": None, "double_bit": 2, "pending": None}]
    assert [(entry["pid"], entry["type"]) for entry in values(piece, "gpu.process")] == [(7, "C"), (8, "G")]
    assert piece.damaged == ()


def test_a_document_that_breaks_off_keeps_what_it_holds() -> None:
    whole = xml(CARD)
    piece = smi_query_xml.read(text(whole[: whole.index("<retired_pages>")]))[0]
    assert gpus(piece)[0].name == "NVIDIA A100-SXM4-40GB"
    assert "ends before" in piece.damaged[0][1]


def test_entities_are_never_expanded() -> None:
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    piece = smi_query_xml.read(text(xml("<gpu id='0'><product_name>&b;</product_name></gpu>", bomb)))[0]
    assert all(gpu.name is None for gpu in gpus(piece))
    assert any("entities of its own" in why for _, why in piece.damaged)
    assert any("breaks off" in why for _, why in piece.damaged)


def test_a_document_among_other_lines_on_one_line() -> None:
    squeezed = xml(CARD).replace("\n", "")
    piece = smi_query_xml.read(text(f"$ nvidia-smi -q -x\n{squeezed}\nmore text"))[0]
    assert gpus(piece)[0].utilization_fraction == 0.55
    assert piece.damaged == ()


@pytest.mark.parametrize("content", ["<html><body>nvidia_smi_log</body></html>", "<system version='2'><cpu/></system>", ""])
def test_other_documents_are_left_alone(content: str) -> None:
    assert smi_query_xml.read(text(content)) == ()
