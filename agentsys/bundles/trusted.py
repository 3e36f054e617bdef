"""What a bundle may have built without its user's word: the classes that shipped configs name, no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import yaml

from agentsys.bundles.manifest import CODE, BundledCell, Manifest
from agentsys.config_dir import shipped_config_dirs
from agentsys.errors import ConfigError

_NAMED = 3


def check_trust(manifest: Manifest, file: object) -> None:
    """See that nothing of a bundle's own would be executed.

    Raises:
        ConfigError: If it brings source files, or its settings name classes or modules that no shipped config
            names.
    """
    brought = sorted(name for name in manifest.members if name.startswith(f"{CODE}/"))
    foreign = sorted({name for cell in manifest.cells.values() for name in _foreign(cell)})
    named = [name.removeprefix(f"{CODE}/") for name in brought] or foreign
    if not named:
        return
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    raise ConfigError(
        f"{file} runs code of its own ({', '.join(ascii(one)[1:-1] for one in named[:_NAMED])}{more}), which "
        "can do what you can: read it (unzip), then give --trust-code."
    )


def _foreign(cell: BundledCell) -> Iterator[str]:
    for target in _targets(cell.settings):
        if target not in _shipped():
            yield target
    modules = (cell.settings.get("benchmark") or {}).get("modules")
    yield from (str(name) for name in modules or ())


@lru_cache(maxsize=1)
def _shipped() -> frozenset[str]:
    """Every `_target_` of the shipped configs."""
    files = [file for folder in shipped_config_dirs() for file in folder.rglob("*.yaml")]
    return frozenset(
        target for file in files for target in _targets(yaml.safe_load(file.read_text(encoding="utf-8")))
    )


def _targets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "_target_":
                yield str(inner)
            else:
                yield from _targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _targets(inner)
