"""`Template`: a process that has imported everything once, and whose copies (forks) are the workers.

A worker that is started afresh takes seconds of CPU before its first case; a copy takes milliseconds, and
shares the memory of what it does not change. The template does nothing but wait: no case is run in it, so it
has no threads, connections, claims or open files whose state a copy could inherit. It is started afresh, too,
unless its driver is a command of ours that has planned a run and done nothing else: then it is a copy of it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsys.runs.executors.signals import leave_to_driver

if TYPE_CHECKING:
    from agentsys.contracts import Benchmark

GroupConfig = tuple[str, Mapping[str, Any]]
CAN_COPY = sys.platform == "linux"
"""Elsewhere workers are started afresh: libraries of macOS do not work in a copy, and Windows makes none."""
_LOOK_AGAIN_S = 0.02


class Template:
    """The template as its driver sees it. Safe to use from several threads.

    Args:
        process: The template.
        asked: Our end of the socket that it takes orders from.
    """

    def __init__(self, process: subprocess.Popen[bytes] | _Child, asked: socket.socket) -> None:
        self._lock = threading.Lock()
        self._process, self._socket = process, asked

    @classmethod
    def started(
        cls, command: Sequence[str], environment: dict[str, str], configs: Sequence[GroupConfig]
    ) -> Template:
        """A new process of Python's.

        Args:
            command: Starts it, less its last argument: the number of the socket that it takes orders from.
            environment: Variables it is started with.
            configs: Groups with the configs in them that its copies will need, as far as they name code of
                ours.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # arguments can be read by everybody on the machine
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as told:  # it may have ended: `ask` will tell
            told.write(json.dumps(configs, default=str).encode())
        return cls(process, ours)

    @classmethod
    def split_off(cls, configs: Sequence[GroupConfig], work: Callable[[int, int], None]) -> Template:
        """A copy of this process, which has one thread and nothing that a copy could spoil.

        Args:
            configs: As for `started`.
            work: What a worker does with the pipes that it gets orders from and answers to.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = _fork()
        if pid:
            theirs.close()
            return cls(_Child(pid), ours)
        try:
            os.setsid()
            leave_to_driver()
            atexit._clear()  # the driver will do these
            _let_go_of_files(theirs.fileno())
            work(*_copied(theirs, configs))
        except BaseException:  # noqa: BLE001 - whatever it is, the driver's own code must not go on here
            traceback.print_exc()
        finally:
            os._exit(1)

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def ask(self, *order: object, pipes: Sequence[int] = ()) -> Any:
        """What it answers to an order; the first waits till it has imported everything.

        Raises:
            OSError: If it has ended.
        """
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(order).encode()], pipes)
            answer = self._socket.recv(100)
        if not answer:
            raise ConnectionError("the template has ended")
        return json.loads(answer)

    def end(self) -> None:
        """End it; copies that it made go on."""
        self._process.kill()
        self._process.wait()
        with self._lock:
            self._socket.close()


class _Child:
    """A copy of this process, to be ended and waited for as a `subprocess.Popen` is."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative where a signal ended it; None while it runs."""
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        """End it at once, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait till it ends; its exit status."""
        return self._wait(0)

    def _wait(self, how: int) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self.pid, how)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code


class Copy:
    """A copy of a template, to be ended and waited for as a `subprocess.Popen` is."""

    def __init__(self, template: Template, orders: int, told: int) -> None:
        self._template = template
        self.pid: int = template.ask("copy", pipes=(orders, told))

    def kill(self) -> None:
        """End it at once, if it is there."""
        with contextlib.suppress(OSError):
            self._template.ask("kill", self.pid)

    def wait(self) -> int:
        """Wait till it ends; its exit status, negative where a signal ended it.

        Raises:
            OSError: If the template, which alone is told the status, has ended.
        """
        while (code := self._template.ask("status", self.pid)) is None:
            time.sleep(_LOOK_AGAIN_S)
        return int(code)


def copied(number: str) -> tuple[int, int]:
    """Be the template till nobody asks any more, which ends the process; returns in each copy.

    Standard input has the configs that copies will need, in JSON.

    Args:
        number: That of the socket that it is asked through.

    Returns:
        The pipes that the copy gets orders from and answers to.
    """
    leave_to_driver()
    gc.disable()  # all that is imported and loaded stays
    configs = json.load(sys.stdin)
    return _copied(socket.socket(fileno=int(number)), configs)


def _copied(asked: socket.socket, configs: Sequence[GroupConfig]) -> tuple[int, int]:
    gc.disable()
    import agentsys.runs.executors.worker  # noqa: F401 - what this process is for

    for group, config in configs:
        with contextlib.suppress(Exception):  # damaged or gone: the worker that needs it will say so
            _load(group, config)
    gc.freeze()  # or a copy's first collection would write to all of the memory that it shares
    living = set[int]()
    while True:
        message, pipes, _, _ = socket.recv_fds(asked, 100, 2)
        if not message:
            os._exit(0)
        order, *pid = json.loads(message)
        answer = None
        if order == "copy":
            answer = _fork()
            if not answer:
                asked.close()
                gc.enable()
                return pipes[0], pipes[1]
            living.add(answer)
            for pipe in pipes:
                os.close(pipe)
        elif order == "status":
            answer = _status(pid[0], living)
        elif pid[0] in living:  # else its number may be another process's by now
            os.kill(pid[0], signal.SIGKILL)
        asked.send(json.dumps(answer).encode())


def _load(group: str, config: Mapping[str, Any]) -> None:
    """Load what everything that is made of a config shares: code, a model's SDK, the data of suites."""
    from agentsys.models.card import model_card
    from agentsys.models.chat import WarmsUp
    from agentsys.models.provider import build_provider
    from agentsys.runs.instantiate import instantiate

    if group == "benchmark":
        made: Benchmark = instantiate(group, config)
        for name in made.suite_names():
            made.suite(name).load_and_inject_default_environment({})
    elif group == "model":
        provider = build_provider(config, model_card(config))
        if isinstance(provider, WarmsUp):
            provider.warm_up()
    else:
        importlib.import_module(str(config["_target_"]).rpartition(".")[0])


def _let_go_of_files(but: int) -> None:
    """Put the null device in the place of every file of the driver's but one and standard error.

    Closed, their numbers would be others' soon, and objects of the driver's that have them could close those.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number not in (2, but, nothing):
            os.dup2(nothing, number, inheritable=False)


def _fork() -> int:
    """The number of the new process; 0 in it."""
    with warnings.catch_warnings():
        # Python 3.12 counts NumPy's threads too, which a fork leaves in order.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid and (numpy := sys.modules.get("numpy")):
        numpy.random.seed()  # or all copies would draw the same; Python's own generator sees to it itself
    return pid


def _status(pid: int, living: set[int]) -> int | None:
    """Exit status of a copy; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    living.discard(pid)
    return os.waitstatus_to_exitcode(status)
