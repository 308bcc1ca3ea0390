from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import sample_runs
from wiretax.cli.main import run
from wiretax.jobs import check as check_job
from wiretax.model.money import Price
from wiretax.model.run import Outcome, Run
from wiretax.store.codec import decode_run

Job = Callable[[Run], list[check_job.CheckOptions]]


def with_severity(severity: str) -> Run:
    base = sample_runs.h200_pair()
    return replace(base, findings=(replace(base.findings[0], severity=severity),))


@pytest.mark.parametrize(
    ("document", "flags", "code"),
    [
        (with_severity("info"), [], 0),
        (with_severity("warning"), [], 0),
        (with_severity("warning"), ["--strict"], 1),
        (with_severity("problem"), [], 1),
        (with_severity("critical"), [], 1),
        (sample_runs.hung(), [], 3),
        (replace(sample_runs.h200_pair(), outcome=Outcome(status="interrupted")), [], 130),
        (replace(sample_runs.h200_pair(), outcome=Outcome(status="out_of_budget")), [], 0),
        (sample_runs.cpu_only(), [], 0),
    ],
)
def test_the_exit_code_says_whether_it_was_judged_and_how(job: Job, document: Run, flags: list[str], code: int) -> None:
    job(document)
    assert run(["check", *flags]) == code


def test_json_is_one_document_and_all_talk_is_on_stderr(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    job(sample_runs.four_4090())
    assert run(["check", "--json"]) == 1
    out, err = capfd.readouterr()
    assert decode_run(out.encode(), "stdout") == sample_runs.four_4090()
    assert "kept as" in err


def test_json_is_complete_when_the_run_failed(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    job(sample_runs.hung())
    assert run(["check", "--json"]) == 3
    assert json.loads(capfd.readouterr().out)["outcome"]["status"] == "failed"


def test_flags_become_options(job: Job) -> None:
    seen = job(sample_runs.h200_pair())
    run(["check", "--full", "--budget", "2m", "--gpus", "0,2", "--require-gpu", "--box-price", "0.58", "--currency", "eur"])
    (options,) = seen
    assert options.level == "full"
    assert options.budget_seconds == 120
    assert options.gpus == (0, 2)
    assert options.require_gpu is True
    assert options.price == Price(amount=0.58, currency="EUR", per="box_hour")
    assert options.started is not None


def test_the_run_is_kept_in_the_folder_of_runs_and_in_a_named_file(job: Job, alone: Path) -> None:
    job(sample_runs.h200_pair())
    assert run(["check", "--out", "here.json"]) == 0
    kept = alone.parent / "home" / "runs" / f"{sample_runs.h200_pair().run_id}.json"
    assert decode_run(kept.read_bytes(), "kept") == decode_run((alone / "here.json").read_bytes(), "named") == sample_runs.h200_pair()


def test_no_save_keeps_nothing(job: Job, alone: Path) -> None:
    job(sample_runs.h200_pair())
    assert run(["check", "--no-save"]) == 0
    assert not (alone.parent / "home").exists()


def test_a_home_that_cannot_be_written_is_mentioned_and_changes_nothing(
    job: Job, alone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job(sample_runs.h200_pair())
    (alone / "file").write_text("")
    monkeypatch.setenv("WIRETAX_HOME", str(alone / "file"))
    assert run(["check"]) == 0
    out, err = capfd.readouterr()
    assert "not kept" in err
    assert "KEEP THE BOX" in out


@pytest.mark.parametrize("out", ["missing/x.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(job: Job, out: str) -> None:
    seen = job(sample_runs.h200_pair())
    assert run(["check", "--out", out]) == 2
    assert seen == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "is no time span; write 60s, 2m or 1h"),
        (["--budget", "0"], "must be more than nothing"),
        (["--budget", "-5"], "is no time span"),
        (["--budget", "nan"], "is no time span"),
        (["--gpus", "0,0"], "names a GPU twice"),
        (["--gpus", "a"], "is no list of GPU numbers"),
        (["--gpus", "0,"], "is no list of GPU numbers"),
        (["--gpus", "9" * 5000], "is no list of GPU numbers"),
        (["--gpus", "0", "--cpu-ranks", "2"], "exclude each other"),
        (["--require-gpu", "--cpu-ranks", "2"], "exclude each other"),
        (["--quick", "--full"], "exclude each other"),
        (["--price", "2"], "needs its currency"),
        (["--price", "2", "--box-price", "3", "--currency", "EUR"], "not both"),
        (["--price", "inf", "--currency", "EUR"], "is no price"),
        (["--price", "-1", "--currency", "EUR"], "is no price"),
        (["--price", "1", "--currency", "euros"], "is no currency"),
        (["--fail-if", "nonsense"], "is not an expression"),
        (["--fail-if", "all_reduce_busbw<4GB/s"], "Near names: all_reduce_"),
        (["--fail-if", "findings.problems>0"], "Near names: findings.problem"),
        (["--fail-if", "findings.problem>0", "--fail-if", "findings.problem>1e999"], "too large"),
        (["--bugdet", "3"], "--budget"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_exit_2_with_what_to_write_instead(
    job: Job, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    seen = job(sample_runs.h200_pair())
    assert run(["check", *arguments]) == 2
    out, err = capfd.readouterr()
    assert words in err
    assert "error: " in err
    assert out == ""
    assert seen == []


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("60s", 60), ("2m", 120), ("1.5 min", 90), ("1h", 3600), (".5s", 0.5)])
def test_time_spans_are_written_as_people_write_them(job: Job, text: str, seconds: float) -> None:
    seen = job(sample_runs.h200_pair())
    run(["check", "--budget", text])
    assert seen[0].budget_seconds == seconds


def test_a_gate_that_is_true_closes_and_says_why(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    job(sample_runs.h200_pair())
    metric = "all_reduce_busbw_peak_bytes_per_second.default.2"
    assert run(["check", "--fail-if", f"{metric}<20GB/s"]) == 0
    assert run(["check", "--fail-if", f"{metric}<20GB/s", "--fail-if", f"{metric}<400GB/s"]) == 1
    assert f"--fail-if {metric}<400GB/s is true" in capfd.readouterr().err


def test_a_gate_on_a_metric_that_was_not_measured_is_wrong_usage_but_the_result_is_printed(
    job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    job(sample_runs.h200_pair())
    assert run(["check", "--fail-if", "all_reduce_latency_seconds.default.8>4ms"]) == 2
    out, err = capfd.readouterr()
    assert "KEEP THE BOX" in out
    assert "Near names: all_reduce_" in err


def test_a_failed_run_stays_exit_3_whatever_the_gate_says(job: Job) -> None:
    job(sample_runs.hung())
    assert run(["check", "--fail-if", "findings.critical>0"]) == 3


def test_devices_links_and_odd_names_can_be_written_to(job: Job, alone: Path) -> None:
    job(sample_runs.h200_pair())
    (alone / "latest.json").symlink_to("run.json")
    for out in ("/dev/null", "latest.json", "x" * 250, "a b\nc.json"):
        assert run(["check", "--no-save", "--out", out]) == 0
    assert (alone / "latest.json").is_symlink()
    assert decode_run((alone / "run.json").read_bytes(), "run") == sample_runs.h200_pair()
    assert Path("/dev/null").is_char_device()


def test_names_that_cannot_be_written_are_refused_before_anything_is_measured(
    job: Job, alone: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = job(sample_runs.h200_pair())
    (alone / "loop").symlink_to("loop")
    (alone / "dangling").symlink_to("nowhere/x")
    for out, words in (("loop", "symbolic links"), ("x" * 300, "too long"), ("dangling", "there is no folder")):
        assert run(["check", "--out", out]) == 2
        assert words in capfd.readouterr().err
    assert seen == []


def test_a_user_without_a_home_sees_the_result_and_what_to_set(
    job: Job, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job(sample_runs.h200_pair())
    monkeypatch.delenv("WIRETAX_HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert run(["check"]) == 0
    out, err = capfd.readouterr()
    assert "KEEP THE BOX" in out
    assert "not kept" in err and "WIRETAX_HOME" in err
    assert not Path("~").exists()
