import pytest

from boxes import box, found, run
from real_texts import devices, sweep
from texts import text_run
from wiretax.judge.checks.unit_traps import check


def test_samples_of_one_process_are_found_by_the_run_times():
    text = "| setup | train_runtime | train_samples_per_second |\n|---|---|---|\n| 1 GPU | 402.1 | 19.9 |\n| DDP 4 | 250.5 | 7.98 |\n"
    finding = found(check, text_run(text))["unit-trap"]
    assert "count one process" in finding.title and "(4)" in finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        "1 GPU:  100%|##| 1000/1000 [08:20<00:00,  2.00it/s]\n2 GPU:  100%|##| 500/500 [08:40<00:00,  1.04s/it]\n",
        "Single GPU runs at 1.8 it/s, with 4 GPUs it shows 1.9 s/it\n",
    ],
    ids=["bars", "prose"],
)
def test_a_flipped_unit_is_shown_with_both_lines(text):
    findings = [finding for finding in check(text_run(text)) if "flip" in finding.title]
    assert findings and findings[0].confidence == "certain"


def test_an_epoch_of_fewer_steps_is_told_in_whole_runs():
    findings = list(check(text_run("1 GPU: 1200 steps in 10:00\n4 GPU: 300 steps in 2:45\n")))
    assert any("fewer of them" in finding.title and "3.6x" in finding.effect for finding in findings)


def test_gigabits_are_turned_into_bytes():
    finding = found(check, text_run("GPU 0 -> GPU 1: 32 Gbps\n"))["unit-trap"]
    assert "4.00 GB/s" in finding.effect and finding.severity == "info"


def test_the_mean_over_all_sizes_is_no_bandwidth():
    text = devices(2, "NVIDIA A40") + sweep([(1048576, 4.0), (268435456, 20.0)], 2, average=9.0)
    finding = found(check, text_run(text))["unit-trap"]
    assert "9.00 GB/s" in finding.title and "20.0 GB/s" in finding.title


@pytest.mark.parametrize(
    "subject",
    [
        text_run("1 GPU: 120 samples/s\n2 GPUs: 231 samples/s total\n"),
        text_run("GPU 0 -> GPU 1: 32 GB/s\n"),
        text_run("hello\n"),
        run(box(2)),
    ],
    ids=["totals", "bytes", "nothing", "live"],
)
def test_figures_that_compare_are_no_trap(subject):
    assert found(check, subject) == {}
