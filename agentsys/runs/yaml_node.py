"""One config node by group and name, without composing a whole config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from agentsys.config_dir import shipped_config_dir
from agentsys.errors import ConfigError, unknown_name


def yaml_node(group: str, name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """The YAML `<group>/<name>.yaml`; the user's folders come first.

    Raises:
        ConfigError: If there is none, or it is not a mapping.
    """
    folders = [root / group for root in (*config_dirs, shipped_config_dir())]
    for folder in folders:
        path = folder / f"{name}.yaml"
        if path.is_file():
            node = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not isinstance(node, dict):
                raise ConfigError(f"{path} is not a mapping of options.")
            return node
    raise ConfigError(unknown_name(group, name, {p.stem for f in folders for p in f.glob("*.yaml")}))
