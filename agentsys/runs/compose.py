"""Hydra overrides -> a list of `Settings`: presets and comma lists expand into one plan."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from agentsys.base.config_catalog import list_config_names
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.secrets import without_credentials
from agentsys.runs.composition import GROUPS, LABELLED, Composer, first_line, leaves, open_composer, plain
from agentsys.runs.references import (
    add_contents,
    artefact_label,
    fill_auto_options,
    label_from_file,
    replay_label,
    resolve_base_attack,
    resolve_held_defenses,
)
from agentsys.runs.settings import NOT_IDENTITY, Settings, not_in_name, validate_settings, without_keys


def compose(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> list[Settings]:
    """Every combination that the overrides (comma lists sweep) and the chosen preset ask for.

    Raises:
        ConfigError: For an unknown name or key, a malformed override, or a value of the wrong kind.
    """
    # As Hydra wants it: no preset is chosen by default, so that one is added.
    overrides = [f"+{text}" if text.startswith("experiment=") else text for text in overrides]
    parsed = _parse_overrides(overrides)
    choices = {group: list_config_names(group, config_dirs) for group in GROUPS}
    fixed = [o.input_line or "" for o in parsed if not o.is_sweep_override()]
    swept = {_override_key(o): _expand_sweep(o, choices) for o in parsed if o.is_sweep_override()}
    for override in parsed:
        for value in swept.get(_override_key(override), [override.value()]):
            _check_choice(_override_key(override), value, choices)
    with open_composer(config_dirs) as resolve:
        shaping = [text for o, text in zip(parsed, overrides, strict=True) if _shapes_sweep(o)]
        given = {_override_key(o) for o in parsed}
        # Without a preset there is no sweep to read.
        preset = (
            {k: v for k, v in _preset_sweep(resolve(shaping).config).items() if k not in given}
            if shaping
            else {}
        )
        for key, values in preset.items():
            for value in values:
                _check_choice(key, value, choices)
        axes = [[f"{key}={value}" for value in values] for key, values in {**preset, **swept}.items()]
        found = [_compose_settings([*fixed, *extra], resolve) for extra in _combinations(axes)]
    named = [resolve_held_defenses(resolve_base_attack(one, config_dirs), config_dirs) for one in found]
    return add_contents(named, config_dirs)


def _parse_overrides(overrides: Sequence[str]) -> list[Override]:
    try:
        return list(OverridesParser.create().parse_overrides(list(overrides)))
    except HydraException as error:
        raise ConfigError(
            f"Override not understood: {first_line(error)} Write key=value, e.g. defense=agentsys limit=10."
        ) from None


def _override_key(override: Override) -> str:
    return override.key_or_group


def _shapes_sweep(override: Override) -> bool:
    """Say whether it can change the preset's sweep; options of a group may not fit the default choice."""
    return not override.is_sweep_override() and _override_key(override).split(".")[0] in {
        "experiment",
        "sweep",
    }


def _combinations(axes: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(choice) for choice in itertools.product(*axes)]


def _expand_sweep(override: Override, choices: Mapping[str, Sequence[str]]) -> list[str]:
    """The values of a sweep; a pattern stands for the names in its group that it fits."""
    value = override.value()
    if isinstance(value, Glob):
        return _match_pattern(override, value, choices)
    try:
        written = [str(text) for text in override.sweep_string_iterator()]
    except HydraException as error:
        raise ConfigError(
            f"{override.input_line}: no list of values ({first_line(error)})"
            f" Write commas: {_override_key(override)}=A,B"
        ) from None
    if not isinstance(value, ChoiceSweep) or not any(isinstance(member, Glob) for member in value.list):
        return written
    return [
        name
        for member, text in zip(value.list, written, strict=True)
        for name in (_match_pattern(override, member, choices) if isinstance(member, Glob) else [text])
    ]


def _match_pattern(override: Override, pattern: Any, choices: Mapping[str, Sequence[str]]) -> list[str]:
    group = _override_key(override)
    if group not in choices:
        raise ConfigError(f"{override.input_line}: a pattern chooses among {', '.join(choices)} only.")
    found: list[str] = pattern.filter(list(choices[group]))
    if not found:
        raise ConfigError(unknown_name(group, "*".join(pattern.include), choices[group]))
    return found


def _check_choice(group: str, name: object, choices: Mapping[str, Sequence[str]]) -> None:
    if isinstance(name, list) and group in choices:
        names = ",".join(map(str, name))
        raise ConfigError(f"{group}=[{names}] is a list; a sweep has commas alone: {group}={names or 'NAME'}")
    if isinstance(name, str) and group in choices and name not in choices[group]:
        instead = _REPLACEMENTS.get((group, name), "")
        raise ConfigError(f"{unknown_name(group, name, choices[group])}{instead}")


_NO_PROCESSES = (
    " Use executor=threads with executor.workers=N; where one process is not enough, start the same command"
    " several times: they share its cases and its budget (docs/scale.md)."
)
_REPLACEMENTS = {("executor", "processes"): _NO_PROCESSES}
"""Names of earlier versions -> what stands instead."""


def _preset_sweep(config: DictConfig) -> dict[str, list[str]]:
    sweep = OmegaConf.to_container(config.sweep)
    if not isinstance(sweep, dict) or not all(isinstance(v, list) for v in sweep.values()):
        raise ConfigError("Setting 'sweep' maps an override key to a list, e.g. {defense: [none, agentsys]}.")
    return {str(key): [str(v) for v in values] for key, values in sweep.items()}


def _compose_settings(overrides: Sequence[str], resolve: Composer) -> Settings:
    composed = resolve(overrides)
    config, choices = composed.config, composed.choices
    fill_auto_options(config.attack, config.model)
    missing = OmegaConf.missing_keys(config)
    wanted = sorted(key for key in missing if key.split(".")[0] in NOT_IDENTITY)
    if wanted:
        raise ConfigError(
            f"{wanted[0]} is not set: '{choices[wanted[0].split('.')[0]]}' needs {wanted[0]}=..."
        )
    values = plain(config)
    del values["sweep"]
    shipped = resolve.shipped(composed)
    named = {group: _options_in_name(config[group]) for group in LABELLED}
    values["labels"] = {
        group: _make_label(group, choices[group], values[group], shipped[group], named[group])
        for group in LABELLED
    }
    return validate_settings(values)


def _options_in_name(node: DictConfig) -> set[str]:
    """Options that the YAML writes into its `name`, as in `pair-${.mode}`."""
    raw = OmegaConf.to_container(node, resolve=False)
    return set(re.findall(r"\$\{\.(\w+)\}", str(raw.get("name")))) if isinstance(raw, dict) else set()


_EFFORT_OPTIONS = {
    "effort",
    "extra_body.chat_template_kwargs.enable_thinking",
    "extra_body.thinking.type",
    "reasoning_effort",
    "thinking",
    "thinking_budget",
    "thinking_level",
}
"""A model's options that its label names even where the YAML itself sets them: how much it thinks. Two
efforts of one model are two models, whatever a later YAML of the same name says."""


def _make_label(
    group: str, choice: str, values: Mapping[str, Any], shipped: Mapping[str, Any], in_name: set[str]
) -> str:
    """The YAML's own name, followed by how much a model thinks and every option that differs from that YAML.

    What the YAML writes into the name itself is not told twice.
    """
    hidden = not_in_name(group, values) | in_name
    before = leaves(without_keys(shipped, hidden))
    after = leaves(without_keys(values, hidden))
    keys = sorted({*before, *after} - {"name"})  # the name is what stands in front
    # An option that was one value and became several (`sloppiness: {refusals: 0.1}`) shows the several alone.
    opened = {k for k in before.keys() - after.keys() if any(new.startswith(f"{k}.") for new in after)}
    stated = {k for k in _EFFORT_OPTIONS if group == "model" and after.get(k) is not None} - hidden
    differing = [k for k in keys if k not in opened and (before.get(k) != after.get(k) or k in stated)]
    changed = [f"+{k}={without_credentials(str(after.get(k)))}" for k in differing]
    name = values.get("name") or label_from_file(choice, values) or choice
    return replay_label(str(name), values) + "".join(changed) + artefact_label(values)
