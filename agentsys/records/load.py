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
from agentsys.records.columns import frame_of
from agentsys.records.listing import listed
from agentsys.records.names_file import Names
from agentsys.records.reading import all_read, nothing_found
from agentsys.records.reading_notes import reading_notes
from agentsys.records.settle import CHANGED, Settled, settle
from agentsys.records.unfinished import logdirs_of, unfinished_in, unfinished_lines

if TYPE_CHECKING:
    import pandas as pd

COUNTS = "agentsys_counts"
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
    listings = [listed(root) for root in roots]
    read = all_read(listings)
    if not read.rows:
        raise ConfigError(nothing_found(roots, read.skipped, read.other))
    rows = [row if row.source.isascii() else _showable(row) for row in read.rows]
    settled = settle(rows, Names(names))
    frame = _under_their_names(frame_of(rows), settled)
    frame.attrs[COUNTS] = {
        "seen": read.seen,
        "cases": len(frame),
        "skipped": len(read.skipped),
        "repeated": len(settled.repeated),
        "other": read.other,
    }
    own = logdirs_of(frame.loc[~frame["foreign"].astype(bool), "source"])
    for line in unfinished_lines(unfinished_in(roots, own, listings)):
        _log.warning("%s", line)
    for line in reading_notes(read.skipped, settled, frame):
        _log.warning("%s", line)
    return frame


def case_rows(cases: pd.DataFrame) -> list[CaseRow]:
    """The rows of a (perhaps filtered) frame of `load_runs`, for functions that do without pandas."""
    import pandas as pd

    def plain(record: Mapping[Hashable, Any]) -> dict[str, Any]:
        return {str(name): None if pd.isna(value) else value for name, value in record.items()}

    chosen = cases[list(COLUMNS)]
    return [CaseRow(**plain(record)) for record in chosen.to_dict(orient="records")]


def _under_their_names(cases: pd.DataFrame, settled: Settled) -> pd.DataFrame:
    """The lines that count, under the names that folders and tasks give them."""
    import pandas as pd

    def column(name: str) -> pd.Series[Any]:
        return pd.Series([getattr(told, name) for told in settled.told], dtype=cases[name].dtype)

    return (
        cases.assign(**{name: column(name) for name in CHANGED}).iloc[settled.counted].reset_index(drop=True)
    )


def _showable(row: CaseRow) -> CaseRow:
    """A name that is no valid UTF-8 can be read but not shown as it is."""
    return replace(row, source=os.fsencode(row.source).decode("utf-8", "backslashreplace"))
