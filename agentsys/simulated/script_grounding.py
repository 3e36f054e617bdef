"""A script's position in a conversation, and the grounding of its arguments in the messages.

A value that no message contains is replaced by a placeholder; a value that repeats a tool's YAML output is taken from
there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml
from agentdojo.types import ChatMessage

from agentsys.base.json_values import list_scalars, map_leaves
from agentsys.models.chat import ChatRequest, text_of
from agentsys.simulated.playbook_index import (
    Fact,
    GoalScript,
    Quote,
    ScriptedCall,
    decode_base64_parts,
    fold_decoded,
    fold_text,
    occurs_in,
)

_MAX_FAILURE_CHARS = 200
"""Most characters of a result that is parsed as a failure object."""

REPEATABLE_FAILURE = "The call says not which fields are wanted."
"""The only failure that is the caller's own mistake: the call is made again."""


@dataclass(frozen=True)
class ToolResult:
    """One answered tool call."""

    function: str
    args: Mapping[str, Any]
    text: str
    """The text that the agent reads: the output, and the error if there is one."""
    failed: bool
    """True if the call should be made again."""


def read_tool_result(message: ChatMessage) -> ToolResult:
    """Convert a tool message."""
    assert message["role"] == "tool"
    error, output, call = message["error"], text_of(message), message["tool_call"]
    text = output if error is None else f"{output}\n{error}"
    # Any other failure object counts as done: the same call would fail for the same reason.
    failed = error is not None
    if not failed and len(output) <= _MAX_FAILURE_CHARS and '"error"' in output:
        with suppress(ValueError):
            failure = json.loads(output)
            failed = isinstance(failure, dict) and failure.get("error") == REPEATABLE_FAILURE
    return ToolResult(call.function, call.args, text, failed)


def iterate_request_texts(request: ChatRequest) -> Iterator[str]:
    """Yield every text of the request, in order, tool errors included."""
    for message in request.messages:
        yield read_tool_result(message).text if message["role"] == "tool" else text_of(message)


def list_user_texts(request: ChatRequest) -> list[str]:
    """List the texts of the user messages, in order."""
    return [text_of(message) for message in request.messages if message["role"] == "user"]


MAX_ATTEMPTS = 3
"""Number of attempts at a failing call before the agent goes on without it."""

_NOT_FOUND = "Not Available"
"""Prefix of the value of a field that a reader did not find (AgentSys's gate)."""

VALUE_NAME = re.compile(r"\$c\d+(?:\.\w+)+", re.ASCII)
"""A name that stands for a value (`agentsys_typed`) and is passed on like the value."""

PLACEHOLDER = "unknown"
"""Replaces a value that the agent has not seen."""


@dataclass
class ScriptPosition:
    """Calls to be made in order, without those of tools that are not offered."""

    steps: list[tuple[int, ScriptedCall]]
    """Index in the script, call."""
    goal: GoalScript | None = None
    """The goal these calls carry out; None for the user's own task."""
    done: int = 0
    """Number of finished steps."""
    attempts: int = 0
    """Failed attempts at the current step."""
    outputs: dict[int, str] = field(default_factory=dict)
    """Index in the script -> result, for calls that a later call quotes."""

    @property
    def step(self) -> tuple[int, ScriptedCall] | None:
        """The next step; None at the end."""
        return self.steps[self.done] if self.done < len(self.steps) else None

    def record_result(self, result: ToolResult | None) -> None:
        """Record the result of the current step (None: no answer); after MAX_ATTEMPTS failures the step is skipped."""
        if self.step is None:
            return
        if result is None or result.failed:
            self.attempts += 1
            if self.attempts < MAX_ATTEMPTS:
                return
        elif any(quote.source == self.step[0] for _, call in self.steps for quote in call.quotes):
            self.outputs[self.step[0]] = result.text
        self.done, self.attempts = self.done + 1, 0


def make_start_position(
    calls: Iterable[ScriptedCall], tools: frozenset[str], goal: GoalScript | None = None
) -> ScriptPosition:
    """Start a script, without the calls that cannot be made with these tools."""
    return ScriptPosition([(index, call) for index, call in enumerate(calls) if call.function in tools], goal)


def find_answered(lines: Iterable[ScriptPosition], result: ToolResult) -> ScriptPosition | None:
    """Find the script whose current step a result answers: same tool and arguments, else the same tool.

    A defense may have rewritten the arguments.
    """
    waiting = [line for line in lines if line.step is not None and line.step[1].function == result.function]
    for line in waiting:
        call = line.steps[line.done][1]
        free = {quote.arg for quote in call.quotes}  # Placeholders may differ, too.
        pairs = ((value, result.args.get(name)) for name, value in call.args.items() if name not in free)
        if all(value == now or PLACEHOLDER in str(now) for value, now in pairs):
            return line
    return waiting[0] if waiting else None


_LARGE_AMOUNT = 100
"""Amounts from this one on are also searched without decimals."""


def find_fact(fact: Fact, text: str) -> str | None:
    """Return a fact's value in a text; None if the text does not contain it.

    For a number that differs in each case: the last one in the text, in a declared field or as the tool wrote it.
    """
    if not fact.pattern:
        return fact.text if occurs_in(fold_text(fact.text), fold_decoded(text)) else None
    declared = rf"\b{re.escape(fact.field)}\b[\"']?: [\"']?(\d+)"
    for pattern in (declared, fact.pattern):
        for reading in (text, fold_decoded(text)):
            numbers = re.findall(pattern, reading, re.IGNORECASE)
            if numbers:
                return str(numbers[-1])
    return None


def find_declared_value(field: str, text: str) -> str | None:
    """Return the value of a field in a returned JSON object; None if there is none."""
    if f'"{field}"' not in text:
        return None
    with suppress(ValueError, RecursionError):
        for node in _walk_data(json.loads(text)):
            value = node.get(field) if isinstance(node, dict) else None
            if isinstance(value, str | int | float) and not str(value).startswith(_NOT_FOUND):
                return str(value)
    return None


def _walk_data(value: object) -> Iterator[object]:
    """Yield every node of JSON or YAML data, breadth first."""
    level = [value]
    while level:
        yield from level
        inside = [
            node.values() if isinstance(node, dict) else node
            for node in level
            if isinstance(node, dict | list)
        ]
        level = [child for of in inside for child in of]


def find_fact_replacements(
    facts: Iterable[Fact], within: str, readings: Iterable[str], *, believes: bool = False
) -> dict[str, str]:
    """Text of each fact in `within` that changes -> its replacement, the longest first.

    The replacement is the latest value in `readings`, or the placeholder. `believes`: a different value in the field
    declared for a fact is accepted.
    """
    needed = sorted((fact for fact in facts if fact.text in within), key=lambda fact: -len(fact.text))
    texts = list(readings) if needed else []
    texts.reverse()
    values: dict[str, str | None] = {}
    for fact in needed:
        values[fact.text] = None
        for text in texts:
            value = find_fact(fact, text)
            if value is None:
                declared = find_declared_value(fact.field, text)
                value = declared if believes or VALUE_NAME.fullmatch(declared or "") else None
            if value is not None:
                values[fact.text] = value
                break
    return {text: value or PLACEHOLDER for text, value in values.items() if value != text}


def replace_facts(text: str, replaced: Mapping[str, str]) -> str:
    """Replace exactly these facts in a text."""
    for fact, value in replaced.items():
        text = re.sub(rf"(?<!\w){re.escape(fact)}(?!\w)", lambda _, value=value: value, text)  # type: ignore[misc]
    return text


def ground_arguments(
    args: Mapping[str, Any], facts: Iterable[Fact], readings: Iterable[str], *, believes: bool = False
) -> dict[str, Any]:
    """Copy the arguments, with a placeholder for every value that has not been seen."""
    within = "\n".join(form for leaf in list_scalars(args) for form in list_leaf_forms(leaf))
    replaced = find_fact_replacements(facts, within, readings, believes=believes)
    return {
        name: map_leaves(value, lambda leaf: _replace_leaf(leaf, replaced)) for name, value in args.items()
    }


def list_leaf_forms(leaf: object) -> list[str]:
    """List the forms of a value in outputs: `98.7` also as `98.70`."""
    if isinstance(leaf, bool) or leaf is None:
        return []
    if isinstance(leaf, float):
        # Not `5` for 5.0: such small numbers occur in most outputs by chance.
        whole = [str(int(leaf))] if leaf.is_integer() and abs(leaf) >= _LARGE_AMOUNT else []
        return [str(leaf), f"{leaf:.2f}", *whole]
    return [str(leaf)]


def _replace_leaf(value: Any, replaced: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return replace_facts(value, replaced)
    replacement = next((replaced[form] for form in list_leaf_forms(value) if form in replaced), None)
    with suppress(ValueError):  # A text that is not of this type stays a text.
        return value if replacement is None else type(value)(replacement)
    return replacement


_LONGEST_OUTPUT = 500_000
"""Most characters that are parsed: the text comes from the environment, and so from the attacker."""
_DEFENSE_MARKS = "<>«»[]"
"""Characters that defenses put around an output."""


def insert_quotes(args: dict[str, Any], call: ScriptedCall, outputs: Mapping[int, str]) -> None:
    """Insert values from earlier results into the arguments; a value whose result is missing is kept."""
    for quote in call.quotes:
        value = _find_quoted_value(quote, parse_yaml_items(outputs.get(quote.source, "")))
        if value is not None:
            target: Any = args
            *way, last = quote.arg, *quote.inside
            for key in way:
                target = target[key]
            target[last] = value


@lru_cache(maxsize=32)
def parse_yaml_items(output: str) -> tuple[Mapping[str, Any], ...]:
    """Parse the objects in a tool's YAML list; empty for other outputs. Cached: do not modify the result."""
    if not output or len(output) > _LONGEST_OUTPUT:
        return ()
    for text in (output, output.strip(_DEFENSE_MARKS), *decode_base64_parts(output)):
        items = _parse_yaml(text)
        if isinstance(items, list):
            return tuple(item for item in items if isinstance(item, dict))
    return ()


def list_yaml_strings(output: str) -> list[str]:
    """List every scalar of a YAML output as text, least nested first; empty for other outputs."""
    if len(output) > _LONGEST_OUTPUT or "&" in output:  # Aliases of an anchor could expand exponentially.
        return []
    nodes = _walk_data(_parse_yaml(output))
    return [str(node) for node in nodes if node is not None and not isinstance(node, dict | list)]


def _find_quoted_value(quote: Quote, items: Sequence[Mapping[str, Any]]) -> str | None:
    chosen = list(items)
    if quote.by is not None:
        sized = [item for item in items if isinstance(item.get(quote.by), int | float)]
        ordered = sorted(sized, key=lambda item: float(item[str(quote.by)]), reverse=True)
        chosen = ordered[quote.rank : quote.rank + 1]
    texts = [item[quote.key] for item in chosen if isinstance(item.get(quote.key), str)]
    return "\n".join(texts) or (texts[0] if texts and quote.by is not None else None)


def _parse_yaml(output: str) -> Any:
    try:
        return yaml.load(output, _YAML_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


# Both loaders build plain values only; libyaml's, if available, is ten times faster.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
