"""What a wrong override is answered with: the setting, the name or the quotes that were meant."""

from __future__ import annotations

import difflib
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from pydantic import BaseModel

from agentsys.base.object_import import load_target
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.build_model import ModelCard
from agentsys.runs.references import flatten_options

GROUPS = ("model", "defense", "attack", "benchmark", "executor", "experiment")
OPTIONS_WITH_DASHES = {"config-dir", "plugin-path", "dry-run"}
_KEYS_ELSEWHERE = {
    **dict.fromkeys(("suite", "suites"), "benchmark.suites"),
    "version": "benchmark.version",
    **dict.fromkeys(("task", "tasks", "user_task"), "user_tasks"),
    "injection_task": "injection_tasks",
    **dict.fromkeys(("n", "samples"), "limit_per_suite"),
    **dict.fromkeys(("workers", "threads"), "executor.workers"),
    **dict.fromkeys(("out", "output"), "logdir"),
    "budget_usd": "budget.usd",
    "temperature": "model.temperature",
    "base_url": "model.base_url",
    "model_id": "model.model_id",
    "traces": "model.traces",
    "executor.address": "executor=ray executor.address",
    "experiments": "experiment",
    "defenses": "defense",
    "attacks": "attack",
    "models": "model",
}
"""Keys of other harnesses, and keys without their group -> ours."""
_REPLACEMENTS = {
    ("executor", "processes"): (
        " Use executor=threads with executor.workers=N; where one process is not enough, start the same command"
        " several times: they share its cases and its budget (docs/scale.md)."
    ),
    ("experiment", "rivals"): " It is now: experiment=recent",
    ("experiment", "table2_light"): " It is now: experiment=table2 --skip-unavailable",
    ("experiment", "table2_compat"): (
        " It is now: experiment=table2 "
        "'defense=none,prompt_sandwiching,agentsys,glob(*_compat,exclude=[attriguard*,datafilter*])'"
    ),
}
"""Names of earlier versions -> a hint at the replacement."""


def explain_override_error(
    error: Exception, overrides: Sequence[str], compose: Callable[[Sequence[str]], dict[str, Any]]
) -> str:
    """Explain a composition error in one line; for an unknown key, name the nearest known ones."""
    text = pick_first_line(error)
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        if f"already at '{key}'" in text:
            return (
                f"Setting '{key}' is in the YAML: it takes no plus. Write {shlex.quote(override.lstrip('+'))}"
            )
        if f"'{key}'" in text and "Could not override" in text:
            value = override.partition("=")[2]
            if key in _KEYS_ELSEWHERE:
                return f"Unknown setting '{key}'. Write {_KEYS_ELSEWHERE[key]}={value}"
            group, *path = key.split(".")
            if group == "sweep" and path:
                listed = value.strip("[]").replace(" ", "")
                return f"Setting '{key}' is for presets. Here commas make a sweep. Write {'.'.join(path)}={listed}"
            values = compose([o for o in overrides if o != override])
            if path and isinstance(values.get(group), dict) and _knows_option(group, values[group], path):
                plus = shlex.quote(f"+{key}={value}")
                return f"Setting '{key}' is not in the YAML of this {group}; a plus adds it. Write {plus}"
            names = [*GROUPS, *(name for name in flatten_options(values) if "._" not in name)]
            if not path:
                unknown = unknown_name("setting", key, names).split(" Known:")[0]
                return f"{unknown} See `agentsys show config`."
            # Nothing beside it in another group is meant, and long names share letters by chance.
            beside = {name.rpartition(".")[2]: name for name in names if name.startswith(f"{group}.")}
            near = difflib.get_close_matches(path[-1], beside, n=2, cutoff=0.75)
            meant = (
                f"Did you mean {' or '.join(beside[name] for name in near)}?"
                if near
                else "It has no such option."
            )
            return f"Unknown setting '{key}' of this {group}. {meant} See `agentsys show config`."
    return text


def pick_first_line(error: Exception) -> str:
    """Return the first line of an error from Hydra, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


def find_choice_hint(group: str, name: str) -> str:
    """Say what took an earlier name's place, how a pattern is written, or which folder of YAMLs was not named."""
    if (group, name) in _REPLACEMENTS:
        return _REPLACEMENTS[group, name]
    if "*" in name:
        return f" A pattern is written glob(...): '{group}=glob({name})'"
    folders = [path.parents[1] for path in Path().glob(f"*/{group}/*.yaml") if path.stem == name]
    return f" ./{folders[0]} has one: add --config-dir {shlex.quote(str(folders[0]))}" if folders else ""


def explain_unparsed(overrides: Sequence[str]) -> str:
    """Explain why Hydra does not read some overrides: the first faulty value, in quotes if that mends it."""
    text = next((text for text in overrides if not _is_parsed(text)), " ".join(overrides))
    problem, (key, equals, value) = f"Override not understood: {text}.", text.partition("=")
    if equals and value[:1] in tuple("[{'\""):
        return f"{problem} A bracket or a quote has no end, or a value inside needs quotes. {KEY_VALUE}"
    # Commas alone are a sweep, each value of which may need quotes; a sentence is one value.
    values = value.split(",") if re.fullmatch(r"[^\s=(]+", value) else [value]
    quoted = f"{key}={','.join(each if _is_parsed(f'{key}={each}') else _quote(each) for each in values)}"
    if not equals or not _is_parsed(quoted):
        return f"{problem} {KEY_VALUE}"
    in_shell = shlex.quote(quoted) if re.search(r'[$`"\\!]', quoted) else f'"{quoted}"'
    return f"{problem} The value needs quotes of its own. Write {in_shell}"


def _is_parsed(text: str) -> bool:
    try:
        OverridesParser.create().parse_override(text)
    except HydraException:
        return False
    return True


def _quote(value: str) -> str:
    return QuotedString(value, Quote.single).with_quotes()


KEY_VALUE = "Write key=value, e.g. defense=agentsys limit_per_suite=10."


def _knows_option(group: str, node: Mapping[str, Any], path: Sequence[str]) -> bool:
    """True if a config takes an option that its YAML does not list: its class has it, or the card of a model.

    Args:
        group: The config's group.
        node: The config, or one inside it.
        path: The option's name; the names of the configs that hold it come first, e.g. `["retry", "total_s"]`.
    """
    name, *inside = path
    fields = ModelCard.model_fields if group == "model" and "_target_" in node else {}
    if not inside:
        return name in fields or name in _list_parameters(group, node)
    if name not in fields:
        inner = node.get(name)
        return isinstance(inner, Mapping) and _knows_option(group, inner, inside)
    kinds = [fields[name].annotation, *get_args(fields[name].annotation)]
    cards = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return any(inside[0] in card.model_fields for card in cards) or (
        not cards and get_origin(kinds[0]) is dict
    )


def _list_parameters(group: str, node: Mapping[str, Any]) -> list[str]:
    try:
        made_of = load_target(group, node) if "_target_" in node else None
    except ConfigError:  # What is wrong with a class is said where it is built.
        made_of = None
    parameters = inspect.signature(made_of).parameters.values() if callable(made_of) else ()
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
