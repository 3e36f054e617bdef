"""Signals that ask a run to end are heeded between two turns of it."""

from __future__ import annotations

import signal
import threading

import pytest

from agentsys.runs.executors import defer_signals


def test_signals_that_are_held_back_strike_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    struck = list[int]()

    def strike(number: int, _: object) -> None:
        struck.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, strike) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with defer_signals() as heed:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert struck == []
            heed()
            assert struck == [signal.SIGTERM] * 2
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):  # nobody may ask any more
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                heed()
            heed()
        assert struck == [signal.SIGTERM] * 2 + [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGTERM) is strike
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_on_other_threads_nothing_is_held_back() -> None:
    before, inside = signal.getsignal(signal.SIGINT), list[object]()

    def hold() -> None:
        with defer_signals() as heed:
            heed()
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert inside == [before]
