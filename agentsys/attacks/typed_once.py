"""`TypedOnce`: texts that a person types at the terminal, asked for once per pair of tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from threading import Lock

from agentsys.errors import ConfigError

Pair = tuple[str, str, str]
"""Suite, user task, injection task."""


class TypedOnce:
    """Remembers what was typed, so that every defense and epoch meets the same text."""

    def __init__(self) -> None:
        self._texts: dict[Pair, dict[str, str]] = {}
        self._lock = Lock()  # one question at a time, whatever the number of workers

    def texts(self, pair: Pair, ask: Callable[[], dict[str, str]]) -> Mapping[str, str]:
        """What was typed for a pair, asking now if it has not been.

        Raises:
            ConfigError: If there is nobody to ask.
        """
        with self._lock:
            if pair not in self._texts:
                if not sys.stdin.isatty():
                    raise ConfigError(
                        "attack=manual asks for each injection at the terminal, but stdin is not one;"
                        " run it in a terminal, or use attack=template with the text in attack.template."
                    )
                self._texts[pair] = ask()
            return dict(self._texts[pair])
