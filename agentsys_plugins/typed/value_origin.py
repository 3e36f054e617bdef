"""`ValueOrigin`: what is known of a value that the main agent may pass on without reading it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any


class ValueKind(Enum):
    """The form of a leaf. All but `TEXT` are closed: a whole value matches a pattern of ASCII characters."""

    NUMBER = "number"
    DATE = "date"
    TRUTH = "truth"
    """True, false, null."""
    MAIL = "mail"
    ACCOUNT = "account"
    PAGE = "page"
    CODE = "code"
    """Letters and digits in one piece: an id."""
    WORD = "word"
    TEXT = "text"
    """Anything else."""


WORDLESS_KINDS = frozenset({ValueKind.NUMBER, ValueKind.DATE, ValueKind.TRUTH})
"""Kinds in which nobody can write words."""
COPIED_KINDS = frozenset({ValueKind.MAIL, ValueKind.ACCOUNT, ValueKind.PAGE})
"""Kinds that a reader copies letter for letter: what stands nowhere was made up."""

_PATTERNS = {
    ValueKind.NUMBER: r"[+-]?\d{1,15}(?:\.\d{1,15})?",
    ValueKind.DATE: (
        r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?"
        r"|\d{2}:\d{2}(?::\d{2})?"
    ),
    ValueKind.MAIL: r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}",
    ValueKind.ACCOUNT: r"[A-Z]{2}\d{2}[A-Za-z0-9]{10,30}",
    ValueKind.PAGE: r"(?:https?://)?(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,10}(?:/[A-Za-z0-9_.~%-]{0,40}){0,4}",
    ValueKind.CODE: r"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{1,40}",
    ValueKind.WORD: r"[A-Za-z][A-Za-z'-]{0,39}",
}
_FORMS = {kind: re.compile(pattern, re.ASCII) for kind, pattern in _PATTERNS.items()}


class ChosenBy(IntEnum):
    """Who chose this value among others; a larger one is trusted less."""

    CODE = 0
    """Nobody read anything."""
    BLIND = 1
    """A worker that saw no text of third parties."""
    READER = 2
    """A worker that read such text."""


class Distance(IntEnum):
    """How the user's request leads to the place where a value was found."""

    OWN = 0
    """Nothing selected it: a listing of the user's own."""
    NAMED = 1
    """The user's words selected it, or a value that no reader chose and that is itself at most named."""
    VIA = 2
    """Anything else: it was found by what was found."""


ValuePath = tuple[str | int, ...]
"""The way to a leaf."""


@dataclass(frozen=True)
class ValueOrigin:
    """Where one accepted leaf comes from."""

    call: int
    """Number of the call that gave it, from 1."""
    tool: str
    path: ValuePath
    """The way to the leaf in the accepted value."""
    kind: ValueKind
    choice: ChosenBy
    distance: Distance
    has_rivals: bool = False
    """Whether the output that a reader took it from holds another address or account of its kind."""


def find_value_kind(leaf: object) -> ValueKind:
    """The kind of a leaf, by its full text."""
    if leaf is None or isinstance(leaf, bool):
        return ValueKind.TRUTH
    if isinstance(leaf, datetime.date | datetime.time):
        return ValueKind.DATE
    text = str(leaf)
    return next((kind for kind, form in _FORMS.items() if form.fullmatch(text)), ValueKind.TEXT)


def names_address(leaf: object) -> bool:
    """True if a leaf is an address, an account or a page, or a short text with one in it: `Bob <bob@blue.org>`."""
    text = str(leaf)
    if find_value_kind(leaf) in COPIED_KINDS:
        return True
    return len(text) <= _NAME_CHARS and any(finder.search(text) is not None for finder in _FINDERS.values())


_NAME_CHARS = 100


def has_rivals(leaf: object, text: str) -> bool:
    """True if a text holds an address or account of a leaf's kind besides the leaf itself."""
    finder = _FINDERS.get(find_value_kind(leaf))
    return finder is not None and bool(set(finder.findall(text)) - {str(leaf)})


_FINDERS = {
    kind: re.compile(rf"(?<![\w.@-])(?:{_PATTERNS[kind]})(?![\w@-])", re.ASCII)
    for kind in (ValueKind.MAIL, ValueKind.ACCOUNT)
}


def write_canonical(leaf: object) -> str:
    """A leaf as a text that equal leaves share: 98.70 is 98.7, and a date is written in one way."""
    if leaf is None or isinstance(leaf, bool):
        return str(leaf).casefold()
    text = str(leaf).strip()
    kind = find_value_kind(leaf if not isinstance(leaf, str) else text)
    if kind is ValueKind.NUMBER:
        return f"{Decimal(text).normalize():f}"
    if kind is ValueKind.DATE:
        try:
            return datetime.datetime.fromisoformat(text).isoformat(" ")
        except ValueError:
            return text
    return text


def map_leaves(value: Any, change: Callable[[Any, ValuePath], Any], path: ValuePath = ()) -> Any:
    """Plain data with each leaf changed; it is given the way to it."""
    if isinstance(value, dict):
        return {key: map_leaves(child, change, (*path, key)) for key, child in value.items()}
    if isinstance(value, list):
        return [map_leaves(item, change, (*path, at)) for at, item in enumerate(value)]
    return change(value, path)


def iterate_leaves(value: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, Any]]:
    """Each leaf of plain data, with the way to it."""
    if isinstance(value, Mapping | list):
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
        for step, child in pairs:
            yield from iterate_leaves(child, (*path, step))
    else:
        yield path, value
