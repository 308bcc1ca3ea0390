import pytest

from boxes import box, found, run
from real_texts import head, listing, pairs, ring, topo
from texts import text_run
from wiretax.judge.checks.virtual import check

DUPLICATE = "\ngpu-box:1201:1601 [0] init.cc:825 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000\n"
REFUSED = "\ngpu-box:1201:1601 [0] transport/p2p.cc:288 NCCL WARN Cuda failure 801 'operation not supported'\n"


def test_two_ranks_on_one_gpu_are_named_with_the_bus_id():
    finding = found(check, text_run(DUPLICATE))["ranks-share-gpu"]
    assert finding.title == "Ranks 0 and 1 sit on one GPU (PCI bus id 3b000, not a device number)" and "set_device" in finding.remedy


def test_slices_of_one_gpu_are_the_cause_where_they_are_seen():
    finding = found(check, text_run(DUPLICATE, listing("NVIDIA A100-SXM4-40GB", mig={0: ["3g.20gb", "3g.20gb"]})))["ranks-share-gpu"]
    assert "MIG slices" in finding.title and "-mig 0" in finding.remedy


def test_not_supported_alone_is_only_a_suspicion_of_virtual_gpus():
    finding = found(check, text_run(head("2.24.3") + REFUSED))["vgpu-p2p-limit"]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_not_supported_on_virtual_gpus_is_their_limit():
    finding = found(check, text_run(head("2.24.3") + REFUSED, listing("GRID A100X-40C", "GRID A100X-40C")))["vgpu-p2p-limit"]
    assert (finding.severity, finding.confidence) == ("warning", "likely")


def test_an_old_nccl_under_wsl_is_the_cause():
    uname = "Linux gpu-box 5.15.90.1-microsoft-standard-WSL2 #1 SMP Fri Jan 27 x86_64\n"
    finding = found(check, text_run("NCCL version 2.7.8+cuda11.1\n" + REFUSED, uname))["wsl-nccl-too-old"]
    assert "2.7.8" in finding.title
    assert "wsl-nccl-too-old" not in found(check, text_run("NCCL version 2.21.5+cuda12.4\n", uname))


def test_a_topology_that_nccl_cannot_read_is_hidden_by_a_virtual_machine():
    unread = "gpu-box:1:2 [0] NCCL INFO Topology detection: could not read /sys/devices/pci0000:00/0000:00:05.0/../{}, ignoring\n"
    log = head("2.21.5") + unread.format("max_link_speed") + unread.format("max_link_width")
    finding = found(check, text_run(log))["vm-topology-hidden"]
    assert finding.severity == "info" and finding.evidence[0].line == 8
    assert found(check, text_run(log, "$ systemd-detect-virt\nnone\n")) == {}


@pytest.mark.parametrize(
    "subject",
    [
        text_run(topo(pairs(4, "PHB")), "$ systemd-detect-virt\nkvm\n"),
        text_run(head("2.24.3") + ring(2, "P2P/IPC")),
        run(box(2)),
    ],
    ids=["judged by the matrix", "a sound log", "live"],
)
def test_sound_and_unknown_machines_are_no_finding(subject):
    assert found(check, subject) == {}
