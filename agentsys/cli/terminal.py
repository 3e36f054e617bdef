"""Text for a terminal, and how a command ends: a line and an exit status, or a bug's traceback.

Config texts, tool outputs and model replies may hold escape sequences (that recolour, overwrite or
rename a terminal) and rich markup. Everything printed that we did not write goes through here: then it can only
be read and does nothing.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import typer

from agentsys.errors import ConfigError, StopRequested

_CLOSED_ERRNOS = frozenset({errno.EPIPE, errno.EIO})
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that steer a terminal or hide text: controls, bidi and zero-width marks, separators."""


def escape_controls(text: str) -> str:
    r"""`text` with everything but newlines and tabs that steers a terminal spelled out (`\x1b`)."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in _ESCAPED_CATEGORIES
        else _escape_char(char)
        for char in text
    )


def escape_to_line(text: str) -> str:
    """Escape as `escape_controls` does, on a single line: newlines are spelled out too."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", " ")


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


def filter_logs() -> None:
    """Let warnings and logged lines, ours and other packages', pass through `escape_controls` as well.

    They may quote what a server said. Shown as without this: from warnings on, on stderr, the message alone.
    """
    shown = logging.StreamHandler()
    shown.setFormatter(_EscapingFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    logging.captureWarnings(True)
    # Python 3.12 and later warn of installed packages' docstrings when these are first compiled.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=".*site-packages")


def ignore_closed_output() -> None:
    """Let a command go on where nobody reads its output: a run that is paid for must not die of that.

    The reader may never have been there (`>&-`), or go away (`| head`, a closed terminal).
    """
    sys.stdout = cast(TextIO, _ForgivingStream(sys.stdout))
    sys.stderr = cast(TextIO, _ForgivingStream(sys.stderr))


class _ForgivingStream:
    """A text stream that drops what it cannot get rid of."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream: TextIO = Path(os.devnull).open("w") if stream is None else stream  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._try_write(lambda: self._stream.write(text)) or 0

    def flush(self) -> None:
        self._try_write(self._stream.flush)

    def _try_write(self, action: Callable[[], int | None]) -> int | None:
        try:
            return action()
        except OSError as error:
            if error.errno not in _CLOSED_ERRNOS:
                raise
            # The file itself: what waits in the buffer is written to it when the process ends.
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            return None


def replace_unencodable() -> None:
    """Let the terminal's encoding lack a character without ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _escape_char(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


USAGE_STATUS = 2
"""Exit status of a user's slip, as of a wrong option."""
DISK_STATUS = 1
"""Exit status where the disk refused."""
INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C, as shells have it."""

_STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""What batch systems and closing terminals send; Windows has no SIGHUP."""
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
_PATH_ERRORS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST})
"""A folder was named where a file is wanted (`--out .`), or a file where a folder is."""


def run_to_exit_status(command: Callable[[], object]) -> int:
    """Run a command; what is the user's or the machine's doing becomes one line on stderr.

    Returns:
        0 if the command returned nothing or 0, else the status to exit with. Bugs keep their traceback.
    """
    try:
        status = command()
    except _CLICK_EXCEPTION as error:
        return _report_usage_error(error)
    except ConfigError as error:
        _print_error(f"Error: {error}")
        return USAGE_STATUS
    except (KeyboardInterrupt, typer.Abort):
        _print_error("Interrupted.")
        return INTERRUPTED_STATUS
    except OSError as error:
        if error.errno not in DISK_ERRORS | _PATH_ERRORS:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _print_error(f"Error: {where}{error.strerror}.")
        return DISK_STATUS if error.errno in DISK_ERRORS else USAGE_STATUS
    return status if isinstance(status, int) else 0


# Of click or of typer's own copy of it: without a public name.
_CLICK_EXCEPTION: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""What typer raises for a wrong option."""


def _report_usage_error(error: Any) -> int:
    """A wrong option or argument, as one line; a command without any shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "agentsys"
        _print_error(
            f"Error: {error.format_message().rstrip('.')}.{_write_option_hint(error)} See {command} --help."
        )
    return USAGE_STATUS


_FOREIGN_OPTIONS = {
    "cfg": "agentsys show config prints what a command would work with",
    "limit": "limit_per_suite=VALUE says how many cases of each suite are run",
    "m": "comma lists sweep as they are: defense=none,agentsys",
    "multirun": "comma lists sweep as they are: defense=none,agentsys",
}
"""Options of other harnesses -> how the same is done here."""


def _write_option_hint(error: Any) -> str:
    """Suggest what an unknown option was meant to be, if its name is a setting's or another harness's."""
    from agentsys.base.config_catalog import list_setting_names

    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    context = getattr(error, "ctx", None)
    if not name or context is None or "overrides" not in {p.name for p in context.command.params}:
        return ""
    if name in _FOREIGN_OPTIONS:
        return f" Here {_FOREIGN_OPTIONS[name]}."
    return f" Settings have no dashes: {name}=VALUE." if name in list_setting_names() else ""


@contextmanager
def raise_on_stop_signals() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise `StopRequested`; what is ignored (nohup) stays ignored.

    Only the first of them does: a batch system sends its signal more than once, and nothing new is asked.
    """
    asked = False

    def stop(number: int, _: object) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise StopRequested(number)

    wanted = [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_error(text: str) -> None:
    from agentsys.models.secrets import mask_address_credentials

    print(mask_address_credentials(escape_to_line(text)), file=sys.stderr)
