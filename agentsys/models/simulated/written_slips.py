"""Slips in writing: functions from a reply's text to the text a sloppy model writes instead."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

_TAGGED = re.compile(r"<(\w+)>\s*([\[{].*?)\s*</\1>", re.DOTALL)
_VERDICT = re.compile(r"\s*(?:<\w+>)?\s*\w{1,8}\s*(?:</\w+>)?\s*")
_CONTINUED = re.compile(r"\\\r?\n[ \t]*(?:\\(?= ))?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LAYOUT = frozenset("nrtNLP_ ")


def change_json(text: str, change: Callable[[str], str]) -> str:
    """Change a text that is a JSON object or list, or each such part of it that stands in tags."""
    if _is_json(text):
        return change(text)
    return _TAGGED.sub(lambda m: m[0].replace(m[2], change(m[2]), 1) if _is_json(m[2]) else m[0], text)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def change_quotes(text: str, change: Callable[[list[str]], list[str]]) -> str:
    """JSON whose lists of quotes were changed."""
    value = json.loads(text)
    changed = _quote_lists(value, change)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _quote_lists(value: Any, change: Callable[[list[str]], list[str]]) -> Any:
    if isinstance(value, dict):
        return {key: _quote_lists(below, change) for key, below in value.items()}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return change(value)
    return value


def drop_words(quote: str, draw: random.Random) -> str:
    """About a quarter of the words left out, at least one."""
    words = quote.split()
    dropped = draw.randrange(len(words)) if words else 0
    kept = [word for place, word in enumerate(words) if place != dropped and draw.random() >= 0.25]
    return " ".join(kept)


def join_lines(quote: str) -> str:
    """The text as a reader of YAML or JSON sees it: escapes resolved, white space as single spaces."""
    return " ".join(_ESCAPE.sub(_resolve_escape, _CONTINUED.sub("", quote)).split())


def _resolve_escape(match: re.Match[str]) -> str:
    code, byte, other = match.groups()
    if code or byte:
        return chr(int(code or byte, 16))
    return " " if other in _LAYOUT else str(other)


def keep_first_half(quote: str) -> str:
    """The first half, up to the end of a word."""
    cut = quote.find(" ", len(quote) // 2)
    return quote if cut < 0 else quote[:cut]


def quote_json_numbers(text: str) -> str:
    """JSON whose numbers are strings."""
    value = json.loads(text)
    changed = stringify_numbers(value)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def stringify_numbers(value: Any) -> Any:
    """A value with each number as a string."""
    if isinstance(value, dict):
        return {key: stringify_numbers(below) for key, below in value.items()}
    if isinstance(value, list):
        return [stringify_numbers(below) for below in value]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def add_trailing_comma(text: str) -> str:
    """JSON with a comma behind its last entry; an empty one has none."""
    body = text.rstrip()
    return f"{body[:-1].rstrip()},{body[-1]}" if json.loads(text) else text


def add_code_fence(text: str) -> str:
    """JSON in a code fence, with a sentence on either side."""
    return f"Here is the result:\n\n```json\n{text}\n```\n\nLet me know if you need anything else."


def explain_verdict(text: str, draw: random.Random) -> str:
    """A verdict with reasons; anything but a word, bare or in tags, stays."""
    if not _VERDICT.fullmatch(text):
        return text
    verdict = text.strip()
    return draw.choice(
        (
            f"{verdict}. This follows from what was asked for.",
            f"I compared this with what was asked for, step by step.\n\n{verdict}",
            f"Answer: {verdict}",
        )
    )
