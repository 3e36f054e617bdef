"""What overrides were meant to be: options of one choice in a sweep, and the words that users type by mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsys.base.config_catalog import list_config_names
from agentsys.errors import ConfigError


@dataclass(frozen=True)
class ChoiceOption:
    """An option of one choice in a sweep, e.g. `defense.melon.embedder=char_ngrams`."""

    typed: str
    group: str
    choice: str
    override: str
    """The same as it is written for that choice alone, e.g. `defense.embedder=char_ngrams`."""


def find_choice_options(text: str, choices: Mapping[str, Sequence[str]]) -> Iterator[ChoiceOption]:
    """The option that an override sets of one choice: one, or none."""
    found = re.fullmatch(r"([+~]*)(model|defense|attack)\.(.+?)=(.*)", text, re.DOTALL)
    if found is not None:
        plus, group, key, value = found.groups()
        names = [name for name in choices[group] if key.startswith(f"{name}.")]
        for name in sorted(names, key=len)[-1:]:  # a name may begin another one: `a` and `a.b`
            yield ChoiceOption(text, group, name, f"{plus}{group}.{key[len(name) + 1 :]}={value}")


def refuse_misread(text: str) -> None:
    """Refuse what Hydra would take for something else, or not understand.

    Raises:
        ConfigError: With what to write.
    """
    if "=" not in text and text in list_config_names("experiment"):
        raise ConfigError(f"'{text}' is an experiment: agentsys run experiment={text}")
    if re.match(r"[+~]*[\w./-]+@", text):
        raise ConfigError(f"{text}: settings have no @. Write key=value: {text.replace('@', '.', 1)}")
    if text.startswith("="):
        raise ConfigError(
            f"Override not understood: {text}. Write key=value, e.g. defense=agentsys limit=10."
        )
    if (option := text.partition("=")[0]) in _OPTIONS_WITH_DASHES:
        raise ConfigError(f"{text}: this is an option: --{option} {text.partition('=')[2]}")


_OPTIONS_WITH_DASHES = {"config-dir", "plugin-path", "dry-run"}
MEANT = {
    "suite": "benchmark.suites",
    "suites": "benchmark.suites",
    "version": "benchmark.version",
    "task": "user_tasks",
    "tasks": "user_tasks",
    "user_task": "user_tasks",
    "injection_task": "injection_tasks",
    "n": "limit",
    "samples": "limit",
    "workers": "executor.workers",
    "threads": "executor.workers",
    "out": "logdir",
    "output": "logdir",
    "budget_usd": "budget.usd",
    "temperature": "model.temperature",
    "base_url": "model.base_url",
    "model_id": "model.model_id",
    "traces": "model.traces",
    "experiments": "experiment",
    "defenses": "defense",
    "attacks": "attack",
    "models": "model",
}
"""Keys of other harnesses, and of what stands one level down -> ours."""
_NO_PROCESSES = (
    " Use executor=threads with executor.workers=N; where one process is not enough, start the same command"
    " several times: they share its cases and its budget (docs/scale.md)."
)
REPLACEMENTS = {
    ("executor", "processes"): _NO_PROCESSES,
    ("experiment", "rivals"): " It is now: experiment=recent",
    ("experiment", "table2_light"): " It is now: experiment=table2 --skip-unavailable",
    (
        "experiment",
        "table2_compat",
    ): (
        " It is now: experiment=table2 "
        "'defense=none,prompt_sandwiching,agentsys,glob(*_compat,exclude=[attriguard*,datafilter*])'"
    ),
}
"""Names of earlier versions -> what stands instead."""
