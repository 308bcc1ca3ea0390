"""Ctrl-C and polite kills: they end what runs now, and later they only wait until what was measured is kept."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what a scheduler sends when a job's time is over, and a terminal or ssh connection that is gone."""


class Interrupts:
    """While active, these signals raise KeyboardInterrupt; after :meth:`hold` they are only noted, however often they come.

    An impatient second Ctrl-C must not cost the results, nor leave processes behind. What whoever started us wants ignored (nohup,
    a job in the background of a script) stays ignored, and what a program around Python handles stays its own. Does nothing outside
    the main thread, where Python delivers no signals.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.came = False
        """Whether a signal came after :meth:`hold`."""
        self._holding = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Takes the signals."""
        if threading.current_thread() is threading.main_thread():
            wanted = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._handle) for number in wanted}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on the work is short and must be finished."""
        self._holding = True

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._holding:
            raise KeyboardInterrupt
        self.came = True
