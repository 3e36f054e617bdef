"""`load_runs`: stored cases as a data frame, one tidy row per case.

pandas and Arrow are imported inside the functions: they cost a second that `agentsys results` does
without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsys.errors import ConfigError
from agentsys.records.case_row import COLUMNS, CaseRow
from agentsys.records.listing import FolderId, Listing, Skipped, listed
from agentsys.records.names_file import Names
from agentsys.records.reading import nothing_found, result_rows
from agentsys.records.reading_notes import reading_notes
from agentsys.records.settle import CHANGED, Settled, Told, settle
from agentsys.records.unfinished import logdirs_of, unfinished_in, unfinished_lines

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
        What was read is kept in an index (docs/data.md#index).

    Raises:
        ConfigError: If a path does not exist, none holds a case, or a file of names is not one.
    """
    from agentsys.records.columns import frame_of

    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    roots = [Path(path) for path in several]
    listings = [listed(root) for root in roots]
    unlisted = [skip for listing in listings for skip in listing.unlisted]
    cases, skipped, other = _sorted_out(_table(listings))
    skipped = [*unlisted, *skipped]
    if not len(cases):
        raise ConfigError(nothing_found(roots, skipped, other))
    frame, settled = _settled(frame_of(cases), Names(names))
    frame.attrs[COUNTS] = {
        "seen": len(cases) + len(skipped) + other,
        "cases": len(frame),
        "skipped": len(skipped),
        "repeated": len(settled.repeated),
        "other": other,
    }
    own = logdirs_of(frame.loc[~frame["foreign"].astype(bool), "source"])
    for line in unfinished_lines(unfinished_in(roots, own, listings)):
        _log.warning("%s", line)
    for line in reading_notes(skipped, settled, frame):
        _log.warning("%s", line)
    return frame


def case_rows(cases: pd.DataFrame) -> list[CaseRow]:
    """The rows of a (perhaps filtered) frame of `load_runs`, for functions that do without pandas."""
    import pandas as pd

    def plain(record: Mapping[Hashable, Any]) -> dict[str, Any]:
        return {str(name): None if pd.isna(value) else value for name, value in record.items()}

    chosen = cases[list(COLUMNS)]
    return [CaseRow(**plain(record)) for record in chosen.to_dict(orient="records")]


def _table(listings: Sequence[Listing]) -> pa.Table:
    """A line per file, those of a folder that stands in several listings only once."""
    import pyarrow as pa

    met: set[FolderId] = set()
    tables = []
    for listing in listings:
        table = _lines(listing)
        if met & listing.folders.keys():
            kept = [folder not in met for folder, files in listing.folders.items() for _ in files]
            table = table.filter(pa.array(kept, pa.bool_()))
        met |= listing.folders.keys()
        tables.append(table)
    return pa.concat_tables([*tables, _result_lines(listings)])


def _result_lines(listings: Sequence[Listing]) -> pa.Table:
    """A line per row of ASB's results files: read every time, as they are in no index."""
    import pyarrow as pa

    from agentsys.records.index import lines_of, stamps_of

    rows = list(result_rows(listings))
    stamps = stamps_of([row.place for row in rows], "")
    lines = lines_of([row.case for row in rows], [row.fault for row in rows], stamps)
    return lines.append_column("source", pa.array([_shown(row.place) for row in rows], pa.string()))


def _lines(listing: Listing) -> pa.Table:
    """A listing's lines from the index of its folder, with the paths as they are now."""
    import pyarrow as pa

    from agentsys.records.index import looked_up, parsed, stamps_of

    if Path(listing.root).is_file():
        lines = parsed(listing.files, stamps_of(listing.files, listing.root))
    else:
        lines = looked_up(listing).sorted()
    return lines.append_column("source", pa.array([_shown(path) for path in listing.files], pa.string()))


def _shown(path: str) -> str:
    """A name that is no valid UTF-8 can be read but not shown as it is."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _sorted_out(lines: pa.Table) -> tuple[pa.Table, list[Skipped], int]:
    """The lines of cases, the skipped files, and how many others there are."""
    import pyarrow.compute as pc

    from agentsys.records.index import CASE, SKIPPED

    kind = lines.column("kind")
    found = pc.equal(kind, CASE)
    cases = lines if pc.all(found).as_py() else lines.filter(found)
    bad = lines.filter(pc.equal(kind, SKIPPED)).select(["source", "reason"]).to_pylist()
    skipped = [Skipped(line["source"], line["reason"]) for line in bad]
    return cases, skipped, len(lines) - len(cases) - len(skipped)


def _settled(cases: pd.DataFrame, names: Names) -> tuple[pd.DataFrame, Settled]:
    """The lines that count, under the names that folders and tasks give them."""
    found = settle([*_told(cases)], names)
    columns = {name: _column(cases, found, name) for name in CHANGED}
    frame = cases.assign(**columns).iloc[found.counted].reset_index(drop=True)
    return frame, found


def _told(cases: pd.DataFrame) -> Iterator[Told]:
    columns = [_plain(cases[name]) for name in Told._fields]
    return map(Told._make, zip(*columns, strict=True))


def _plain(column: pd.Series[Any]) -> list[Any]:
    """Values with None for every missing one."""
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]


def _column(cases: pd.DataFrame, found: Settled, name: str) -> pd.Series[Any]:
    import pandas as pd

    values = [getattr(told, name) for told in found.told]
    return pd.Series(values, index=cases.index, dtype=cases[name].dtype)
