"""Ctrl-C and polite kills: they end what runs now, and later they only wait until what was measured is kept."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what a scheduler sends when a job's time is over."""


class Interrupts:
    """While active, both signals raise KeyboardInterrupt; after :meth:`hold` they are only noted, however often they come.

    An impatient second Ctrl-C must not cost the results, nor leave processes behind. Does nothing outside the main thread, where
    Python delivers no signals.
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
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
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
