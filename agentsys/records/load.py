"""`load_runs`: stored cases as a data frame, one tidy row per case.

pandas is imported inside the functions: it costs a second that `agentsys results` does without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsys.errors import ConfigError
from agentsys.records.case_row import COLUMNS, CaseRow
from agentsys.records.columns import build_frame
from agentsys.records.listing import list_files
from agentsys.records.names_file import RunNames
from agentsys.records.reading import read_all_files, explain_no_cases
from agentsys.records.reading_notes import describe_files
from agentsys.records.settle import RESOLVED_COLUMNS, ResolvedRuns, resolve_runs
from agentsys.records.unfinished import find_logdirs, find_unfinished, describe_unfinished

if TYPE_CHECKING:
    import pandas as pd

COUNTS_KEY = "agentsys_counts"
"""Key in the frame's `attrs`: how many files were seen and what became of them."""

_log = logging.getLogger(__name__)


def load_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    names: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Every stored case under some paths, one row each: ours, AgentDojo's published ones, DRIFT's and ASB's.

    Args:
        paths: A log, pipeline or suite folder or a single file, or several.
        names: A file that says whose runs other people's folders are (docs/data.md#whose-run-it-is).

    Returns:
        Columns as explained in docs/data.md, in that order. Injection tasks run as user tasks are
        included; no metric counts them. Files that could not be used, cases stored twice and
        mixtures of benchmark versions are logged as warnings, a line each. `attrs["agentsys_counts"]`
        says what became of the files: `cases`, `skipped`, `repeated` and `other` add up to `seen`.
        Of a folder of 1,000 files and more an index is kept (docs/data.md#index).

    Raises:
        ConfigError: If a path does not exist, none holds a case, or a file of names is not one.
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    roots = [Path(path) for path in several]
    listings = [list_files(root) for root in roots]
    read = read_all_files(listings)
    if not read.rows:
        raise ConfigError(explain_no_cases(roots, read.skipped_files, read.other_count))
    rows = [row if row.source.isascii() else _escape_source(row) for row in read.rows]
    settled = resolve_runs(rows, RunNames(names))
    frame = _apply_resolution(build_frame(rows), settled)
    frame.attrs[COUNTS_KEY] = {
        "seen": read.seen_count,
        "cases": len(frame),
        "skipped": len(read.skipped_files),
        "repeated": len(settled.repeated_files),
        "other": read.other_count,
    }
    own = find_logdirs(frame.loc[~frame["foreign"].astype(bool), "source"])
    for line in describe_unfinished(find_unfinished(roots, own, listings)):
        _log.warning("%s", line)
    for line in describe_files(read.skipped_files, settled, frame):
        _log.warning("%s", line)
    return frame


def case_rows(cases: pd.DataFrame) -> list[CaseRow]:
    """The rows of a (perhaps filtered) frame of `load_runs`, for functions that do without pandas."""
    import pandas as pd

    def plain(record: Mapping[Hashable, Any]) -> dict[str, Any]:
        return {str(name): None if pd.isna(value) else value for name, value in record.items()}

    chosen = cases[list(COLUMNS)]
    return [CaseRow(**plain(record)) for record in chosen.to_dict(orient="records")]


def _apply_resolution(cases: pd.DataFrame, settled: ResolvedRuns) -> pd.DataFrame:
    """The lines that count, under the names that folders and tasks give them."""
    import pandas as pd

    def column(name: str) -> pd.Series[Any]:
        return pd.Series([getattr(told, name) for told in settled.cases], dtype=cases[name].dtype)

    return (
        cases.assign(**{name: column(name) for name in RESOLVED_COLUMNS}).iloc[settled.counted_indices].reset_index(drop=True)
    )


def _escape_source(row: CaseRow) -> CaseRow:
    """A name that is no valid UTF-8 can be read but not shown as it is."""
    return replace(row, source=os.fsencode(row.source).decode("utf-8", "backslashreplace"))
