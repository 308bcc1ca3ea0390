from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sample_runs
from wiretax.cli.main import run
from wiretax.jobs import check as check_job
from wiretax.model.run import Run

Job = Callable[[Run], list[check_job.CheckOptions]]


def budget(job: Job, *arguments: str) -> float | None:
    seen = job(sample_runs.h200_pair())
    assert run(["check", *arguments]) == 0
    return seen[0].budget_seconds


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(job: Job, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert budget(job) is None
    (alone / "wiretax.toml").write_text('[check]\nbudget = "10s"\n')
    assert budget(job) == 10
    monkeypatch.setenv("WIRETAX_CHECK_BUDGET", "20")
    assert budget(job) == 20
    assert budget(job, "--budget", "30") == 30


def test_settings_are_read_from_pyproject_and_wiretax_toml_wins(job: Job, alone: Path) -> None:
    (alone / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.wiretax.check]\nbudget = 11\n")
    assert budget(job) == 11
    (alone / "wiretax.toml").write_text("[check]\nbudget = 12\n")
    assert budget(job) == 12


def test_keys_are_written_as_the_flags_are(job: Job, alone: Path) -> None:
    (alone / "wiretax.toml").write_text('[check]\nbox-price = 0.58\ncurrency = "EUR"\nno-save = true\nfail-if = ["findings.critical>0"]\n')
    seen = job(sample_runs.h200_pair())
    assert run(["check"]) == 0
    assert seen[0].price is not None
    assert seen[0].price.amount == 0.58
    assert not (alone.parent / "home").exists()


def test_a_stronger_source_decides_between_quick_and_full(job: Job, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (alone / "wiretax.toml").write_text("[check]\nquick = true\n")
    seen = job(sample_runs.h200_pair())
    run(["check"])
    run(["check", "--full"])
    monkeypatch.setenv("WIRETAX_CHECK_FULL", "1")
    run(["check"])
    run(["check", "--quick"])
    assert [options.level for options in seen] == ["quick", "full", "full", "quick"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[check]\nbugdet = 3\n", ["wiretax.toml", "check.bugdet", "Did you mean budget?"]),
        ("[checq]\nbudget = 3\n", ["wiretax.toml", "[checq]", "Did you mean check?"]),
        ("check = 3\n", ["wiretax.toml", "check must be a table"]),
        ("[check]\nbudget = 'soon'\n", ["wiretax.toml", "check.budget", "is no time span"]),
        ("[check]\nbudget = [3]\n", ["check.budget must be a single value"]),
        ("[check]\nbudget = {a = 1}\n", ["check.budget must be a single value"]),
        ("[check]\nquick = 2\n", ["check.quick must be true or false"]),
        ("[check]\nno-save = 'yes'\n", ["check.no-save must be true or false"]),
        ("[check]\nbudget = true\n", ["check.budget must be a text or a number"]),
        ("[check]\nbudget = 2026-01-01\n", ["check.budget must be a text or a number"]),
        ("[check]\nbudget = 1e400\n", ["check.budget", "is no time span"]),
        ("[check]\nprice = nan\ncurrency = 'EUR'\n", ["check.price", "is no price"]),
        ("[check]\nbudget = " + "9" * 5000 + "\n", ["wiretax.toml", "thousands of digits"]),
        ("[check]\nbudget = " + "[" * 5000 + "\n", ["wiretax.toml"]),
        ("[check]\ncpu-ranks = 2.5\n", ["check.cpu-ranks", "'2.5' is not a valid integer"]),
        ("[check]\nfail-if = [['x']]\n", ["check.fail-if must be a text or a number"]),
        ("[check]\nfail-if = {a = 1}\n", ["check.fail-if must be a single value"]),
        ('[check]\nout = "a\\u0000b"\n', ["check.out holds a NUL character"]),
        ("[check]\nwires = ['gloo', 'glue']\n", ["check.wires", "'glue' is none of"]),
        ("[check]\ngpus = [0, true]\n", ["check.gpus must be a text or a number"]),
        ("[check\n", ["wiretax.toml", "not valid TOML"]),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_file_and_key(
    job: Job, alone: Path, capfd: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    (alone / "wiretax.toml").write_text(text)
    seen = job(sample_runs.h200_pair())
    assert run(["check"]) == 2
    err = capfd.readouterr().err
    assert all(word in err for word in words)
    assert seen == []


@pytest.mark.parametrize(
    ("text", "gpus", "wires"),
    [
        ("gpus = 0\nwires = 'gloo'", (0,), ("gloo",)),
        ("gpus = '0,2'\nwires = 'default,gloo'", (0, 2), ("default", "gloo")),
        ("gpus = [0, 2]\nwires = ['default', 'gloo']\nfail-if = 'findings.critical>0'", (0, 2), ("default", "gloo")),
    ],
)
def test_lists_are_written_as_on_the_command_line_or_as_lists(
    job: Job, alone: Path, text: str, gpus: tuple[int, ...], wires: tuple[str, ...]
) -> None:
    (alone / "wiretax.toml").write_text(f"[check]\n{text}\n")
    seen = job(sample_runs.h200_pair())
    assert run(["check"]) == 0
    assert (seen[0].gpus, seen[0].wires) == (gpus, wires)


def test_a_number_may_stand_where_a_text_does(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "wiretax.toml").write_text("[check]\nout = 5\n[predict]\nparams = 7e9\nbusbw = '22GB/s'\ngpus = [4]\n")
    assert run(["predict"]) == 0
    assert "954.5 ms" in capfd.readouterr().out


def test_somebody_elses_damaged_pyproject_is_not_our_business(job: Job, alone: Path) -> None:
    (alone / "pyproject.toml").write_text("[broken")
    assert budget(job) is None


def test_our_table_in_a_damaged_pyproject_is(job: Job, alone: Path) -> None:
    (alone / "pyproject.toml").write_text("[tool.wiretax.check]\nbudget = \n")
    job(sample_runs.h200_pair())
    assert run(["check"]) == 2


def test_a_variable_with_a_typing_error_is_not_ignored(
    job: Job, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRETAX_CHECK_BUGDET", "3")
    job(sample_runs.h200_pair())
    assert run(["check"]) == 2
    assert "Did you mean WIRETAX_CHECK_BUDGET?" in capfd.readouterr().err


def test_help_needs_no_readable_configuration(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "wiretax.toml").write_text("[broken")
    assert run(["--help"]) == 0
    assert "check" in capfd.readouterr().out
