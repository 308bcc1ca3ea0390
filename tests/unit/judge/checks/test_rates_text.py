import pytest

from boxes import box, found, run, wire
from real_texts import devices, head, nccl, pairs, ring, sweep, topo
from texts import text_run
from wiretax.judge.checks.rates_text import check

TABLE = "| config | all_reduce busbw GB/s |\n|---|---|\n| default | {} |\n| {} | {} |\n"


@pytest.mark.parametrize(
    ("setting", "before", "after", "code"),
    [
        ("NCCL_SHM_USE_CUDA_MEMCPY=1", 2.2, 11.0, "shm-direct-slow"),
        ("NCCL_P2P_DISABLE=1", 3.0, 9.0, "p2p-slower-than-staged"),
        ("NCCL_P2P_LEVEL=SYS", 4.0, 9.0, "p2p-level-too-low"),
        ("NCCL_P2P_LEVEL=SYS", 9.0, 4.0, "p2p-forced-slow"),
        ("NCCL_BUFFSIZE=1048576", 4.1, 6.0, "nccl-tuning"),
    ],
)
def test_a_setting_that_makes_a_difference_is_named(setting, before, after, code):
    finding = found(check, text_run(TABLE.format(before, setting, after)))[code]
    assert finding.confidence in ("certain", "likely") and {line.line for line in finding.evidence} == {3, 4}


@pytest.mark.parametrize(("before", "after"), [(9.0, 9.5), (9.0, 8.8)])
def test_a_difference_within_the_spread_is_none(before, after):
    assert found(check, text_run(TABLE.format(before, "NCCL_P2P_DISABLE=1", after))) == {}


def test_two_sweeps_are_compared_by_what_their_commands_set():
    rows = [(134217728, 4.0)], [(134217728, 10.0)]
    slow, fast = (devices(4, "NVIDIA L40S") + sweep(each, 4) for each in rows)
    text = f"$ ./build/all_reduce_perf -g 4\n{slow}$ NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -g 4\n{fast}"
    finding = found(check, text_run(text))["p2p-slower-than-staged"]
    assert "2.5x" in finding.title


def test_through_a_cpu_the_way_is_named():
    text = TABLE.format(3.0, "NCCL_P2P_DISABLE=1", 9.0)
    assert "p2p-through-cpu-slow" in found(check, text_run(text, topo(pairs(2, "SYS"))))


@pytest.mark.parametrize(("transport", "code"), [("P2P/IPC", "p2p-through-cpu-slow"), ("SHM/direct/direct", "shm-direct-slow")])
def test_one_slow_figure_alone_is_a_suspicion(transport, code):
    text = head("2.21.5") + ring(4, transport) + sweep([(134217728, 1.4), (268435456, 1.4)], 4)
    finding = found(check, text_run(text))[code]
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_a_forced_level_is_blamed_for_it():
    text = head("2.21.5") + f"{nccl()}NCCL_P2P_LEVEL set by environment to SYS\n" + ring(4, "P2P/IPC") + sweep([(134217728, 1.4)], 4)
    assert "p2p-forced-slow" in found(check, text_run(text))


def test_all_gpus_far_below_a_pair_collapse():
    finding = found(check, text_run("# all_reduce busbw GB/s\nGPUs  busbw(GB/s)\n2     19.5\n4     18.9\n8     2.1\n"))["subset-collapse"]
    assert "8 GPUs together reach 11 %" in finding.title


def test_a_version_that_is_slow_where_another_is_not_is_the_cause():
    text = "NCCL 2.16.2 is 10x slower than before. With NCCL 2.14.3 it is fine.\n"
    assert "2.16.2" in found(check, text_run(text))["nccl-version-bug"].title


def test_another_torch_is_only_a_possible_cause():
    text = "Since upgrading torch from 2.6 to 2.7 training hangs on 8 gpus.\n"
    finding = found(check, text_run(text))["nccl-version-bug"]
    assert (finding.severity, finding.confidence) == ("info", "possible") and "torch 2.7" in finding.title


def test_gloo_beside_nccl_is_a_reminder():
    text = "all_reduce busbw over nccl: 20.0 GB/s\nall_reduce busbw over gloo: 0.8 GB/s\n"
    assert found(check, text_run(text))["backend-gloo"].severity == "info"


@pytest.mark.parametrize(
    "subject",
    [
        text_run("# all_reduce busbw GB/s\nGPUs  busbw(GB/s)\n2     19.5\n4     18.9\n8     17.1\n"),
        text_run(head("2.21.5") + ring(4, "P2P/IPC") + sweep([(134217728, 18.0)], 4)),
        text_run("fast enough\n"),
        run(box(2), wire(gigabytes=1.0)),
    ],
    ids=["even", "fast", "silence", "live"],
)
def test_even_and_unread_rates_are_no_finding(subject):
    assert found(check, subject) == {}
