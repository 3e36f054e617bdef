"""`CachedAttack`: injection texts from a file, wherever they were optimised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.cache_file import Key, read_cache
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import AttackKind, Benchmark, NotInjectable, Victim
from agentsys.errors import ConfigError


class CachedAttack:
    """Writes the file's text for a pair of tasks into every vector that the user task meets.

    Pairs without a text are left out of a plan.

    Args:
        file: A JSON or JSONL file; its forms: `agentsys.attacks.cache_file`.
        name: The attack's name in results; by default `cached-` and the file's name without its ending.

    Raises:
        ConfigError: If no file is named, or it cannot be read or has another form.
    """

    kind = AttackKind.TARGETED
    left_out = "has no text for"
    searched = True
    """What a simulated victim obeys depends on the wording, as it did where the texts were searched for."""
    replays = True
    """Nothing is searched in this run."""

    def __init__(self, file: str, name: str | None = None) -> None:
        if not isinstance(file, str) or not file:
            raise ConfigError(f"attack.file is {file!r}; give the name of a file with texts.")
        path = Path(file)
        self.name = name or f"cached-{path.stem}"
        self._texts = read_cache(path)

    def injections(
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """The text of this pair, else the injection task's text for all user tasks, in every vector.

        Raises:
            NotInjectable: If the file has neither, or no vector of this user task can carry one.
        """
        text = self._text(suite, user_task, injection_task)
        if text is None:
            raise NotInjectable(
                f"{self.name} has no text for {suite.name} {user_task.ID} {injection_task.ID}."
            )
        return dict.fromkeys(injectable_vectors(suite, user_task), text)

    def applies_to(
        self, suite: TaskSuite[Any], user_task: BaseUserTask[Any], injection_task: BaseInjectionTask[Any]
    ) -> bool:
        """Whether the file has a text for the pair."""
        return self._text(suite, user_task, injection_task) is not None

    def unmatched(self, benchmark: Benchmark) -> list[str]:
        """Tasks that texts are for and the benchmark does not have, e.g. `'bankin' user_task_0`."""
        return [_shown(key) for key in self._texts if not _exists(key, benchmark)]

    def _text(
        self, suite: TaskSuite[Any], user_task: BaseUserTask[Any], injection_task: BaseInjectionTask[Any]
    ) -> str | None:
        own = self._texts.get(Key(suite.name, user_task.ID, injection_task.ID))
        return own if own is not None else self._texts.get(Key(suite.name, None, injection_task.ID))


def _exists(key: Key, benchmark: Benchmark) -> bool:
    try:
        suite = benchmark.suite(key.suite)
    except (ConfigError, KeyError):
        return False
    return key.injection_task in suite.injection_tasks and (
        key.user_task is None or key.user_task in suite.user_tasks
    )


def _shown(key: Key) -> str:
    return " ".join(ascii(part[:40]).strip("'") for part in key if part is not None)
