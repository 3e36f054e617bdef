"""Endings of a command that went wrong: one line and an exit status, or a bug's traceback."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, StopRequested

USAGE_STATUS = 2
"""Exit status of a user's slip, as of a wrong option."""
DISK_STATUS = 1
"""Exit status where the disk refused."""
INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C, as shells have it."""

_STOP_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""What batch systems and closing terminals send; Windows has no SIGHUP."""
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def run_to_exit_status(command: Callable[[], object]) -> int:
    """Run a command; what is the user's or the machine's doing becomes one line on stderr.

    Args:
        command: Anything to call; `SystemExit` passes through.

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
        if error.errno not in _DISK_ERRORS:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _print_error(f"Error: {where}{error.strerror}.")
        return DISK_STATUS
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
            f"Error: {error.format_message().rstrip('.')}.{_option_hint(error)} See {command} --help."
        )
    return USAGE_STATUS


_FOREIGN_OPTIONS = {
    "cfg": "agentsys show config prints what a command would work with",
    "multirun": "comma lists sweep as they are: defense=none,agentsys",
}
"""Options of other harnesses -> how the same is done here."""


def _option_hint(error: Any) -> str:
    """What an unknown option was meant to be, where its name is a setting's or another harness's."""
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
    from agentsys.models.secrets import without_credentials

    print(without_credentials(escape_to_line(text)), file=sys.stderr)
