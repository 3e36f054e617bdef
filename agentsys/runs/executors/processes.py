"""Worker processes of this machine: each is started afresh, reads orders from a pipe and writes what it did.

They are in sessions of their own, so that Ctrl-C in a terminal reaches the driver alone; and they end by
themselves when it is gone. Nothing of the driver's is forked or imported again: a script or a notebook needs
no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from typing import IO

from agentsys.runs.executors.messages import Order, Orders, Told
from agentsys.runs.executors.staff import Gone, Hand, Heard, drained

_LAST_WORDS_S = 10.0
"""Patience with a worker that was asked to end and has nothing to do any more."""


class WorkerProcess(Hand):
    """A worker process as its driver sees it."""

    def __init__(self, orders: Orders, heard: queue.SimpleQueue[Heard]) -> None:
        super().__init__()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders = self._process.stdin
        self._send(orders)
        said = self._process.stdout
        self._ear = threading.Thread(target=self._listen, args=(said, heard), name="ear", daemon=True)
        self._ear.start()

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"worker process {self._process.pid}"

    def send(self, order: Order) -> None:
        """Give an order; one that is gone hears nothing."""
        self._send(order)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def dismiss(self) -> None:
        """Tell it that there is nothing more to do."""
        with contextlib.suppress(OSError):
            self._orders.close()

    def wait(self, until: float) -> None:
        """Wait for its last word; at a moment of `time.monotonic` it is ended."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ear.join()

    def _send(self, message: Order | Orders) -> None:
        if self._orders.closed:  # it has been told that there is nothing more
            return
        with contextlib.suppress(OSError):  # its end is heard of by `_listen`
            _write(self._orders, message)

    def _listen(self, said: IO[bytes], heard: queue.SimpleQueue[Heard]) -> None:
        while (told := _read(said)) is not None:
            heard.put(Heard(self, told))
        code = self._process.wait()
        heard.put(Heard(self, Gone(f"{self.name} {_ended(code)}")))


class ProcessStaff:
    """Worker processes of this machine.

    Args:
        orders: What each is told at its start.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._hired: list[WorkerProcess] = []

    def hire(self) -> Hand:
        """Start one more."""
        self._hired.append(WorkerProcess(self._orders, self._heard))
        return self._hired[-1]

    def heard(self, timeout_s: float) -> list[Heard]:
        """What the workers said, waiting so long for the first word."""
        return drained(self._heard, timeout_s)

    def dismiss(self) -> None:
        """End all of them: they have nothing to do any more."""
        for worker in self._hired:
            worker.dismiss()
        until = time.monotonic() + _LAST_WORDS_S
        for worker in self._hired:
            worker.wait(until)

    def kill(self) -> None:
        """End all of them in the middle of what they do; nobody else's process is touched."""
        for worker in self._hired:
            worker.kill()


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def _write(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Told | None:
    """The next message; None at the end."""
    try:
        size = pipe.read(4)
        data = pipe.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
        return pickle.loads(data) if data else None
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def _serve(orders_pipe: IO[bytes], told_pipe: IO[bytes]) -> None:
    """Be a worker till the driver has nothing more to say, or is gone."""
    from agentsys.runs.executors.worker import CaseWorker

    order: object = _read(orders_pipe)
    if not isinstance(order, Orders):
        return
    lock = threading.Lock()

    def tell(told: Told) -> None:
        with lock:
            try:
                _write(told_pipe, told)
            except OSError:
                os._exit(1)  # nobody listens: what is not stored will be run by somebody else

    with CaseWorker(order, tell) as worker:
        while (heard := _read(orders_pipe)) is not None:
            worker.hear(heard)  # type: ignore[arg-type]
        if worker.busy:
            os._exit(1)


def main() -> None:
    """What is started: orders come on standard input, and nothing else may be written to standard output."""
    orders_pipe, told_pipe = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # some of AgentDojo's checkers print
    _serve(orders_pipe, told_pipe)


if __name__ == "__main__":
    main()
