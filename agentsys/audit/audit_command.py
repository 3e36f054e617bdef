"""`agentsys audit` and `agentsys rescore`: flaws of a benchmark, and recorded runs scored again.

No model is asked. An audit says what a benchmark's own flaws do to its numbers, and what stored runs show
of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsys.analysis.tables.table_writers import OutputFormat
from agentsys.base.grouping import format_count
from agentsys.base.object_import import add_plugin_paths
from agentsys.cli.cli_output import ConfigDirOption, FormatOption, OutOption, PluginPathOption, write_output
from agentsys.cli.stored_runs import NamesOption, read_stored_runs
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys.records.case_reader import describe_resolution
from agentsys.records.names_file import RunNames

if TYPE_CHECKING:
    from agentsys.analysis.tables.table_writers import Output
    from agentsys.audit.audit_report import AuditReport
    from agentsys.audit.static.static_audit import BuildBenchmark


@dataclass(frozen=True)
class AuditRequest:
    """A checked request."""

    build: BuildBenchmark
    """Makes the benchmark, also in another process."""
    benchmark: str
    version: str
    runs: tuple[Path, ...]
    """Folders of stored runs; none for the static part alone."""


def audit(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="benchmark=NAME or benchmark.OPTION=VALUE; runs=FOLDER audits stored runs instead; "
            "caches=FOLDER compares files of injection texts instead; with runs=, what they did there."
        ),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    every_task: Annotated[
        bool, typer.Option("--all", help="Show every task, also those of which nothing was found.")
    ] = False,
    out: OutOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Compare with the expected findings; exit with 1 if any moved.")
    ] = False,
    expected: Annotated[
        Path | None, typer.Option(help="Expected findings for --strict; default: the package's.")
    ] = None,
    write_expected: Annotated[
        Path | None, typer.Option("--write-expected", help="File to write the findings to, for --expected.")
    ] = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
) -> None:
    """Audit a benchmark: what its checks accept, demand and destroy. Needs no model and no key."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.audit.audit_report import build_audit_output
    from agentsys.audit.static.static_rows import (
        build_expectation,
        format_expectation,
        list_expectation_changes,
        load_shipped_expectation,
        read_expectation,
    )

    if any(text.startswith(_CACHES_OVERRIDE) for text in overrides or []):
        transfers = _compare_cached_texts(overrides or [], config_dir or [], plugin_path or [], names)
        write_output(transfers, form, out)
        return
    run_names = RunNames(names)
    request = parse_audit_request(overrides or [], config_dir or [], plugin_path or [])
    # Before the work is done: a file that is not there must not show after a minute.
    expectation: Mapping[str, Any] | None = None
    if expected is not None:
        expectation = read_expectation(expected)
    elif strict:
        expectation = load_shipped_expectation(request.benchmark, request.version)
    report = _run_audit(request, run_names, checks=expectation is not None or write_expected is not None)
    write_output(build_audit_output(report, every_task=every_task), form, out)
    if write_expected is not None:
        write_expected.parent.mkdir(parents=True, exist_ok=True)
        write_expected.write_text(format_expectation(build_expectation(report.static)), encoding="utf-8")
    if expectation is not None:
        moved = list_expectation_changes(expectation, build_expectation(report.static))
        _report_changes(moved, expectation.get("package"), report.static.package)


def parse_audit_request(
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
    # Here, because composing and the benchmark's package take seconds that `--help` does without.
    from agentsys.runs.compose import compose
    from agentsys.runs.instantiate import instantiate

    add_plugin_paths(plugin_paths)
    runs = tuple(_check_folder(text) for text in overrides if text.startswith("runs="))
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
    benchmark = build()  # here, so that a slip shows before anything is worked out
    if runs and benchmark.name.partition("+")[0] != "agentdojo":
        raise ConfigError(f"runs= audits stored runs of agentdojo, not of {benchmark.name}; leave it out.")
    return AuditRequest(build, benchmark.name, benchmark.version, runs)


_CACHES_OVERRIDE = "caches="


def _compare_cached_texts(
    overrides: Sequence[str], config_dirs: Sequence[Path], plugin_paths: Sequence[Path], names: Path | None
) -> Output:
    """Compare the files of one folder of injection texts; with stored runs, say what they did there."""
    try:
        from agentsys.audit.cached_text_audit import (
            audit_cache_files,
            build_cache_output,
            build_transfer_output,
        )
    except ModuleNotFoundError:  # of the room `red_team`, which may not be installed
        raise ConfigError("caches= needs the attack `cached`, which is not installed here.") from None

    folders = [text for text in overrides if text.startswith(_CACHES_OVERRIDE)]
    if len(folders) > 1:
        raise ConfigError("caches= is of one folder; leave the others out, or put them into one.")
    runs = [_check_folder(text) for text in overrides if text.startswith("runs=")]
    others = [text for text in overrides if not text.startswith((_CACHES_OVERRIDE, "runs="))]
    request = parse_audit_request(others, config_dirs, plugin_paths)
    found = audit_cache_files(_check_folder(folders[0]), request.build())
    return (
        build_transfer_output(found, read_stored_runs(runs, names, whole_names=True).cases)
        if runs
        else build_cache_output(found)
    )


def _check_folder(text: str) -> Path:
    path = Path(text.partition("=")[2]).expanduser()
    if not path.exists():
        raise ConfigError(f"{text}: no such folder.")
    return path


def _run_audit(request: AuditRequest, names: RunNames, *, checks: bool) -> AuditReport:
    """The benchmark's checks audited, or the stored runs; both where there are runs and `checks` is set."""
    from rich.console import Console

    from agentsys.audit.audit_report import AuditReport
    from agentsys.audit.static.static_audit import audit_benchmark, describe_package
    from agentsys.audit.static.static_rows import StaticAudit

    static = StaticAudit(request.benchmark, request.version, describe_package(), ())
    # On standard error: a progress line must not get into what is piped on.
    if checks or not request.runs:
        with Console(stderr=True).status("Auditing every task ..."):
            static = audit_benchmark(request.build)
    if not request.runs:
        return AuditReport(static)
    with Console(stderr=True).status("Looking through the stored runs ..."):
        from agentsys.audit.trace_audit import audit_traces

        traces = audit_traces(request.runs, request.version, names)
    for line in describe_resolution(traces.notes):
        print(escape_to_line(line), file=sys.stderr)
    return AuditReport(static, traces)


def _report_changes(moved: Sequence[str], package: object, installed: str) -> None:
    if not moved:
        print("All findings are as expected.", file=sys.stderr)
        return
    other = [f"Expected of {package}; installed is {installed}."] if package != installed else []
    for line in (*moved, *other, f"Findings that are not as expected: {len(moved)}."):
        print(escape_to_line(line), file=sys.stderr)
    raise typer.Exit(1)


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
    from agentsys.audit.rescoring.rescore import rescore_records as rescored
    from agentsys.audit.rescoring.rescoring_export import build_rescoring_output, write_rescored

    chosen = [name.strip() for name in (fixes or "").split(",") if name.strip()]
    found = rescored(runs, version, chosen, RunNames(names), checkout, processes)
    for line in describe_resolution(found.notes):
        print(escape_to_line(line), file=sys.stderr)
    write_output(build_rescoring_output(found), form)
    if out is not None:
        written = format_count(write_rescored(found.cases, out), "record")
        print(f"Wrote {written} to {escape_to_line(str(out))}", file=sys.stderr)
