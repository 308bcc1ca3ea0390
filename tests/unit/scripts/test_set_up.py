"""The set-up behind `make check`, with a Python that only writes down what it is asked: what is made, borrowed, and made anew."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "set_up"

PYTHON = """#!/usr/bin/env bash
# Stands in for Python. TORCH: whether torch is found; FAIL: a word in the arguments on which it fails.
echo "$0 $*" >> "$LOG"
[ -n "${FAIL:-}" ] && [[ "$*" == *"$FAIL"* ]] && exit 1
case "$*" in
  *"find_spec('torch')"*) [ "${TORCH:-no}" = yes ] || exit 1 ;;
  *"find_spec('hatchling')"* | *"find_spec('editables')"*) exit 1 ;;
  *"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
  *"importlib.metadata"*) echo 2.13.0 ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts" / "set_up")
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def set_up(project, **variables):
    """Exit code, what it said, and what Python was asked."""
    log = project / "log"
    log.write_text("")
    environment = {**os.environ, "PYTHON": str(project / "python3"), "LOG": str(log), **variables}
    done = subprocess.run([project / "scripts" / "set_up"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr, log.read_text()


def test_without_torch_it_is_installed_into_an_environment_of_its_own(project):
    code, said, asked = set_up(project)
    assert code == 0, said
    assert "-m venv --clear .venv" in asked
    assert "pip install --quiet --disable-pip-version-check torch==2.13.0" in asked
    assert "--editable ." in asked


def test_where_torch_is_found_it_is_borrowed_and_never_installed(project):
    code, said, asked = set_up(project, TORCH="yes")
    assert code == 0, said
    assert "--system-site-packages" in asked
    assert "install --quiet --disable-pip-version-check torch" not in asked


def test_a_second_run_makes_nothing_anew(project):
    set_up(project)
    assert "-m venv" not in set_up(project)[2]


@pytest.mark.parametrize("failing", ["torch==2.13.0", "--editable"])
def test_one_that_stopped_half_way_is_made_anew(project, failing):
    code, said, _ = set_up(project, FAIL=failing)
    assert code == 1
    assert "could not be installed" in said
    code, said, asked = set_up(project, TORCH="yes")  # half of torch is there, and would be taken for a whole one
    assert code == 0, said
    assert "-m venv --clear" in asked
    assert "-m venv" not in set_up(project)[2]


def test_an_environment_of_the_users_own_is_used_and_never_cleared(project):
    (project / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(project / "python3", project / ".venv" / "bin" / "python")
    for failing in ("torch==2.13.0", ""):
        code, _, asked = set_up(project, FAIL=failing)
        assert "-m venv" not in asked
    assert code == 0
