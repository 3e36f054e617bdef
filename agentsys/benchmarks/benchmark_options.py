"""Parses options that several benchmarks take: which suites they offer, and how texts are injected."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast, get_args

from agentsys.benchmarks.environment_loader import Injection
from agentsys.errors import ConfigError, require_known_name


def choose_suites(what: str, suites: Sequence[str] | str | None, known: Collection[str]) -> tuple[str, ...]:
    """The suites to offer, in the order in which they are known.

    Args:
        what: Kind of suite, for the message; its first word is what such a suite is called.
        suites: `benchmark.suites`: some names, or one; None means all.
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


def parse_injection(name: str) -> Injection:
    """`benchmark.injection` as it is meant.

    Raises:
        ConfigError: If there is no such way of injecting.
    """
    return cast("Injection", require_known_name("benchmark.injection", name, get_args(Injection)))
