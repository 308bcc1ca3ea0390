"""The last words of a process become one sentence that names the error, its place and its meaning."""

import pytest

from wiretax.launch import last_words

TRACE = """\
something printed before
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/wiretax/launch/worker.py", line 162, in _stage_child
    getattr(importlib.import_module(module), name)(rank, **stage.arguments)
  File "/opt/venv/lib/python3.11/site-packages/wiretax/measure/rank.py", line 101, in write
    os.write(self._descriptor, data)
OSError: [Errno 28] No space left on device
"""

CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007fd2da852b80 (most recent call first):
  File "/opt/wiretax/measure/rank.py", line 208 in _get

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""

LOG = """\
W1201 00:05:03.634000 3647 torch/multiprocessing/spawn.py:165] Terminating process 3703 via signal SIGTERM
E1201 00:05:03.639000 3647 torch/distributed/elastic/multiprocessing/api.py:836] failed (exitcode: -9) local_rank: 1 (pid: 3702) of fn: main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-12-01_00:05:04
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 3702)  (SIGKILL)
  traceback : Signal 9 (SIGKILL) received by PID 3702
"""


def test_an_exception_is_told_with_its_place_in_wiretax_and_what_it_means():
    told = last_words.summary(TRACE)
    assert told.startswith("OSError: [Errno 28] No space left on device; the disk of the temporary folder is full")
    assert told.endswith("(wiretax/measure/rank.py line 101)")
    assert "\n" not in told


def test_of_two_exceptions_the_last_is_told():
    second = TRACE + "\nDuring handling of the above exception, another exception occurred:\n\n" + TRACE.replace("OSError", "RuntimeError")
    assert last_words.summary(second).startswith("RuntimeError: [Errno 28]")


def test_an_error_whose_words_stand_on_the_next_line_keeps_them():
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError:\n    Invalid log settings: banana\n'
    assert last_words.summary(trace) == "ValueError: Invalid log settings: banana"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CRASH, "Fatal Python error: Segmentation fault"),
        ("terminate called\nNCCL abort\n\n", "NCCL abort"),
        ("", ""),
        (" \n\n", ""),
    ],
)
def test_a_crash_is_told_by_its_first_line_and_other_output_by_its_last(text, told):
    assert last_words.summary(text) == told


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
        ("OSError: [Errno 27] File too large", "ulimit -f"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "ulimit -u"),
        ("RuntimeError: can't start new thread", "ulimit -u"),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes", "memory is short"),
    ],
)
def test_terse_errors_of_the_system_are_explained(error, word):
    assert last_words.meaning(error).startswith(error + "; ")
    assert word in last_words.meaning(error)


def test_other_errors_are_left_as_they_are():
    assert last_words.meaning("RuntimeError: NCCL error: unhandled system error") == "RuntimeError: NCCL error: unhandled system error"


def test_torchruns_account_names_process_signal_and_rank():
    assert last_words.of_engine(LOG) == "process 3702 was ended by SIGKILL"
    assert last_words.first_to_die(LOG) == 1
    assert last_words.signal_of(LOG) == 9


def test_a_ranks_own_error_wins_over_the_engines():
    log = LOG.replace(
        "Signal 9 (SIGKILL) received by PID 3702", "Traceback ...\n    import torch\n  ImportError: libcudart.so.12: cannot open\n\n"
    )
    assert last_words.of_engine(log) == "ImportError: libcudart.so.12: cannot open"


def test_a_log_that_says_nothing_tells_nothing():
    assert last_words.of_engine("") == ""
    assert last_words.of_engine(LOG.splitlines()[0]) == ""
    assert last_words.first_to_die("") is None
    assert last_words.signal_of("") is None


def test_a_full_disk_is_told_once(tmp_path):
    once = last_words.with_full_disk("the process is gone")
    assert "TMPDIR" in once
    assert last_words.with_full_disk(once) == once
    assert last_words.with_full_disk("").startswith("the disk")
    assert not last_words.disk_is_full(tmp_path / "gone")


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:5342",
        "RuntimeError: [pair.cc:536] Read error [127.0.0.1]:3412: Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process exited or there was a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_an_error_that_says_that_a_peer_went_away_is_told_from_a_cause(error):
    assert last_words.blames_a_peer(f"Traceback (most recent call last):\n  File x\n{error}\n")


@pytest.mark.parametrize("error", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "ValueError: closed door", ""])
def test_any_other_error_is_a_cause(error):
    assert not last_words.blames_a_peer(error)
