"""Asks NVML in a child process under a deadline: a driver that hangs must not hang us.

``python -m wiretax.probe.ask_nvml`` prints the answer as JSON, one line for each thing asked; the last line is the fullest.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from wiretax.probe.nvml_answer import NvmlAnswer

DEADLINE_SECONDS = 10.0
"""A slow start (no persistence daemon, eight GPUs) takes 2 to 4 s; past this the driver is taken to hang."""

_PR_SET_PDEATHSIG = 1

KILL_SECONDS = 3.0
"""How long a killed process may take to go before it is taken to be stuck inside the driver."""

# The package's own folder goes last on the path: the child finds this very package without shadowing anything of Python's.
_CHILD = "import sys; sys.path.append(sys.argv[1]); from wiretax.probe.ask_nvml import main; main(float(sys.argv[2]), int(sys.argv[3]))"

_stuck: list[subprocess.Popen[bytes]] = []
"""Children that outlived SIGKILL. Kept so that Python does not wait for them at the end."""


def ask_nvml(deadline_seconds: float = DEADLINE_SECONDS, environment: Mapping[str, str] | None = None) -> NvmlAnswer:
    """What NVML says, or as much as it said in time.

    Args:
        deadline_seconds: after this the child is killed with its group and the answer is ``hung``.
        environment: of the child; by default ours.

    Returns:
        The answer. It never raises for a bad machine: ``driver_state`` and ``driver_detail`` say what happened, and GPUs that
        were read before a hang are in it.
    """
    with Question(deadline_seconds, environment) as question:
        return question.answer()


class Question:
    """NVML being asked while the caller does something else. Leaving the ``with`` block ends the child in any case.

    Args:
        deadline_seconds: counts from now; see :func:`ask_nvml`.
        environment: of the child; by default ours.
    """

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS, environment: Mapping[str, str] | None = None) -> None:
        self._deadline_seconds = deadline_seconds
        self._ends = time.monotonic() + deadline_seconds
        self._problem = ""
        root = str(Path(__file__).resolve().parents[2])
        try:
            self._child: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable or "python3", "-P", "-c", _CHILD, root, str(self._ends), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ if environment is None else environment),
                start_new_session=True,
            )
        except OSError as error:
            self._child = None
            self._problem = f"The process that asks NVML cannot be started: {error}."

    def __enter__(self) -> Self:
        """The question is already being asked."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Kills a child that nobody waits for any more (Ctrl-C)."""
        if self._child is not None and self._child.returncode is None and self._child not in _stuck:
            _kill(self._child)

    def answer(self) -> NvmlAnswer:
        """Waits for the answer, at most until the deadline."""
        if self._child is None:
            return _failed(NvmlAnswer(driver_state="error"), self._problem)
        try:
            output, errors = self._child.communicate(timeout=max(self._ends - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired as expired:
            return _hung(self._child, self._deadline_seconds, expired.output or b"")
        answer = _last_answer(output)
        asked = answer.asking or "NVML"
        if self._child.returncode < 0:
            return _failed(answer, f"The process that asks NVML died of {_signal_name(-self._child.returncode)} while asking {asked}.")
        if self._child.returncode != 0 or answer.asking is not None:
            lines = errors.decode(errors="replace").strip().splitlines()
            return _failed(answer, f"The process that asks NVML failed while asking {asked}: {lines[-1] if lines else 'no message'}")
        return answer


def _hung(child: subprocess.Popen[bytes], deadline_seconds: float, output: bytes) -> NvmlAnswer:
    gone, more_output, errors = _kill(child)
    answer = _last_answer(more_output or output)
    # faulthandler wrote the stack just before the deadline: the innermost pynvml function is the one that hangs.
    function = re.search(rb'pynvml[^"]*", line \d+ in (nvml\w+)', errors)
    inside = f" ({function.group(1).decode()})" if function else ""
    detail = f"The NVIDIA driver did not answer within {deadline_seconds:g} s while asking {answer.asking or 'NVML'}{inside}."
    if not gone:
        detail += f" Process {child.pid} cannot be killed: it is stuck inside the driver, which only a reboot ends."
    hung = _failed(answer, detail)
    return replace(hung, driver_state="hung")


def _kill(child: subprocess.Popen[bytes]) -> tuple[bool, bytes, bytes]:
    """Kills the child's group. Returns whether it is gone, and what it wrote."""
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself in the meantime
        os.killpg(child.pid, signal.SIGKILL)
    try:
        output, errors = child.communicate(timeout=KILL_SECONDS)
    except subprocess.TimeoutExpired as expired:
        _stuck.append(child)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        return False, expired.output or b"", expired.stderr or b""
    return True, output, errors


def _last_answer(output: bytes) -> NvmlAnswer:
    for line in reversed(output.splitlines()):
        try:
            return msgspec.json.decode(line, type=NvmlAnswer)
        except msgspec.MsgspecError:
            continue  # cut off by the kill, or printed by a library
    return NvmlAnswer(driver_state="error", asking="NVML to start")


def _failed(answer: NvmlAnswer, detail: str) -> NvmlAnswer:
    missing = {name: detail for name in ("driver", "cuda") if getattr(answer, name) is None}
    return replace(answer, driver_state="error", driver_detail=detail, missing=missing, asking=None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main(ends: float | None = None, parent: int | None = None) -> None:
    """Prints :class:`NvmlAnswer` as JSON, again after each part.

    Args:
        ends: the parent's deadline on the monotonic clock, which all processes of a machine share. Shortly before it the stack is
            written to stderr, so that the parent can name the function that hangs.
        parent: who asks. When it is killed, this process ends too, as soon as the driver lets it go.
    """
    if parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
    if ends is not None:
        faulthandler.dump_traceback_later(max((ends - time.monotonic()) * 0.9, 0.05), exit=False)
    from wiretax.probe.nvml_machine import read_machine

    def emit(answer: NvmlAnswer) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()

    emit(read_machine(emit))
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
