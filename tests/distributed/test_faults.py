"""Hosts, parents and users as bad as they come: the check says what it met, keeps what it has, ends in time and leaves nothing behind."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checking import Check, measuring_gloo
from fake_nvml.fake import FakeNvml, compile_library
from wiretax.launch import torchrun
from wiretax.launch.plan import LaunchPlan, Stage
from wiretax.launch.run_folder import run_folder
from wiretax.model.reading import REASON_NOT_RECORDED

pytestmark = pytest.mark.ranks

SHORT = ("--quick", "--budget", "10s", "--json")
PATIENT = ("--quick", "--budget", "20s", "--json")
"""Where ranks have to have started and measured: importing torch alone takes a busy machine half of ten seconds."""


def may_unshare():
    command = ["unshare", "--mount", "--net", "--uts", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


namespaces = pytest.mark.skipif(not may_unshare(), reason="needs the right to make namespaces (root)")


def inside(script, *flags):
    """A command that prepares namespaces of its own and then becomes the command after it."""
    return ("unshare", *flags, "bash", "-c", f'set -e; mount --make-rprivate /; {script}; exec "$@"', "bash")


def incidents(document):
    return document["measurements"]["incidents"]


def assert_sound(document, stderr):
    """What no fault may break."""
    assert "Traceback" not in stderr and "this is a bug" not in stderr
    text = json.dumps(document)
    assert "Traceback" not in text
    assert REASON_NOT_RECORDED not in text
    assert document["verdict"]["sentence"]


# ---- who dies or stops ----


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (signal.SIGKILL, "rank_died", "torchrun's engine was ended by SIGKILL"),
        (signal.SIGSTOP, "hang", "torchrun's engine was stopped by a signal"),
    ],
)
def test_an_engine_that_dies_or_stops_is_not_taken_for_a_rank(tmp_path, number, kind, words):
    check = Check(tmp_path, *PATIENT)
    check.wait_for(measuring_gloo(check))
    os.kill(check.engine().pid, number)
    code, document, stderr, took = check.end()
    assert code == 3
    (incident,) = [entry for entry in incidents(document) if entry["kind"] == kind]
    assert incident["rank"] is None
    assert words in incident["detail"] and words in document["outcome"]["reason"]
    assert document["measurements"]["compute"]
    assert took <= 20 + 3 + 3
    assert_sound(document, stderr)


def test_an_engine_that_is_killed_before_it_has_ranks_is_told_at_once(tmp_path):
    check = Check(tmp_path, *SHORT)
    os.kill(check.wait_for(check.engine).pid, signal.SIGKILL)
    code, document, stderr, took = check.end()
    assert code == 3
    assert "no rank started: torchrun's engine was ended by SIGKILL" in document["outcome"]["reason"]
    assert took < 8
    assert_sound(document, stderr)


def test_a_rank_that_stops_while_it_starts_is_named(tmp_path):
    check = Check(tmp_path, *SHORT)

    def first_rank():
        engine = check.engine()
        children = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split() if engine else []
        return [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("wiretax rank")]

    (pid, *_) = check.wait_for(first_rank)
    os.kill(int(pid), signal.SIGSTOP)
    code, document, stderr, took = check.end()
    assert code == 3
    assert "was stopped by a signal" in document["outcome"]["reason"]  # as a process, or as rank 0 when it was quicker
    assert took <= 10 + 3 + 3
    assert_sound(document, stderr)


@pytest.mark.parametrize("moment", ["engine", "measuring"])
def test_nothing_survives_a_killed_parent(tmp_path, moment):
    check = Check(tmp_path, *PATIENT, environment={"TMPDIR": str(tmp_path)})  # its folder is left for the next launch to sweep
    check.wait_for(check.engine if moment == "engine" else measuring_gloo(check))
    check.process.kill()
    check.process.communicate(timeout=20)
    end = time.monotonic() + 20
    while check.processes() and time.monotonic() < end:
        pass
    assert check.processes() == []


def test_the_asker_of_a_hung_driver_does_not_survive_a_killed_parent(tmp_path, fake_nvml):
    check = Check(tmp_path, *SHORT, environment=fake_nvml.environment("hang=nvmlInitWithFlags\n"))
    check.wait_for(lambda: len(check.processes()) == 2)
    check.process.kill()
    check.process.communicate(timeout=20)
    end = time.monotonic() + 20
    while check.processes() and time.monotonic() < end:
        pass
    assert check.processes() == []


# ---- who stops it ----


def test_an_impatient_user_still_gets_what_was_measured(tmp_path):
    check = Check(tmp_path, *PATIENT)
    check.wait_for(measuring_gloo(check))
    while check.process.poll() is None:
        os.kill(check.process.pid, signal.SIGINT)
        if check.folder() is None:
            break
    code, document, stderr, _ = check.end()
    assert code == 130
    assert document["outcome"]["status"] == "interrupted"
    assert document["measurements"]["collectives"]
    assert len(list((tmp_path / "runs").glob("*.json"))) == 1
    assert_sound(document, stderr)


def test_a_schedulers_time_limit_does_the_same_as_ctrl_c(tmp_path):
    check = Check(tmp_path, *PATIENT)
    check.wait_for(measuring_gloo(check))
    check.process.terminate()
    code, document, stderr, _ = check.end()
    assert code == 130
    assert document["measurements"]["collectives"]
    assert_sound(document, stderr)


@pytest.mark.parametrize("hung_up", [True, False])
def test_a_connection_that_breaks_costs_nothing_that_was_measured(tmp_path, hung_up):
    """With SIGHUP, as after ssh; and without, as under nohup or setsid, where only the terminal is gone."""
    terminal, ours = pty.openpty()
    command = [sys.executable, "-m", "wiretax", "check", "--quick", "--budget", "12s"]
    environment = {**os.environ, "WIRETAX_HOME": str(tmp_path), "TERM": "xterm"}
    process = subprocess.Popen(command, env=environment, stdin=ours, stdout=ours, stderr=ours, start_new_session=True)
    os.close(ours)
    seen = b""
    while b"collectives" not in seen:
        seen += os.read(terminal, 65536)
    os.close(terminal)
    if hung_up:
        process.send_signal(signal.SIGHUP)
    process.wait(timeout=30)
    (path,) = (tmp_path / "runs").glob("*.json")
    document = json.loads(path.read_text())
    assert (document["outcome"]["status"] == "interrupted") is hung_up
    assert document["outcome"]["stage_seconds"]["compute"] > 0
    assert hung_up or document["measurements"]["collectives"]


def test_being_stopped_ourselves_is_no_hang_of_the_ranks(monkeypatch):
    """As by Ctrl-Z and fg, or a laptop that sleeps: here every look at the clock counts as a long step."""
    monkeypatch.setattr(torchrun, "PAUSE_SECONDS", 0.0)
    stages = [Stage(name="bad", title="bad", function="toy_stages:go_wrong", arguments={"who": 0, "how": "hang"}, max_seconds=3.0)]
    with run_folder() as folder:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        outcome = torchrun.launch(
            LaunchPlan(world_size=2, device="cpu", stages=tuple(stages)), folder, deadline=time.monotonic() + 30, environment=environment
        )
    (incident,) = outcome.incidents
    assert incident.kind == "out_of_time"
    assert "wiretax itself stood still" in incident.detail


# ---- hostile hosts ----


@pytest.fixture
def hostile_folder(tmp_path):
    """A working folder with files named like modules, below a path that nobody quotes rightly by accident."""
    folder = tmp_path / "a b\n'\"$(exit) ü"
    folder.mkdir()
    for name in ("torch", "json", "numpy", "msgspec", "wiretax", "random", "logging", "select"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported from the working folder')")
    return folder


def test_a_hostile_environment_changes_nothing(tmp_path, hostile_folder):
    environment = {
        # inside another launcher's job
        "MASTER_ADDR": "10.1.2.3",
        "MASTER_PORT": "1",
        "RANK": "7",
        "WORLD_SIZE": "64",
        "LOCAL_RANK": "3",
        "TORCHELASTIC_RUN_ID": "other",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "64",
        # settings that mean nothing, or are no text
        "NCCL_DEBUG": "\udcff\udcfe",
        "CUDA_VISIBLE_DEVICES": "nonsense,,-1",
        "OMP_NUM_THREADS": "0",
        "GLOO_SOCKET_IFNAME": "nope0",
        "http_proxy": "http://127.0.0.1:9",
        "COLUMNS": "banana",
        # Python's own
        "PYTHONOPTIMIZE": "2",
        "PYTHONWARNINGS": "error",
        "PYTHONSTARTUP": "/nowhere",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    wrap = (sys.executable, "-I", "-c", IGNORING_CHILDREN)
    check = Check(tmp_path / "home", *PATIENT, environment=environment, cwd=hostile_folder, wrap=wrap)
    code, document, stderr, took = check.end()
    assert code == 0, stderr
    assert {series["world_size"] for series in document["measurements"]["collectives"]} == {2}
    assert document["machine"]["software"]["nccl_environment"]["NCCL_DEBUG"] == "\N{REPLACEMENT CHARACTER}" * 2
    assert took <= 20 + 3
    assert_sound(document, stderr)


IGNORING_CHILDREN = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # some daemons do, and whom they start inherits it
os.execv(sys.argv[1], [sys.argv[1], "-P", *sys.argv[2:]])
"""


@namespaces
def test_a_host_whose_name_and_shared_memory_do_not_work_is_measured_all_the_same(tmp_path):
    script = "hostname no-such-host.invalid; mount -t tmpfs -o ro,mode=000 none /dev/shm"
    code, document, stderr, _ = Check(tmp_path, *PATIENT, wrap=inside(script, "--mount", "--uts")).end()
    assert code == 0, stderr
    assert document["machine"]["hostname"] == "no-such-host.invalid"
    assert document["measurements"]["collectives"]
    assert_sound(document, stderr)


@namespaces
@pytest.mark.parametrize(
    ("script", "flags", "words"),
    [
        ("mount -t tmpfs -o size=64k none /mnt; export TMPDIR=/mnt", ("--mount",), "/mnt has no room"),
        ("mount -t tmpfs none /proc", ("--mount",), "/proc is not mounted"),
        ("true", ("--mount", "--net"), "cannot reach each other over 127.0.0.1"),
        ("true", ("--mount", "--pid", "--fork"), "/proc belongs to another process namespace"),
    ],
)
def test_what_stops_every_rank_is_said_at_once(tmp_path, script, flags, words):
    code, document, stderr, took = Check(tmp_path, *SHORT, wrap=inside(script, *flags)).end()
    assert code == 3
    assert words in document["outcome"]["reason"]
    assert document["outcome"]["not_measured"]
    assert took < 8
    assert_sound(document, stderr)


@namespaces
def test_a_disk_that_gets_full_while_measuring_is_named_as_the_cause(tmp_path):
    script = "mount -t tmpfs -o size=8m none /mnt; export TMPDIR=/mnt"
    check = Check(tmp_path, *PATIENT, wrap=inside(script, "--mount"))

    def measuring():
        root = Path(f"/proc/{check.process.pid}/root/mnt")
        return [root for path in root.glob("wiretax-*/results.0.jsonl") if b'"Point"' in path.read_bytes()]

    (root, *_) = check.wait_for(measuring)
    with pytest.raises(OSError, match="No space left"), (root / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    code, document, stderr, _ = check.end()
    assert code == 3
    assert any("the disk of the temporary folder is full" in entry["detail"] for entry in incidents(document))
    assert document["measurements"]["collectives"]
    assert_sound(document, stderr)


def test_without_a_folder_for_temporary_files_it_says_what_to_set(tmp_path):
    blocker = tmp_path / "site"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text("import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/nowhere']\n")
    code, document, stderr, _ = Check(tmp_path / "home", *SHORT, environment={"PYTHONPATH": str(blocker)}).end()
    assert code == 3
    assert "set TMPDIR" in document["outcome"]["reason"]
    assert_sound(document, stderr)


def test_a_working_folder_that_is_gone_is_no_obstacle(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    wrap = ("bash", "-c", 'rmdir "$PWD" && exec "$@"', "bash")
    code, document, stderr, _ = Check(tmp_path / "home", *PATIENT, cwd=folder, wrap=wrap).end()
    assert code == 0, stderr
    assert document["measurements"]["collectives"]
    assert_sound(document, stderr)


def test_two_checks_at_once_do_not_meet(tmp_path):
    both = [Check(tmp_path / name, *PATIENT) for name in ("one", "two")]
    ended = [check.end() for check in both]
    assert [code for code, *_ in ended] == [0, 0]
    assert len({document["run_id"] for _, document, *_ in ended}) == 2


# ---- drivers ----


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def fake_nvml(library, tmp_path):
    return FakeNvml(library, tmp_path)


@pytest.mark.parametrize(
    ("answers", "finding", "words"),
    [
        ("hang=nvmlInitWithFlags\n", "gpu-hung", "nvmlInitWithFlags"),
        ("gpus=2\nhang=nvmlDeviceGetPowerUsage\nhang_gpu=1\n", "gpu-hung", "asking GPU 1 (nvmlDeviceGetPowerUsage)"),
        ("init=18\n", "driver-library-mismatch", "different versions"),
        ("init=999\n", "driver-error", "NVML does not start"),
        ("gpus=2\ncrash=nvmlDeviceGetUtilizationRates\nhang_gpu=1\n", "driver-error", "died of SIGSEGV"),
        ("gpus=1\nlost=0\n", "gpu-lost", "no GPU is usable"),
    ],
)
def test_a_driver_that_cannot_be_used_is_exit_3_within_the_budget(tmp_path, fake_nvml, answers, finding, words):
    budget = 4.0
    environment = fake_nvml.environment(answers)
    code, document, stderr, took = Check(tmp_path, "--budget", f"{budget:g}s", "--json", environment=environment).end()
    assert code == 3
    assert finding in {entry["code"] for entry in document["findings"]}
    assert words in document["outcome"]["reason"]
    assert document["verdict"]["decision"] == "fix_first"
    assert took <= budget + 3 + 3
    assert_sound(document, stderr)


def test_gpus_and_a_torch_without_cuda_is_exit_3_and_says_which_torch_to_get(tmp_path, fake_nvml):
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA")
    code, document, stderr, _ = Check(tmp_path, *SHORT, environment=fake_nvml.environment("gpus=2\n")).end()
    assert code == 3
    (finding,) = [entry for entry in document["findings"] if entry["code"] == "torch-without-cuda"]
    assert "pip install" in finding["remedy"]
    assert document["verdict"]["decision"] == "fix_first"
    assert_sound(document, stderr)
    asked = Check(tmp_path / "cpu", *SHORT, "--cpu-ranks", "2", environment=fake_nvml.environment("gpus=2\n"))
    assert asked.end()[0] == 1  # CPU ranks were asked for and are judged; the torch stays a problem
