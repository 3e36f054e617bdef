"""`TimedBackend`: network streams for `httpcore` that end with the exchange they serve, and wait seldom.

A thread that asks the system for anything that may wait gives up the interpreter's lock, and with many
threads it is milliseconds until it has it back. So a request is sent in one piece, and without TLS the system
itself is told how long to wait, instead of being asked before each step.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from agentsys.models.errors import ErrorKind, ModelError

_PIECE = 65_536
"""Bytes written between two looks at the clock, and bytes that are collected at most."""

_TIMEVAL = struct.Struct("ll")
"""Seconds and microseconds, as most systems read them."""


class ExchangeClock:
    """The deadline of the exchange the current thread is in; a synchronous client stays in one thread."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._local = threading.local()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the clock for an exchange."""
        self._local.deadline = time.monotonic() + self._timeout_s
        try:
            yield
        finally:
            self._local.deadline = None

    def left_s(self) -> float | None:
        """Seconds left; None outside an exchange (a client being closed).

        Raises:
            ModelError: `TIMEOUT` if there are none.
        """
        deadline = getattr(self._local, "deadline", None)
        if deadline is None:
            return None
        left: float = deadline - time.monotonic()
        if left <= 0:
            raise ModelError(ErrorKind.TIMEOUT, f"no whole reply within {self._timeout_s:g} s")
        return left

    def capped(self, timeout: float | None) -> float | None:
        """A step's own timeout, or what is left if that is less."""
        left = self.left_s()
        return timeout if left is None else left if timeout is None else min(left, timeout)


class TimedBackend:
    """A network backend of `httpcore` whose streams know the clock."""

    def __init__(self, backend: Any, clock: ExchangeClock) -> None:
        self._backend, self._clock = backend, clock

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _TimedStream:
        """A stream to a host."""
        made = self._backend.connect_tcp(host, port, timeout=self._clock.capped(timeout), **options)
        return _TimedStream(made, self._clock)

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> _TimedStream:
        """A stream to a socket of this machine."""
        made = self._backend.connect_unix_socket(path, timeout=self._clock.capped(timeout), **options)
        return _TimedStream(made, self._clock)

    def sleep(self, seconds: float) -> None:
        """Wait before another attempt."""
        self._backend.sleep(seconds)


class _TimedStream:
    """A network stream of `httpcore` that ends with the exchange and sends when an answer is waited for."""

    def __init__(self, stream: Any, clock: ExchangeClock) -> None:
        self._stream, self._clock = stream, clock
        self._errors = import_module(type(stream).__module__.partition(".")[0])
        plain = _plain_socket(stream)
        self._steps = _PlainSteps(plain, self._errors) if plain else stream
        self._unsent = bytearray()
        self._refused = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with suppress(self._errors.WriteError):  # it may have answered and closed before it had read all
            self._flush(timeout)
        found: bytes = self._steps.read(max_bytes, timeout=self._clock.capped(timeout))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer
        if len(self._unsent) >= _PIECE:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        if not self._unsent:
            return
        whole, self._unsent = memoryview(self._unsent), bytearray()
        try:
            for start in range(0, len(whole), _PIECE):
                self._steps.write(whole[start : start + _PIECE], timeout=self._clock.capped(timeout))
        except self._errors.WriteError:
            self._refused = True
            raise

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> _TimedStream:
        left = self._clock.capped(timeout)
        try:
            made = self._stream.start_tls(ssl_context, server_hostname, left)
        except self._errors.ConnectError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise _wrong_certificate(error.__cause__, server_hostname) from None
            raise
        return _TimedStream(made, self._clock)

    def get_extra_info(self, info: str) -> Any:
        # To `httpcore` all is sent that it wrote, and an idle connection is to be closed if it is readable.
        return (info == "is_readable" and self._refused) or self._stream.get_extra_info(info)


def _wrong_certificate(why: ssl.SSLCertVerificationError, host: str | None) -> ModelError:
    """The error for a server that did not prove who it is."""
    return ModelError(
        ErrorKind.CONNECTION,
        f"{host} shows a certificate that is not accepted: {why.verify_message.rstrip('.')} (is base_url"
        " right? the variable SSL_CERT_FILE may name a file of the certificates to trust)",
    )


def _plain_socket(stream: Any) -> socket.socket | None:
    """The stream's socket; None if there is TLS, or the system does not read times as we write them."""
    found = stream.get_extra_info("socket")
    if os.name != "posix" or stream.get_extra_info("ssl_object") or type(found) is not socket.socket:
        return None
    time_s = _TIMEVAL.pack(1, 500_000)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time_s)
        read = found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.size)
    except OSError:
        return None
    return found if read == time_s else None


class _PlainSteps:
    """Reads and writes of a socket without TLS, one call of the system each; `httpcore`'s are three.

    A signal that Python handles begins a wait anew; the system hands them to the main thread.
    """

    def __init__(self, found: socket.socket, errors: Any) -> None:
        self._socket, self._errors = found, errors
        found.settimeout(None)  # or Python would poll

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What is there; empty once the other side has ended."""
        with self._told_as(self._errors.ReadTimeout, self._errors.ReadError):
            self._wait_at_most(socket.SO_RCVTIMEO, timeout)
            return self._socket.recv(max_bytes)

    def write(self, buffer: memoryview, timeout: float | None = None) -> None:
        """Send all of it."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._told_as(self._errors.WriteTimeout, self._errors.WriteError):
            while buffer:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise BlockingIOError
                self._wait_at_most(socket.SO_SNDTIMEO, left)
                buffer = buffer[self._socket.send(buffer) :]  # less if the time was up

    @contextmanager
    def _told_as(self, late: type[Exception], broken: type[Exception]) -> Iterator[None]:
        """Raise the errors that `httpcore`'s own streams do."""
        try:
            yield
        except BlockingIOError:  # the system's word for a wait that has taken its time
            raise late("timed out") from None
        except TimeoutError as error:  # the network's
            raise late(error) from error
        except OSError as error:
            raise broken(error) from error

    def _wait_at_most(self, option: int, timeout: float | None) -> None:
        # Zero means for ever.
        micros = 0 if timeout is None else max(1, int(timeout * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(*divmod(micros, 1_000_000)))
