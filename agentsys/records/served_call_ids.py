"""Ids of the calls in a served agent's replies: `call_` and 32 hex digits, which every client takes.

OpenAI takes 40 characters, and agno rewrites ids that do not begin with `call_`. Stored files of clients are known by
these ids, so eight of the digits are a mark of our own. It keeps nobody out: the other 96 bits are random.
"""

from __future__ import annotations

import hashlib
import re
import secrets

TOOL, ANSWER = "tool", "answer"
"""What a call is of: a tool, or the client's answer schema, whose results nobody reads."""
WRITTEN_ID = re.compile(r"\bcall_[0-9a-f]{32}\b")
_ID_CHARS = len("call_") + 32
_RANDOM_BYTES = 12
_OLD_PREFIX = "agentsys_"


def make_call_id(kind: str) -> str:
    """A new id."""
    drawn = secrets.token_hex(_RANDOM_BYTES)
    return f"call_{drawn}{_compute_mark(kind, drawn)}"


def is_call_id(kind: str, call_id: object) -> bool:
    """True if an id is one that was made here for this kind."""
    if not isinstance(call_id, str):
        return False
    if len(call_id) != _ID_CHARS or not WRITTEN_ID.fullmatch(call_id):  # the length alone says so of most
        return kind == TOOL and call_id.startswith(_OLD_PREFIX)
    drawn = call_id.removeprefix("call_")[: 2 * _RANDOM_BYTES]
    return call_id.endswith(_compute_mark(kind, drawn))


def _compute_mark(kind: str, drawn: str) -> str:
    return hashlib.blake2b(f"agentsys {kind} {drawn}".encode(), digest_size=4).hexdigest()
