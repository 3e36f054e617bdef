"""What an attack writes for one pair of tasks, and what a model reads of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsys.abilities import NamesSources
from agentsys.attacks.literal import unescape_for_suite
from agentsys.contracts import AttackKind, NotInjectable, Victim
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.card import parse_card
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate


@dataclass(frozen=True)
class AttackText:
    """The text for one injection vector."""

    written: str
    """As the attack wrote it."""
    read: str
    """As a model reads it: substitution into YAML folds line breaks and resolves escapes."""


@dataclass(frozen=True)
class AttackTexts:
    """All that an attack writes for one pair of tasks."""

    texts: Mapping[str, AttackText]
    """Injection vector -> the text for it."""
    sources: Sequence[str]
    """Where the texts come from, a line each; empty where the attack wrote them."""


def write_attack_texts(
    overrides: Sequence[str],
    suite_name: str,
    user_task: str,
    injection_task: str,
    config_dirs: Sequence[Path] = (),
) -> AttackTexts:
    """The texts for one pair of tasks.

    Args:
        overrides: Hydra overrides that choose attack, benchmark and model (for the victim's name).
        suite_name: The suite.
        user_task: A user task's id, or its number.
        injection_task: An injection task's id, or its number.
        config_dirs: The user's own config folders.

    Raises:
        ConfigError: If a name is unknown, the attack writes nothing, or the task cannot be injected.
    """
    settings = compose(overrides, config_dirs)[0]
    benchmark = instantiate("benchmark", settings.benchmark)
    attack = instantiate("attack", settings.attack)
    if attack.kind is AttackKind.NONE:
        raise ConfigError("Attack 'none' writes nothing; name another one (agentsys list attacks).")
    suite = benchmark.suite(suite_name)
    victim = Victim(parse_card(settings.model).prose_name, benchmark.user_name)
    user = _find_task("user_task", user_task, suite.user_tasks)
    injection = _find_task("injection_task", injection_task, suite.injection_tasks)
    try:
        written: Mapping[str, str] = attack.injections(suite, user, injection, victim)
    except NotInjectable as error:
        raise ConfigError(f"{error}") from None
    texts = {vector: AttackText(text, unescape_for_suite(suite, text)) for vector, text in written.items()}
    return AttackTexts(texts, attack.provenance if isinstance(attack, NamesSources) else ())


def _find_task(kind: str, name: str, tasks: Mapping[str, Any]) -> Any:
    """A task by id or number."""
    full = f"{kind}_{name}" if name.isdigit() else name
    if full not in tasks:
        raise ConfigError(unknown_name(kind.replace("_", " "), full, tasks))
    return tasks[full]
