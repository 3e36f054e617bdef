"""Metrics of the user's own, for the commands that measure: `--metric`, `--config-dir`, `--plugin-path`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.own_metric import Metric, checked_metric
from agentsys.analysis.metrics.rates import METRICS
from agentsys.catalog import known, node
from agentsys.errors import ConfigError, unknown_name
from agentsys.named_module import import_from

MetricOption = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric of your own beside the others; may be repeated."),
]
"""The option of commands that show every metric; None as its default."""
ConfigDirOption = Annotated[
    list[Path] | None, typer.Option("--config-dir", help="Your own config folder; may be repeated.")
]
PluginPathOption = Annotated[
    list[Path] | None, typer.Option("--plugin-path", help="Folder your own modules are imported from.")
]


def own_metrics(
    names: Sequence[str] | None, config_dirs: Sequence[Path] | None, plugin_paths: Sequence[Path] | None
) -> tuple[Metric, ...]:
    """Make the metrics that were asked for.

    Args:
        names: Of configs in the group `metric`; those of the metrics that there are anyway are passed over.
        config_dirs: The user's own config folders.
        plugin_paths: Folders the user's own modules are imported from.

    Raises:
        ConfigError: If there is no such config, or what it describes is no metric.
    """
    import_from(plugin_paths or ())
    made: list[Metric] = []
    listed = known("metric", config_dirs or ())
    for name in dict.fromkeys(name for name in names or () if name not in METRICS):
        if name not in listed:
            raise ConfigError(unknown_name("metric", name, [*listed, *METRICS]))
        config = node("metric", name, config_dirs or ())
        # Here, because it brings the benchmark's package.
        from agentsys.runs.instantiate import instantiate

        taken = {*METRICS, *(one.name for one in made)}
        made.append(checked_metric(instantiate("metric", config), name, taken))
    return tuple(made)
