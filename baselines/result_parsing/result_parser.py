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
from agentsys.models.chat import ChatModel, ChatRequest, system, user
from agentsys.models.pipeline_elements import describe_tool, tool_specs
from agentsys.models.providers.wire_parts import result_text, visible_text
from agentsys.models.reply_contract import ContractAnswer, ReplyContract
from agentsys.models.trace import span
from baselines.result_parsing.prompts import (
    CHECKER_ROLE,
    EXPECTATION_CONTRACT,
    EXTRACTION_CONTRACT,
    REJECTED,
    REMOVAL_CONTRACT,
    expectation_question,
    extraction_question,
    read_marked,
    removal_question,
)
from baselines.tool_boundary.boundary_filter import CallRuling, FilterTurn
from baselines.tool_boundary.result_rewriter import (
    OnDoubt,
    ResultRewriter,
    RewrittenResult,
    unreadable_result,
)

_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "list": (list,),
    "array": (list,),
    "object": (dict,),
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
    listed = entries if isinstance(entries, list) else [entries]
    named = [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
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


def split_made_up(extracted: str, raw: str) -> tuple[str, list[str]]:
    """An extraction with null for values that do not stand in the result, and these values.

    Layout and number format aside; an extraction that is no JSON stays as it is.
    """
    value, made_up = read_json_text(extracted), list[str]()
    left = _replace_made_up(value, _fold_text(raw), made_up)
    return (extracted if value is None else json.dumps(left, ensure_ascii=False)), made_up


def keep_declared_types(extracted: str, expected: Expectation) -> tuple[str, list[str]] | None:
    """An extraction less values of another type than declared, and their names; None if it is no object."""
    value = read_json_text(extracted)
    if not isinstance(value, dict):
        return None
    wrong = []
    for name, item in value.items():
        # By the very type: a truth value is no number.
        types = _TYPES.get(expected.types.get(name, ""))
        if item is not None and types is not None and type(item) not in types:
            wrong.append(name)
    left = {name: None if name in wrong else item for name, item in value.items()}
    return json.dumps(left, ensure_ascii=False), wrong


def _replace_made_up(value: Any, hay: str, made_up: list[str]) -> Any:
    """The value with null for leaves that do not stand in a folded text, which are added to a list."""
    if isinstance(value, dict):
        return {name: _replace_made_up(item, hay, made_up) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_made_up(item, hay, made_up) for item in value]
    if value is None or isinstance(value, bool) or _fold_text(str(value)) in hay:
        return value
    made_up.append(str(value)[:_LONGEST_FLAGGED])
    return None


_NO_CENTS = re.compile(r"(\d)\.0+\b")
_MARKS = re.compile(r"[\s\"'`\\]+")


def _fold_text(text: str) -> str:
    return _MARKS.sub(" ", _NO_CENTS.sub(r"\1", text)).casefold().strip()


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
    """Declares and extracts. Never knows the user's task, unless it is shown the conversation (ParseFull)."""

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
            question = expectation_question(self.options.seed, tool, call, told)
            # Without the conversation nothing in the question comes from a tool: the marks keep nothing out.
            read = read_marked if told else read_marked_or_json
            answer = _ask_marked(self.model, self.options.retries, EXPECTATION_CONTRACT, question, read)
            expected = None if answer.value is None else read_declaration(answer.value)
            asked, unreadable = answer.counts
            node.decision = {"filter": self.name, "asked": asked, "unreadable": unreadable}
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
        question = extraction_question(self.options.seed, expected.text, text, failed=failed)
        answer = _ask_marked(self.model, self.options.retries, EXTRACTION_CONTRACT, question)
        if answer.value is None:
            facts = {"reason": "no extraction"}
            return unreadable_result(text, self.options.on_unreadable, *answer.counts, facts)
        return self._check_extraction(text, expected, answer.value, answer.counts)

    def _check_extraction(
        self, text: str, expected: Expectation, extracted: str, counted: tuple[int, int]
    ) -> RewrittenResult:
        made_up = split_made_up(extracted, text)[1]
        facts: dict[str, Any] = {"free_text": list(expected.free), "not_in_result": made_up}
        if self.options.enforce:
            enforced = keep_declared_types(extracted, expected)
            if enforced is None:
                facts["reason"] = "no object of the declared types"
                return unreadable_result(text, self.options.on_unreadable, *counted, facts)
            extracted, facts["wrong_type"] = enforced
        if self.options.strict_values:
            extracted = split_made_up(extracted, text)[0]
        shown = f"{expected.text}\n\n{extracted}" if self.options.show_expectation else extracted
        return RewrittenResult(shown, "extracted", *counted, facts)


def read_marked_or_json(reply: str, word: str) -> str | None:
    """What stands between the marks of a reply, or a reply that is JSON and nothing else."""
    return read_marked(reply, word) or (reply.strip() if read_json_text(reply) is not None else None)


def _ask_marked(
    model: ChatModel,
    retries: int,
    contract: ReplyContract[str],
    question: tuple[str, str],
    read: Callable[[str, str], str | None] = read_marked,
) -> ContractAnswer[str]:
    text, word = question
    marked = replace(contract, read=lambda reply: read(reply, word))
    return marked.ask(model, [system(contract.prompt), user(text)], retries)


def write_transcript(messages: Sequence[ChatMessage]) -> str:
    """A conversation as text: who said what, calls by name and arguments."""
    lines = []
    for message in messages:
        said = result_text(message) if message["role"] == "tool" else visible_text(message)
        made = message["tool_calls"] or () if message["role"] == "assistant" else ()
        called = [f"calls {call.function}({dict(call.args)})" for call in made]
        lines.append(f"{message['role']}: {' '.join([said, *called]).strip()}")
    return "\n".join(lines)


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
        facts: dict[str, Any] = {}
        left = text
        for _ in range(self.options.check_rounds + 1):
            call = self._find_triggered_call(turn, left)
            asked += 1
            if call is None:
                break
            triggered.append({"tool": call.function, "args": str(dict(call.args))})
            facts = {"triggered": triggered}
            if self.options.check_tool_action == "reject":
                return RewrittenResult(REJECTED, "withheld", asked, unreadable, facts, True)
            answer = self._remove_cause(left, call)
            asked, unreadable = asked + answer.counts[0], unreadable + answer.counts[1]
            if answer.value is None:
                unread = unreadable_result(left, self.options.on_unreadable, asked, unreadable, facts)
                return replace(unread, flagged=True)
            if answer.value.strip() == left.strip():
                break
            left = answer.value
        outcome = "clean" if left == text else "removed"
        return RewrittenResult(left, outcome, asked, unreadable, facts, bool(triggered))

    def _find_triggered_call(self, turn: FilterTurn, text: str) -> FunctionCall | None:
        """The first call that a result causes when it is read alone, as if a user had said it."""
        tools = tool_specs(turn.runtime.functions.values())
        reply = self.model.complete(ChatRequest([user(text)], tools, CHECKER_ROLE)).message
        calls = reply["tool_calls"] or ()
        return calls[0] if calls else None

    def _remove_cause(self, text: str, call: FunctionCall) -> ContractAnswer[str]:
        question = removal_question(self.options.seed, text, call)
        return _ask_marked(self.model, self.options.retries, REMOVAL_CONTRACT, question)
