"""What `agentsys audit` is asked for: one benchmark, and folders of stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentsys.audit.static.audit import Build
from agentsys.errors import ConfigError
from agentsys.named_module import import_from
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate


@dataclass(frozen=True)
class AuditRequest:
    """A checked request."""

    build: Build
    """Makes the benchmark, also in another process."""
    benchmark: str
    version: str
    runs: tuple[Path, ...]
    """Folders of stored runs; none for the static part alone."""


def audit_request(
    overrides: Sequence[str], config_dirs: Sequence[Path], plugin_paths: Sequence[Path]
) -> AuditRequest:
    """Read the command line's overrides.

    Args:
        overrides: `benchmark...=...` as for `agentsys run`, and `runs=FOLDER`, any number of times.
        config_dirs: The user's own config folders.
        plugin_paths: Folders the user's own modules are imported from.

    Raises:
        ConfigError: For any other override, a sweep, a folder that is not there, or an unknown name.
    """
    import_from(plugin_paths)
    runs = tuple(_folder(text) for text in overrides if text.startswith("runs="))
    others = [text for text in overrides if not text.startswith("runs=")]
    for text in others:
        if not text.lstrip("+~").startswith(("benchmark=", "benchmark.")):
            raise ConfigError(
                f"'{text}' has no place in an audit; give benchmark=..., benchmark.OPTION=... or runs=..."
            )
    settings = compose(others, config_dirs)
    if len(settings) != 1:
        raise ConfigError(
            f"An audit is of one benchmark in one version; {' '.join(others)} names {len(settings)}."
        )
    build = partial(instantiate, "benchmark", settings[0].benchmark)
    made = build()  # here, so that a slip shows before anything is worked out
    if runs and made.name.partition("+")[0] != "agentdojo":
        raise ConfigError(f"runs= audits stored runs of agentdojo, not of {made.name}; leave it out.")
    return AuditRequest(build, made.name, made.version, runs)


def _folder(text: str) -> Path:
    path = Path(text.removeprefix("runs=")).expanduser()
    if not path.exists():
        raise ConfigError(f"{text}: no such folder.")
    return path
