"""Worker processes of this machine: each reads orders from a pipe and writes what it did to another.

They are copies of one template where the system makes such, or else started afresh. They are not in the
driver's session, so that Ctrl-C in a terminal reaches the driver alone; a batch system's signals, which reach
all of them, they pass over; and they end by themselves when the driver is gone. Nothing of a script's or a
notebook's is forked or imported again: they need no `if __name__ == "__main__"`. A command of ours has its
template made of itself, which saves seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from agentsys.runs.executors.collector import look_as_cases_run
from agentsys.runs.executors.messages import Order, Orders, Told
from agentsys.runs.executors.signals import leave_to_driver
from agentsys.runs.executors.staff import Gone, Hand, Heard, drained
from agentsys.runs.executors.template import CAN_COPY, Copy, GroupConfig, Template, copied
from agentsys.runs.settings import Settings

_COMMAND = (sys.executable, "-m", __name__)
_LAST_WORDS_S = 10.0
"""Patience with a worker that was asked to end and has nothing to do any more."""

Popen = subprocess.Popen[bytes]
Begin = Callable[[int, int], Popen | Copy]


class WorkerProcess(Hand):
    """A worker process as its driver sees it.

    Args:
        orders: What it is told at its start.
        heard: Takes what it says.
        begin: Starts it, given the two ends of pipes that are its own: for orders, and for what it says.
    """

    def __init__(self, orders: Orders, heard: queue.SimpleQueue[Heard], begin: Begin) -> None:
        super().__init__()
        theirs, ours = os.pipe()
        self._orders = os.fdopen(ours, "wb")
        self._pipes = (theirs, *os.pipe())
        self._heard, self._begin = heard, begin
        self._process: Popen | Copy | None = None
        self._ear = threading.Thread(target=self._attend, name="ear", daemon=True)
        self._ear.start()
        self._send(orders)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "worker process" if self._process is None else f"worker process {self._process.pid}"

    def send(self, order: Order) -> None:
        """Give an order; one that is gone hears nothing."""
        self._send(order)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
        self.dismiss()

    def dismiss(self) -> None:
        """Tell it that there is nothing more to do."""
        with contextlib.suppress(OSError):
            self._orders.close()

    def wait(self, until: float) -> None:
        """Wait for its last word; at a moment of `time.monotonic` it is ended."""
        self._ear.join(max(0.0, until - time.monotonic()))
        if self._ear.is_alive():
            self.kill()
            self._ear.join()

    def _send(self, message: Order | Orders) -> None:
        if self._orders.closed:  # it has been told that there is nothing more
            return
        with contextlib.suppress(OSError):  # its end is heard of by `_attend`
            _write(self._orders, message)

    def _attend(self) -> None:
        """Start it, which may take a while, and listen till it ends."""
        orders, said, told = self._pipes
        with os.fdopen(said, "rb") as listening:
            try:
                self._process = self._begin(orders, told)
            except OSError as error:
                how = f"could not be started ({error})"
            finally:
                os.close(orders)
                os.close(told)
            while (heard := _read(listening)) is not None:
                self._heard.put(Heard(self, heard))
        if self._process is not None:
            how = _ended(self._process)
        self._heard.put(Heard(self, Gone(f"{self.name} {how}")))


class ProcessStaff:
    """Worker processes of this machine.

    Args:
        orders: What each is told at its start.
        cells: Settings of the cells whose cases they will run. What is ours of it is loaded once for all of
            them, which begins at once.
        in_command: Whether this process is a command of ours and has done nothing but plan the run.
    """

    def __init__(self, orders: Orders, cells: Iterable[Settings], *, in_command: bool = False) -> None:
        self._orders = orders
        settings = list(cells)
        self._configs = list(_shared(settings))
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._hired: list[WorkerProcess] = []
        self._template: Template | None = None
        own_places = orders.plugin_paths or orders.config_dirs  # their classes may stand deep in a config
        alone = threading.active_count() == 1 and not own_places and all(map(_is_ours, settings))
        if CAN_COPY and in_command and alone:
            self._template = Template.split_off(self._configs, _work)
        self._beginning()

    def hire(self) -> Hand:
        """Start one more."""
        self._hired.append(WorkerProcess(self._orders, self._heard, self._beginning()))
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
        self._end_template()

    def kill(self) -> None:
        """End all of them in the middle of what they do; nobody else's process is touched."""
        for worker in self._hired:
            worker.kill()
        self._end_template()

    def _beginning(self) -> Begin:
        if not CAN_COPY:
            return _started_afresh
        if self._template is None or self._template.gone:
            self._template = Template.started(_COMMAND, _environment(), self._configs)
        return functools.partial(Copy, self._template)

    def _end_template(self) -> None:
        if self._template is not None:
            self._template.end()


_PACKAGES = ("agentsys.", "baselines.")
_LOADED: Mapping[str, tuple[str, ...]] = {
    "benchmark": ("agentsys.benchmarks.",),
    "model": ("agentsys.models.providers.",),
    "defense": _PACKAGES,
    "attack": ("agentsys.",),
}
"""Group -> what the names of classes begin with that are loaded before workers are copied. Code of a user's
may start threads, or draw: each worker runs it itself."""


def _shared(cells: Iterable[Settings]) -> Iterator[GroupConfig]:
    """What of these cells is loaded once for all workers, each config once."""
    seen = set[str]()
    for settings in cells:
        for group, ours in _LOADED.items():
            config: Mapping[str, Any] = getattr(settings, group)
            if _names_ours(config, ours) and (text := repr((group, config))) not in seen:
                seen.add(text)
                yield group, config


def _is_ours(settings: Settings) -> bool:
    """Whether a cell is made of code of ours alone."""
    return all(_names_ours(getattr(settings, group), _PACKAGES) for group in _LOADED)


def _names_ours(config: Mapping[str, Any], ours: tuple[str, ...]) -> bool:
    return str(config.get("_target_")).startswith(ours) and not config.get("modules")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _started_afresh(orders: int, told: int) -> Popen:
    return subprocess.Popen(_COMMAND, stdin=orders, stdout=told, env=_environment(), start_new_session=True)


def _ended(process: Popen | Copy) -> str:
    try:
        code = process.wait()
    except OSError as error:
        return f"ended ({error})"
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
    """What is started: a worker, or, given arguments, the template that workers are copies of.

    Orders come on standard input, and nothing else may be written to standard output.
    """
    _work(*copied(*sys.argv[1:]) if sys.argv[1:] else (os.dup(0), os.dup(1)))


def _work(orders_pipe: int, told_pipe: int) -> None:
    """Be a worker till its end, which is that of this process."""
    leave_to_driver()  # a template has, but not who was started afresh
    look_as_cases_run()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # some of AgentDojo's checkers print
    with os.fdopen(orders_pipe, "rb") as orders, os.fdopen(told_pipe, "wb") as told:
        _serve(orders, told)
        atexit._run_exitfuncs()
        # The driver waits for its end, and Python would take apart all that was imported, which takes 0.2 s.
        os._exit(0)


if __name__ == "__main__":
    main()
