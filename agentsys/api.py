"""The public functions and what they return: what `import agentsys` offers.

Each function does what the command of its name does, on the same code, and returns objects instead of
text. Imports stand inside the functions: `import agentsys` alone costs next to nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentsys.errors import ConfigError, find_enum_member, require_known_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from agentsys.analysis.figures.drawing import DrawnFigure
    from agentsys.analysis.metrics.compared_sides import ComparedSides
    from agentsys.analysis.metrics.own_metric import Metric
    from agentsys.analysis.statistics.outcome_grid import ErrorRule
    from agentsys.analysis.tables.table_document import Document, LongForm
    from agentsys.records.case_reader import LoadedCases
    from agentsys.records.case_row import CaseRow
    from agentsys.records.schema import CaseRecord
    from agentsys.runs.cell import CellLabels
    from agentsys.runs.run_totals import Listener

    Source = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | pd.DataFrame
    """Stored runs: folders or files, or a (perhaps filtered) frame of `load_runs`."""


@dataclass(frozen=True)
class Run:
    """Result of `run`."""

    folders: tuple[Path, ...]
    """The pipeline folders that hold its records; `results`, `compare` and `load_runs` take them."""
    planned: int
    """Cases in the plan."""
    finished: int
    """Cases that were run now; the others had been before, or belong to another process."""
    errors: int
    """Cases that ended in an error now: they are in no rate, and the next run tries them again."""
    ended: str | None
    """Why the run ended early; None: it did not."""

    def cases(self) -> pd.DataFrame:
        """The records as a frame, one row per case (see `load_runs`)."""
        return load_runs(folder for folder in self.folders if folder.is_dir())


@dataclass(frozen=True)
class ResultTables:
    """Numbers, as a frame for programs and as a document for people.

    A notebook shows the document; `print` gives it as text.
    """

    frame: pd.DataFrame
    """The long form: a row per number."""
    document: Document
    """Tables with notes."""

    def __str__(self) -> str:
        from agentsys.analysis.tables.write_terminal import write_terminal_text

        return write_terminal_text(self.document, width=100)

    def _repr_html_(self) -> str:
        from agentsys.analysis.tables.table_document import render_html_fragment

        return render_html_fragment(self.document)

    def markdown(self) -> str:
        """The document as GitHub-flavoured Markdown."""
        from agentsys.analysis.tables.table_document import write_markdown_document

        return write_markdown_document(self.document)

    def latex(self) -> str:
        """The document as LaTeX, for the package booktabs."""
        from agentsys.analysis.tables.table_document import write_latex_document

        return write_latex_document(self.document)


@dataclass(frozen=True)
class ComparedDefenses(ResultTables):
    """A comparison of defenses, models, attacks or runs: differences, and the cases that made them."""

    flips: pd.DataFrame
    """A row per case that two sides decided differently.

    Columns: `metric`, `benchmark`, `version`, `model`, `defense` and `attack` (of the compared side),
    `baseline` and `compared` (the sides' names), `gained` (True: the outcome occurred on the compared side
    alone), `suite`, `user_task_id`, `injection_task_id`, `epoch`, the ids `baseline_case` and
    `compared_case` that links to reports take, and the files `baseline_file` and `file`.
    """


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers in it. A notebook shows the figure."""

    figure: Figure
    """Matplotlib's figure."""
    frame: pd.DataFrame
    """A row per plotted number."""
    figure_output: DrawnFigure
    """What `save` writes."""

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        file = BytesIO()
        self.figure.savefig(file, format="png", dpi=110)
        return file.getvalue()

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write PDF, PNG and the plotted numbers (CSV) into a folder, which is made if it is not there."""
        from agentsys.analysis.figures.drawing import save_figure

        return save_figure(self.figure_output, Path(folder))


def load_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    names: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Load the stored cases under some paths, one row each: ours, AgentDojo's published ones, DRIFT's and ASB's.

    Args:
        paths: A log, pipeline or suite folder or a single file, or several; or what `agentsys export parquet` wrote.
        names: A file that says whose runs other people's folders are (docs/data.md#whose-run-it-is).

    Returns:
        The columns of `agentsys.records.case_reader.load_runs`, then `verdict` and `reasons` of the cell that the
        case belongs to (docs/data.md#verdicts); both are None for a case that no metric counts.

    Raises:
        ConfigError: If a path does not exist, none holds a case, or a file of names is not one.
    """
    from agentsys.analysis.metrics.rates import MeasuredCell, ScoredCells
    from agentsys.records import case_reader

    def judge(rows: Sequence[CaseRow]) -> dict[str, list[str | None]]:
        verdicts = ScoredCells(rows).verdicts
        found = [verdicts[MeasuredCell.of(row)] if row.is_scored else (None, None) for row in rows]
        return {"verdict": [one[0] for one in found], "reasons": [one[1] for one in found]}

    return case_reader.load_runs(paths, names, judge)


def run(
    overrides: str | Sequence[str],
    *,
    config_dirs: Sequence[str | os.PathLike[str]] = (),
    plugin_paths: Sequence[str | os.PathLike[str]] = (),
    again: bool = False,
    skip_unavailable: bool = False,
    progress: bool = False,
) -> Run:
    """Run every case that is not finished yet, as `agentsys run` does, with the same records.

    Args:
        overrides: Hydra overrides as typed on the command line, as one text or as a list:
            `"model=simulated defense=none,agentsys limit_per_suite=3"`.
        config_dirs: Config folders of your own (defense/, attack/, model/, ...).
        plugin_paths: Folders that your own modules are imported from.
        again: Whether finished cases are run anew; their old records are kept aside.
        skip_unavailable: Whether cells that cannot run here are left out; else they are refused.
        progress: Whether a line is printed for every tenth of the cases.

    Raises:
        ConfigError: For anything that can be mended: an unknown name, a missing key, an unpriced budget.
        StoreError: If the log folder cannot be written.
    """
    import io
    import shlex
    from contextlib import redirect_stdout

    from agentsys.runs.run_session import prepare_session

    planned = prepare_session(
        shlex.split(overrides) if isinstance(overrides, str) else list(overrides),
        config_dirs=[Path(path) for path in config_dirs],
        plugin_paths=[Path(path) for path in plugin_paths],
        again=again,
        skip_unavailable=skip_unavailable,
    )
    session = planned.preflight(skip_unavailable=skip_unavailable)
    listener = _make_progress_listener(len(session.plan.open_jobs), progress)
    with redirect_stdout(io.StringIO()):  # some of AgentDojo's checks print
        outcome = session.execute(listener)
    ended = outcome.fatal or outcome.budget or ("interrupted" if outcome.interrupted else None)
    given_up = "; ".join(cell.why for cell in outcome.ended_cells)
    return Run(
        tuple(session.folders),
        len(session.plan.jobs),
        outcome.finished,
        outcome.errors,
        ended or given_up or None,
    )


def results(source: Source, *, metrics: Sequence[Metric] = (), errors: str = "report") -> ResultTables:
    """Benign utility, utility under attack, targeted ASR and defense quality, with 95% intervals.

    Args:
        source: Folders of stored runs, ours or published ones, or a frame of `load_runs`.
        metrics: Further metrics, of your own (`agentsys.plugins.Metric`).
        errors: What errored cases count as: `report` (left out and counted) or `agentdojo`.

    Returns:
        The tables of `agentsys results`; `frame` has a row per cell, suite and metric.

    Raises:
        ConfigError: If a path does not exist or none holds a case.
    """
    from agentsys.analysis.tables.result_frame import ResultFrame
    from agentsys.analysis.tables.results_document import make_results_output

    output = make_results_output(ResultFrame(_read_source(source), _find_error_rule(errors), own=metrics))
    return ResultTables(_to_frame(output.records), output.document)


def _to_frame(records: LongForm) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(records.rows, columns=list(records.columns))


def compare(
    source: Source | Mapping[str, Source],
    *,
    by: str | None = None,
    baseline: str | None = None,
    metrics: Sequence[str | Metric] | None = None,
    errors: str = "report",
) -> ComparedDefenses:
    """Compare defenses, models, attacks or whole runs with one of them, on the cases that both have.

    Args:
        source: Folders of stored runs, or a frame of `load_runs`. Two folders that hold the same cases are
            compared with each other, never merged. A mapping, name to folders or frame, is compared by run,
            under these names: `{"before": "runs/a", "after": "runs/b"}`.
        by: `defense`, `model`, `attack` or `run`; None: what the folders differ in, or what varies.
        baseline: The one to compare with; None: `none`, or the first if there is no such one.
        metrics: Some of `benign_utility`, `utility_under_attack`, `targeted_asr`; or metrics of your own;
            None: these three.
        errors: What errored cases count as: `report` or `agentdojo`.

    Returns:
        The tables of `agentsys compare`; `frame` has a row per difference, with interval and p-values, and
        `flips` a row per case that was decided differently.

    Raises:
        ConfigError: If a path does not exist, none holds a case, or there is no such side or metric.
    """
    import pandas as pd

    from agentsys.analysis.metrics.comparison import COMPARED_METRICS, compare_sides
    from agentsys.analysis.tables.comparison_document import FLIP_COLUMNS, compare_output, make_flip_record

    asked = COMPARED_METRICS if metrics is None else metrics
    found = compare_sides(
        _find_contenders(source, by, baseline),
        baseline,
        [metric for metric in asked if isinstance(metric, str)],
        _find_error_rule(errors),
        own=[metric for metric in asked if not isinstance(metric, str)],
    )
    flips = pd.DataFrame([make_flip_record(flip) for flip in found.flips], columns=list(FLIP_COLUMNS))
    output = compare_output(found, 0)
    return ComparedDefenses(_to_frame(output.records), output.document, flips)


def _find_contenders(
    source: Source | Mapping[str, Source], by: str | None, baseline: str | None
) -> ComparedSides:
    import pandas as pd

    from agentsys.analysis.metrics.compared_sides import (
        Axis,
        choose_sides,
        find_varying_axis,
        make_sides_of_runs,
        split_sides,
    )

    axis = None if by is None else find_enum_member("axis", by, Axis)
    if isinstance(source, pd.DataFrame):
        cases = _read_source(source).cases
        return split_sides(cases, axis or find_varying_axis(cases))
    if isinstance(source, Mapping):
        if axis not in (None, Axis.RUN):
            raise ConfigError(f"Named runs are compared by run, not by {axis}: leave out `by`, or the names.")
        return make_sides_of_runs({name: _read_source(one).cases for name, one in source.items()})
    several = [source] if isinstance(source, str | os.PathLike) else list(source)
    return choose_sides([Path(path) for path in several], axis, baseline, _read_source).sides


def table(number: int, source: Source, *, errors: str = "report", mine: bool = False) -> ResultTables:
    """A table of the AgentSys paper: our numbers beside the printed ones.

    Args:
        number: 1 to 7, as in the paper.
        source: Folders of stored runs, or a frame of `load_runs`.
        errors: What errored cases count as: `report` or `agentdojo`.
        mine: Whether only rows that ran are in it.

    Returns:
        The table of `agentsys table`; `frame` has a row per number, ours and printed.

    Raises:
        ConfigError: If there is no such table, a path does not exist or none holds a case.
    """
    from agentsys.analysis.paper.paper_document import make_paper_document, make_paper_output
    from agentsys.analysis.paper.paper_tables import TABLES, fill_table

    require_known_name("table", str(number), [str(known) for known in TABLES])
    reading, rule = _read_source(source), _find_error_rule(errors)
    filled = fill_table(TABLES[number], reading.cases, rule, mine=mine)
    output = make_paper_output(filled, make_paper_document(filled, reading, rule))
    return ResultTables(_to_frame(output.records), output.document)


def figure(
    name: str | int,
    source: Source,
    *,
    model: str | None = None,
    defenses: Sequence[str] = (),
    errors: str = "report",
) -> Drawing:
    """A figure of the AgentSys paper, or one of our own, with our numbers filled and printed ones hollow.

    Args:
        name: `2`, `3`, `4`, `table1` or `tokens`.
        source: Folders of stored runs, or a frame of `load_runs`.
        model: Whose runs to show; None: the paper's model, else the one with the most cases.
        defenses: Which defenses to show; none named: all of the runs.
        errors: What errored cases count as: `report` or `agentdojo`.

    Raises:
        ConfigError: If there is no such figure, or the runs do not have the model or a defense asked for.
    """
    from agentsys.analysis.figures.figure_catalog import FIGURES, make_figure
    from agentsys.analysis.figures.figure_data import Mark
    from agentsys.analysis.tables.table_document import make_long_form

    kind = FIGURES[require_known_name("figure", str(name), FIGURES)]
    cases, rule = _read_source(source).cases, _find_error_rule(errors)
    drawn = make_figure(kind, cases, rule, model=model, defenses=defenses)
    return Drawing(drawn.figure, _to_frame(make_long_form(Mark, drawn.marks)), drawn)


def report(
    folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> Path:
    """Write the HTML report of some runs: numbers, figures and trajectories in one file.

    Args:
        folders: Folders of stored runs.
        out: The file to write.

    Raises:
        ConfigError: If a path does not exist or none holds a case.
    """
    from datetime import datetime

    from agentsys.analysis.html_report.charts import draw_paper_figures
    from agentsys.analysis.html_report.page import make_html_report
    from agentsys.analysis.tables.result_frame import ResultFrame

    several = [str(path) for path in ([folders] if isinstance(folders, str | os.PathLike) else folders)]
    frame = ResultFrame(_read_source(several))
    page = make_html_report(
        frame,
        several,
        figures=draw_paper_figures(frame),
        made_on=f"{datetime.now():%Y-%m-%d %H:%M}",
        beside=f"{Path(out).stem}_files",
    )
    page.write(Path(out))
    return Path(out)


def _find_error_rule(name: str) -> ErrorRule:
    from agentsys.analysis.statistics.outcome_grid import ErrorRule

    return find_enum_member("rule for errors", name, ErrorRule)


def _read_source(source: Source) -> LoadedCases:
    import pandas as pd

    from agentsys.records.case_reader import LoadedCases, list_case_rows, read_cases

    if isinstance(source, pd.DataFrame):
        return LoadedCases(tuple(list_case_rows(source)))
    several = [source] if isinstance(source, str | os.PathLike) else list(source)
    return read_cases([Path(path) for path in several])


def _make_progress_listener(planned: int, wanted: bool) -> Listener:
    """A listener that prints a line for every tenth of a run, or nothing."""
    from agentsys.runs.run_totals import Listener

    class Lines(Listener):
        done = 0

        def on_case_stored(self, record: CaseRecord) -> None:
            self.count()

        def on_case_stored_elsewhere(self, labels: CellLabels) -> None:
            self.count()

        def count(self) -> None:
            self.done += 1
            if wanted and (self.done % max(1, planned // 10) == 0 or self.done == planned):
                sys.stderr.write(f"{self.done}/{planned} cases\n")

    return Lines()
