"""Errors that a user can mend: a wrong name, a missing extra, key or server, a stop signal.

`ConfigError` is printed as one line without a traceback. Messages name the nearest known names, or the
command that installs what is missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import TypeVar

_Member = TypeVar("_Member", bound=Enum)


class ConfigError(Exception):
    """A user's mistake: printed as one line, without a traceback, with exit status 2.

    The message says what is wrong, where, and what to type instead.
    """


class Unavailable(ConfigError):
    """Something that this machine or this moment lacks: an extra, a key, a server.

    Args:
        message: As for `ConfigError`.
        needs: What is missing, in two or three words (`agentsys-bench[detectors]`, `OPENAI_API_KEY`).
    """

    def __init__(self, message: str, *, needs: str) -> None:
        super().__init__(message)
        self.needs = needs


class StopRequested(KeyboardInterrupt):
    """The system asks the process to end (SIGTERM, SIGHUP): meant as a first Ctrl-C, never as a second one."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def require_known_name(kind: str, name: str, known: Collection[str]) -> str:
    """The name, if it is among those that are known.

    Raises:
        ConfigError: If it is not; with the message of `unknown_name`.
    """
    if name not in known:
        raise ConfigError(unknown_name(kind, str(name), known))
    return name


def choose_suites(what: str, suites: Sequence[str] | str | None, known: Collection[str]) -> tuple[str, ...]:
    """The suites that `benchmark.suites` chooses, in the order in which they are known.

    Args:
        what: Kind of suite, for the message; its first word is what such a suite is called.
        suites: Some names, or one; None means all.
        known: All names.

    Raises:
        ConfigError: If a name is not known, or none is left.
    """
    wanted = known if suites is None else [suites] if isinstance(suites, str) else suites
    for name in wanted:
        require_known_name(what, name, known)
    if not wanted:
        kind = what.partition(" ")[0]
        raise ConfigError(f"benchmark.suites=[] leaves no {kind}; name some, or give null for all.")
    return tuple(name for name in known if name in wanted)


def find_enum_member(kind: str, value: object, members: type[_Member]) -> _Member:
    """The member of an enum that has this value; names as in `require_known_name`.

    Raises:
        ConfigError: If none has.
    """
    return members(require_known_name(kind, str(value), [str(member.value) for member in members]))


_MOST_LISTED = 24
"""Names in one line: more of them hide what it says."""


def unknown_name(kind: str, name: str, known: Collection[str]) -> str:
    """Message for a name that does not exist: the nearest known ones, then all, or the command that lists them.

    Args:
        kind: What the name was meant to be, e.g. `"defense"`.
        name: The name as the user wrote it.
        known: Every name that would have worked.

    Returns:
        One line, ready for `ConfigError`.
    """
    near = difflib.get_close_matches(name, list(known), n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    listed = ", ".join(sorted(known)) or "none"
    if len(known) > _MOST_LISTED:
        listed = (
            f"{len(known)}, see agentsys list {kind}s" if kind in ("attack", "defense", "model") else listed
        )
    return f"Unknown {kind} '{name}'.{hint} Known: {listed}."


DISTRIBUTION = "agentsys-bench"
"""The name to install by. On the package index `agentsys`, our import name, is another project."""


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def find_missing_packages(packages: Sequence[str]) -> list[str]:
    """The packages among these that cannot be imported here; imports none of them."""
    return [package for package in packages if find_spec(package) is None]


def make_not_installed_error(who: str, packages: Sequence[str], extra: str) -> Unavailable:
    """Make the error for missing packages of an extra.

    Args:
        who: What needs them, e.g. `Model 'litellm'`.
        packages: The missing ones.
        extra: The extra that brings them.
    """
    text = f"{who} needs {' and '.join(packages)}, not installed here: {install_command(extra)}"
    return Unavailable(text, needs=f"{DISTRIBUTION}[{extra}]")
