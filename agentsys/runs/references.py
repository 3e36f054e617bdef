"""Things that a config only points at, though cases depend on them: files, recorded runs, code, configs.

Environment variables are refused: their values would stand in records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentsys.abilities import FollowsModel, HasContents, HoldsDefenses, NamesFromFile
from agentsys.base.config_catalog import find_config_file, list_config_names, load_config
from agentsys.errors import ConfigError, require_known_name
from agentsys.models.recorded_runs import digest_records, find_pipeline_folder
from agentsys.models.secrets import mask_address_credentials
from agentsys.records.row_settings import NOT_IN_NAME
from agentsys.runs.instantiate import READ_TOOLS, find_folder_option, load_class
from agentsys.runs.settings import (
    Settings,
    drop_keys,
    list_options_outside_identity,
)
from agentsys.runs.source_files import SourceCollector, compute_content_digest, is_file


def add_contents(cells: Sequence[Settings], config_dirs: Sequence[Path]) -> list[Settings]:
    """The same settings, with the content of what they point at.

    Raises:
        ConfigError: If a file cannot be read, a model is unknown, or there are no recorded runs to replay.
    """
    digests: dict[tuple[Path, str], str] = {}
    found = []
    for settings in cells:
        named = [
            *_find_option_files(settings.nodes_of_identity),
            *_find_named_files(settings.attack, "attack"),
        ]
        files = {key: _digest_file(key, path) for key, path in named}
        files |= {f"defense.{name}": one for name, one in _find_contents(settings.defense).items()}
        folder = find_recorded_folder(settings.model)
        if folder is not None:
            key = folder, settings.labels["attack"]
            if key not in digests:
                digests[key] = digest_records(*key)
            files["model.traces"] = digests[key]
        names = [*(settings.model.get("roles") or {}).values(), settings.attack.get("attacker")]
        others = {str(one): load_config("model", str(one), config_dirs) for one in names if one is not None}
        sources = SourceCollector([*settings.nodes.values(), *others.values()])
        more = {
            "files": files,
            "others": others,
            "code": sources.hash_files(),
            "packages": sources.describe_packages(),
        }
        found.append(settings.model_copy(update=more))
    return found


def _find_contents(config: Any) -> Mapping[str, str]:
    """Ask the classes of a defense's config, and of those it holds, what they depend on (`HasContents`)."""
    if isinstance(config, list):
        config = dict(enumerate(config))
    if not isinstance(config, dict):
        return {}
    inner = {f"{key}.{name}": one for key, of in config.items() for name, one in _find_contents(of).items()}
    found = load_class("defense", config) if "_target_" in config else None
    own = {key: value for key, value in config.items() if key != READ_TOOLS}
    return {**inner, **found.contents(own)} if isinstance(found, HasContents) else inner


def find_recorded_folder(model: Mapping[str, Any]) -> Path | None:
    """The folder of recorded runs that a model answers from; None for models that do not.

    Raises:
        ConfigError: If it is missing, or it is not clear which one is meant.
    """
    traces = model.get("traces")
    if not isinstance(traces, str):
        return None
    pipeline = model.get("pipeline")
    return find_pipeline_folder(str(model.get("name")), traces, None if pipeline is None else str(pipeline))


def list_options_in_name(node: DictConfig) -> set[str]:
    """Options that the YAML writes into its `name`, as in `pair-${.mode}`."""
    raw = OmegaConf.to_container(node, resolve=False)
    return set(re.findall(r"\$\{\.(\w+)\}", str(raw.get("name")))) if isinstance(raw, dict) else set()


_EFFORT_OPTIONS = {
    *("effort", "reasoning_effort", "thinking", "thinking_budget", "thinking_level"),
    *("extra_body.chat_template_kwargs.enable_thinking", "extra_body.thinking.type"),
}
"""A model's options that its label names even where the YAML itself sets them: how much it thinks. Two
efforts of one model are two models, whatever a later YAML of the same name says."""


def make_label(
    group: str, choice: str, values: Mapping[str, Any], shipped: Mapping[str, Any], in_name: set[str]
) -> str:
    """The YAML's own name, followed by how much a model thinks and every option that differs from that YAML.

    What the YAML writes into the name itself is not told twice.
    """
    hidden = (
        list_options_outside_identity(group, values) | in_name | (NOT_IN_NAME if group == "model" else set())
    )
    before = flatten_options(drop_keys(shipped, hidden))
    after = flatten_options(drop_keys(values, hidden))
    keys = sorted({*before, *after} - {"name"})  # the name is what stands in front
    # An option that was one value and became several (`sloppiness: {refusals: 0.1}`) shows the several alone.
    opened = {k for k in before.keys() - after.keys() if any(new.startswith(f"{k}.") for new in after)}
    stated = {k for k in _EFFORT_OPTIONS if group == "model" and after.get(k) is not None} - hidden
    differing = [k for k in keys if k not in opened and (before.get(k) != after.get(k) or k in stated)]
    changed = [f"+{k}={mask_address_credentials(str(after.get(k)))}" for k in differing]
    name, file = values.get("name") or choice, values.get("file")
    # Of an attack: `cached-mine` for `mine.json`.
    if not values.get("name") and isinstance(file, str) and file:
        found = load_class("attack", values)
        own = found.name_of_file(Path(file)) if isinstance(found, NamesFromFile) else Path(file).stem
        name = f"{choice}-{own}"
    replayed = find_recorded_folder(values)
    of_pipeline = "" if replayed is None else f":{replayed.name}"
    return f"{name}{of_pipeline}{''.join(changed)}{write_artefact_label(values)}"


def flatten_options(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values in nested options, by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            found |= flatten_options(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def write_artefact_label(attack: Mapping[str, Any]) -> str:
    """Mark that a search's files add to an attack's label: the beginning of their contents' hashes.

    Raises:
        ConfigError: If one cannot be read.
    """
    given = {name: attack.get(name) for name in ("artefact", "knowledge_file")}
    return "".join(
        f"+{name}={_digest_file(f'attack.{name}', Path(file))[:8]}"
        for name, file in given.items()
        if isinstance(file, str) and file
    )


def _find_option_files(value: object, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Options that hold the path of a file, a defense's list of words for one; in a list, by their places."""
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
    """Replace names of an attack (`attack.base`) and of defenses that the defense holds by their configs.

    Raises:
        ConfigError: If there is none of the name, or it needs a setting that its YAML leaves open.
    """
    attack, base = settings.attack, settings.attack.get("base")
    if isinstance(base, str):
        attack = {**attack, "base": _load_named_config("attack", "base", base, config_dirs, settings.model)}
    defense = resolve_defense_names(settings.defense, config_dirs)
    return settings.model_copy(update={"attack": attack, "defense": defense})


def load_defense_config(name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """The config of a defense, with the configs of all that it holds; from its file, nothing overridden.

    Raises:
        ConfigError: If there is no such defense, or as `resolve_defense_names` does.
    """
    config = add_yaml_folder(load_config("defense", name, config_dirs), name, config_dirs)
    return resolve_defense_names(config, config_dirs, (name,))


def add_yaml_folder(config: Mapping[str, Any], name: str, config_dirs: Sequence[Path]) -> dict[str, Any]:
    """A defense's config with the folder that its YAML lies in, where it asks for that."""
    option = find_folder_option(config)
    if option is None or config.get(option):
        return dict(config)
    return {**config, option: str(find_config_file("defense", name, config_dirs).parent)}


def resolve_defense_names(
    defense: Mapping[str, Any], config_dirs: Sequence[Path], inside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A defense's config, with each name that it has in place of a defense replaced by that one's config.

    Raises:
        ConfigError: If there is no such defense, it needs a setting that its YAML leaves open, or a defense
            holds itself.
    """
    found = load_class("defense", defense)
    options = found.holds if isinstance(found, HoldsDefenses) else ()

    def resolve(option: str, value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(option, one) for one in value]
        name = value if isinstance(value, str) else None
        if name in inside:
            raise ConfigError(f"defense.{option}: '{name}' holds itself; take it out there.")
        held = value if name is None else _load_named_config("defense", option, name, config_dirs)
        if not isinstance(held, Mapping):
            return held
        return resolve_defense_names(held, config_dirs, inside if name is None else (*inside, name))

    return {**defense, **{one: resolve(one, defense[one]) for one in options if one in defense}}


def fill_auto_options(attack: DictConfig, model: Mapping[str, Any]) -> None:
    """Put what an attack wants to know of the attacked model (options that are `auto`) into its config.

    Its name then says it.

    Raises:
        ConfigError: If the model's YAML does not say.
    """
    written = OmegaConf.to_container(attack)
    assert isinstance(written, dict)
    values = {str(option): value for option, value in written.items()}
    wanted = [option for option, value in values.items() if value == "auto"]
    found = load_class("attack", values) if wanted else None
    follows = found.follows if isinstance(found, FollowsModel) else {}
    attack.update({option: follows[option](model) for option in wanted if option in follows})


def _load_named_config(
    group: str, option: str, name: str, config_dirs: Sequence[Path], model: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The config that a name in an option stands for; `auto` options are filled in from the model, if given."""
    setting = f"{group}.{option}"
    require_known_name(setting, name, list_config_names(group, config_dirs))
    written = load_config(group, name, config_dirs)
    refuse_environment({group: {option: written}})
    # As Hydra reads it: a date stays the text it is written as.
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
"""Settings that stand in no record and no name; a cluster's scratch folder is best taken from a variable."""


def refuse_environment(value: Any, where: str = "") -> None:
    """See that no setting reads an environment variable but through an option that names one.

    Raises:
        ConfigError: Naming the setting and the variable.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if where or key not in _EXEMPT:
                refuse_environment(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            refuse_environment(inner, where)
    elif isinstance(value, str) and (found := _ENVIRONMENT.search(value)):
        variable = found[2].split(",")[0].strip()
        raise ConfigError(
            f"Setting '{where}' reads the environment variable {variable}, whose value would stand in names"
            " and records. Write the value itself; a key is named, as in model.api_key_env=VARIABLE."
        )
