from pathlib import Path

import pytest

from boxes import box
from boxes import run as live_run
from diagnosed import run_of
from real_texts import devices, head, listing, nccl, pairs, ring, smi_q, smi_q_gpu, sweep, topo
from texts import text_run
from wiretax.judge.diagnosis import Subject, diagnose, prepare


def codes(subjects: list[Subject]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in diagnose(subjects).findings}


def test_nothing_understood_is_said_and_asks_for_text():
    found = diagnose([])
    assert [finding.code for finding in found.findings] == ["needs-measurement"]
    assert found.verdict.decision == "cannot_judge" and "Paste" in found.findings[0].remedy


def test_a_text_without_a_machine_can_be_judged():
    subject = prepare(text_run("training hangs, with NCCL_P2P_DISABLE=1 it works\n"))
    assert subject.machine is not None and subject.machine.origin == "pasted"
    assert "collective-hang" in codes([Subject(run=subject, label="a")])


def test_names_give_the_capability_that_text_leaves_out():
    subject = prepare(text_run(listing("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090")))
    assert subject.machine is not None and {gpu.compute_capability for gpu in subject.machine.gpus} == {"12.0"}


def test_a_sweep_is_placed_on_the_gpus_that_it_can_only_have_run_on():
    subject = prepare(text_run(devices(2, "NVIDIA A40") + ring(2, "P2P/IPC") + sweep([(134217728, 20.0)], 2)))
    (collective,) = subject.measurements.collectives
    assert collective.gpus == (0, 1) and collective.transport == "P2P/IPC"


def test_the_same_of_two_runs_is_said_once_with_the_lines_of_both():
    full = "\nb:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-7v1Hc1 to 9637892 bytes\n"
    subjects = [Subject(run=text_run(full), label=name, differs="run") for name in ("a", "b")]
    (finding,) = [f for f in diagnose(subjects).findings if f.code == "dev-shm-too-small"]
    assert finding.evidence


def test_two_machines_are_told_apart_by_name():
    sick = text_run(smi_q("550.90.07", smi_q_gpu("01", "NVIDIA A40", generation=(1, 4)), smi_q_gpu("41", "NVIDIA A40")))
    well = text_run(topo(pairs(2, "NV4")))
    found = diagnose([Subject(run=sick, label="one", differs="machine"), Subject(run=well, label="two", differs="machine")])
    titles = [finding.title for finding in found.findings]
    assert any(title.startswith("one: ") for title in titles) and any(title.startswith("two: ") for title in titles)
    assert found.codes[1] == ("healthy",)


def test_a_setting_that_only_one_of_two_runs_has_explains_their_ways(tmp_path: Path):
    declined = f"{nccl()}Check P2P Type isAllDirectP2p 0 directMode 0\n"
    granted = f"{nccl()}Check P2P Type isAllDirectP2p 1 directMode 0\n"
    texts = {
        "a.log": head("2.27.5") + declined + ring(4, "SHM/direct/direct"),
        "b.log": head("2.27.5") + f"{nccl()}NCCL_P2P_LEVEL set by environment to SYS\n" + granted + ring(4, "P2P/IPC"),
        "t": topo(pairs(4, "SYS")),
    }
    found = {finding.code: finding for finding in run_of(tmp_path, texts).findings}
    assert "NCCL_P2P_LEVEL=SYS" in found["p2p-level-too-low"].title and found["p2p-level-too-low"].severity == "warning"


def test_two_states_of_one_machine_are_judged_alone(tmp_path: Path):
    before = smi_q("550.90.07", smi_q_gpu("01", "NVIDIA A40", generation=(1, 4)), smi_q_gpu("41", "NVIDIA A40"))
    after = smi_q("570.86.15", smi_q_gpu("01", "NVIDIA A40"), smi_q_gpu("41", "NVIDIA A40"))
    found = run_of(tmp_path, {"before.txt": before, "after.txt": after})
    assert {"states-differ", "pcie-generation-low"} <= {finding.code for finding in found.findings}
    assert len(found.parts) == 2 and {part.differs for part in found.parts} == {"state"}


def test_hosts_of_one_job_are_compared(tmp_path: Path):
    texts = {
        "a": "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n",
        "b": "n2:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>\n",
    }
    assert "hca-set-mismatch" in {finding.code for finding in run_of(tmp_path, texts).findings}


def test_ranks_of_one_job_in_pods_of_one_machine_are_found_by_the_addresses_of_their_gpus(tmp_path: Path):
    texts = {}
    for k, bus in enumerate(("3b000", "af000")):
        prefix = f"w{k}:7:9{k} [0] NCCL INFO "
        texts[f"w{k}.log"] = (
            f"{prefix}ncclCommInitRank comm 0x{k} rank {k} nranks 2 cudaDev 0 nvmlDev 0 busId {bus} commId 0xa - Init START\n"
            f"{prefix}comm 0x{k} rank {k} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
            f"{prefix}Channel 00/0 : {k}[0] -> {1 - k}[0] [send] via NET/Socket/0\n"
        )
    found = [finding for finding in run_of(tmp_path, texts).findings if finding.code == "isolated-ranks-tcp"]
    assert [(finding.severity, finding.confidence) for finding in found] == [("problem", "likely")]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((topo(pairs(2, "NV4")),), "nothing wrong is visible"),
        (("throughput: 1 GPU 15 samples/s | 2 GPU 4 samples/s total\n",), "Fix this first: 2 GPUs do"),
        (("hello\n",), "Nothing in the text"),
    ],
)
def test_the_verdict_is_one_sentence(texts, words):
    run = text_run(*texts)
    subjects = [Subject(run=run, label="a")] if run.observations or (run.machine and run.machine.gpus) else []
    assert words in diagnose(subjects).verdict.sentence


def test_a_symptom_names_the_cause_behind_it():
    text = "throughput: 1 GPU 15 samples/s | 2 GPU 4 samples/s total\n"
    off = f"{nccl()}P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n"
    verdict = diagnose([Subject(run=text_run(text, off), label="a")]).verdict
    assert "Behind it, most likely: the driver refuses peer access" in verdict.sentence


def test_a_live_machine_is_not_touched_by_preparing():
    live = live_run(box(2))
    assert prepare(live).machine == live.machine
