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
    from agentsys.audit.audit_report import build_audit_output
    from agentsys.records.names_file import RunNames

    if any(text.startswith(_CACHES_OVERRIDE) for text in overrides or []):
        write_output(
            _compare_cached_texts(overrides or [], config_dir or [], plugin_path or [], names), form, out
        )
        return
    said = RunNames(names)
    request = parse_audit_request(overrides or [], config_dir or [], plugin_path or [])
    # Before the work is done: a file that is not there must not show after a minute.
    compared = _load_expectation(request, expected) if strict or expected is not None else None
    found = _run_audit(request, said, checks=compared is not None or write_expected is not None)
    write_output(build_audit_output(found, every_task=every_task), form, out)
    if write_expected is not None:
        _write_expected(found, write_expected)
    if compared is not None:
        _report_changes(found, compared)


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
    made = build()  # here, so that a slip shows before anything is worked out
    if runs and made.name.partition("+")[0] != "agentdojo":
        raise ConfigError(f"runs= audits stored runs of agentdojo, not of {made.name}; leave it out.")
    return AuditRequest(build, made.name, made.version, runs)


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


def _load_expectation(request: AuditRequest, path: Path | None) -> Mapping[str, Any]:
    from agentsys.audit.static.static_rows import load_shipped_expectation, read_expectation

    if path is not None:
        return read_expectation(path)
    return load_shipped_expectation(request.benchmark, request.version)


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
        from agentsys.records.case_reader import describe_resolution

        traces = audit_traces(request.runs, request.version, names)
    for line in describe_resolution(traces.notes):
        print(escape_to_line(line), file=sys.stderr)
    return AuditReport(static, traces)


def _write_expected(found: AuditReport, path: Path) -> None:
    from agentsys.audit.static.static_rows import build_expectation, format_expectation

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_expectation(build_expectation(found.static)), encoding="utf-8")


def _report_changes(found: AuditReport, expected: Mapping[str, Any]) -> None:
    from agentsys.audit.static.static_rows import build_expectation, list_expectation_changes

    moved = list_expectation_changes(expected, build_expectation(found.static))
    for line in moved:
        print(escape_to_line(line), file=sys.stderr)
    if moved:
        if (package := expected.get("package")) != found.static.package:
            print(
                escape_to_line(f"Expected of {package}; installed is {found.static.package}."),
                file=sys.stderr,
            )
        print(f"Findings that are not as expected: {len(moved)}.", file=sys.stderr)
        raise typer.Exit(1)
    print("All findings are as expected.", file=sys.stderr)


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
