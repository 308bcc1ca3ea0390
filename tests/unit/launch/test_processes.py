"""Processes are found below their starter whatever sessions they are in, and ended for sure."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

from wiretax.launch import processes

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
FAMILY = [sys.executable, "-c", PARENT]
DYING_CHILD = """
import time
from wiretax.launch.processes import die_with_parent
die_with_parent()
print(1, flush=True)
time.sleep(600)
"""
PARENT_OF_DYING_CHILD = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', {DYING_CHILD!r}], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def start(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    line = process.stdout.readline().decode().strip()
    process.stdout.close()
    return process, line


def test_a_grandchild_in_its_own_session_is_found_and_ended():
    with processes.adopting_orphans():
        process, line = start(FAMILY)
        found = {entry.pid for entry in processes.descendants(process.pid)}
        assert int(line) in found
        assert processes.kill_tree(process.pid) == []
        process.wait()
    assert processes.look_up(int(line)) is None


def test_an_orphan_seen_before_is_ended_though_its_parent_is_gone():
    with processes.adopting_orphans():
        process, line = start(FAMILY)
        orphan = processes.look_up(int(line))
        process.kill()
        process.wait()
        assert processes.kill_tree(process.pid, extra=(orphan,)) == []
        assert not processes.is_running(orphan)


def test_a_later_process_with_the_same_number_is_not_touched():
    process, _ = start(SLEEPER)
    try:
        stranger = processes.Process(pid=process.pid, parent=0, state="?", started=1)
        assert not processes.is_running(stranger)
        processes.kill(stranger)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_one_that_survives_is_returned():
    process, _ = start(SLEEPER)
    try:
        survivors = processes.kill_tree(process.pid, seconds=0.2, send=lambda _pid, _signal: None)
        assert [survivor.pid for survivor in survivors] == [process.pid]
    finally:
        process.kill()
        process.wait()


def test_a_stopped_process_is_ended():
    process, _ = start(SLEEPER)
    os.kill(process.pid, signal.SIGSTOP)
    assert processes.kill_tree(process.pid) == []
    assert process.wait() == -signal.SIGKILL


def test_a_name_with_brackets_and_blanks_does_not_confuse_the_reading(tmp_path):
    strange = tmp_path / "a) R (b 1 2"
    strange.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(strange), "600"])
    try:
        entry = processes.look_up(process.pid)
        assert entry.parent == os.getpid() and entry.state in "RSD"
    finally:
        process.kill()
        process.wait()


def test_a_child_ends_with_its_parent():
    with processes.adopting_orphans():
        process, line = start([sys.executable, "-c", PARENT_OF_DYING_CHILD])
        child = processes.look_up(int(line))
        process.kill()
        process.wait()
        os.waitpid(child.pid, 0)  # adopted by us, and ended by the kernel: this returns
    assert not processes.is_running(child)


def test_a_python_of_our_own_runs_this_package_though_another_copy_and_modules_of_the_user_come_first(tmp_path):
    (tmp_path / "wiretax").mkdir()
    (tmp_path / "wiretax" / "__init__.py").write_text("raise SystemExit('another copy')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = processes.python_command("wiretax", "--version")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("wiretax")


def test_a_python_of_our_own_looks_for_packages_where_this_one_does(monkeypatch):
    plain = processes.python_command("module", "one")
    assert not {"-I", "-E", "-s", "-S"} & set(plain)
    monkeypatch.setattr(processes.sys, "flags", SimpleNamespace(isolated=1, ignore_environment=1, no_user_site=1, no_site=0))
    command = processes.python_command("module", "one")
    assert command[:5] == [sys.executable, "-P", "-I", "-E", "-s"]
    assert command[5:] == plain[2:]
