"""Resolves what a config refers to and cases depend on: files, recorded runs, code, other configs.

Environment variables are refused, because their values would be stored in records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentsys.base.config_catalog import find_config_file, list_config_names, load_config
from agentsys.errors import ConfigError, require_known_name
from agentsys.models.recorded_runs import digest_records, find_pipeline_folder
from agentsys.models.secrets import mask_address_credentials
from agentsys.records.row_settings import NOT_IN_NAME
from agentsys.runs.instantiate import READ_TOOLS, load_class
from agentsys.runs.settings import (
    Settings,
    drop_keys,
    list_options_outside_identity,
)
from agentsys.runs.source_files import SourceCollector, compute_content_digest, is_file


def add_contents(cells: Sequence[Settings], config_dirs: Sequence[Path]) -> list[Settings]:
    """Add digests of everything that settings refer to.

    Raises:
        ConfigError: If a file cannot be read, a model is unknown, or recorded runs to replay are missing.
    """
    digests: dict[tuple[Path, str], str] = {}
    filled = []
    for settings in cells:
        named = [
            *_find_option_files(settings.nodes_of_identity),
            *_find_named_files(settings.attack, "attack"),
        ]
        files = {key: _digest_file(key, path) for key, path in named}
        files |= {f"defense.{name}": digest for name, digest in _find_contents(settings.defense).items()}
        folder = find_recorded_folder(settings.model)
        if folder is not None:
            key = folder, settings.labels["attack"]
            if key not in digests:
                digests[key] = digest_records(*key)
            files["model.traces"] = digests[key]
        names = [*(settings.model.get("roles") or {}).values(), settings.attack.get("attacker")]
        models = [str(name) for name in names if name is not None]
        others = {name: load_config("model", name, config_dirs) for name in models}
        sources = SourceCollector([*settings.nodes.values(), *others.values()])
        more = {
            "files": files,
            "others": others,
            "code": sources.hash_files(),
            "packages": sources.describe_packages(),
        }
        filled.append(settings.model_copy(update=more))
    return filled


def _find_contents(config: Any) -> Mapping[str, str]:
    """Collect the digests that a defense's class, and those of nested configs, declare (`Defense.contents`)."""
    if isinstance(config, list):
        config = dict(enumerate(config))
    if not isinstance(config, dict):
        return {}
    inner = {f"{key}.{name}": d for key, of in config.items() for name, d in _find_contents(of).items()}
    own = {key: value for key, value in config.items() if key != READ_TOOLS}
    return {**inner, **load_class("defense", config).contents(own)}


def find_recorded_folder(model: Mapping[str, Any]) -> Path | None:
    """Return the folder of recorded runs that a model replays; None for other models.

    Raises:
        ConfigError: If it is missing or ambiguous.
    """
    traces = model.get("traces")
    if not isinstance(traces, str):
        return None
    pipeline = model.get("pipeline")
    return find_pipeline_folder(str(model.get("name")), traces, None if pipeline is None else str(pipeline))


def list_options_in_name(node: DictConfig) -> set[str]:
    """List the options that a YAML interpolates into its `name`, as in `pair-${.mode}`."""
    raw = OmegaConf.to_container(node, resolve=False)
    return set(re.findall(r"\$\{\.(\w+)\}", str(raw.get("name")))) if isinstance(raw, dict) else set()


_EFFORT_OPTIONS = {
    *("effort", "reasoning_effort", "thinking", "thinking_budget", "thinking_level"),
    *("extra_body.chat_template_kwargs.enable_thinking", "extra_body.thinking.type"),
}
"""Model options for reasoning effort. The label names them even if the YAML sets them: two efforts of one model are
two models, whatever a later YAML of the same name says."""


def make_label(
    group: str, choice: str, values: Mapping[str, Any], shipped: Mapping[str, Any], in_name: set[str]
) -> str:
    """Build a label: the YAML's name, the reasoning effort, and every option that differs from the YAML.

    Options that are part of the name are not repeated.
    """
    hidden = (
        list_options_outside_identity(group, values) | in_name | (NOT_IN_NAME if group == "model" else set())
    )
    before = flatten_options(drop_keys(shipped, hidden))
    after = flatten_options(drop_keys(values, hidden))
    keys = sorted({*before, *after} - {"name"})  # The label begins with the name.
    # If a value became a mapping (`sloppiness: {refusals: 0.1}`), only the mapping's entries are named.
    opened = {k for k in before.keys() - after.keys() if any(new.startswith(f"{k}.") for new in after)}
    stated = {k for k in _EFFORT_OPTIONS if group == "model" and after.get(k) is not None} - hidden
    differing = [k for k in keys if k not in opened and (before.get(k) != after.get(k) or k in stated)]
    changed = [f"+{k}={mask_address_credentials(str(after.get(k)))}" for k in differing]
    name, file = values.get("name") or choice, values.get("file")
    # An attack that reads a file: `cached-mine` for `mine.json`.
    if not values.get("name") and isinstance(file, str) and file:
        name = f"{choice}-{load_class('attack', values).name_of_file(Path(file))}"
    replayed = find_recorded_folder(values)
    of_pipeline = "" if replayed is None else f":{replayed.name}"
    return f"{name}{of_pipeline}{''.join(changed)}{format_artefact_label(values)}"


def flatten_options(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested options: dotted name -> value."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            flat |= flatten_options(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def format_artefact_label(attack: Mapping[str, Any]) -> str:
    """Format the suffix that a search's files add to an attack's label: the first digits of their digests.

    Raises:
        ConfigError: If a file cannot be read.
    """
    given = {name: attack.get(name) for name in ("artefact", "knowledge_file")}
    return "".join(
        f"+{name}={_digest_file(f'attack.{name}', Path(file))[:8]}"
        for name, file in given.items()
        if isinstance(file, str) and file
    )


def _find_option_files(value: object, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield (dotted option, path) of every option that holds the path of an existing file."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _find_option_files(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, str) and ("." in value or "/" in value) and is_file(Path(value)):
        yield prefix, Path(value)


def _find_named_files(attack: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Path]]:
    base = attack.get("base")
    for option in ("file", "artefact", "knowledge_file"):
        file = attack.get(option)
        if isinstance(file, str) and file:
            yield f"{prefix}.{option}", Path(file)
    if isinstance(base, Mapping):
        yield from _find_named_files(base, f"{prefix}.base")


def _digest_file(key: str, path: Path) -> str:
    try:
        return compute_content_digest(path)
    except OSError as error:
        raise ConfigError(f"{key} {path} cannot be read: {error.strerror}. Give an existing file.") from None


def resolve_names(settings: Settings, config_dirs: Sequence[Path]) -> Settings:
    """Replace the name in `attack.base`, and the names of nested defenses, by their configs.

    Raises:
        ConfigError: If a name is unknown, or its YAML leaves a required setting open.
    """
    attack, base = settings.attack, settings.attack.get("base")
    if isinstance(base, str):
        attack = {**attack, "base": _load_named_config("attack", "base", base, config_dirs, settings.model)}
    defense = resolve_defense_names(settings.defense, config_dirs)
    return settings.model_copy(update={"attack": attack, "defense": defense})


def load_defense_config(name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """Load a defense's YAML without overrides, with the configs of nested defenses.

    Raises:
        ConfigError: If there is no such defense, or as `resolve_defense_names` does.
    """
    config = add_yaml_folder(load_config("defense", name, config_dirs), name, config_dirs)
    return resolve_defense_names(config, config_dirs, (name,))


def add_yaml_folder(config: Mapping[str, Any], name: str, config_dirs: Sequence[Path]) -> dict[str, Any]:
    """Add the folder of a defense's YAML to its config, if its class asks for that."""
    option: str | None = load_class("defense", config).folder_option(config)
    if option is None or config.get(option):
        return dict(config)
    return {**config, option: str(find_config_file("defense", name, config_dirs).parent)}


def resolve_defense_names(
    defense: Mapping[str, Any], config_dirs: Sequence[Path], inside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Replace each name of a nested defense in a defense's config by that defense's config.

    Raises:
        ConfigError: If a name is unknown, its YAML leaves a required setting open, or a defense contains itself.
    """
    options = load_class("defense", defense).holds

    def resolve(option: str, value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(option, item) for item in value]
        name = value if isinstance(value, str) else None
        if name in inside:
            raise ConfigError(f"defense.{option}: '{name}' holds itself; take it out there.")
        inner = value if name is None else _load_named_config("defense", option, name, config_dirs)
        if not isinstance(inner, Mapping):
            return inner
        return resolve_defense_names(inner, config_dirs, inside if name is None else (*inside, name))

    return {**defense, **{item: resolve(item, defense[item]) for item in options if item in defense}}


def fill_auto_options(attack: DictConfig, model: Mapping[str, Any]) -> None:
    """Replace an attack's `auto` options by facts of the attacked model, so that its label names them.

    Raises:
        ConfigError: If the model's YAML lacks the fact.
    """
    written = OmegaConf.to_container(attack)
    assert isinstance(written, dict)
    values = {str(option): value for option, value in written.items()}
    wanted = [option for option, value in values.items() if value == "auto"]
    follows = load_class("attack", values).follows if wanted else {}
    attack.update({option: follows[option](model) for option in wanted if option in follows})


def _load_named_config(
    group: str, option: str, name: str, config_dirs: Sequence[Path], model: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Load the config that an option names; `auto` options are filled in from the model, if given."""
    setting = f"{group}.{option}"
    require_known_name(setting, name, list_config_names(group, config_dirs))
    written = load_config(group, name, config_dirs)
    refuse_environment({group: {option: written}})
    # OmegaConf reads it as Hydra does: a date stays a string.
    config = OmegaConf.load(find_config_file(group, name, config_dirs))
    assert isinstance(config, DictConfig)
    if model is not None:
        fill_auto_options(config, model)
    open_keys = sorted(str(key) for key in OmegaConf.missing_keys(config))
    if open_keys:
        raise ConfigError(
            f"{setting}: '{name}' needs {open_keys[0]}, which its YAML leaves open; put a YAML of your own"
            f" with it into a folder {group}/ and name that one (--config-dir)."
        )
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        where = find_config_file(group, name, config_dirs)
        raise ConfigError(f"{setting}: {where}: {str(error).splitlines()[0]}") from None
    assert isinstance(resolved, dict)
    values = {str(key): value for key, value in resolved.items()}
    return add_yaml_folder(values, name, config_dirs) if group == "defense" else values


_ENVIRONMENT = re.compile(r"\$\{\s*(oc\.)?env\s*:\s*([^}]*)")
_EXEMPT = {"logdir"}
"""Settings that no record and no label has; a cluster's scratch folder is best taken from a variable."""


def refuse_environment(value: Any, where: str = "") -> None:
    """Refuse settings that read an environment variable; options like `api_key_env` name a variable instead.

    Raises:
        ConfigError: If a setting reads one.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if where or key not in _EXEMPT:
                refuse_environment(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            refuse_environment(inner, where)
    elif isinstance(value, str) and (match := _ENVIRONMENT.search(value)):
        variable = match[2].split(",")[0].strip()
        raise ConfigError(
            f"Setting '{where}' reads the environment variable {variable}, whose value would stand in names"
            " and records. Write the value itself; a key is named, as in model.api_key_env=VARIABLE."
        )
