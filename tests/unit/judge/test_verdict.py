from dataclasses import replace

import pytest

import recording
from boxes import box, compute, copy, gpu, incident, nccl, run, truth, unknown, wire, with_gpus
from wiretax.judge.exit_code import exit_code
from wiretax.judge.verdict import findings_of, judge
from wiretax.model.finding import SEVERITIES
from wiretax.model.machine import Machine
from wiretax.model.reading import unexplained
from wiretax.predict.bounds import bounds

MESHED = box(2, "NV12", gpus=[gpu(k, nvlinks_active=12, compute_capability="8.0") for k in range(2)])


def verdict(judged_run):
    judged = judge(judged_run)
    assert list(unexplained(judged.verdict)) == []
    assert judged.verdict.sentence.endswith(".")
    return judged.verdict


def codes(judged_run):
    return {finding.code for finding in judge(judged_run).findings}


@pytest.mark.parametrize("launch", ["", "launch2_"])
def test_the_recorded_machine_is_healthy_all_of_it_is_used_and_it_is_kept(launch):
    recorded = recording.run(launch)
    judged = judge(replace(recorded, forecasts=bounds(recorded)))
    assert [(f.code, f.severity, f.confidence) for f in judged.findings] == [("healthy", "info", "certain")]
    assert (judged.verdict.decision, judged.verdict.num_gpus, judged.verdict.keep_box) == ("use_all", 2, True)
    assert "NVLink" in judged.verdict.sentence and "1.7 B" in judged.verdict.sentence
    assert list(unexplained(judged)) == []
    assert exit_code(judged) == 0


def recorded_as_default(name):
    """The recorded machine as it would be if this wire were the user's own."""
    recorded = recording.run()
    chosen = tuple(replace(c, wire="default", wire_requested=None) for c in recorded.measurements.collectives if c.wire == name)
    changed = replace(recorded, measurements=replace(recorded.measurements, collectives=chosen))
    return replace(changed, forecasts=bounds(changed))


def test_the_recorded_box_without_nvlink_in_use_is_told_so_and_what_to_look_for():
    judged = judge(recorded_as_default("p2p_off"))
    assert judged.findings[0].code == "transport-unexpected"
    assert judged.verdict.decision == "fix_first"
    assert judged.verdict.keep_box is None


def test_the_recorded_box_over_sockets_is_told_that_its_ranks_are_isolated():
    judged = judge(recorded_as_default("socket"))
    assert judged.findings[0].code == "isolated-ranks-tcp"
    assert judged.verdict.decision == "fix_first"
    assert exit_code(judged) == 1


def test_the_recorded_box_over_gloo_is_told_that_its_backend_is_wrong():
    judged = judge(recorded_as_default("gloo"))
    assert judged.findings[0].code == "backend-gloo"
    assert judged.verdict.decision == "fix_first"


def without_peer_access(machine):
    pairs = tuple(
        replace(p, path="PHB", peer_access=False, p2p=replace(p.p2p, read="GNS", write="GNS", nvlink="NS")) for p in machine.pairs
    )
    return replace(machine, pairs=pairs, gpus=tuple(replace(g, nvlinks=(), nvlinks_active=0) for g in machine.gpus))


def test_a_box_without_peer_access_whose_second_gpu_brings_nothing_is_one_gpu_worth():
    staged = recorded_as_default("p2p_off")
    judged = judge(replace(staged, machine=without_peer_access(staged.machine)))
    assert "p2p-unsupported-gpu" in {f.code for f in judged.findings}
    assert (judged.verdict.decision, judged.verdict.num_gpus) == ("use_one", 1)
    assert judged.verdict.keep_box is None
    assert exit_code(judged) == 0
    assert exit_code(judged, strict=True) == 1


def test_a_box_whose_second_gpu_makes_training_slower_is_given_back():
    slow = recorded_as_default("socket")
    machine = replace(without_peer_access(slow.machine), software=replace(slow.machine.software, nccl_environment={"NCCL_NET": "Socket"}))
    judged = judge(replace(slow, machine=machine))
    assert (judged.verdict.decision, judged.verdict.keep_box) == ("use_one", False)


def test_processor_ranks_cannot_be_judged_and_the_sentence_says_what_was_measured():
    laptop = run(Machine(driver_state="absent"), wire("gloo", 0.8, backend="gloo", kind=None, gpus=()))
    found = verdict(laptop)
    assert (found.decision, found.num_gpus, found.keep_box) == ("cannot_judge", None, None)
    assert "CPU ranks were measured over gloo" in found.sentence
    assert codes(laptop) == {"no-gpu"}
    assert exit_code(judge(laptop)) == 0
    assert exit_code(judge(laptop), require_gpu=True) == 3


def test_one_gpu_is_used_and_the_sentence_says_what_it_cannot_show():
    found = verdict(run(box(1), compute(0)))
    assert (found.decision, found.num_gpus, found.keep_box) == ("use_one", 1, True)
    assert "cannot be seen" in found.sentence


def test_a_lost_gpu_is_a_reason_to_give_the_box_back():
    machine = with_gpus(box(4), gpu3={"status": "lost", "status_reason": "fallen off the bus"})
    judged = judge(run(machine, wire(world=3)))
    assert (judged.verdict.decision, judged.verdict.keep_box) == ("fix_first", False)
    assert "3 other GPUs answer" in judged.verdict.sentence
    assert exit_code(judged) == 1


def test_all_gpus_lost_leaves_nothing_to_judge():
    judged = judge(run(with_gpus(box(1), gpu0={"status": "lost"})))
    assert (judged.verdict.decision, judged.verdict.keep_box) == ("fix_first", False)
    assert exit_code(judged) == 3


@pytest.mark.parametrize(("state", "keep"), [("hung", False), ("mismatch", None), ("error", None)])
def test_a_driver_that_does_not_work_comes_first(state, keep):
    judged = judge(run(Machine(driver_state=state, driver_detail="code 18")))
    assert (judged.verdict.decision, judged.verdict.keep_box) == ("fix_first", keep)
    assert exit_code(judged) == 3


def test_a_variable_that_costs_speed_is_fixed_first_and_the_box_is_not_blamed():
    machine = replace(MESHED, software=replace(MESHED.software, nccl_environment={"NCCL_P2P_DISABLE": "1"}))
    found = verdict(run(machine, wire("default", 14.0, kind="staged"), wire("clean", 220.0)))
    assert (found.decision, found.keep_box) == ("fix_first", True)
    assert "220 GB/s without it" in found.sentence


def test_a_collapsed_whole_uses_the_best_measured_part_and_names_its_gpus():
    machine = box(4, "PIX")
    measured = [wire(gigabytes=20.0, world=2, gpus=pair) for pair in ((0, 1), (2, 3))] + [wire(gigabytes=1.0, world=4)]
    found = verdict(run(machine, *measured))
    assert (found.decision, found.num_gpus) == ("use_fewer", 2)
    assert found.gpus in ((0, 1), (2, 3))


def test_two_gpus_whose_wire_was_not_measured_cannot_be_judged():
    found = verdict(run(box(2)))
    assert found.decision == "cannot_judge"
    assert "not measured" in found.sentence


def test_pasted_nvlink_everywhere_is_healthy_and_pasted_pcie_needs_measurement():
    pasted = replace(unknown(box(4)), pairs=tuple(replace(p, path="NV6") for p in box(4).pairs))
    assert codes(run(pasted, outcome=None)) == {"healthy"}
    pasted = replace(unknown(box(4)), pairs=tuple(replace(p, path="PXB") for p in unknown(box(4)).pairs))
    assert codes(run(pasted, outcome=None)) == {"needs-measurement"}


def test_findings_come_most_severe_first_and_none_twice():
    machine = with_gpus(box(4, "PHB", "GNS"), gpu3={"status": "lost"}, gpu1={"other_processes": 2})
    findings = findings_of(
        run(machine, wire(kind="staged", world=3), incident("hang", "wire:default", wire="default", operation="all_reduce"))
    )
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks, reverse=True)
    assert len({(f.code, f.title) for f in findings}) == len(findings)


def test_a_torch_without_cuda_is_what_to_fix_first():
    machine = replace(MESHED, software=replace(MESHED.software, torch="2.13.0+cpu", torch_cuda=None))
    judged = verdict(run(machine, incident("start_failed", "start")))
    assert (judged.decision, judged.keep_box) == ("fix_first", None)
    assert judged.sentence == "Fix this first: torch is a build without CUDA on a machine with GPUs."


def test_wrong_data_between_peers_stops_everything():
    machine = box(2, "NODE", surroundings={"iommu": "translated"})
    judged = judge(run(machine, wire(), truth(0, 1, "wrong_data")))
    assert judged.findings[0].code == "p2p-wrong-data"
    assert (judged.verdict.decision, judged.verdict.keep_box) == ("fix_first", False)
    assert exit_code(judged) == 1


def test_judging_adds_only_expectations_findings_and_verdict():
    before = run(MESHED, wire(gigabytes=220), copy(0, 1, 260), tags=("kept",))
    after = judge(before)
    assert after.expectations
    assert replace(after, expectations=(), findings=(), verdict=None) == before


def test_an_old_nccl_is_judged_by_its_own_policy():
    machine = box(4, "SYS", software=nccl("2.18.5"), surroundings={"cpu_vendor": "amd"})
    assert codes(run(machine, wire(gigabytes=20, world=4))) == {"healthy"}


FAST_GPU = {"layer_seconds": 3e-3, "head_seconds": 1e-2, "memory_bytes_per_second": 3e12}


@pytest.mark.parametrize(
    ("gigabytes", "decision", "keep"),
    [(8.0, "use_one", False), (28.0, "use_one", None), (45.0, "use_all", None), (200.0, "use_all", True)],
)
def test_the_same_gpus_are_worth_more_the_faster_their_wire_is(gigabytes, decision, keep):
    measured = [wire(gigabytes=gigabytes, kind="staged", num_bytes=2**25), *(compute(k, **FAST_GPU) for k in range(2))]
    found = run(box(2, "PHB", "GNS"), *measured)
    found = verdict(replace(found, forecasts=bounds(found)))
    assert (found.decision, found.keep_box) == (decision, keep), found.sentence
