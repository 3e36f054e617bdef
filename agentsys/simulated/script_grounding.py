"""One scripted sequence of calls: its position in a conversation, and arguments grounded in what was read.

A value that no message of the request holds is replaced by a placeholder; a value that repeats a tool's
YAML output is taken from there.
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
from agentsys.simulated.playbook_index import Fact, GoalScript, Quote, ScriptedCall
from agentsys.simulated.text_matching import decode_base64_parts, fold_decoded, fold_text, occurs_in

_MAX_FAILURE_CHARS = 200
"""Characters; a failure object is short, so longer results are not parsed for one."""

REPEATABLE_FAILURE = "The call says not which fields are wanted."
"""The one failure that is the caller's own slip: the call is made again."""


@dataclass(frozen=True)
class ToolResult:
    """One answered tool call."""

    function: str
    args: Mapping[str, Any]
    text: str
    """What the agent reads: the output, and the error where there is one."""
    failed: bool
    """Whether the call should be made again."""


def read_tool_result(message: ChatMessage) -> ToolResult:
    """A tool message as the agent understands it."""
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
    """Every text of the request, in order, tool errors included."""
    for message in request.messages:
        yield read_tool_result(message).text if message["role"] == "tool" else text_of(message)


def list_user_texts(request: ChatRequest) -> list[str]:
    """The texts of the user messages, in order."""
    return [text_of(message) for message in request.messages if message["role"] == "user"]


MAX_ATTEMPTS = 3
"""Times a failing call is made before the agent goes on without it."""

_NOT_FOUND = "Not Available"
"""Begins what a reader says in the field of a value that it did not find (AgentSys's gate)."""

VALUE_NAME = re.compile(r"\$c\d+(?:\.\w+)+", re.ASCII)
"""A name in place of a value (`agentsys_typed`): it is passed on as the value would be."""

PLACEHOLDER = "unknown"
"""Stands for a value the agent has not seen."""


@dataclass
class ScriptPosition:
    """Calls to be made in order. Calls of tools that are not on offer are left out."""

    steps: list[tuple[int, ScriptedCall]]
    """Index in the script, call."""
    goal: GoalScript | None = None
    """The goal these calls carry out; None for the user's own task."""
    done: int = 0
    """Steps that are over."""
    attempts: int = 0
    """Failed attempts at the current step."""
    outputs: dict[int, str] = field(default_factory=dict)
    """Results read, by index in the script; kept only where a later call quotes them."""

    @property
    def step(self) -> tuple[int, ScriptedCall] | None:
        """The step that comes next; None at the end."""
        return self.steps[self.done] if self.done < len(self.steps) else None

    def record_result(self, result: ToolResult | None) -> None:
        """Book a result of the current step; None: nobody answered. After the last failed attempt it is given up."""
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
    """The beginning of a script, less the calls that cannot be made with these tools."""
    return ScriptPosition([(index, call) for index, call in enumerate(calls) if call.function in tools], goal)


def find_answered(lines: Iterable[ScriptPosition], result: ToolResult) -> ScriptPosition | None:
    """The line whose current step this result answers: same tool and arguments, else the same tool.

    A defense may rewrite arguments on the way; results of anything else are not the agent's.
    """
    waiting = [line for line in lines if line.step is not None and line.step[1].function == result.function]
    for line in waiting:
        call = line.steps[line.done][1]
        free = {quote.arg for quote in call.quotes}  # and so are placeholders
        pairs = ((value, result.args.get(name)) for name, value in call.args.items() if name not in free)
        if all(value == now or PLACEHOLDER in str(now) for value, now in pairs):
            return line
    return waiting[0] if waiting else None


_LARGE_AMOUNT = 100
"""Amounts from here on are also looked for without their decimals."""


def find_fact(fact: Fact, text: str) -> str | None:
    """What a text says of a fact; None where it does not hold it.

    Of a number that is another one in each case: the last that stands there, in a declared field or as the
    tool wrote it.
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
    """What a returned JSON object says in the field declared for a fact; None where it says nothing."""
    if f'"{field}"' not in text:
        return None
    with suppress(ValueError, RecursionError):
        for node in _walk_data(json.loads(text)):
            value = node.get(field) if isinstance(node, dict) else None
            if isinstance(value, str | int | float) and not str(value).startswith(_NOT_FOUND):
                return str(value)
    return None


def _walk_data(value: object) -> Iterator[object]:
    """Every part of JSON or YAML data, the whole first, then by depth."""
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
    """Text of each fact that `within` uses -> what stands in its place, the longest first; nothing for what stays.

    That is the number that was read, told last in `readings`, or the placeholder. `believes` says whether another
    value in the field declared for a fact is taken for it.
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
    """The text with exactly these facts replaced."""
    for fact, value in replaced.items():
        text = re.sub(rf"(?<!\w){re.escape(fact)}(?!\w)", lambda _, value=value: value, text)  # type: ignore[misc]
    return text


def ground_arguments(
    args: Mapping[str, Any], facts: Iterable[Fact], readings: Iterable[str], *, believes: bool = False
) -> dict[str, Any]:
    """A fresh copy of the arguments in which every value that has not been seen is a placeholder."""
    within = "\n".join(form for leaf in list_scalars(args) for form in list_leaf_forms(leaf))
    replaced = find_fact_replacements(facts, within, readings, believes=believes)
    return {
        name: map_leaves(value, lambda leaf: _replace_leaf(leaf, replaced)) for name, value in args.items()
    }


def list_leaf_forms(leaf: object) -> list[str]:
    """The texts by which a value may stand in an output: `98.7` also as `98.70`."""
    if isinstance(leaf, bool) or leaf is None:
        return []
    if isinstance(leaf, float):
        # Not `5` for 5.0: so small a number stands in most outputs by chance.
        whole = [str(int(leaf))] if leaf.is_integer() and abs(leaf) >= _LARGE_AMOUNT else []
        return [str(leaf), f"{leaf:.2f}", *whole]
    return [str(leaf)]


def _replace_leaf(value: Any, replaced: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return replace_facts(value, replaced)
    told = next((replaced[form] for form in list_leaf_forms(value) if form in replaced), None)
    with suppress(ValueError):  # a told text stays one
        return value if told is None else type(value)(told)
    return told


_LONGEST_OUTPUT = 500_000
"""Characters that are parsed at most; the text is the environment's, and so the attacker's."""
_DEFENSE_MARKS = "<>«»[]"
"""What a defense may have put around an output."""


def insert_quotes(args: dict[str, Any], call: ScriptedCall, outputs: Mapping[int, str]) -> None:
    """Put what earlier calls returned in its places in fresh arguments; where an output is missing, the place stays."""
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
    """The objects that a tool's YAML output lists; empty where it is no such list. Not to be changed."""
    if not output or len(output) > _LONGEST_OUTPUT:
        return ()
    for text in (output, output.strip(_DEFENSE_MARKS), *decode_base64_parts(output)):
        items = _parse_yaml(text)
        if isinstance(items, list):
            return tuple(item for item in items if isinstance(item, dict))
    return ()


def list_yaml_strings(output: str) -> list[str]:
    """Every scalar in an output that is YAML, as text, smallest nesting first; none if it is not."""
    if len(output) > _LONGEST_OUTPUT or "&" in output:  # An anchor could unfold without end.
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


# Both build plain values only; libyaml's is ten times faster, where PyYAML was built with it.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
