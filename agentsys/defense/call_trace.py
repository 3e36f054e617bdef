"""`CallTrace`: the compact trace, the calls made so far without their results.

`UserRequest` masks words that a worker may have taken from an output: a validator sees only words of the user's
request and values of a closed format (a date, a number, an address), which hold no sentence.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentsys.defense.intent import Intent

_MAIL = r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}"
_IBAN = r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}"
_PAGE = r"(?:https?://)?(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,10}(?:/[\w.~%-]{0,40}){0,4}"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
_NUMBER = r"[+-]?\d{1,15}(?:\.\d{1,15})?"
_ID = r"\w{1,40}"

WORDLESS = re.compile("|".join((_DATE, _NUMBER)))
"""A date, a time or a number, which cannot be read as words."""
_CLOSED = re.compile("|".join((_MAIL, _IBAN, _PAGE, _DATE, _NUMBER, _ID)))
_SHORT_OR_ANY_CASE = re.compile("|".join((_MAIL, _NUMBER)))
_MIN_CHARS = 3
"""Shorter texts occur in any request by chance."""


def has_closed_format(leaf: object) -> bool:
    """True for a number, a date, null, an enumeration's member or a string of a closed format."""
    if leaf is None or isinstance(leaf, bool | int | float | datetime.date | datetime.time | Enum):
        return True
    return isinstance(leaf, str) and _CLOSED.fullmatch(leaf) is not None


_STATUS_FIELD = "status"
"""The field that acting calls declare; the prompts name it."""


class UserRequest:
    """The user's request, used to mask the words of a worker that it does not contain."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded, self._words = _fold_words(text), " ".join(text.split())

    def contains(self, text: str) -> bool:
        """True if the request contains the text as whole words, ignoring case and white space."""
        return _stands_in(_fold_words(text), self._folded)

    def says(self, leaf: object) -> bool:
        """True if the request contains a leaf as whole words, in the same case, with at least three characters.

        Numbers and mail addresses may be shorter, or written in another case.
        """
        text = str(leaf)
        if _SHORT_OR_ANY_CASE.fullmatch(text):
            return self.contains(text)
        wanted = " ".join(text.split())
        return len(wanted) >= _MIN_CHARS and _stands_in(wanted, self._words)

    def mask_value(self, value: Any) -> Any:
        """Replace the strings of a value that are not in the request; dates and numbers stay."""
        if isinstance(value, Mapping):
            return {
                key if self.contains(str(key)) else f"key_{number}": self.mask_value(child)
                for number, (key, child) in enumerate(value.items(), 1)
            }
        if isinstance(value, list | tuple | set):
            return [self.mask_value(item) for item in value]
        if value is None or isinstance(value, bool | int | float | datetime.date):
            return value
        text = str(value)
        if WORDLESS.fullmatch(text) or self.contains(text):
            return text
        return f"<text that is not in the request, {len(text)} characters>"

    def mask_fields(self, node: Any) -> Any:
        """Replace the field names of an intent whose words are not in the request."""
        if isinstance(node, Mapping):
            return {
                key
                if key == _STATUS_FIELD or self.contains(key.replace("_", " "))
                else f"field_{number}": self.mask_fields(child)
                for number, (key, child) in enumerate(node.items(), 1)
            }
        return [self.mask_fields(item) for item in node] if isinstance(node, list) else node


def _fold_words(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands_in(wanted: str, text: str) -> bool:
    """True if `text` contains `wanted` between word boundaries."""
    # No regular expression: both texts may be hostile, and compiling one of 500 kB takes a second.
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        splits_word = (wanted[:1].isalnum() and _is_in_word(text[at - 1 : at])) or (
            wanted[-1:].isalnum() and _is_in_word(text[end : end + 1])
        )
        if not splits_word:
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@dataclass(frozen=True)
class TracedCall:
    """One tool call, without its result."""

    tool: str
    args: Mapping[str, Any]
    """The arguments as the tool's schema reads them, without undeclared ones, which the tool never gets."""
    intent: Intent | None
    """The declared return value; None where agents declare none (the no-isolation ablation)."""
    by_worker: bool = False
    """True if a worker made the call: its words may come from an output."""

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        call: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        return call if self.intent is None else {**call, "intent": dict(self.intent)}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The call as a validator may see it: a worker's words are masked unless the request has them."""
        if not self.by_worker:
            return self.as_data()
        call = {
            "tool": self.tool,
            "args": {key: request.mask_value(value) for key, value in self.args.items()},
        }
        return call if self.intent is None else {**call, "intent": request.mask_fields(self.intent)}


@dataclass(frozen=True)
class AbandonedCall:
    """A call that ran for an abandoned worker, without its arguments, which the worker wrote."""

    tool: str

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        return {"tool": self.tool}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The same data: a tool's name needs no mask."""
        return self.as_data()


TraceEntry = TracedCall | AbandonedCall


class CallTrace:
    """The calls that one agent may know of: those of its ancestors and its own, in order.

    Calls of workers of other outputs are left out: their arguments may quote what they read. A call is added when it
    is about to run, so that refused calls, which an injection may have caused, do not influence the validator's next
    verdict.
    """

    def __init__(self, calls: Sequence[TraceEntry] = ()) -> None:
        self.calls: list[TraceEntry] = list(calls)

    def add(self, call: TraceEntry) -> None:
        """Add a call that is about to run."""
        self.calls.append(call)

    def branch(self, given_up: Sequence[TraceEntry] = ()) -> CallTrace:
        """Copy this trace for a new worker, and append the names of tools that ran for abandoned workers."""
        return CallTrace([*self.calls, *(AbandonedCall(call.tool) for call in given_up)])

    def list_new_calls(self, other: CallTrace) -> Sequence[TraceEntry]:
        """Return the calls added since this trace was branched from `other`."""
        return self.calls[len(other.calls) :]

    def as_json(self) -> str:
        """The trace as one line of JSON, for a worker."""
        return format_json_line([call.as_data() for call in self.calls])

    def as_masked_json(self, request: UserRequest) -> str:
        """The trace as one line of JSON, for a validator."""
        return format_json_line([call.mask(request) for call in self.calls])


def format_json_line(data: object) -> str:
    """Format data as a single line of JSON; values that JSON does not know become strings."""
    return json.dumps(data, ensure_ascii=False, default=str)
