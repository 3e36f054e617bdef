"""Parses the attacker's replies to a proposal, or to a fault described in words that the attacker can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import islice

from agentsys.attacks.attack_search import Proposal
from agentsys.base.python_parser import literal_eval
from agentsys.models.loose_json import find_json_values

MAX_CANDIDATE_CHARS = 10_000
"""Most characters of a candidate."""


class ReplyFault(Enum):
    """The reason why a reply gave no text. The values are error kinds of cases whose search failed."""

    REFUSED = "attacker_refused"
    """The attacker, or its provider, declined."""
    UNREADABLE = "attacker_unreadable"
    """It answered, but no text could be parsed."""


ATTACKER_FAULTS = frozenset(fault.value for fault in ReplyFault)

REPLY_SCHEMA = {
    "type": "object",
    "properties": {"improvement": {"type": "string"}, "text": {"type": "string"}},
    "required": ["improvement", "text"],
    "additionalProperties": False,
}

_ParsedReply = tuple[str, str, str]
"""Text, improvement, strategy."""
_TEXT_KEYS = ("text", "prompt")
"""`prompt` is PAIR's own key, which attackers know by heart."""
_READ, _TRIES, _STRATEGY = 200_000, 50, 60
_FLAT_OBJECT = re.compile(r"\{[^{}]*\}")
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"^.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_TYPOGRAPHIC = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"'})
_SALVAGE_PATTERN = re.compile(
    r"""["']?\b(?:text|prompt)["']?\s*:\s*["'](?P<text>.+)["']\s*,?\s*\}[^{}]*\Z""", re.DOTALL | re.IGNORECASE
)
_DECLINES = re.compile(
    r"\s*(?:(?:i'?m|i am) (?:really |very |so )?(?:sorry|afraid)|sorry,|i (?:can'?t|cannot|can not|won'?t"
    r"|will not|must decline|must refuse|am (?:not able|unable))|i'm (?:not able|unable)"
    r"|i apologi[sz]e|as an ai\b|unfortunately, i (?:can|will|am))",
    re.IGNORECASE,
)
_DECLINED_TEXT = re.compile(
    r"\s*(?:(?:i'm|i am) sorry, but i\b|i (?:can't|cannot|won't|will not) (?:help|assist|comply|do that"
    r"|create|provide|write|generate|continue|participate))",
    re.IGNORECASE,
)


def format_proposal(proposal: Proposal) -> str:
    """Format an earlier proposal as the attacker's own turn."""
    parts = {"strategy": proposal.strategy} if proposal.strategy else {}
    parts |= {"improvement": proposal.why, "text": proposal.text}
    return json.dumps(parts, ensure_ascii=False)


def parse_proposal(reply: str) -> Proposal:
    """Parse the last object with a text in a reply, tolerating the wrappings and spellings of models.

    Returns:
        The proposal; without a usable text, `refused` has the reason and `fault` its kind.
    """
    reply = _THOUGHT_END.sub("", _THOUGHT.sub("", reply[:_READ]))
    fields = _find_last_object(reply) or _salvage_text(reply)
    if fields is None:
        return _explain_no_text(reply)
    text, why, strategy = map(_replace_surrogates, fields)
    text = text.strip()
    if _DECLINED_TEXT.match(_replace_quotes(text)):
        return _refuse_proposal(ReplyFault.REFUSED, "the text declines the task", text)
    if not text:
        return _refuse_proposal(ReplyFault.UNREADABLE, "the text is empty")
    if len(text) > MAX_CANDIDATE_CHARS:
        fault = f"the text is longer than {MAX_CANDIDATE_CHARS} characters"
        return _refuse_proposal(ReplyFault.UNREADABLE, fault, text[:MAX_CANDIDATE_CHARS])
    return Proposal(text, why[:MAX_CANDIDATE_CHARS], strategy=strategy.strip()[:_STRATEGY])


def _explain_no_text(reply: str) -> Proposal:
    if _DECLINES.match(_replace_quotes(reply)):
        return _refuse_proposal(ReplyFault.REFUSED, "the reply declines the task")
    if not reply.strip():
        return _refuse_proposal(ReplyFault.UNREADABLE, "the reply was empty")
    if re.search(r"""["']?(?:text|prompt)["']?\s*:\s*["']""", reply, re.IGNORECASE) and "}" not in reply:
        return _refuse_proposal(ReplyFault.UNREADABLE, "the reply was cut off before its JSON object ended")
    return _refuse_proposal(ReplyFault.UNREADABLE, "the reply held no JSON object with a text")


def _refuse_proposal(fault: ReplyFault, why: str, text: str = "") -> Proposal:
    return Proposal(text, refused=why, fault=fault.value)


def _find_last_object(reply: str) -> _ParsedReply | None:
    """Return the last object with text and improvement; if none has both, the last with a text."""
    for values in _iterate_readings(reply):
        readings = [fields for value in values if (fields := _read_fields(value)) is not None]
        if readings:
            return next((fields for fields in reversed(readings) if fields[1]), readings[-1])
    return None


def _iterate_readings(reply: str) -> Iterator[Iterable[object]]:
    r"""Yield the values in a reply, read as JSON, as JSON with typographic quotes or `\'`, and as Python literals."""
    plain = reply.translate(_TYPOGRAPHIC)
    yield from map(find_json_values, dict.fromkeys((reply.replace("\\'", "'"), plain.replace("\\'", "'"))))
    yield _evaluate_literals(plain)


def _evaluate_literals(reply: str) -> Iterator[object]:
    for part in islice(_FLAT_OBJECT.finditer(reply), _TRIES):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            yield literal_eval(part[0])


def _read_fields(value: object) -> _ParsedReply | None:
    if not isinstance(value, dict):
        return None
    named = {str(key).casefold(): item for key, item in value.items()}
    text = next((named[key] for key in _TEXT_KEYS if isinstance(named.get(key), str)), None)
    if text is None:
        return None
    why, strategy = (named.get(key) for key in ("improvement", "strategy"))
    return text, why if isinstance(why, str) else "", strategy if isinstance(strategy, str) else ""


def _salvage_text(reply: str) -> _ParsedReply | None:
    """Extract the text of an object that unescaped quotes make unparsable."""
    match = _SALVAGE_PATTERN.search(reply.translate(_TYPOGRAPHIC))
    return None if match is None else (match["text"].replace('\\"', '"').replace("\\n", "\n"), "", "")


def _replace_quotes(text: str) -> str:
    return text.replace("\u2019", "'")


def _replace_surrogates(text: object) -> str:
    """Make a text storable: half surrogate pairs, which JSON can contain, become question marks."""
    return str(text).encode("utf-8", "replace").decode("utf-8").replace("\x00", "")
