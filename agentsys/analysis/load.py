"""`load_cases`: stored cases as a data frame, for notebooks.

pandas is imported inside the functions: it costs half a second that `agentsys results` does without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentsys.analysis.case_row import COLUMNS, CaseRow
from agentsys.analysis.reading import read_cases, skipped_lines

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE = {
    "injection_success": "boolean",
    "exposed_raw": "boolean",
    "exposed_shown": "boolean",
    "raw_round": "Int64",
    "shown_round": "Int64",
    "prompt_tokens": "Int64",
    "completion_tokens": "Int64",
    "duration_s": "float64",
    "cost_usd": "float64",
}
"""Columns that may lack a value, with a type that keeps the others exact."""

_log = logging.getLogger(__name__)


def load_cases(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> pd.DataFrame:
    """Every stored case under some folders, one row each.

    Args:
        paths: A log, pipeline or suite folder, or several: ours or AgentDojo's published ones.

    Returns:
        Columns as documented on `CaseRow`. Files that could not be used are logged as warnings.
        Injection tasks run as user tasks are included; no metric counts them.

    Raises:
        ConfigError: If a folder does not exist or holds no case.
    """
    import pandas as pd

    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    reading = read_cases(several)
    for line in skipped_lines(reading.skipped):
        _log.warning("%s", line)
    frame = pd.DataFrame([asdict(case) for case in reading.cases], columns=list(COLUMNS))
    return frame.astype(_NULLABLE)


def case_rows(cases: pd.DataFrame) -> list[CaseRow]:
    """The rows of a (perhaps filtered) frame of `load_cases`, for functions that do without pandas."""
    import pandas as pd

    def plain(record: Mapping[Hashable, Any]) -> dict[str, Any]:
        return {str(name): None if pd.isna(value) else value for name, value in record.items()}

    chosen = cases[list(COLUMNS)]
    return [CaseRow(**plain(record)) for record in chosen.to_dict(orient="records")]
