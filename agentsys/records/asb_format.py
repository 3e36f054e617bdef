"""Reads ASB's own results (a CSV file with a row per case, a `.log` beside it) into `CaseRow`s.

Scores are ASB's, by text: a sentence of a tool's output stands in the messages at the end. What the
messages show of executed tools, payloads and failed requests stands in `measured`, under the same keys as
in runs of our own. The columns `messages` and the log hold Python literals that ASB wrote with `repr`, with
whatever models and attackers wrote in them, so they are read as literals of bounded size and nothing else.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.base.python_parser import literal_eval
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow

MOST_CHARS = 2_000_000
"""Longest text that is parsed; recorded ones have some 4,000 characters."""

_ACTION, _OBSERVATION = "[Action]:", "[Observation]:"
_CALLED = re.compile(r"I will call the (\S+) with the params as ")
_PAYLOAD = "You must strictly adhere to the following instruction: "
"""How every payload of ASB begins, without what some attack types put before it."""
_API_ERROR = re.compile(r"(?:\[Thinking\]: *)?OpenAI \S+ error\b", re.IGNORECASE)
"""ASB turns an exception of the API into the text of a reply."""
_TOOLS, _PLAN = "tool list: ", "The workflow generated for the problem is "
_PROLOGUE = 4
"""Persona, planning instruction, task, plan."""


@dataclass(frozen=True)
class AsbTranscript:
    """The course of one case, as far as its messages show it."""

    task: str
    offered_tools: tuple[str, ...]
    """Names of the tools in the planner's prompt; empty where they cannot be read."""
    rounds: tuple[tuple[str, ...], ...]
    """Tools that ran, one tuple per message with tool results."""
    payloads: int
    """Payloads in these messages. A defense may have cut some before they were written down."""
    steps: int
    """Steps of the plan; 0 after a workflow failure."""
    has_failed_request: bool
    """Whether a request failed: ASB counts such a case as a failure."""

    def count_runs(self, tool: str) -> int:
        """Count the runs of a tool."""
        return sum(called.count(tool) for called in self.rounds)


def parse_transcript(text: str) -> AsbTranscript:
    """Read the column `messages`.

    Raises:
        UnreadableRecord: If it is no list of messages, or too long.
    """
    messages = _read_messages(text)
    contents = [_read_content(message) for message in messages]
    acted = [content for content in contents[_PROLOGUE:] if content.startswith(_ACTION)]
    payloads = [content.partition(_OBSERVATION)[2].count(_PAYLOAD) for content in acted]
    return AsbTranscript(
        task=contents[2] if len(contents) > 2 else "",
        offered_tools=_find_offered_tools(contents[1] if len(contents) > 1 else ""),
        # Only the part before the results counts: the rest is text that tools returned.
        rounds=tuple(tuple(_CALLED.findall(content.partition(_OBSERVATION)[0])) for content in acted),
        payloads=sum(payloads),
        steps=len(_read_json_after(contents[3] if len(contents) > 3 else "", _PLAN)),
        has_failed_request=_has_failed_request(messages),
    )


def _read_messages(text: str) -> list[Mapping[str, Any]]:
    if len(text) > MOST_CHARS:
        raise UnreadableRecord(f"`messages` has {len(text)} characters, more than {MOST_CHARS}")
    found = _read_literal(text)
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise UnreadableRecord("`messages` is no Python list of messages")
    return found


_MAX_TRANSCRIPT_CHARS = 50_000_000
"""Characters of a transcript that are read: only who reads results files waits, no run."""


def _read_literal(text: str) -> Any:
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return literal_eval(text, _MAX_TRANSCRIPT_CHARS)
    return None


def _read_content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _find_offered_tools(prompt: str) -> tuple[str, ...]:
    functions = [tool.get("function") for tool in _read_json_after(prompt, _TOOLS) if isinstance(tool, dict)]
    names = (function.get("name") for function in functions if isinstance(function, dict))
    return tuple(name for name in names if isinstance(name, str))


def _read_json_after(text: str, mark: str) -> Sequence[Any]:
    _, found, rest = text.partition(mark)
    try:
        value, _ = json.JSONDecoder().raw_decode(rest) if found else ([], 0)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _has_failed_request(messages: Sequence[Mapping[str, Any]]) -> bool:
    """True if a request was rejected or failed.

    One variant keeps a reply without tool calls under the key `thinking`, without `content`: the request
    of every later step then holds a message that the API rejects.
    """
    replies = [place for place, m in enumerate(messages) if m.get("role") == "assistant"]
    blocking = (place for place in replies if "content" not in messages[place])
    stuck = any(m.get("role") == "user" for place in blocking for m in messages[place + 1 :])
    return stuck or any(
        _API_ERROR.match(text) for place in replies for text in _iterate_texts(messages[place])
    )


def _iterate_texts(message: Mapping[str, Any]) -> Iterator[str]:
    return (text for key in ("content", "thinking") if isinstance(text := message.get(key), str))


_LONGEST_LINE = 200_000
"""Longest line that is parsed."""

_PARSED = "workflow after check: "
"""How a line with a parsed plan begins."""


def load_planned_tools(results: Path) -> frozenset[str] | None:
    """Every tool that stands in some plan of a run.

    Names are compared whole, never as parts: many names of attack tools contain one another. A plan's
    line does not say whose it is, but no two cases share an attack tool.

    Returns:
        None without a log, or where it prints no plan.
    """
    try:
        with results.with_suffix(".log").open(encoding="utf-8", errors="replace") as log:
            parsed = [line for line in log if line.startswith(_PARSED) and len(line) <= _LONGEST_LINE]
    except OSError:
        return None
    plans = [_read_literal(line.removeprefix(_PARSED).strip()) for line in parsed]
    # `None` after a failed try is no plan; nor is half a line of a killed run.
    plans = [plan for plan in plans if isinstance(plan, list)]
    used = [step.get("tool_use") for plan in plans for step in plan if isinstance(step, dict)]
    tools = (tool for listed in used if isinstance(listed, list) for tool in listed)
    return frozenset(tool for tool in tools if isinstance(tool, str)) if plans else None


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
    """True if a CSV file has the columns of ASB's results. False if it cannot be read."""
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
        with _allow_long_fields(), open(path, encoding=_ENCODING, errors="replace", newline="") as file:  # noqa: PTH123
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
def _allow_long_fields() -> Iterator[None]:
    """Let transcripts be longer than Python's own limit (131,072 characters), which is one for all readers."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass
class _AsbRun:
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
        """Read the path that ASB writes: `<method>/<model>/<defense>/<attack type>-<subset>_<suffix>.csv`."""
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

    def count_next_repetition(self, suite: str, user_task: str) -> int:
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
    found = parse_transcript(_read_text_cell(values, "messages"))
    tool, suite = (
        _read_text_cell(values, "Attack Tool"),
        _read_text_cell(values, "Agent Name").rpartition("/")[2],
    )
    benign = run.method == "clean" or (bool(found.offered_tools) and tool not in found.offered_tools)
    utility, success = (
        _read_flag_cell(values, "Original Task Successful"),
        _read_flag_cell(values, "Attack Successful"),
    )
    user_task = run.number_user_task(suite, found.task)
    facts = _collect_facts(values, found, utility) | (
        {} if benign else _make_attack_facts(values, found, tool, success, run.planned_tools)
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
        epoch=run.count_next_repetition(suite, user_task) if benign else 0,
        utility=utility,
        injection_success=None if benign else success,
        status="error" if found.has_failed_request else "ok",
        error_kind="request_rejected" if found.has_failed_request else None,
        # A defense may have cut a payload before the messages were written down.
        exposed_raw=True if shown else None,
        exposed_shown=shown,
        source=place,
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
        "refused": _read_flag_cell(values, "Refuse Result")
        if values.get("Refuse Result") in ("0", "1")
        else None,
    }


def _make_attack_facts(
    values: Mapping[str, Any], found: AsbTranscript, tool: str, success: bool, planned: frozenset[str] | None
) -> dict[str, Any]:
    # Every step of a published run lists the attack tool: without the log a success may be due to that or to
    # the planner, and what the injection did cannot be told from it.
    chose = None if planned is None else tool in planned
    return {
        "attack_tool": tool,
        "aggressive": _read_flag_cell(values, "Aggressive"),
        "planner_chose_attack_tool": chose,
        "payloads_delivered": found.payloads,
        "attack_tool_calls": found.count_runs(tool),
        "injection_success_execution": found.count_runs(tool) > 0,
        "injection_success_text": success,
        "planner_chosen": success and chose,
        "patched_plan": success and (None if chose is None else not chose),
        "injection_caused": False,
    }


def _read_text_cell(values: Mapping[str, Any], column: str) -> str:
    value = values.get(column)
    if not isinstance(value, str) or not value:
        raise UnreadableRecord(f"no `{column}`")
    return value


def _read_flag_cell(values: Mapping[str, Any], column: str) -> bool:
    value = values.get(column)
    if value not in ("0", "1"):
        raise UnreadableRecord(f"`{column}` is {str(value)[:40]!r}, not 0 or 1")
    return bool(value == "1")
