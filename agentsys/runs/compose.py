"""Hydra overrides -> a list of `Settings`: presets and comma lists expand into one plan."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    Override,
    OverrideType,
    Quote,
    QuotedString,
)
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from agentsys.base.config_catalog import is_prefixed, list_config_names, load_config
from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import explain_absent_guests, list_shipped_config_dirs, shipped_config_dir
from agentsys.records.row_settings import NOT_IDENTITY
from agentsys.runs.instantiate import READ_TOOLS
from agentsys.runs.override_advice import (
    GROUPS,
    KEY_VALUE,
    OPTIONS_WITH_DASHES,
    explain_override_error,
    explain_unparsed,
    find_choice_hint,
    pick_first_line,
)
from agentsys.runs.references import (
    add_contents,
    add_yaml_folder,
    fill_auto_options,
    list_options_in_name,
    make_label,
    refuse_environment,
    resolve_names,
)
from agentsys.runs.settings import (
    Settings,
    is_scripted_model,
    refuse_old_name,
    validate_settings,
)

LABELLED = ("model", "defense", "attack")
_HYDRA = threading.Lock()  # Hydra keeps its state in a global.
_APPLICATIONS = (  # Empty lists: Hydra reads groups deleted with `~` all the same.
    *("hydra/launcher=[]", "hydra/sweeper=[]", "hydra/output=[]", "hydra/env=[]"),
    *("hydra/help=[]", "hydra/hydra_help=[]", "hydra/hydra_logging=[]", "hydra/job_logging=[]"),
)
"""Switches off the config groups for applications that Hydra starts itself; composing them takes most of the time."""
# Composing YAMLs takes Hydra 0.1 s, so compositions are cached as long as no file changes.
_BY_PREFIX = "model=by_prefix"
"""Stands for the card of a model by prefix, which no file holds."""
_MOST_KEPT = 256
"""Size of the cache, in compositions of 0.1 MB each."""
_Stamps = tuple[tuple[str, int, int], ...]
"""(path, size in bytes, modification time in ns) of every YAML that a composition may read."""


def compose(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> list[Settings]:
    """Compose every combination of the overrides (comma lists sweep) and the chosen preset.

    Raises:
        ConfigError: For an unknown name or key, a malformed override, or a value of the wrong kind.
    """
    # No preset is chosen by default, so Hydra wants `+` before one.
    overrides = [f"+{text}" if text.startswith("experiment=") else text for text in overrides]
    choices = {group: list_config_names(group, config_dirs) for group in GROUPS}
    choice_options = [option for text in overrides for option in _find_choice_options(text, choices)]
    parsed = _parse_overrides([text for text in overrides if text not in {o.typed for o in choice_options}])
    # One thread at a time. A notebook may have used Hydra itself.
    with _HYDRA:
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(shipped_config_dir().resolve()), version_base="1.3"):
            resolve = Composer(config_dirs)
            plan = _expand_sweeps(parsed, choices, resolve)
            if choice_options:
                plan = [_add_choice_options(words, choice_options, resolve) for words in plan]
            for option in choice_options:
                if not any(option.override in words for words in plan):
                    raise ConfigError(
                        f"{option.typed}: no cell of this run has {option.group}={option.choice}."
                    )
            try:
                settings = [_compose_settings(words, resolve) for words in plan]
            except OmegaConfBaseException as error:  # An interpolation refers to a value that is missing.
                raise ConfigError(pick_first_line(error)) from None
    return add_contents([resolve_names(cell, config_dirs) for cell in settings], config_dirs)


def _expand_sweeps(
    parsed: Sequence[Override], choices: Mapping[str, Sequence[str]], resolve: Composer
) -> list[list[str]]:
    """Expand comma lists, patterns and the preset's sweep to the overrides of each combination."""
    fixed = [o for o in parsed if not o.is_sweep_override()]
    swept = {o.key_or_group: _expand_sweep(o, choices) for o in parsed if o.is_sweep_override()}
    for override in parsed:
        for value in swept.get(override.key_or_group, [override.value()]):
            _check_choice(override.key_or_group, value, choices)
    # Only these can change the preset's sweep; other options may not fit the default choices.
    tops = {"experiment", "sweep"}
    shaping = [str(o.input_line) for o in fixed if o.key_or_group.partition(".")[0] in tops]
    preset = _read_preset_sweep(resolve(shaping).config) if shaping else {}
    open_axes = {key: values for key, values in preset.items() if key not in {o.key_or_group for o in parsed}}
    for key, values in open_axes.items():
        for value in values:
            _check_choice(key, value, choices)
    axes = [[f"{key}={value}" for value in values] for key, values in {**open_axes, **swept}.items()]
    return [[*(o.input_line or "" for o in fixed), *extra] for extra in _list_combinations(axes)]


@dataclass(frozen=True)
class ChoiceOption:
    """An option for one choice of a sweep only, e.g. `defense.melon.embedder=char_ngrams`."""

    typed: str
    group: str
    choice: str
    override: str
    """The override for that choice, e.g. `defense.embedder=char_ngrams`."""


def _find_choice_options(text: str, choices: Mapping[str, Sequence[str]]) -> Iterator[ChoiceOption]:
    match = re.fullmatch(r"([+~]*)(model|defense|attack)\.(.+?)=(.*)", text, re.DOTALL)
    if match is not None:
        plus, group, key, value = match.groups()
        names = [name for name in choices[group] if key.startswith(f"{name}.")]
        for name in sorted(names, key=len)[-1:]:  # One name may be a prefix of another (`a` and `a.b`).
            yield ChoiceOption(text, group, name, f"{plus}{group}.{key[len(name) + 1 :]}={value}")


def _add_choice_options(
    words: Sequence[str], options: Sequence[ChoiceOption], resolve: Composer
) -> list[str]:
    chosen = resolve([word for word in words if word.lstrip("+").split("=")[0] in GROUPS]).choices
    return [*words, *(o.override for o in options if chosen[o.group] == o.choice)]


def _parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides by Hydra's grammar; what Hydra would misread is refused before, with the mend."""
    for text in overrides:
        if "=" not in text and text in list_config_names("experiment"):
            raise ConfigError(f"'{text}' is an experiment: agentsys run experiment={text}")
        if re.match(r"[+~]*[\w./-]+@", text):
            raise ConfigError(f"{text}: settings have no @. Write key=value: {text.replace('@', '.', 1)}")
        if text.startswith("="):
            raise ConfigError(f"Override not understood: {text}. {KEY_VALUE}")
        key, _, value = text.partition("=")
        refuse_old_name(key.lstrip("+~"), value)
        if key in OPTIONS_WITH_DASHES:
            raise ConfigError(f"{text}: this is an option: --{key} {value}")
    try:
        return list(OverridesParser.create().parse_overrides(list(overrides)))
    except HydraException:
        raise ConfigError(explain_unparsed(overrides)) from None


def _list_combinations(axes: Sequence[Sequence[str]]) -> list[list[str]]:
    # A function of its own, so that tests can put fewer combinations in its place.
    return [list(choice) for choice in itertools.product(*axes)]


def _expand_sweep(override: Override, choices: Mapping[str, Sequence[str]]) -> list[str]:
    """List the values of a sweep; a pattern expands to the matching names of its group."""
    value = override.value()
    if isinstance(value, Glob):
        return _match_pattern(override, value, choices)
    try:
        written = [str(text) for text in override.sweep_string_iterator()]
    except HydraException as error:
        raise ConfigError(
            f"{override.input_line}: no list of values ({pick_first_line(error)})"
            f" Write commas: {override.key_or_group}=A,B"
        ) from None
    if not isinstance(value, ChoiceSweep) or not any(isinstance(member, Glob) for member in value.list):
        return written
    return [
        name
        for member, text in zip(value.list, written, strict=True)
        for name in (_match_pattern(override, member, choices) if isinstance(member, Glob) else [text])
    ]


def _match_pattern(override: Override, pattern: Any, choices: Mapping[str, Sequence[str]]) -> list[str]:
    """List the names of a group that a pattern matches."""
    group = override.key_or_group
    if group not in choices:
        raise ConfigError(f"{override.input_line}: a pattern chooses among {', '.join(choices)} only.")
    names: list[str] = pattern.filter(list(choices[group]))
    if not names:
        raise ConfigError(unknown_name(group, "*".join(pattern.include), choices[group]))
    return names


def _check_choice(group: str, name: object, choices: Mapping[str, Sequence[str]]) -> None:
    """Refuse a name that its config group does not have."""
    if isinstance(name, list) and group in choices:
        names = ",".join(map(str, name))
        raise ConfigError(f"{group}=[{names}] is a list; a sweep has commas alone: {group}={names or 'NAME'}")
    if group == "model" and is_prefixed(name):  # What is wrong with it is said where its card is made.
        return
    if isinstance(name, str | int | float) and group in choices and name not in choices[group]:
        instead = find_choice_hint(group, str(name))
        raise ConfigError(unknown_name(group, str(name), choices[group]) + instead + explain_absent_guests())


def _read_preset_sweep(config: DictConfig) -> dict[str, list[str]]:
    sweep = OmegaConf.to_container(config.sweep)
    if not isinstance(sweep, dict) or not all(isinstance(v, list) for v in sweep.values()):
        raise ConfigError("Setting 'sweep' maps an override key to a list, e.g. {defense: [none, agentsys]}.")
    return {str(key): [_format_override(v) for v in values] for key, values in sweep.items()}


def _format_override(value: Any) -> str:
    """Format a YAML value as the text of an override that Hydra parses to the same value."""
    if isinstance(value, list):
        return f"[{','.join(map(_format_override, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_format_override(key)}:{_format_override(item)}" for key, item in value.items())
        return f"{{{','.join(pairs)}}}"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    with suppress(HydraException):
        if OverridesParser.create().parse_override(f"key={value}").value() == value:
            return value
    return QuotedString(value, Quote.single).with_quotes()


def _compose_settings(overrides: Sequence[str], resolve: Composer) -> Settings:
    """Compose one combination, build its labels, and validate it."""
    composed = resolve(overrides)
    config, choices = composed.config, composed.choices
    fill_auto_options(config.attack, config.model)
    missing = OmegaConf.missing_keys(config)
    wanted = sorted(key for key in missing if key.split(".")[0] in NOT_IDENTITY)
    if wanted:
        raise ConfigError(
            f"{wanted[0]} is not set: '{choices[wanted[0].split('.')[0]]}' needs {wanted[0]}=..."
        )
    values = to_plain_config(config)
    del values["sweep"]
    for key, value in values.items():  # A user's preset may have old names.
        refuse_old_name(key, value)
    shipped = resolve.compose_shipped(composed)
    named = {group: list_options_in_name(config[group]) for group in LABELLED}
    values["labels"] = {
        group: make_label(group, choices[group], values[group], shipped[group], named[group])
        for group in LABELLED
    }
    values["defense"] = add_yaml_folder(values["defense"], choices["defense"], resolve.config_dirs)
    if _is_attacker_scripted(values, choices["attack"], overrides):
        values["scripted_attacker"] = True
        values["labels"]["attack"] += "+attacker=simulated"
    return validate_settings(values)


def _is_attacker_scripted(
    values: Mapping[str, Mapping[str, Any]], attack: str, overrides: Sequence[str]
) -> bool:
    """True if the scripted model plays the attacker that a shipped preset names, so that it runs offline.

    An attacker that the user names, on the command line or in their own attack YAML, is a real one.
    """
    searches = values["attack"].get("attacker") is not None and not values["attack"].get("artefact")
    by_user = attack not in list_config_names("attack") or any(
        text.lstrip("+").startswith("attack.attacker=") for text in overrides
    )
    return searches and is_scripted_model(values["model"]) and not by_user


@dataclass(frozen=True)
class Composition:
    """A composed combination."""

    config: DictConfig
    choices: Mapping[str, str]
    """Group -> name of the chosen YAML."""
    chosen: tuple[str, ...]
    """The overrides that made these choices."""


@dataclass(frozen=True)
class _ComposedFiles:
    composed: dict[tuple[str, ...], Composition] = field(default_factory=dict)
    """Overrides that choose YAMLs -> their composition, before any value is set."""
    shipped: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """(group, choice) -> its YAML, before any override."""


class Composer:
    """Composes a run's combinations in one Hydra session."""

    def __init__(self, config_dirs: Sequence[Path]) -> None:
        self.config_dirs = config_dirs
        self._folders = [*list_shipped_config_dirs(), *config_dirs]
        # The first folder is the session's own config dir.
        paths = ",".join(f"'file://{path.resolve()}'" for path in self._folders[1:])
        self._searchpath = [f"hydra.searchpath=[{paths}]"] if paths else []
        files = [path for folder in self._folders for path in sorted(folder.resolve().rglob("*.yaml"))]
        stamps = [(str(path), stat.st_size, stat.st_mtime_ns) for path in files for stat in [path.stat()]]
        self._kept = _load_composed(tuple(stamps))

    def __call__(self, overrides: Sequence[str]) -> Composition:
        """Compose one combination.

        Raises:
            ConfigError: For an unknown key, a broken YAML, an invalid value, or one read from the environment.
        """
        try:
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            before = self._compose_cached([str(o.input_line) for o in parsed if self._is_choice(o)])
            config = deepcopy(before.config)
            values = [o for o in parsed if not self._is_choice(o)]
            for override in values:
                if override.key_or_group == f"defense.{READ_TOOLS}":  # In no YAML.
                    override.type = OverrideType.FORCE_ADD
            ConfigLoaderImpl._apply_overrides_to_config(values, config)
            refuse_environment(OmegaConf.to_container(config))
            OmegaConf.resolve(config.model)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(
                explain_override_error(error, overrides, lambda words: to_plain_config(self(words).config))
            ) from None
        except (YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"A YAML of yours is not valid: {' '.join(str(error).split())}") from None
        return Composition(config, before.choices, before.chosen)

    def compose_shipped(self, composed: Composition) -> dict[str, Mapping[str, Any]]:
        """Return the YAMLs of model, defense and attack without any override, typed or from a preset."""
        names = [(group, composed.choices[group]) for group in LABELLED]
        if any(name not in self._kept.shipped for name in names):
            no_preset = all(word.split("=")[0] in GROUPS[:-1] for word in composed.chosen)
            alone = self(composed.chosen if no_preset else ["=".join(name) for name in names])
            values = to_plain_config(alone.config)
            self._kept.shipped.update({(group, choice): values[group] for group, choice in names})
        return {group: self._kept.shipped[group, choice] for group, choice in names}

    def _is_choice(self, override: Override) -> bool:
        """True if an override chooses a YAML and does not set a value: its key names a config folder, as in Hydra."""
        key = override.key_or_group
        names_folder = any((folder / key).is_dir() for folder in self._folders)
        return key.startswith("hydra") or (names_folder and not isinstance(override.value(), dict))

    def _compose_cached(self, chosen: Sequence[str]) -> Composition:
        """Compose the chosen YAMLs by Hydra, or take the composition of an equal choice."""
        key = tuple(chosen)
        if key not in self._kept.composed:
            words = [*_APPLICATIONS, *self._searchpath, *chosen]
            prefixed = next(filter(None, map(self._store_prefixed_card, chosen)), None)
            if prefixed is not None:
                words = [_BY_PREFIX if word.startswith("model=") else word for word in words]
            config = hydra_compose("config", words, return_hydra_config=True)
            choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
            choices |= {} if prefixed is None else {"model": prefixed}
            # The `hydra` node cannot be resolved outside a Hydra job.
            ours = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
            OmegaConf.set_struct(ours, True)
            if len(self._kept.composed) >= _MOST_KEPT:
                del self._kept.composed[next(iter(self._kept.composed))]
            self._kept.composed[key] = Composition(ours, choices, key)
        return self._kept.composed[key]

    def _store_prefixed_card(self, word: str) -> str | None:
        """Give Hydra the card of `model=PREFIX/ID` as if a file held it; return the prefixed name."""
        if not word.startswith("model=") or not is_prefixed(word):
            return None
        name = str(OverridesParser.create().parse_override(word).value())  # Without a sweep's escapes.
        # A date stays a string, as where Hydra reads a YAML.
        card = json.loads(json.dumps(load_config("model", name, self.config_dirs), default=str))
        ConfigStore.instance().store(name=_BY_PREFIX.partition("=")[2], group="model", node=card)
        return name


_load_composed: Callable[[_Stamps], _ComposedFiles] = lru_cache(maxsize=8)(lambda stamps: _ComposedFiles())
"""The cache for these files; a changed file gives other stamps, and so an empty cache."""


def to_plain_config(config: DictConfig) -> dict[str, Any]:
    """Convert a config to plain data, with all interpolations resolved."""
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}
