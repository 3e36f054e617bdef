"""CaMeL's published programs: 208 runs with 1140 programs, played again; every difference has a cause."""

from __future__ import annotations

import ast
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentdojo.default_suites.v1.tools.types import Email
from pydantic import BaseModel

from baselines.camel.camel_agent import find_failing_line, join_final_text
from baselines.camel.language import expressions, members, operators
from baselines.camel.language.functions import PROVIDED_FUNCTIONS, select_classes
from baselines.camel.language.interpreter import find_program, run_program
from baselines.camel.language.machine import ClassValue, Machine, ProgramError, ToolValue
from baselines.camel.language.operators import to_str
from baselines.camel.suite_world import QUERY
from baselines.flow.labelled_values import (
    FROM_USER,
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Value,
    label_from_tool,
    to_native,
    to_value,
)

_ERROR = re.compile(r'File "<stdin>", line (\d+)')
_HEAD = "Running the code gave the following error"
REDACTED = "<The exception was redacted"


@dataclass(frozen=True)
class Outcome:
    """What became of one program."""

    kind: str
    """Class of the error; `ok` without one."""
    line: int = 0
    redacted: bool = False
    calls: str = ""
    """JSON of the ordered calls that ran."""
    text: str | None = None
    """The final text, of a program that ran to its end."""


@dataclass(frozen=True)
class Attempt:
    """One recorded program."""

    reply: str
    results: tuple[Mapping[str, Any], ...]
    """Recorded tool messages, in order."""
    outcome: Outcome
    message: str = ""
    """The error's text."""


def runs_in(archive: Path) -> Iterator[tuple[str, list[Attempt]]]:
    """Every recorded run by name: its attempts."""
    with tarfile.open(archive) as packed:
        for member in sorted(packed.getmembers(), key=lambda one: one.name):
            opened = packed.extractfile(member) if member.name.endswith(".json") else None
            if opened is not None:
                yield "/".join(member.name.split("/")[-3:]), _attempts(json.load(opened)["messages"])


def _attempts(messages: list[dict[str, Any]]) -> list[Attempt]:
    found: list[Attempt] = []
    waiting: list[Mapping[str, Any]] = []
    place = 1
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] == "tool":
            waiting.append(message)
        elif message["role"] == "assistant" and message["content"] is not None:
            reply = _text(message)
            following = messages[place] if place < len(messages) else None
            if following is not None and following["role"] == "user":
                found.append(_failed(reply, waiting, _text(following)))
                place += 1
            else:
                results = []
                while place < len(messages) and messages[place]["role"] == "tool":
                    results.append(messages[place])
                    place += 1
                final = messages[place] if place < len(messages) else message
                place += 1
                outcome = Outcome("ok", calls=_calls(results), text=_text(final))
                found.append(Attempt(reply, tuple(results), outcome))
            waiting = []
    return found


def _failed(reply: str, results: list[Mapping[str, Any]], report: str) -> Attempt:
    body = report.partition(_HEAD)[2].split("Provide the new code with the error fixed.")[0].strip()
    tail = body.split("\n\n\n")[-1].strip()
    if "InvalidOutputError" in tail:
        tail = tail[tail.index("InvalidOutputError") :]
    kind, _, message = tail.partition(": ")
    place = _ERROR.search(body)
    outcome = Outcome(kind, int(place[1]) if place else 0, message.startswith(REDACTED), _calls(results))
    return Attempt(reply, tuple(results), outcome, message)


def _text(message: Mapping[str, Any]) -> str:
    return "".join(block["content"] or "" for block in message["content"] or ())


def _calls(results: list[Any]) -> str:
    made = [(m["tool_call"]["function"], m["tool_call"]["args"]) for m in results]
    return json.dumps([[f, {} if f == QUERY else _plain(args)] for f, args in made], default=str)


def _plain(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that were left out stand in the records as None."""
    return {name: value for name, value in args.items() if value is not None}


def tools_of(package: Path) -> dict[str, ToolValue]:
    """The tools' parameters, read from the source of AgentDyn's package."""
    tools = {QUERY: ToolValue(FROM_USER, QUERY, ("query", "output_schema"), reads=True)}
    with tarfile.open(package) as packed:
        for member in packed.getmembers():
            wanted = "/v1/tools/" in member.name or member.name.endswith("v1/github/task_suite.py")
            opened = packed.extractfile(member) if wanted and member.name.endswith(".py") else None
            for node in ast.parse(opened.read()).body if opened is not None else ():
                if isinstance(node, ast.FunctionDef) and _better(node.name, member.name, tools):
                    given = [a.arg for a in node.args.args if "Depends(" not in ast.unparse(a)]
                    tools[node.name] = ToolValue(FROM_USER, node.name, tuple(given))
    return tools


def _better(name: str, file: str, tools: Mapping[str, ToolValue]) -> bool:
    return name not in tools or "dynamic" in file


@dataclass
class Recorded:
    """The world of a run: what was recorded, in order; then the recorded error."""

    attempt: Attempt
    left: list[Mapping[str, Any]] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        if not self.left or self.left[0]["tool_call"]["function"] != tool:
            kind = self.attempt.outcome.kind
            raise ProgramError("NotRecorded" if kind == "ok" else kind, "as recorded")
        message = self.left.pop(0)
        given = {} if tool == QUERY else {k: to_native(v) for k, v in arguments.items()}
        self.made.append([tool, _plain(given)])
        if tool == QUERY:
            return _answer(_text(message), arguments["output_schema"])
        return to_value(_parsed(_text(message)), label_from_tool(tool))


def _parsed(text: str) -> Any:
    """Lists and dicts are recorded as Python writes them, objects as YAML, texts as they are."""
    if text[:1] in "[{":
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
    return None if text == "None" else text


def _answer(text: str, schema: Value) -> Value:
    label = label_from_tool(QUERY)
    raw = yaml.safe_load(text)
    if isinstance(schema, ClassValue) and issubclass(schema.of, BaseModel) and isinstance(raw, dict):
        return Instance(label, schema.of, {name: to_value(value, label) for name, value in raw.items()})
    return to_value(raw.get("output", raw) if isinstance(raw, dict) else raw, label)


def play(attempts: list[Attempt], tools: Mapping[str, ToolValue]) -> Iterator[tuple[Attempt, Outcome, str]]:
    """Run each recorded program, with the names that earlier ones left."""
    world = Recorded(attempts[0]) if attempts else None
    assert world is not None
    given = {"Email": ClassValue(FROM_USER, "Email", Email)}
    machine = Machine(world, {**PROVIDED_FUNCTIONS, **select_classes("github"), **given, **tools})
    for attempt in attempts:
        world.attempt, world.left, world.made = attempt, list(attempt.results), []
        kind, line, redacted, text, message = "ok", 0, False, None, ""
        try:
            value = run_program(find_program(attempt.reply), machine)
            text = join_final_text("".join(to_str(piece) for piece in machine.printed), value)
        except ProgramError as error:
            kind, line, redacted = error.kind, find_failing_line(error), not error.label.is_trusted
            message = error.text
        calls = json.dumps(world.made, default=str)
        yield attempt, Outcome(kind, line, redacted, calls, text), message


def agrees(recorded: Outcome, ours: Outcome) -> bool:
    """Whether outcome, class, line, redaction, calls and final text are the same."""
    texts = [(one.text or "").strip().removesuffix("Done.") for one in (recorded, ours)]
    same = (recorded.kind, recorded.line, recorded.redacted, recorded.calls)
    return same == (ours.kind, ours.line, ours.redacted, ours.calls) and texts[0] == texts[1]


def like_prefix(one: Any, other: Any) -> bool:
    """Equality as the reference implementation has it: texts and lists as far as the shorter one goes."""
    if isinstance(one, str | list | tuple) and type(one) is type(other):
        pairs = zip(one, other, strict=False)
        return all(a == b if isinstance(one, str) else like_prefix(a, b) for a, b in pairs)
    return bool(one == other)


def cause(attempt: Attempt, ours: Outcome, by_prefix: Outcome, *, earlier: bool) -> str:
    """Why an outcome differs: the first of the listed decisions that explains it."""
    recorded = attempt.outcome
    if (recorded.kind, recorded.line, recorded.calls) == (ours.kind, ours.line, ours.calls):
        if ours.redacted and not recorded.redacted:
            return "text hidden"
        if ours.kind == "ok":
            return "last value"
    if agrees(recorded, by_prefix) or (recorded.kind, recorded.line) == (by_prefix.kind, by_prefix.line):
        return "prefix equality"
    if recorded.kind == ours.kind and _in_one_statement(attempt.reply, recorded.line, ours.line):
        return "innermost place"
    return "follows from an earlier one" if earlier else "type not recorded"


def _in_one_statement(reply: str, one: int, other: int) -> bool:
    try:
        tree = ast.parse(find_program(reply))
    except (SyntaxError, ProgramError):
        return False
    spans = [(n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    return any(start <= one <= end and start <= other <= end for start, end in spans)


SHARED = Path(__file__).parents[2].parent / "shared" / "data"
ARCHIVE = SHARED / "traces" / "agentdyn-gpt-4o-mini-camel-github.tar.gz"
PACKAGE = SHARED / "agentdyn" / "agentdyn-package.tar.gz"
EXPECTED = {
    "agree": 1005,
    "text hidden": 37,
    "follows from an earlier one": 31,
    "prefix equality": 30,
    "innermost place": 27,
    "type not recorded": 6,
    "last value": 4,
}
"""As docs/baselines/camel.md says them."""
Played = list[tuple[Attempt, Outcome, str]]


def _prefix_in(one: Any, many: Any) -> bool:
    if isinstance(many, str):
        return one in many
    return any(like_prefix(one, other) for other in many)


def _prefix_item(machine: Machine, holder: Value, index: Value) -> Value:
    if isinstance(holder, Dictionary) and isinstance(index, Scalar) and isinstance(index.raw, str):
        for stored, (key, _) in holder.entries.items():
            if index.raw not in holder.entries and isinstance(stored, str) and like_prefix(stored, index.raw):
                return members.get_item(machine, holder, key)
    return members.get_item(machine, holder, index)


@pytest.mark.slow
def test_published_programs_come_out_as_recorded_but_for_listed_causes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not ARCHIVE.is_file() or not PACKAGE.is_file():
        pytest.skip(f"published runs are not here: {ARCHIVE}")
    tools = tools_of(PACKAGE)
    runs = [attempts for _, attempts in runs_in(ARCHIVE) if attempts]
    ours: list[Played] = [list(play(attempts, tools)) for attempts in runs]
    signs: Any = operators._COMPARISONS
    monkeypatch.setitem(signs, ast.Eq, like_prefix)
    monkeypatch.setitem(signs, ast.NotEq, lambda one, other: not like_prefix(one, other))
    monkeypatch.setitem(signs, ast.In, _prefix_in)
    monkeypatch.setitem(signs, ast.NotIn, lambda one, many: not _prefix_in(one, many))
    monkeypatch.setattr(expressions, "get_item", _prefix_item)
    by_prefix: list[Played] = [list(play(attempts, tools)) for attempts in runs]
    causes: Counter[str] = Counter()
    for plain, prefixed in zip(ours, by_prefix, strict=True):
        earlier = False
        for (attempt, outcome, _), (_, other, _) in zip(plain, prefixed, strict=True):
            if agrees(attempt.outcome, outcome):
                causes["agree"] += 1
                continue
            causes[cause(attempt, outcome, other, earlier=earlier)] += 1
            earlier = True
    assert (len(runs), sum(causes.values())) == (208, 1140)
    assert dict(causes) == EXPECTED
    # What was shown and is hidden here is the only way redaction differs where place and class agree.
    assert not [
        attempt
        for plain in ours
        for attempt, outcome, _ in plain
        if (attempt.outcome.kind, attempt.outcome.line) == (outcome.kind, outcome.line)
        and attempt.outcome.redacted > outcome.redacted
    ]
