"""The return gate: decides, without a model, which part of a worker's reply reaches its caller.

The caller gets an `AcceptedValue` or a `Failure` out of a closed set. A failure's texts are fixed, so it
cannot carry a byte that an attacker chose, and no value can look like one (`error` is reserved at the gate
and in intents).

`syntactic` is the paper's rule (section 5.2): from the first `{` to its matching `}`, valid JSON, an object.
`schema` also holds the value against the declared intent.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsys.defense.intent import RESERVED_FIELD, Intent
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.loose_json import PROSE_BRACES, drop_trailing_commas


class Failure(Enum):
    """The reason why a tool call returned no value."""

    TOOL_ERROR = "tool_error"
    """The tool ran and failed. Its message may hold text of the environment (see
    `agentsys.defense.tool_turn`).
    """
    INVALID_JSON = "invalid_json"
    """The worker's reply held no JSON object."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """The worker's object had a field `error`, or (`gate: schema`) not the declared fields and types."""
    DENIED = "denied"
    """The validator refused the caller's call, or one inside the subtask even after the output was cleaned."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The subtask used up its steps or calls, or the turn had more calls than are allowed."""
    DEPTH_EXCEEDED = "depth_exceeded"
    """The call would have started a worker deeper than `max_depth`."""
    NO_INTENT = "no_intent"
    """The call declared no return value, or not in the grammar of `agentsys.defense.intent`."""
    ECHOED_INTENT = "echoed_intent"
    """(`gate: schema`) A value of the object was the name of its declared type. Callers cannot correct that, so
    they get the words of a mismatch.
    """
    INFEASIBLE = "infeasible"
    """The worker says that the output cannot give the fields."""
    STUCK = "stuck"
    """A call was refused three times in the same words, and its agent was stopped."""
    WORKER_FAILED = "worker_failed"
    """The output could not be read: a model refused it or found it too long, or it could not be cleaned."""

    def as_text(self, *, tool_ran: bool, **more: str) -> str:
        """Format the failure as a JSON object for the caller.

        `tool_ran` tells the caller whether repeating the call would run the tool twice. `more` never holds words
        of an output.
        """
        # Words, not the bare kind: models took "no_intent" for the name of a tool.
        return json.dumps({"error": FAILURE_WORDS[self], "tool_ran": tool_ran, **more}, ensure_ascii=False)


FAILURE_WORDS = {
    Failure.TOOL_ERROR: "The tool failed.",
    Failure.INVALID_JSON: "The reader gave no object with these fields.",
    Failure.SCHEMA_MISMATCH: "The reader gave no usable values for these fields.",
    Failure.ECHOED_INTENT: "The reader gave no usable values for these fields.",
    Failure.DENIED: "The call was not allowed, or one that its reader wanted to make.",
    Failure.BUDGET_EXHAUSTED: "There are no steps left for this call.",
    Failure.DEPTH_EXCEEDED: "No further call can be made from here.",
    Failure.NO_INTENT: "The call says not which fields are wanted.",
    Failure.INFEASIBLE: "The reader finds none of these fields in the output.",
    Failure.WORKER_FAILED: "The output could not be read.",
    Failure.STUCK: "The reader repeated a refused call and was stopped.",
}
"""Failure -> the words sent to the caller. They are fixed, so no words of an output can get in."""


_SUBTASK_ERRORS = frozenset(
    {ErrorKind.CONTEXT_LENGTH, ErrorKind.TOO_LARGE, ErrorKind.CONTENT_REFUSED, ErrorKind.BAD_REQUEST}
)


def ends_subtask(error: ModelError) -> bool:
    """True if a model error was caused by the text the model read; it then fails the subtask, not the case.

    An attacker can cause these errors (an output that is too long, or that a provider's filter refuses).
    """
    return error.kind in _SUBTASK_ERRORS and not isinstance(error, QuestionFailed)


class QuestionFailed(ModelError):
    """The model failed on a question that holds no output (which tools only read), so it would in every case."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.kind, str(error), error.retry_after_s)
        self.attempts = error.attempts


NOT_AVAILABLE = "Not Available"
"""Placeholder for a value that the output does not hold; a string may continue with a reason."""

MAX_STRING_CHARS = 20_000
"""Most characters of a string under `schema`. Ours: a long mail or file has less."""
MAX_LIST_ITEMS = 1_000
"""Most elements of a list under `schema`."""


MAX_VALUE_BYTES = 1_048_576
"""Most bytes of a value under either rule, as JSON."""
MAX_NODES = 10_000
"""Most objects, lists and leaves of a value under either rule."""
MAX_DIGITS = 40
"""Most digits of a whole number under either rule: a longer one could encode text."""


class GateRule(Enum):
    """The strictness with which a worker's reply is read."""

    SYNTACTIC = "syntactic"
    """Any JSON object passes, undeclared keys included."""
    SCHEMA = "schema"
    """Undeclared keys are dropped; every declared field must be there with its declared type and
    within bounds.
    """


@dataclass(frozen=True)
class AcceptedValue:
    """A return value that the gate passed; it may enter the caller's context."""

    value: dict[str, Any]
    text: str
    """The value as JSON, written afresh: nothing of the reply around it, and no duplicate key, is left."""
    dropped_keys: int = 0
    """Number of undeclared keys that were removed."""
    echoed: int = 0
    """Number of values that repeat the name of their declared type; 0 under `schema`."""


class _Mismatch(Exception):
    """The value does not have the declared shape."""


class _Echo(_Mismatch):
    """A value is the name of its declared type: "string" for a string."""


def check_reply(reply: str, intent: Intent, rule: GateRule) -> AcceptedValue | Failure:
    """Validate a worker's final reply. The reply may be attacker-controlled; never raises.

    Returns:
        The accepted value; `INFEASIBLE` if the reply is exactly that failure object; else `INVALID_JSON`,
        `SCHEMA_MISMATCH` (also for a value that is too large) or `ECHOED_INTENT`.
    """
    value = find_first_object(reply)
    if value is None:
        return Failure.INVALID_JSON
    if value == {RESERVED_FIELD: Failure.INFEASIBLE.value}:
        return Failure.INFEASIBLE
    dropped_keys = 0
    if rule is GateRule.SCHEMA:
        try:
            value, dropped_keys = conform(value, intent)
        except _Mismatch as mismatch:
            return Failure.ECHOED_INTENT if isinstance(mismatch, _Echo) else Failure.SCHEMA_MISMATCH
    elif RESERVED_FIELD in value:
        return Failure.SCHEMA_MISMATCH
    text = _encode_json(value)
    if text is None:
        return Failure.INVALID_JSON
    if len(text.encode()) > MAX_VALUE_BYTES or not _has_few_nodes(value):
        return Failure.SCHEMA_MISMATCH
    return AcceptedValue(value, text, dropped_keys, count_echoes(value, intent))


def _has_few_nodes(value: object) -> bool:
    """True if a value is within MAX_NODES and its whole numbers are within MAX_DIGITS."""
    waiting, nodes = [value], 0
    while waiting:
        node = waiting.pop()
        nodes += 1
        if nodes > MAX_NODES or (isinstance(node, int) and abs(node) >= 10**MAX_DIGITS):
            return False
        if isinstance(node, dict | list):
            waiting += node.values() if isinstance(node, dict) else node
    return True


def count_echoes(value: object, declared: object) -> int:
    """Count the values of an object that repeat the name of their declared type."""
    if isinstance(declared, Mapping):
        fields = value if isinstance(value, Mapping) else {}
        return sum(count_echoes(fields.get(name), below) for name, below in declared.items())
    if isinstance(declared, list):
        return sum(count_echoes(item, declared[0]) for item in value) if isinstance(value, list) else 0
    return _is_echo(value, declared)


def _is_echo(value: object, type_name: object) -> bool:
    return isinstance(value, str) and value.strip().casefold() == type_name


def find_first_object(text: str) -> dict[str, Any] | None:
    """Parse the JSON object from the first `{` to its matching `}`; None if there is none.

    Closed braces in the prose before it ("the {name} asked for") are skipped. A truncated object does not count,
    nor does an element of a list: the rest of the list would be lost without a word.

    The decoder stops exactly at the matching brace. If parsing fails, it is tried again without trailing commas,
    which models write and JSON forbids.
    """
    parsed = _scan_first_object(text)
    if parsed is None:
        repaired = drop_trailing_commas(text)
        parsed = _scan_first_object(repaired) if repaired != text else None
    return parsed


def _scan_first_object(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    while start >= 0:
        value, end = _parse_object_at(text, start)
        if value is not None:
            return None if _is_in_list(text, start, end) else value
        closed = PROSE_BRACES.match(text, start)
        start = text.find("{", closed.end()) if closed is not None else -1
    return None


_SURROUNDING_LISTS = 8
"""Number of opening brackets tried: bounds the work on hostile text."""


def _parse_object_at(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    # strict=False: models write raw line breaks inside strings; `_encode_json` escapes them.
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)
    try:
        value, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return (value, end) if isinstance(value, dict) else (None, start)


def _is_in_list(text: str, start: int, end: int) -> bool:
    """True if the object at `start` is an element of a JSON list that begins before it."""
    if not text[end:].lstrip().startswith((",", "]")):
        return False
    opened = text.find("[", 0, start)
    for _ in range(_SURROUNDING_LISTS):
        if opened < 0:
            break
        try:
            value, list_end = json.JSONDecoder(strict=False).raw_decode(text, opened)
        except (ValueError, RecursionError):
            value, list_end = None, 0
        if isinstance(value, list) and list_end > start:
            return True
        opened = text.find("[", opened + 1, start)
    return text[:start].rstrip().endswith("[")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _encode_json(value: dict[str, Any]) -> str | None:
    # 1e999 decodes to infinity and "\ud800" to half a character: valid JSON that cannot be sent or stored.
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        return None
    return text


def conform(value: Mapping[str, Any], intent: Intent) -> tuple[dict[str, Any], int]:
    """Return the declared part of a value, and the number of undeclared keys that were removed.

    Raises:
        _Mismatch: If a declared field is missing, has another type or is too long.
    """
    kept: dict[str, Any] = {}
    dropped = len(value.keys() - intent.keys())
    for key, declared in intent.items():
        if key not in value:
            raise _Mismatch(key)
        kept[key], below = _conform_node(value[key], declared)
        dropped += below
    return kept, dropped


def _conform_node(value: Any, declared: Any) -> tuple[Any, int]:
    if isinstance(declared, str):
        return conform_leaf(value, declared), 0
    if isinstance(declared, list):
        if not isinstance(value, list) or len(value) > MAX_LIST_ITEMS:
            raise _Mismatch("list")
        pairs = [_conform_node(item, declared[0]) for item in value]
        return [kept for kept, _ in pairs], sum(dropped for _, dropped in pairs)
    if not isinstance(value, dict):
        raise _Mismatch("object")
    return conform(value, declared)


_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Invisible characters: controls other than tab and line feed, direction marks and tags. They could hide text from
a human who reads the value."""
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,2})?")
_TRUTH_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def conform_leaf(value: object, type_name: str) -> Any:
    """Convert a leaf to its declared type.

    "2.50" becomes a number, "true" a boolean, 3 a string. Strings are normalized (NFC) and lose invisible
    characters. A missing number, integer or boolean is null or exactly "Not Available"; a reason behind these
    words is removed, as it could carry text.

    Raises:
        _Mismatch: If the leaf has another type or is too long.
    """
    if _is_echo(value, type_name):
        raise _Echo(type_name)
    leaf = value
    if type_name == "string" and isinstance(value, str):
        leaf = _HIDDEN.sub("", unicodedata.normalize("NFC", value))
    elif type_name == "string" and isinstance(value, bool | int | float):
        leaf = json.dumps(value)
    elif type_name != "string" and isinstance(value, str):
        leaf = _read_leaf(value.strip(), type_name)
    if not _is_leaf(leaf, type_name):
        raise _Mismatch(type_name)
    return leaf


def _read_leaf(text: str, type_name: str) -> Any:
    if text.startswith(NOT_AVAILABLE):
        return NOT_AVAILABLE
    if type_name == "boolean":
        return _TRUTH_WORDS.get(text.casefold(), text)
    try:
        return json.loads(text) if _NUMBER.fullmatch(text) else text
    except ValueError:  # 007, or more digits than Python reads.
        return text


def _is_leaf(value: object, type_name: str) -> bool:
    if value is None or value == NOT_AVAILABLE:
        return True
    if type_name == "string":
        return isinstance(value, str) and len(value) <= MAX_STRING_CHARS
    if type_name == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, int):
        return True
    return math.isfinite(value) and (type_name == "number" or value.is_integer())
