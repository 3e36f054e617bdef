"""Groups of people that policies ask for: who is in a channel, takes part in an event, can open a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

GroupLookup = Callable[[Any, str], Iterable[str]]
"""From an environment and a name to the people."""


def channel_members(environment: Any, channel: str) -> list[str]:
    """Who is in a channel now."""
    memberships: Mapping[str, Iterable[str]] = environment.slack.user_channels
    return [user for user, channels in memberships.items() if channel in channels]


def event_participants(environment: Any, event: str) -> list[str]:
    """Who takes part in a calendar event now; nobody in one that does not exist."""
    found = environment.calendar.events.get(event)
    return [] if found is None else [str(person) for person in found.participants]


def file_sharers(environment: Any, file: str) -> list[str]:
    """Who can open a file now; nobody one that does not exist."""
    found = environment.cloud_drive.files.get(file)
    return [] if found is None else [str(found.owner), *(str(person) for person in found.shared_with)]


def read_identities(held: Any) -> list[str]:
    """The identities in an argument: a text, a list of texts, or nothing."""
    if held is None:
        return []
    return [str(one) for one in held] if isinstance(held, list | tuple | set) else [str(held)]
