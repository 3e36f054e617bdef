"""`CachedAttack`: injection texts from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentsys.attacks.injection_vectors import escape_for_suite, find_injectable_vectors
from agentsys.attacks.text_attacks import RegisteredAttack
from agentsys.contracts import (
    Attack,
    AttackKind,
    Benchmark,
    InjectionTask,
    NotInjectable,
    Suite,
    UserTask,
    Victim,
)
from agentsys.errors import ConfigError, require_known_name
from agentsys_plugins.redteam.cache_files import TextKey, read_texts

DEFAULTS = "defaults"
_REST_ATTACKS = {"goal": "direct", "important_instructions": "important_instructions"}
"""Value of `rest` -> the attack that fills the vectors without a text; `goal` is AgentDojo's plainest."""


class CachedAttack(Attack):
    """Writes the file's text for a pair of tasks into every vector that the user task shows.

    A file may have texts for single vectors, and several variants of a text. Pairs without a text are left
    out of a plan.

    Args:
        file: A JSON or JSONL file, or a folder with one per suite; the forms: `agentsys_plugins.redteam.cache_files`.
        name: The attack's name in results. Default: `cached-` and the file's name without its ending; a folder
            or a foreign file also gets the fingerprint of its texts.
        variant: Number of the text to use where a vector has several; null: the first number. A text without a
            number serves where none has this number.
        rest: Content of vectors that the file has no text for, if it has one for another vector:
            `defaults` (the benchmark's own text), `important_instructions` or `goal`.
        escape: True: a model reads texts letter by letter; null: True for foreign files only.
    """

    kind = AttackKind.TARGETED
    left_out = "has no text for"
    searched = True
    """The obedience of a simulated victim depends on the wording, as in the search for the texts."""
    replays = True
    """Nothing is searched in this run."""

    def __init__(
        self,
        file: str,
        name: str | None = None,
        variant: int | None = None,
        rest: str = DEFAULTS,
        escape: bool | None = None,
    ) -> None:
        if not isinstance(file, str) or not file:
            raise ConfigError(f"attack.file is {file!r}; give the name of a file with texts.")
        path = Path(file)
        self.name = name or f"cached-{self.name_of_file(path)}"
        self._texts = read_texts(path)
        self.provenance = list(self._texts.sources)  # Foreign files.
        self._variant = self._check_variant(variant)
        self._rest: Attack | None = None
        if require_known_name("attack.rest", rest, [DEFAULTS, *_REST_ATTACKS]) != DEFAULTS:
            self._rest = RegisteredAttack(_REST_ATTACKS[rest])
        self._escape = bool(self._texts.sources) if escape is None else escape

    @staticmethod
    def name_of_file(file: Path) -> str:
        """Derive a name from the file's; folders and foreign files, often named alike, get a fingerprint."""
        try:
            texts = read_texts(file)
        except ConfigError:
            return file.stem  # Building the attack reports the fault.
        return f"{file.stem}-{texts.fingerprint}" if texts.sources or file.is_dir() else file.stem

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """Return each vector's text for this pair, and `rest` for the other vectors.

        Raises:
            NotInjectable: If the file has none, or no vector of this user task can carry one.
        """
        texts = self._collect_texts(suite, user_task, injection_task)
        if not texts:
            raise NotInjectable(
                f"{self.name} has no text for {suite.name} {user_task.ID} {injection_task.ID}."
            )
        rest = self._rest.injections(suite, user_task, injection_task, victim) if self._rest else {}
        if self._escape:
            texts = {vector: escape_for_suite(suite, text) for vector, text in texts.items()}
        return {**rest, **texts}

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """True if the file has a text for the pair, in a vector that the user task shows."""
        if self._find_text(suite, user_task, injection_task, "") is not None:
            return True
        try:
            return bool(self._collect_texts(suite, user_task, injection_task))
        except NotInjectable:
            return False

    def unmatched(self, benchmark: Benchmark) -> list[str]:
        """List tasks of texts that the benchmark does not have, e.g. `'bankin' user_task_0`."""
        return list(
            dict.fromkeys(
                _describe_key(key) for key in self._texts.texts if not _is_known_key(key, benchmark)
            )
        )

    def _collect_texts(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask
    ) -> dict[str, str]:
        if not any(key.suite == suite.name for key in self._texts.texts):
            return {}
        tasks = suite, user_task, injection_task
        vectors = find_injectable_vectors(suite, user_task)
        return {vector: text for vector in vectors if (text := self._find_text(*tasks, vector)) is not None}

    def _find_text(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, vector: str
    ) -> str | None:
        return self._texts.find_text(suite.name, user_task.ID, injection_task.ID, vector, self._variant)

    def _check_variant(self, variant: object) -> int:
        numbers = self._texts.variants
        if variant is None:
            return numbers[0] if numbers else 0
        if isinstance(variant, bool) or not isinstance(variant, int) or variant not in numbers:
            known = ", ".join(map(str, numbers)) or "none: its texts have no numbers"
            raise ConfigError(f"attack.variant is {variant!r}; the file has {known}.")
        return variant


def _is_known_key(key: TextKey, benchmark: Benchmark) -> bool:
    try:
        suite = benchmark.suite(key.suite)
    except (ConfigError, KeyError):
        return False
    return (
        key.injection_task in suite.injection_tasks
        and (key.user_task is None or key.user_task in suite.user_tasks)
        and (key.vector is None or key.vector in suite.get_injection_vector_defaults())
    )


def _describe_key(key: TextKey) -> str:
    named = (key.suite, key.user_task, key.injection_task, key.vector)
    return " ".join(ascii(part[:40]).strip("'") for part in named if part is not None)
