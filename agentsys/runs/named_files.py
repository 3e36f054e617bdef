"""What a config only points at, though a case depends on it: files, recorded runs, code, other models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsys.catalog import node
from agentsys.errors import ConfigError
from agentsys.models.replay.recorded_folder import pipeline_folder, records_digest
from agentsys.runs.settings import NOT_IDENTITY, Settings, without
from agentsys.runs.source_code import code_of, content_digest, is_file


def with_content(cells: Sequence[Settings], config_dirs: Sequence[Path]) -> list[Settings]:
    """The same settings, with the content of what they point at.

    Args:
        cells: Of one run.
        config_dirs: The user's own config folders, for the models that play roles.

    Raises:
        ConfigError: If a file cannot be read, a model is unknown, or there are no recorded runs to replay.
    """
    digests: dict[tuple[Path, str], str] = {}
    return [_with_content(one, config_dirs, digests) for one in cells]


def _with_content(
    settings: Settings, config_dirs: Sequence[Path], digests: dict[tuple[Path, str], str]
) -> Settings:
    groups = {group: without(getattr(settings, group), hidden) for group, hidden in NOT_IDENTITY.items()}
    found = [*_in_options(groups), *_named(settings.attack, "attack")]
    files = {key: _digest(key, path) for key, path in found}
    folder = recorded_folder(settings.model)
    if folder is not None:
        key = folder, settings.labels["attack"]
        if key not in digests:
            digests[key] = records_digest(*key)
        files["model.traces"] = digests[key]
    names = [*(settings.model.get("roles") or {}).values(), settings.attack.get("attacker")]
    others = {str(name): node("model", str(name), config_dirs) for name in names if name is not None}
    code = code_of([settings.model, settings.defense, settings.attack, settings.benchmark, *others.values()])
    return settings.model_copy(update={"files": files, "others": others, "code": code})


def recorded_folder(model: Mapping[str, Any]) -> Path | None:
    """The folder of recorded runs that a model answers from; None for models that do not.

    Raises:
        ConfigError: If it is missing, or it is not clear which one is meant.
    """
    traces = model.get("traces")
    if not isinstance(traces, str):
        return None
    pipeline = model.get("pipeline")
    return pipeline_folder(str(model.get("name")), traces, None if pipeline is None else str(pipeline))


def replayed_name(name: str, model: Mapping[str, Any]) -> str:
    """The label of a model that answers from recorded runs: `replay:gpt-4o-mini-2024-07-18`.

    Args:
        name: The model's own.
        model: Its options.

    Raises:
        ConfigError: As `recorded_folder` does.
    """
    folder = recorded_folder(model)
    return name if folder is None else f"{name}:{folder.name}"


def name_from_file(choice: str, attack: Mapping[str, Any]) -> str | None:
    """The label of an attack that has an option `file` and no name: `cached-mine` for `mine.json`.

    Args:
        choice: The name of the attack's YAML.
        attack: Its options.
    """
    file = attack.get("file")
    return f"{choice}-{Path(file).stem}" if isinstance(file, str) and file else None


def artefact_mark(attack: Mapping[str, Any]) -> str:
    """What a search's files add to an attack's label: the beginning of their contents' hashes.

    Raises:
        ConfigError: If one cannot be read.
    """
    given = {name: attack.get(name) for name in ("artefact", "knowledge_file")}
    return "".join(
        f"+{name}={_digest(f'attack.{name}', Path(file))[:8]}"
        for name, file in given.items()
        if isinstance(file, str) and file
    )


def _in_options(value: object, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Options that hold the path of a file, a defense's list of words for one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _in_options(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, str) and ("." in value or "/" in value) and is_file(Path(value)):
        yield prefix, Path(value)


def _named(attack: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Path]]:
    base = attack.get("base")
    for option in ("file", "artefact", "knowledge_file"):
        file = attack.get(option)
        if isinstance(file, str) and file:
            yield f"{prefix}.{option}", Path(file)
    if isinstance(base, Mapping):
        yield from _named(base, f"{prefix}.base")


def _digest(key: str, path: Path) -> str:
    try:
        return content_digest(path)
    except OSError as error:
        raise ConfigError(f"{key} {path} cannot be read: {error.strerror}. Give an existing file.") from None
