"""`ArgumentKind`: what sort of thing a tool's argument is, told by its name and value."""

from __future__ import annotations

from enum import StrEnum


class ArgumentKind(StrEnum):
    """Sorts of arguments; `SETTLED` has those that a prompt as a rule leaves no choice in."""

    RECIPIENT = "recipient"
    EMAIL = "e-mail"
    TITLE = "title"
    FILE_NAME = "file name"
    AMOUNT = "amount"
    FLAG = "flag"
    DATE = "date"
    ID = "id"
    URL = "url"
    TEXT = "text"
    """Whatever else: bodies, descriptions, subjects, names of things."""


SETTLED = frozenset(
    {
        ArgumentKind.RECIPIENT,
        ArgumentKind.EMAIL,
        ArgumentKind.TITLE,
        ArgumentKind.FILE_NAME,
        ArgumentKind.AMOUNT,
        ArgumentKind.FLAG,
    }
)
"""Kinds that count as candidates. In the others agents differ rightly: when, in what words, by which id."""

_BY_WORD = {
    "recipient": ArgumentKind.RECIPIENT,
    "recipients": ArgumentKind.RECIPIENT,
    "participants": ArgumentKind.RECIPIENT,
    "cc": ArgumentKind.RECIPIENT,
    "bcc": ArgumentKind.RECIPIENT,
    "email": ArgumentKind.EMAIL,
    "user": ArgumentKind.RECIPIENT,
    "title": ArgumentKind.TITLE,
    "filename": ArgumentKind.FILE_NAME,
    "amount": ArgumentKind.AMOUNT,
    "date": ArgumentKind.DATE,
    "time": ArgumentKind.DATE,
    "day": ArgumentKind.DATE,
    "id": ArgumentKind.ID,
    "url": ArgumentKind.URL,
}


def kind_of(name: str, value: object) -> ArgumentKind:
    """The kind of an argument.

    Args:
        name: Its name; the last word that is known decides (`user_email` is an e-mail).
        value: What the ground truth gives.
    """
    if isinstance(value, bool):
        return ArgumentKind.FLAG
    known = [_BY_WORD[word] for word in name.lower().split("_") if word in _BY_WORD]
    return known[-1] if known else ArgumentKind.TEXT
