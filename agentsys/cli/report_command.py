"""`agentsys report`: stored runs as one HTML file to read and to hand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.html_report.charts import draw_paper_figures
from agentsys.analysis.html_report.page import HtmlReport, make_html_report
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import ConfigDirOption, PluginPathOption, explain_unwritable, print_line
from agentsys.cli.stored_runs import (
    ErrorsOption,
    MetricOption,
    NamesOption,
    load_own_metrics,
    read_stored_runs,
)
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys.extensions import explain_absent_guests, load_extensions
from agentsys.records.case_reader import LoadedCases, read_cases
from agentsys.records.case_row import shorten_names
from agentsys.records.names_file import RunNames

DEFAULT_REPORT_NAME = "report.html"


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders: ours or published runs."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Where to write it; default: report.html in the first DIR; of foreign runs: here.",
        ),
    ] = None,
    max_cases: Annotated[
        int | None,
        typer.Option(min=0, help="Trajectories in the report, at most; numbers always cover all cases."),
    ] = None,
    figures: Annotated[
        bool, typer.Option(help="Draw the paper's figures with these runs, which takes some seconds.")
    ] = True,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Serve it to browsers of this machine while runs go on; no figures."),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --follow; 0 takes a free one.")] = 0,
    errors: ErrorsOption = ErrorRule.REPORT,
    metric: MetricOption = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
) -> None:
    """Write an HTML report: tables, figures, errors, configs and every trajectory, in one file."""
    own = load_own_metrics(metric, config_dir, plugin_path)
    shown = [str(folder) for folder in folders]
    if follow:
        if out is not None:
            raise ConfigError("--follow serves the report and writes no file. Leave out --out, or --follow.")

        def read() -> ResultFrame:
            cases = read_cases(folders, RunNames(names))
            return ResultFrame(replace(cases, cases=shorten_names(cases.cases)), errors, own=own)

        _follow(read, folders, max_cases, port)
        return
    frame = ResultFrame(read_stored_runs(folders, names), errors, own=own)
    path = out or choose_report_path(folders[0], frame.reading)
    made = make_html_report(
        frame,
        shown,
        max_cases=max_cases,
        figures=draw_paper_figures(frame) if figures else (),
        made_on=_write_time(),
        beside=f"{path.stem}_files",
    )
    size = _write_report(path, made)
    count, left_out = (
        format_count(n, "trajectory", "trajectories") for n in (made.trajectories, made.left_out)
    )
    left = f"; {left_out} left out (see the note in it)" if made.left_out else ""
    data = f", its data in {made.beside}/" if made.files else ""
    print_line(escape_to_line(f"Wrote {path}{data}: {count}, {size:.1f} MB{left}."))


def _write_report(path: Path, made: HtmlReport) -> float:
    if path.is_dir():
        raise ConfigError(f"'{path}' is a folder. Name a file: --out {path / DEFAULT_REPORT_NAME}")
    with explain_unwritable(path, Path(DEFAULT_REPORT_NAME)):
        return made.write(path)


def _write_time() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M}"


def _follow(read: Callable[[], ResultFrame], folders: list[Path], max_cases: int | None, port: int) -> None:
    target = next((room.follow for room in load_extensions() if room.follow), None)
    if target is None:
        raise ConfigError(f"--follow needs the guest 'serve'.{explain_absent_guests()}")

    def make(stamp: str) -> HtmlReport:
        shown, beside = [str(folder) for folder in folders], f"data-{stamp}"
        return make_html_report(
            read(), shown, max_cases=max_cases, made_on=_write_time(), beside=beside, follow=stamp
        )

    module, _, function = target.partition(":")
    getattr(import_module(module), function)(make, folders, port)


def choose_report_path(folder: Path, reading: LoadedCases) -> Path:
    """The report's place: beside runs of ours; nothing is ever written into anyone else's folder."""
    if not any(not case.foreign and Path(case.source).is_relative_to(folder) for case in reading.cases):
        return Path(DEFAULT_REPORT_NAME)
    return (folder if folder.is_dir() else folder.parent) / DEFAULT_REPORT_NAME
