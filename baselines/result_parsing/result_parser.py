"""`ResultParser` and `ToolCheck`: a result is cut down to the data that was declared before the call.

The parser has a model declare what a call is to give back and take that out of the result. The check removes
what makes a model call a tool when it reads the result alone.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.base.option_checks import AtLeast0
from agentsys.models.chat import ChatModel, ChatRequest, user
from agentsys.models.pipeline_elements import describe_tool, tool_specs
from agentsys.models.providers.wire_parts import result_text, visible_text
from agentsys.models.trace import span
from baselines.result_parsing.prompts import (
    REJECTED,
    expectation_question,
    extraction_question,
    read_marked,
    removal_question,
)
from baselines.tool_boundary.boundary_filter import CallRuling, FilterTurn
from baselines.tool_boundary.guard_question import GuardAnswer, ask_guard
from baselines.tool_boundary.result_rewriter import (
    OnDoubt,
    ResultRewriter,
    RewrittenResult,
    unreadable_result,
)

_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_LONGEST_FLAGGED = 100
"""Characters of a flagged value in the record."""


@dataclass(frozen=True)
class Expectation:
    """What a model said it expects back."""

    text: str
    """Its words."""
    types: Mapping[str, str]
    """Name -> declared type, as far as its words are the JSON asked for."""
    free: tuple[str, ...] = ()
    """Names of texts of any form and length: an instruction fits into them."""


def read_declaration(text: str) -> Expectation:
    """Read a declaration; whatever it is, its words are kept."""
    entries = read_json_text(text)
    named = [
        entry
        for entry in (entries if isinstance(entries, list) else [entries])
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]
    types = {entry["name"]: str(entry.get("type", "")).casefold() for entry in named}
    free = [
        entry["name"]
        for entry in named
        if types[entry["name"]] == "string" and not entry.get("format") and not entry.get("limits")
    ]
    return Expectation(text, types, tuple(free))


def read_json_text(text: str) -> Any:
    """The JSON that a text is, a fence around it aside; None for any other text."""
    fenced = _FENCE.match(text.strip())
    try:
        return json.loads(fenced[1] if fenced is not None else text, strict=False)
    except (ValueError, RecursionError):
        return None


def find_made_up(extracted: str, raw: str) -> list[str]:
    """The values of an extraction that do not stand in the result, layout and number format aside."""
    value = read_json_text(extracted)
    if value is None:
        return []
    hay = _fold_text(raw)
    return [
        str(leaf)[:_LONGEST_FLAGGED] for leaf in _iterate_leaves(value) if _fold_text(str(leaf)) not in hay
    ]


def keep_leaves(extracted: str, keep: Callable[[Any], bool]) -> str:
    """An extraction with null in place of values that are not kept; as it is where it is no JSON."""
    value = read_json_text(extracted)
    return extracted if value is None else json.dumps(_keep_leaves_in(value, keep), ensure_ascii=False)


def build_presence_test(raw: str) -> Callable[[Any], bool]:
    """Give the test whether a value stands in a result."""
    hay = _fold_text(raw)
    return lambda leaf: leaf is None or isinstance(leaf, bool) or _fold_text(str(leaf)) in hay


def keep_declared_types(extracted: str, expected: Expectation) -> tuple[str, list[str]] | None:
    """An extraction less values of another type than declared, and their names; None if it is no object."""
    value = read_json_text(extracted)
    if not isinstance(value, dict):
        return None
    wrong = [
        name
        for name, one in value.items()
        if one is not None and (fits := _TYPES.get(expected.types.get(name, ""))) and not fits(one)
    ]
    left = {name: None if name in wrong else one for name, one in value.items()}
    return json.dumps(left, ensure_ascii=False), wrong


def _iterate_leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _iterate_leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _iterate_leaves(item)]
    return [] if value is None or isinstance(value, bool) else [value]


def _keep_leaves_in(value: Any, keep: Callable[[Any], bool]) -> Any:
    if isinstance(value, dict):
        return {name: _keep_leaves_in(item, keep) for name, item in value.items()}
    if isinstance(value, list):
        return [_keep_leaves_in(item, keep) for item in value]
    return value if keep(value) else None


_NO_CENTS = re.compile(r"(\d)\.0+\b")
_MARKS = re.compile(r"[\s\"'`\\]+")


def _fold_text(text: str) -> str:
    return _MARKS.sub(" ", _NO_CENTS.sub(r"\1", text)).casefold().strip()


PARSER_ROLE = "result_parser"


@dataclass(frozen=True)
class ParsingOptions:
    """How results are parsed and checked; see `ToolResultParsing`."""

    retries: AtLeast0 = 1
    on_unreadable: OnDoubt = "withhold"
    show_expectation: bool = False
    strict_values: bool = False
    enforce: bool = False
    check_tool_action: Literal["remove", "reject"] = "remove"
    check_rounds: AtLeast0 = 0
    seed: int = 0


class ResultParser(ResultRewriter):
    """Declares and extracts. Never knows the user's task, unless it is shown the conversation.

    Args:
        model: The model asked, under the role `result_parser`.
        options: How.
        conversation: Whether expectations are declared with the conversation so far (ParseFull).
    """

    gives_verdicts = False

    def __init__(self, model: ChatModel, options: ParsingOptions, *, conversation: bool) -> None:
        self.model = model
        self.options = options
        self.conversation = conversation
        self.name = "parse_full" if conversation else "parse_data"  # type: ignore[misc]
        self._expected: defaultdict[tuple[str | None, str], list[Expectation | None]] = defaultdict(list)

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Declare what each call is to give back. No call is changed or refused."""
        self._expected.clear()
        for call in calls:
            self._expected[call.id, call.function].append(self._declare(turn, call))
        return [CallRuling(call) for call in calls]

    def _declare(self, turn: FilterTurn, call: FunctionCall) -> Expectation | None:
        told = write_transcript(turn.messages) if self.conversation else ""
        tool = describe_tool(turn.runtime.functions[call.function])
        with span("expectation", call.function) as node:
            answer = self._ask_marked(*expectation_question(self.options.seed, tool, call, told))
            expected = None if answer.value is None else read_declaration(answer.value)
            node.decision = {"filter": self.name, "asked": answer.asked, "unreadable": answer.unreadable}
            if expected is not None:
                node.decision |= {"expected": expected.text, "free_text": list(expected.free)}
        return expected

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Take the declared data out of one result."""
        call = result["tool_call"]
        waiting = self._expected[call.id, call.function]
        expected = waiting.pop(0) if waiting else None
        if expected is None:
            return unreadable_result(text, self.options.on_unreadable, 0, 0, {"reason": "no expectation"})
        failed = bool(result["error"])
        answer = self._ask_marked(*extraction_question(self.options.seed, expected.text, text, failed=failed))
        counted = answer.asked, answer.unreadable
        if answer.value is None:
            return unreadable_result(text, self.options.on_unreadable, *counted, {"reason": "no extraction"})
        return self._check_extraction(text, expected, answer.value, counted)

    def _check_extraction(
        self, text: str, expected: Expectation, extracted: str, counted: tuple[int, int]
    ) -> RewrittenResult:
        facts: dict[str, Any] = {
            "free_text": list(expected.free),
            "not_in_result": find_made_up(extracted, text),
        }
        if self.options.enforce:
            enforced = keep_declared_types(extracted, expected)
            if enforced is None:
                facts["reason"] = "no object of the declared types"
                return unreadable_result(text, self.options.on_unreadable, *counted, facts)
            extracted, facts["wrong_type"] = enforced
        if self.options.strict_values:
            extracted = keep_leaves(extracted, build_presence_test(text))
        shown = f"{expected.text}\n\n{extracted}" if self.options.show_expectation else extracted
        return RewrittenResult(shown, "extracted", *counted, facts)

    def _ask_marked(self, question: str, word: str) -> GuardAnswer[str]:
        request = ChatRequest([user(question)], role=PARSER_ROLE)
        return ask_guard(self.model, request, lambda reply: read_marked(reply, word), self.options.retries)


def write_transcript(messages: Sequence[ChatMessage]) -> str:
    """A conversation as text: who said what, calls by name and arguments."""
    lines = []
    for message in messages:
        said = result_text(message) if message["role"] == "tool" else visible_text(message)
        made = message["tool_calls"] or () if message["role"] == "assistant" else ()
        called = [f"calls {call.function}({dict(call.args)})" for call in made]
        lines.append(f"{message['role']}: {' '.join([said, *called]).strip()}")
    return "\n".join(lines)


CHECKER_ROLE = "result_checker"


class ToolCallCheck(ResultRewriter):
    """Lets an instruction in a result trigger its call where nothing comes of it, and then removes it.

    The call is never run and never shown to the agent.
    """

    name = "check_tool"

    def __init__(self, model: ChatModel, options: ParsingOptions) -> None:
        self.model = model
        self.options = options

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Check one result, and once more for each further round after something was taken out."""
        asked, unreadable = 0, 0
        triggered: list[dict[str, Any]] = []
        left = text
        for _ in range(self.options.check_rounds + 1):
            call = self._find_triggered_call(turn, left)
            asked += 1
            if call is None:
                break
            triggered.append({"tool": call.function, "args": str(dict(call.args))})
            if self.options.check_tool_action == "reject":
                return RewrittenResult(
                    REJECTED, "withheld", asked, unreadable, {"triggered": triggered}, True
                )
            answer = self._remove_cause(left, call)
            asked, unreadable = asked + answer.asked, unreadable + answer.unreadable
            if answer.value is None:
                doubt, facts = self.options.on_unreadable, {"triggered": triggered}
                return replace(unreadable_result(left, doubt, asked, unreadable, facts), flagged=True)
            if answer.value.strip() == left.strip():
                break
            left = answer.value
        outcome = "clean" if left == text else "removed"
        facts = {"triggered": triggered} if triggered else {}
        return RewrittenResult(left, outcome, asked, unreadable, facts, bool(triggered))

    def _find_triggered_call(self, turn: FilterTurn, text: str) -> FunctionCall | None:
        """The first call that a result causes when it is read alone, as if a user had said it."""
        tools = tool_specs(turn.runtime.functions.values())
        reply = self.model.complete(ChatRequest([user(text)], tools, CHECKER_ROLE)).message
        calls = reply["tool_calls"] or ()
        return calls[0] if calls else None

    def _remove_cause(self, text: str, call: FunctionCall) -> GuardAnswer[str]:
        question, word = removal_question(self.options.seed, text, call)
        request = ChatRequest([user(question)], role=CHECKER_ROLE)
        return ask_guard(self.model, request, lambda reply: read_marked(reply, word), self.options.retries)
