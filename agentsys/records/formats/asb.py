"""ASB's own results (a CSV file with a row per case, a `.log` beside it) -> `CaseRow`s.

Scores are ASB's, by text: a sentence of a tool's output stands in the messages at the end. What the
messages show of executed tools, payloads and failed requests stands in `measured`, under the same keys as
in runs of our own.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.records.formats.asb_transcript import AsbTranscript, load_planned_tools, parse_transcript
from agentsys.records.unreadable import UnreadableRecord

ASB_OFFICIAL = "asb-official"
"""Label of runs that ASB's own code made: its loop and its criterion, not ours."""

REQUIRED_COLUMNS = frozenset(
    {"Agent Name", "Attack Tool", "Attack Successful", "Original Task Successful", "Aggressive", "messages"}
)
"""Columns by which such a file is told from other CSV files."""

_LONGEST_FIELD = 4_000_000
_ENCODING = "utf-8-sig"
"""With or without the mark that spreadsheets put before a file they have saved."""
_INDIRECT = "observation_prompt_injection"
_NO_DEFENSE_NAMED = frozenset({"no_memory", "memory"})
"""Folders in the defense's place that name none; defended runs are stored there too."""


class AsbResultRow(NamedTuple):
    """One row of a results file."""

    location: str
    """The file's path and the row's number, from 1."""
    case: CaseRow | None
    fault: str | None
    """Why there is no case."""


def is_asb_result(path: str) -> bool:
    """Whether a CSV file has the columns of ASB's results. False if it cannot be read."""
    try:
        with open(path, encoding=_ENCODING, errors="replace", newline="") as file:  # noqa: PTH123
            header = file.readline(4096)
    except OSError:
        return False
    return REQUIRED_COLUMNS.issubset(next(csv.reader([header]), ()))


def read_asb_rows(path: str) -> Iterator[AsbResultRow]:
    """Every row of a results file; a bad row does not stop the others."""
    run, number = _AsbRun.from_path(Path(path)), 0
    try:
        with _long_fields(), open(path, encoding=_ENCODING, errors="replace", newline="") as file:  # noqa: PTH123
            for number, values in enumerate(csv.DictReader(file), start=1):
                yield _parse_row(run, values, f"{path}#{number}")
    except OSError as error:
        yield AsbResultRow(path, None, f"cannot be read ({error.strerror})")
    except csv.Error as error:
        yield AsbResultRow(f"{path}#{number + 1}", None, f"no CSV from here on ({error})")


def _parse_row(run: _AsbRun, values: Mapping[str, Any], place: str) -> AsbResultRow:
    try:
        return AsbResultRow(place, _build_case(run, values, place), None)
    except UnreadableRecord as fault:
        return AsbResultRow(place, None, str(fault))


@contextmanager
def _long_fields() -> Iterator[None]:
    """A transcript is longer than Python's own limit (131,072 characters), which is one for all readers."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass
class _AsbRun:
    """Facts of one results file: what its place says of all its rows, and the cases met so far."""

    model: str
    defense: str
    method: str
    attack_type: str
    planned_tools: frozenset[str] | None
    known_tasks: dict[str, list[str]] = field(default_factory=dict)
    """Suite -> its tasks, in the order in which they were met."""
    repetitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(suite, user task) -> benign cases met."""

    @classmethod
    def from_path(cls, path: Path) -> _AsbRun:
        """From the path that ASB writes: `<method>/<model>/<defense>/<attack type>-<subset>_<suffix>.csv`."""
        method, model, defense = ("", "", "", *path.absolute().parts[:-1])[-3:]
        attack_type, found, _ = path.stem.rpartition("-")
        if not found or method not in _METHODS:
            model, defense, method = UNRECORDED, UNRECORDED, ""
        named = UNRECORDED if defense in _NO_DEFENSE_NAMED else defense
        return cls(model, named, method, attack_type.removesuffix("-non"), load_planned_tools(path))

    @property
    def attack_label(self) -> str:
        """The attack's label; observation injection as in runs of our own, e.g. `opi_naive`."""
        kind = "opi" if self.method == _INDIRECT else self.method
        return "_".join(part for part in (kind, self.attack_type) if part) or UNRECORDED

    def number_user_task(self, suite: str, task: str) -> str:
        """Results name no task, only its text."""
        tasks = self.known_tasks.setdefault(suite, [])
        if task not in tasks:
            tasks.append(task)
        return f"user_task_{tasks.index(task)}"

    def next_repetition(self, suite: str, user_task: str) -> int:
        """Benign cases repeat a task once per attack tool: which repetition this is, from 0."""
        self.repetitions[suite, user_task] += 1
        return self.repetitions[suite, user_task] - 1


_METHODS = frozenset(
    {
        "clean",
        _INDIRECT,
        "direct_prompt_injection",
        "memory_attack",
        "pot_backdoor",
        "pot_clean",
        "mixed_attack",
    }
)
"""Folders that stand for the kind of attack."""


def _build_case(run: _AsbRun, values: Mapping[str, Any], place: str) -> CaseRow:
    found = parse_transcript(_text_cell(values, "messages"))
    tool, suite = _text_cell(values, "Attack Tool"), _text_cell(values, "Agent Name").rpartition("/")[2]
    benign = run.method == "clean" or (bool(found.offered_tools) and tool not in found.offered_tools)
    utility, success = _flag_cell(values, "Original Task Successful"), _flag_cell(values, "Attack Successful")
    user_task = run.number_user_task(suite, found.task)
    facts = _collect_facts(values, found, utility) | (
        {} if benign else _attack_facts(values, found, tool, success, run.planned_tools)
    )
    shown = None if benign else found.payloads > 0
    return CaseRow(
        benchmark=ASB_OFFICIAL,
        version=UNRECORDED,
        model=run.model,
        defense=run.defense,
        attack=NO_ATTACK if benign else run.attack_label,
        suite=suite,
        user_task_id=user_task,
        injection_task_id=None if benign else tool,
        epoch=run.next_repetition(suite, user_task) if benign else 0,
        utility=utility,
        injection_success=None if benign else success,
        status="error" if found.has_failed_request else "ok",
        error_kind="request_rejected" if found.has_failed_request else None,
        simulated=False,
        # A defense may have cut a payload before the messages were written down.
        exposed_raw=True if shown else None,
        exposed_shown=shown,
        raw_round=None,
        shown_round=None,
        duration_s=None,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        source=place,
        foreign=True,
        trajectory_length=sum(map(len, found.rounds)),
        calls=dict(sorted(Counter(tool for called in found.rounds for tool in called).items())),
        measured=facts,
    )


def _collect_facts(values: Mapping[str, Any], found: AsbTranscript, utility: bool) -> dict[str, Any]:
    normal = [name for name in found.offered_tools if name != values["Attack Tool"]]
    return {
        "mode": "official",
        "utility_execution": all(found.count_runs(name) for name in normal) if normal else None,
        "utility_text": utility,
        "normal_tools_called": sum(found.count_runs(name) > 0 for name in normal),
        "steps": found.steps,
        "workflow_failure": not found.steps,
        "refused": _flag_cell(values, "Refuse Result") if values.get("Refuse Result") in ("0", "1") else None,
    }


def _attack_facts(
    values: Mapping[str, Any], found: AsbTranscript, tool: str, success: bool, planned: frozenset[str] | None
) -> dict[str, Any]:
    # Every step of a published run lists the attack tool: without the log a success may be due to that or to
    # the planner, and what the injection did cannot be told from it.
    chose = None if planned is None else tool in planned
    return {
        "attack_tool": tool,
        "aggressive": _flag_cell(values, "Aggressive"),
        "planner_chose_attack_tool": chose,
        "payloads_delivered": found.payloads,
        "attack_tool_calls": found.count_runs(tool),
        "injection_success_execution": found.count_runs(tool) > 0,
        "injection_success_text": success,
        "planner_chosen": success and chose,
        "patched_plan": success and (None if chose is None else not chose),
        "injection_caused": False,
    }


def _text_cell(values: Mapping[str, Any], column: str) -> str:
    value = values.get(column)
    if not isinstance(value, str) or not value:
        raise UnreadableRecord(f"no `{column}`")
    return value


def _flag_cell(values: Mapping[str, Any], column: str) -> bool:
    value = values.get(column)
    if value not in ("0", "1"):
        raise UnreadableRecord(f"`{column}` is {str(value)[:40]!r}, not 0 or 1")
    return bool(value == "1")
