"""The machines that come with the package, judged bare and with the figures published for such machines."""

from dataclasses import replace

import pytest

from boxes import compute, copy, host_copies, nccl, run, wire
from wiretax.judge.exit_code import exit_code
from wiretax.judge.verdict import judge
from wiretax.predict.bounds import bounds
from wiretax.probe.recorded import shipped_machine, shipped_machines

BARE = {
    "a100-mig": {"mig-no-p2p"},
    "a100-pcie-bridged": {"nvlink-islands"},
    "gpu-lost": {"gpu-lost"},
    "h100x8-sxm": {"healthy"},
    "h200x2": {"healthy"},
    "no-gpu": {"no-gpu"},
    "rtx4090x4": {"p2p-unsupported-chipset"},
    "rtx5090x2-sys": {"p2p-unsupported-gpu"},
}
GEFORCE = {"layer_seconds": 15e-3, "head_seconds": 45e-3, "memory_bytes_per_second": 0.93e12}
HOPPER = {"layer_seconds": 3.1e-3, "head_seconds": 9e-3, "memory_bytes_per_second": 3.0e12}


def judged(name, *measured, **software):
    machine = shipped_machine(name)
    machine = replace(machine, software=replace(machine.software, **nccl("2.28.9", **software)))
    found = run(machine, *measured)
    return judge(replace(found, forecasts=bounds(found)))


def codes(run_):
    return {finding.code for finding in run_.findings}


@pytest.mark.parametrize("name", shipped_machines())
def test_each_machine_shows_what_it_was_made_to_show_and_nothing_is_made_up(name):
    found = judge(run(shipped_machine(name), command="inspect", outcome=None))
    assert codes(found) == BARE[name]
    assert found.verdict.decision == ("fix_first" if name == "gpu-lost" else "cannot_judge")


def test_four_4090_that_do_the_work_of_two_are_given_back_and_the_better_pair_is_named():
    rates = {(0, 1): 4.0, (0, 2): 13.1, (0, 3): 13.0, (1, 2): 13.0, (1, 3): 10.9, (2, 3): 12.0}
    copies = [copy(a, b, rate, "staged") for pair, rate in rates.items() for a, b in (pair, pair[::-1])]
    wires = [wire(gigabytes=busbw, world=n, kind="staged", num_bytes=32 * 2**20) for n, busbw in ((2, 4.5), (4, 7.0))]
    found = judged("rtx4090x4", *wires, *copies, *host_copies(25, 25, 25, 25), *(compute(k, 160, **GEFORCE) for k in range(4)))
    assert {"p2p-unsupported-chipset", "shared-uplink"} <= codes(found)
    uplink = next(f for f in found.findings if f.code == "shared-uplink")
    assert "CUDA_VISIBLE_DEVICES=0,2" in uplink.remedy
    assert (found.verdict.decision, found.verdict.keep_box) == ("use_all", False)
    assert found.verdict.sentence.startswith("Give it back if you pay for all 4 GPUs: 4 GPUs talk through host memory at 7.00 GB/s")
    assert exit_code(found) == 0


def test_eight_h100_with_sharp_are_kept_and_all_used():
    wires = [wire(gigabytes=busbw, world=n, num_bytes=2**30) for n, busbw in ((2, 330), (4, 355), (8, 470))]
    found = judged("h100x8-sxm", *wires, *(compute(k, 780, **HOPPER) for k in range(8)))
    assert codes(found) == {"healthy"}
    assert (found.verdict.decision, found.verdict.num_gpus, found.verdict.keep_box) == ("use_all", 8, True)


def test_eight_h100_stuck_at_a_third_of_their_links_are_not_called_healthy():
    wires = [wire(gigabytes=busbw, world=n, num_bytes=2**30) for n, busbw in ((2, 330), (4, 355), (8, 120))]
    found = judged("h100x8-sxm", *wires, *(compute(k, 780, **HOPPER) for k in range(8)))
    assert "subset-collapse" in codes(found)
    assert exit_code(found) == 1


def test_two_5090_across_sockets_reach_what_the_second_seed_measured():
    found = judged("rtx5090x2-sys", wire(gigabytes=22.0, kind="staged"), wire("gloo", 1.7, backend="gloo", kind=None))
    assert codes(found) == {"p2p-unsupported-gpu", "shm-tuning"}
    assert all(row.low_bytes_per_second < 22e9 < row.high_bytes_per_second for row in found.expectations if row.wire == "default")


def test_bridged_a100_pairs_keep_two_gpu_jobs_inside_a_pair():
    wires = [wire(gigabytes=200.0, world=2, num_bytes=2**25), wire(gigabytes=12.0, world=4, kind="staged", num_bytes=2**25)]
    found = judged("a100-pcie-bridged", *wires, *(compute(k, 250, **HOPPER) for k in range(4)))
    islands = next(f for f in found.findings if f.code == "nvlink-islands")
    assert "CUDA_VISIBLE_DEVICES=0,1" in islands.remedy
    assert "subset-collapse" not in codes(found)
    assert (found.verdict.decision, found.verdict.gpus) == ("use_fewer", (0, 1))
