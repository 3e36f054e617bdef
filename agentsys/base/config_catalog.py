"""The catalog of configs: the names in the config groups, read from YAML files without composing them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentsys.base.model_prefixes import is_prefixed, load_prefixed_card
from agentsys.errors import ConfigError, require_known_name
from agentsys.extensions import list_shipped_config_dirs, shipped_config_dir

CONFIG_GROUPS = {
    "models": "model",
    "defenses": "defense",
    "attacks": "attack",
    "benchmarks": "benchmark",
    "experiments": "experiment",
    "metrics": "metric",
}
"""Name of a list on the command line -> config group, which is the folder's name."""


def list_config_names(group: str, config_dirs: Sequence[Path] = ()) -> list[str]:
    """List the names in a group, shipped and the user's own, sorted.

    Raises:
        ConfigError: If one of `config_dirs` is not a folder, or has a config with the name of a shipped one, which
            Hydra would silently prefer.
    """
    shipped = {path.stem for root in list_shipped_config_dirs() for path in (root / group).glob("*.yaml")}
    names = set(shipped)
    for root in config_dirs:
        if not root.is_dir():
            raise ConfigError(f"--config-dir {root}: no such folder.")
        own = {path.stem for path in (root / group).glob("*.yaml")}
        for name in sorted(own & shipped):
            raise ConfigError(f"{root / group / name}.yaml has the name of a shipped {group}; rename it.")
        names |= own
    return sorted(names)


def read_description(group: str, name: str, config_dirs: Sequence[Path] = ()) -> str:
    """Return a config's first comment line, its one-line description; `""` if it has none.

    Raises:
        ConfigError: If there is no such config.
    """
    for line in _read_config(find_config_file(group, name, config_dirs)).splitlines():
        text = line.strip()
        if not text or text.startswith("# @"):  # A directive to Hydra, as in `# @package _global_`.
            continue
        if not text.startswith("#"):
            break
        if text.lstrip("# "):
            return text.lstrip("# ")
    return ""


def load_config(group: str, name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """Load a config's own file, with nothing merged and nothing resolved; or the card of a model by prefix.

    Raises:
        ConfigError: If there is no such config, or it is not a YAML mapping.
    """
    import yaml  # here, because tables of stored runs seldom need it and should start fast

    if group == "model" and is_prefixed(name):
        names = list_config_names(group, config_dirs)
        return load_prefixed_card(name, (load_config(group, each, config_dirs) for each in names))
    path = find_config_file(group, name, config_dirs)
    try:
        values = yaml.load(_read_config(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of options.")
    return values


def list_setting_names() -> list[str]:
    """List the keys of a run's settings (groups and plain values), which no command has as options."""
    import yaml

    top = yaml.safe_load(_read_config(shipped_config_dir() / "config.yaml"))
    chosen = [group for choice in top["defaults"] if isinstance(choice, dict) for group in choice]
    return [*chosen, "experiment", *(key for key in top if key not in ("defaults", "sweep"))]


def find_config_file(group: str, name: str, config_dirs: Sequence[Path] = ()) -> Path:
    """Find the file of a config, the user's or a shipped one.

    Raises:
        ConfigError: If there is no such config.
    """
    names = list_config_names(group, config_dirs)
    require_known_name(group, name, names)
    roots = [*config_dirs, *list_shipped_config_dirs()]
    return next(path for root in roots if (path := root / group / f"{name}.yaml").is_file())


def _read_config(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
