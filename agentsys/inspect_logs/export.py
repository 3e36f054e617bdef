"""`export`: folders of runs -> a folder of logs, one for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from inspect_ai.log import write_eval_log

from agentsys.analysis.html_report.facts import config_path
from agentsys.analysis.metrics.rates import MeasuredCell
from agentsys.errors import ConfigError
from agentsys.grouping import group_by
from agentsys.inspect_logs.cell_log import build_cell_log
from agentsys.records.case_row import CaseRow


@dataclass(frozen=True)
class WrittenLogs:
    """What was written."""

    folder: Path
    logs: int
    cases: int
    left_out: int
    """Injection tasks run as user tasks, and conversations of a served agent: in no rate, and in no log."""


def export_logs(cases: Iterable[CaseRow], folder: Path) -> WrittenLogs:
    """Write a log for each cell; one of the same runs that is there already is written anew.

    Args:
        cases: Stored cases, in any order.
        folder: Folder that the logs go to; made if it is not there.

    Raises:
        ConfigError: If the folder cannot be written, or two cases would have one id in a log.
    """
    listed = list(cases)
    shown = [case for case in listed if case.is_scored]
    cells = group_by(shown, lambda case: (*MeasuredCell.of(case), case.suite))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for found in cells.values():
            made = build_cell_log(found, _load_config(found[0]))
            write_eval_log(made.log, str(folder / made.file_name))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}); try another --out.") from None
    return WrittenLogs(folder, len(cells), len(shown), len(listed) - len(shown))


def _load_config(case: CaseRow) -> Mapping[str, Any] | None:
    """The resolved config of a case of ours."""
    path = None if case.config_hash is None else config_path(case.source, case.config_hash)
    try:
        found = None if path is None else orjson.loads(Path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None
