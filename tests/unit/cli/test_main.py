from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import sample_runs
from wiretax.cli import main
from wiretax.errors import CannotMeasure
from wiretax.jobs import check as check_job

FAKE = """
import os, sys
sys.path.insert(0, {tests!r})
import sample_runs
from wiretax.jobs import check as job
job.check = lambda options, on_progress: getattr(sample_runs, os.environ["SAMPLE"])()
from wiretax.cli.main import main
main()
"""


def wiretax(*arguments: str, sample: str = "four_4090", shell: str = '"$@"', **variables: str) -> subprocess.CompletedProcess[str]:
    """The real process around a job that returns a sample at once; ``shell`` says how its streams are connected."""
    program = FAKE.format(tests=str(Path(sample_runs.__file__).parent))
    environment = {**os.environ, "SAMPLE": sample, **variables}
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        if name not in variables:
            environment.pop(name, None)
    command = ["bash", "-c", f"set -o pipefail; {shell}", "bash", sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.parametrize("format_", [[], ["--json"]])
def test_a_reader_that_goes_away_changes_neither_exit_code_nor_stderr(format_: list[str]) -> None:
    done = wiretax("check", "--no-save", *format_, shell='"$@" | head -c 1')
    assert done.returncode == 1
    assert done.stderr.count("\n") == 0


@pytest.mark.parametrize("shell", ['"$@" >&-', '"$@" 2>&-', '"$@" <&- >&- 2>&-'])
def test_closed_streams_change_nothing(shell: str) -> None:
    done = wiretax("check", "--no-save", shell=shell)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_closed_stdin_is_an_empty_input() -> None:
    done = wiretax("diagnose", "-", shell='"$@" <&-')
    assert "failed" not in done.stderr
    assert "is empty" in done.stderr


def test_with_stdout_closed_the_run_is_still_kept_whole(tmp_path: Path) -> None:
    done = wiretax("check", "--out", str(tmp_path / "run.json"), shell='"$@" >&-', WIRETAX_HOME=str(tmp_path))
    assert done.returncode == 1
    from wiretax.store.folder import load_run

    assert load_run(tmp_path / "run.json") == sample_runs.four_4090()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_error_that_says_so() -> None:
    done = wiretax("check", "--no-save", shell='"$@" >/dev/full')
    assert done.returncode == 3
    assert "could not be written to stdout" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"], ["runs", "show", "-h"]])
def test_help_that_finds_a_full_disk_is_no_bug(arguments: list[str]) -> None:
    done = wiretax(*arguments, shell='"$@" >/dev/full')
    assert done.returncode == 3
    assert "stdout cannot be written: No space left on device." in done.stderr
    assert "bug" not in done.stderr


def test_where_a_run_was_kept_and_how_to_get_its_page_are_two_lines(tmp_path: Path) -> None:
    lines = wiretax("check", WIRETAX_HOME=str(tmp_path)).stderr.splitlines()
    assert [line.split()[0] for line in lines] == ["kept", "a"]


def test_piped_output_has_no_escape_codes_and_forced_colour_has() -> None:
    assert "\x1b" not in wiretax("check", "--no-save").stdout
    assert "\x1b[" in wiretax("check", "--no-save", FORCE_COLOR="1").stdout


def test_no_color_leaves_no_colour_code() -> None:
    shown = wiretax("check", "--no-save", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[31" not in shown
    assert "\x1b[1;31" not in shown
    assert "GIVE THE BOX BACK" in shown


def test_an_ascii_stdout_is_served_in_ascii() -> None:
    done = wiretax("check", "--no-save", PYTHONIOENCODING="ascii", sample="h200_pair")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_without_a_command_the_help_is_shown_as_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    out, err = capfd.readouterr()
    assert "wiretax check" in err
    assert out == ""


def test_help_lists_the_commands_in_the_order_people_need_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    out = capfd.readouterr().out
    assert [out.index(f"\n  {name} ") for name, _, _ in main.COMMANDS] == sorted(out.index(f"\n  {name} ") for name, _, _ in main.COMMANDS)
    assert "Exit codes" in out


@pytest.mark.parametrize("name", [name for name, _, _ in main.COMMANDS])
def test_every_command_of_the_table_can_be_imported_and_has_help(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == 0
    assert f"Usage: wiretax {name}" in capfd.readouterr().out


def test_an_unknown_command_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["checq"]) == 2
    assert "No such command 'checq'" in capfd.readouterr().err


def test_the_version_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capfd.readouterr().out.startswith("wiretax 0.")


def failing(error: BaseException) -> object:
    def check(options: object, on_progress: object) -> None:
        raise error

    return check


def test_our_own_errors_say_what_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_job, "check", failing(CannotMeasure("No rank started\x1b[31m.", why="No memory.", do="Free some.")))
    assert main.run(["check"]) == 3
    out, err = capfd.readouterr()
    assert err == "error: No rank started.\n  why: No memory.\n   do: Free some.\n"
    assert out == ""


def test_ctrl_c_is_130_and_one_word(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_job, "check", failing(KeyboardInterrupt()))
    assert main.run(["check"]) == 130
    assert capfd.readouterr().err.strip() == "stopped"


def test_a_bug_is_one_sentence_that_asks_to_report_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_job, "check", failing(ZeroDivisionError("division by zero")))
    assert main.run(["check"]) == 3
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "ZeroDivisionError: division by zero" in err
    assert "please report it" in err


def test_the_traceback_of_a_bug_is_one_variable_away(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WIRETAX_DEBUG", "1")
    monkeypatch.setattr(check_job, "check", failing(ZeroDivisionError("division by zero")))
    assert main.run(["check"]) == 3
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(("age", "counted"), [(0.3, 0.3), (30.0, 0.0)])
def test_the_budget_counts_from_the_start_of_python_but_not_from_that_of_a_script_that_became_it(
    monkeypatch: pytest.MonkeyPatch, age: float, counted: float
) -> None:
    """`sleep 30; exec wiretax check` is one process for the kernel, and its first 30 s are not ours."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(main.time, "clock_gettime", lambda _clock: started + age)
    monkeypatch.setattr(main.time, "monotonic", lambda: 1000.0)
    assert main._process_start() == pytest.approx(1000.0 - counted, abs=0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_all_was_said_does_not_change_the_exit_code(number: int) -> None:
    program = f"""
import atexit, os, signal
from wiretax.cli import main
atexit.register(lambda: os.kill(os.getpid(), {int(number)}))
main.run = lambda: 1
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("columns", ["1", "20", "banana", "-5"])
def test_a_terminal_too_narrow_for_tables_keeps_their_figures(columns: str) -> None:
    shown = wiretax("check", "--no-save", COLUMNS=columns).stdout
    assert max(len(line) for line in shown.splitlines()) >= 30
    assert "GIVE THE BOX BACK" in shown


def test_a_working_folder_that_is_gone_is_no_trouble_but_for_a_file_in_it(tmp_path: Path) -> None:
    gone = f'mkdir "{tmp_path}/gone"; cd "{tmp_path}/gone"; rmdir "$PWD"; '
    done = wiretax("check", "--no-save", shell=gone + '"$@"')
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    done = wiretax("check", "--no-save", "--out", "x.json", shell=gone + '"$@"')
    assert done.returncode == 2
    assert "the working folder is gone" in done.stderr


@pytest.mark.parametrize("name", [name for name, _, _ in main.COMMANDS])
def test_examples_in_help_stand_line_by_line_as_they_are_typed(capfd: pytest.CaptureFixture[str], name: str) -> None:
    assert main.run([name, "--help"]) == 0
    shown = capfd.readouterr().out
    assert "\\b" not in shown
    assert "\b" not in shown
    command = main.cli.get_command(click.Context(main.cli), name)
    assert command is not None
    kept = [block.split("\n\n")[0] for block in (command.help or "").split("\b\n")[1:]]
    for line in filter(str.strip, "\n".join(kept).splitlines()):
        assert f"  {line.strip()}\n" in shown


@pytest.mark.parametrize(("typed", "meant"), [("chek", "check"), ("pln", "plan"), ("diagnos", "diagnose")])
def test_a_command_that_is_nearly_right_is_named(capfd: pytest.CaptureFixture[str], typed: str, meant: str) -> None:
    assert main.run([typed]) == 2
    assert f"Did you mean {meant}?" in capfd.readouterr().err
