"""The first Ctrl-C ends what runs; while results are being kept, further ones only wait."""

import signal
import threading

import pytest

from wiretax.launch.interrupts import SIGNALS, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_until_it_is_held_back(number):
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert not interrupts.came
        interrupts.hold()
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert interrupts.came


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts(), Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_is_to_be_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            interrupts.hold()
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.came
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_inside_another_one_the_inner_decides():
    with Interrupts() as outer:
        with Interrupts() as inner:
            inner.hold()
            signal.raise_signal(signal.SIGINT)
        assert (inner.came, outer.came) == (True, False)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_in_another_thread_nothing_is_touched():
    before = [signal.getsignal(number) for number in SIGNALS]
    seen = []

    def work():
        with Interrupts() as interrupts:
            interrupts.hold()
            seen.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_a_program_around_python_handles_is_left_to_it(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)  # as Python says of a handler that is not its own
    with Interrupts() as interrupts:
        assert interrupts._before == {}
