"""An attack that builds on another one: its option `base` names it, and is replaced by that one's config.

So the other attack's options are part of what a case depends on, wherever its YAML may lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentsys.catalog import config_path, known, node
from agentsys.errors import ConfigError, unknown_name
from agentsys.runs.interpolation import refuse_environment
from agentsys.runs.settings import Settings


def with_base(settings: Settings, config_dirs: Sequence[Path]) -> Settings:
    """The same settings, with an attack's name under `attack.base` replaced by its config.

    Args:
        settings: Of one cell; without `attack.base` they are returned as they are.
        config_dirs: The user's own config folders.

    Raises:
        ConfigError: If there is no such attack, or it needs a setting that its YAML leaves open.
    """
    base = settings.attack.get("base")
    if not isinstance(base, str):
        return settings
    names = known("attack", config_dirs)
    if base not in names:
        raise ConfigError(unknown_name("attack.base", base, names))
    return settings.model_copy(update={"attack": {**settings.attack, "base": _complete(base, config_dirs)}})


def _complete(name: str, config_dirs: Sequence[Path]) -> dict[str, Any]:
    written = node("attack", name, config_dirs)
    refuse_environment({"attack": {"base": written}})
    config = OmegaConf.create(written)
    open_keys = sorted(str(key) for key in OmegaConf.missing_keys(config))
    if open_keys:
        raise ConfigError(
            f"attack.base: '{name}' needs {open_keys[0]}, which its YAML leaves open; put a YAML of your own"
            f" with it into a folder attack/ and name that one (--config-dir)."
        )
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        where = config_path("attack", name, config_dirs)
        raise ConfigError(f"attack.base: {where}: {str(error).splitlines()[0]}") from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}
