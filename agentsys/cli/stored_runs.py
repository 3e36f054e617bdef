"""Shared by the commands that measure stored runs: options, reading, metrics of the user's own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.own_metric import Metric, check_metric
from agentsys.analysis.metrics.rates import METRICS
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.base.ledger import sum_ledgers
from agentsys.base.object_import import add_plugin_paths, build_object
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, require_known_name
from agentsys.records.case_reader import LoadedCases, describe_resolution, describe_skipped, read_cases
from agentsys.records.case_row import CaseRow, shorten_names
from agentsys.records.names_file import RunNames
from agentsys.records.published_facts import list_known_versions, list_suite_sizes
from agentsys.records.stored_plan import describe_unfinished

ErrorsOption = Annotated[
    ErrorRule,
    typer.Option(help="Errored cases: report = left out and counted; agentdojo = failed and attacked."),
]
"""The option of every command that counts outcomes; `ErrorRule.REPORT` as its default."""

NamesOption = Annotated[
    Path | None,
    typer.Option(
        "--names",
        metavar="FILE",
        help="YAML: whose runs other people's folders are.",
    ),
]
"""The option of every command that reads folders; a command's parameter has None as its default."""


CasesOption = Annotated[
    str | None,
    typer.Option(
        "--cases",
        metavar="V",
        help="Only cases that this version of AgentDojo has: of v1.2's 949 pairs v1's 629.",
    ),
]
"""The option of commands that measure; None as its default."""


def restrict_to_version(cases: Sequence[CaseRow], version: str) -> tuple[CaseRow, ...]:
    """The cases of AgentDojo's whose tasks a version has, whichever they were run with.

    Raises:
        ConfigError: If there is no such version, or no case is left.
    """
    require_known_name("version of agentdojo", version, list_known_versions())
    sizes = list_suite_sizes(version)
    kept = tuple(
        case
        for case in cases
        if case.benchmark.partition("+")[0] == "agentdojo"
        and (size := sizes.get(case.suite)) is not None
        and case.user_task_id in size.user_tasks
        and (case.injection_task_id is None or case.injection_task_id in size.injection_tasks)
    )
    if not kept:
        raise ConfigError(
            f"--cases {version}: none of these {len(cases):,} cases is one of AgentDojo's {version}."
        )
    return kept


MetricOption = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric of your own beside the others; may be repeated."),
]
"""The option of commands that show every metric; None as its default."""


def read_stored_runs(
    folders: Iterable[Path],
    names: Path | None = None,
    *,
    whole_names: bool = False,
    version: str | None = None,
) -> LoadedCases:
    """The cases under some folders, with long names cut where they are not for other programs.

    On standard error: a line for each file that could not be used, and what folders' names decided.

    Raises:
        ConfigError: If a folder does not exist, none holds a case, or a file of names is not one.
    """
    reading = read_cases(folders, RunNames(names))
    gc.freeze()  # the rows live as long as the command: nobody need look through them for cycles again and again
    for line in (*describe_skipped(reading.skipped_files), *describe_resolution(reading.resolution_notes)):
        print(escape_to_line(line), file=sys.stderr)
    if version is not None:
        reading = replace(reading, cases=restrict_to_version(reading.cases, version))
    return reading if whole_names else replace(reading, cases=shorten_names(reading.cases))


def print_unfinished(reading: LoadedCases) -> None:
    """Tell on standard error which planned cases have no record, beside what has no room for notes."""
    for line in describe_unfinished(reading.unfinished):
        print(escape_to_line(line), file=sys.stderr)


def list_ledger_lines(folders: Iterable[Path]) -> list[str]:
    """Write the sums of these folders' ledgers; empty where there are none (simulated runs)."""
    return [line] if (line := sum_ledgers(folders).summary_line) else []


def load_own_metrics(
    names: Sequence[str] | None, config_dirs: Sequence[Path] | None, plugin_paths: Sequence[Path] | None
) -> tuple[Metric, ...]:
    """Make the metrics that were asked for by their configs' names; standard ones' are passed over.

    Raises:
        ConfigError: If there is no such config, or what it describes is no metric.
    """
    add_plugin_paths(plugin_paths or ())
    if not names and not config_dirs:
        return ()
    from agentsys.base.config_catalog import list_config_names, load_config

    made: list[Metric] = []
    listed = list_config_names("metric", config_dirs or ())
    for name in dict.fromkeys(name for name in names or () if name not in METRICS):
        require_known_name("metric", name, [*listed, *METRICS])
        config = load_config("metric", name, config_dirs or ())
        taken = {*METRICS, *(one.name for one in made)}
        made.append(check_metric(build_object("metric", config), name, taken))
    return tuple(made)
