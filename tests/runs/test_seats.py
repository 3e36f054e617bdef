"""No more agents are at work than there are seats, first come first; an ending run begins none."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from agentsys.runs.seats import NotBegun, Seats


def waiting(seats: Seats, number: int) -> None:
    """Come back once so many threads wait for a seat."""
    until = time.monotonic() + 30
    while len(seats._waiting) < number:
        assert time.monotonic() < until
        time.sleep(0.001)


class Held:
    """A seat that another thread has till it is told to give it back."""

    def __init__(self, seats: Seats, pool: ThreadPoolExecutor) -> None:
        self._enough, begun = threading.Event(), threading.Event()

        def sit() -> float:
            with seats.taken() as waited_s:
                begun.set()
                assert self._enough.wait(30)
            return waited_s

        self._end: Future[float] = pool.submit(sit)
        assert begun.wait(30)

    def give_back(self) -> float:
        self._enough.set()
        return self._end.result(30)


def test_no_more_are_at_work_than_there_are_seats_and_each_gets_one() -> None:
    seats, lock = Seats(3), threading.Lock()
    at_work, most = 0, 0

    def work() -> None:
        nonlocal at_work, most
        for _ in range(20):
            with seats.taken():
                with lock:
                    at_work += 1
                    most = max(most, at_work)
                time.sleep(0.0005)
                with lock:
                    at_work -= 1

    with ThreadPoolExecutor(8) as pool:
        for end in [pool.submit(work) for _ in range(8)]:
            end.result(60)
    assert most == 3


def test_who_came_first_is_first_and_is_told_how_long_it_waited() -> None:
    seats, order = Seats(1), list[int]()

    def work(number: int) -> float:
        with seats.taken() as waited_s:
            order.append(number)
        return waited_s

    with ThreadPoolExecutor(4) as pool:
        first = Held(seats, pool)
        others = list[Future[float]]()
        for number in range(3):
            others.append(pool.submit(work, number))
            waiting(seats, number + 1)
        time.sleep(0.05)
        assert first.give_back() < 0.05
        assert all(end.result(30) >= 0.05 for end in others)
    assert order == [0, 1, 2]


def test_a_thread_that_has_a_seat_needs_no_second_one() -> None:
    seats = Seats(1)
    with seats.taken(), seats.taken() as waited_s:
        assert waited_s == 0.0
    with ThreadPoolExecutor(1) as pool:
        assert Held(seats, pool).give_back() < 1  # it was given back, and only once
        with pytest.raises(RuntimeError, match="a case broke"), seats.taken():
            raise RuntimeError("a case broke")
        Held(seats, pool).give_back()


def test_an_ending_run_gives_up_who_has_not_begun_and_no_one_else() -> None:
    seats = Seats(1)

    def work(goes_on: bool) -> bool:
        with seats.taken(goes_on=goes_on):
            return True

    with ThreadPoolExecutor(3) as pool:
        first = Held(seats, pool)
        new, begun = pool.submit(work, False), pool.submit(work, True)
        waiting(seats, 2)
        seats.begin_no_more()
        with pytest.raises(NotBegun):
            new.result(30)
        assert not begun.done()
        first.give_back()
        assert begun.result(30)
    with pytest.raises(NotBegun), seats.taken():
        raise AssertionError("there is a seat, and the run is ending")
    assert work(goes_on=True)
