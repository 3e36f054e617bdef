"""`agentsys audit` and `agentsys rescore`: flaws of a benchmark, and recorded runs scored again.

No model is asked. An audit says what a benchmark's own flaws do to its numbers, and what stored runs show
of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.base.grouping import format_count
from agentsys.base.object_import import add_plugin_paths
from agentsys.cli.cli_output import ConfigDirOption, FormatOption, OutOption, PluginPathOption, write_output
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys.records.case_reader import describe_resolution
from agentsys.records.names_file import RunNames

if TYPE_CHECKING:
    from agentsys_plugins.audit.static.static_audit import BuildBenchmark


def audit(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="benchmark=NAME or benchmark.OPTION=VALUE; runs=FOLDER audits stored runs instead."
        ),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
) -> None:
    """Audit a benchmark: what its checks accept, demand and destroy. Needs no model and no key."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from rich.console import Console

    from agentsys_plugins.audit.audit_report import AuditReport, build_audit_output
    from agentsys_plugins.audit.static.static_audit import StaticAudit, audit_benchmark, describe_package

    run_names = RunNames(names)
    build, runs = parse_audit_request(overrides or [], config_dir or [], plugin_path or [])
    # On standard error: a progress line must not get into what is piped on.
    if not runs:
        with Console(stderr=True).status("Auditing every task ..."):
            report = AuditReport(audit_benchmark(build))
    else:
        benchmark = build()
        with Console(stderr=True).status("Looking through the stored runs ..."):
            from agentsys_plugins.audit.trace_audit import audit_traces

            traces = audit_traces(runs, benchmark.version, run_names)
        _print_notes(traces.notes)
        report = AuditReport(StaticAudit(benchmark.name, benchmark.version, describe_package(), ()), traces)
    write_output(build_audit_output(report), form, out)


def parse_audit_request(
    overrides: Sequence[str], config_dirs: Sequence[Path], plugin_paths: Sequence[Path]
) -> tuple[BuildBenchmark, list[Path]]:
    """Read the command line's overrides: what makes the benchmark, and the folders of stored runs.

    Raises:
        ConfigError: For any other override, a sweep, a folder that is not there, or an unknown name.
    """
    # Here, because composing and the benchmark's package take seconds that `--help` does without.
    from agentsys.runs.compose import compose
    from agentsys.runs.instantiate import instantiate

    add_plugin_paths(plugin_paths)
    runs = [Path(text[5:]).expanduser() for text in overrides if text.startswith("runs=")]
    for folder in runs:
        if not folder.exists():
            raise ConfigError(f"runs={folder}: no such folder.")
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
    name = build().name  # here, so that a slip shows before anything is worked out
    if runs and name.partition("+")[0] != "agentdojo":
        raise ConfigError(f"runs= audits stored runs of agentdojo, not of {name}; leave it out.")
    return build, runs


def _print_notes(notes: Sequence[str]) -> None:
    for line in describe_resolution(notes):
        print(escape_to_line(line), file=sys.stderr)


def rescore_command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Folders or files of AgentDojo, of DRIFT, or of agentsys."),
    ],
    version: Annotated[
        str | None,
        typer.Option(metavar="V", help="Benchmark version, e.g. v1.2.2; default: what each record names."),
    ] = None,
    fixes: Annotated[
        str | None,
        typer.Option(metavar="F,...", help="Fixes to score under as well (docs/fixes.md); default: all."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the re-scored records here; originals stay.")
    ] = None,
    checkout: Annotated[
        str, typer.Option(metavar="DIR", help="AgentDyn's checkout, for records of its suites.")
    ] = "fetched",
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the records; the result is the same.")
    ] = 1,
    form: FormatOption = OutputFormat.TABLE,
    names: NamesOption = None,
) -> None:
    """Execute recorded tool calls again, score them officially and fixed, and show every flip's reason."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys_plugins.audit.rescoring.rescore import rescore_records
    from agentsys_plugins.audit.rescoring.rescoring_export import build_rescoring_output, write_rescored

    chosen = [name.strip() for name in (fixes or "").split(",") if name.strip()]
    found = rescore_records(runs, version, chosen, RunNames(names), checkout, processes)
    _print_notes(found.notes)
    write_output(build_rescoring_output(found), form)
    if out is not None:
        written = format_count(write_rescored(found.cases, out), "record")
        print(f"Wrote {written} to {escape_to_line(str(out))}", file=sys.stderr)
