"""`Pace`: how fast a model is asked, and how a refusal or a reply changes that. Time is an argument here."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field


class RatePolicy(BaseModel):
    """The rate a model is asked at; `rate:` in its YAML. Without a number it is found from refusals alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests: float | None = Field(default=None, gt=0)
    """Most requests per minute."""
    tokens: float | None = Field(default=None, gt=0)
    """Most tokens per minute, prompts and replies together."""


@dataclass(frozen=True)
class RateState:
    """The state of a rate. Moments are seconds since the epoch: several machines may share it."""

    next_request: float = 0.0
    """When the next request may be sent."""
    next_token: float = 0.0
    """When what was sent so far is no longer above the tokens per minute."""
    closed_until: float = 0.0
    """Until when the server asked to be left alone."""
    found: float | None = None
    """Requests a second that were found from refusals; None: none is known."""
    refused_at_rate: float = float("inf")
    """What was found when a request was refused last."""
    cut_at: float = 0.0
    """When the rate was made smaller last."""
    grown_at: float = 0.0
    """When it was made larger last."""


_CUT_FACTOR = 0.75
"""What is left of a rate after a refusal."""
RECENT_REQUESTS = 64
"""How many of a process's last requests tell whether refusals come of its rate."""
_STRAY_SHARE = 0.06
"""Share of refusals among these up to which they have another cause than its rate.

Gateways refuse a few at any rate, and slowing down for these would never end."""
_MAX_STRAYS = 2
"""Refusals among them that are no share yet."""
_MIN_RATE = 1 / 60
"""Requests a second that a rate is never cut below."""
_COOL_S = 1.0
"""Refusals within so many seconds of a cut were sent before it."""
_GROWTH, _CAREFUL_GROWTH = 0.05, 0.01
"""By how much a rate that is fully used grows in a second, and close to where a request was refused."""
_CLOSE_SHARE = 0.9
_FORGET_S = 120.0
"""Without a refusal for so long, where the last one was says nothing any more."""
_LOST_S = 900.0
"""A moment further ahead comes from a clock that was set."""


def seconds_until_send(pace: RateState, now: float) -> float:
    """Seconds until the next request may be sent; 0: now."""
    ahead = max(pace.next_request, pace.next_token, pace.closed_until) - now
    return 0.0 if ahead > _LOST_S else max(0.0, ahead)


def after_request(pace: RateState, policy: RatePolicy, now: float, tokens: float) -> RateState:
    """The state after a request of so many tokens went out."""
    rates = [rate for rate in (pace.found, policy.requests and policy.requests / 60) if rate is not None]
    after = now + 1 / min(rates) if rates else now
    return dataclasses.replace(pace, next_request=after, next_token=_next_token_at(pace, policy, now, tokens))


def after_reply(pace: RateState, policy: RatePolicy, now: float, more_tokens: float, *, waited: bool) -> RateState:
    """The state after a reply.

    Args:
        pace: The state before.
        policy: The bounds.
        now: The moment.
        more_tokens: What request and reply came to beyond what was thought when it was sent; may be negative.
        waited: Whether its request had to wait: only a rate that is fully used can be told to be too small.
    """
    pace = dataclasses.replace(pace, next_token=_next_token_at(pace, policy, now, more_tokens))
    if pace.found is None or not waited:
        return pace
    seconds = min(1.0, max(0.0, now - max(pace.grown_at, pace.cut_at)))
    known = pace.refused_at_rate if now - pace.cut_at < _FORGET_S else float("inf")
    growth = _GROWTH if pace.found < _CLOSE_SHARE * known else _CAREFUL_GROWTH
    return dataclasses.replace(pace, found=pace.found * (1 + growth * seconds), grown_at=now)


def after_retry_after(pace: RateState, until: float) -> RateState:
    """The state after the server asked to be left alone until a moment."""
    return dataclasses.replace(pace, closed_until=max(pace.closed_until, until))


def after_refusal(pace: RateState, now: float, seen: float) -> RateState:
    """The state after the server said that it was asked too often, and the rate is the cause.

    Args:
        pace: The state before.
        now: The moment.
        seen: Requests a second that this process has sent lately.
    """
    if now - pace.cut_at < _COOL_S:
        return pace
    rate = seen if pace.found is None else pace.found
    cut = max(_MIN_RATE, _CUT_FACTOR * rate)
    return dataclasses.replace(pace, found=cut, refused_at_rate=rate, cut_at=now, grown_at=now)


def are_stray_refusals(refusals: Collection[bool]) -> bool:
    """Whether so few of a process's last requests were refused that its rate is not the cause."""
    return sum(refusals) <= max(_MAX_STRAYS, _STRAY_SHARE * len(refusals))


def _next_token_at(pace: RateState, policy: RatePolicy, now: float, tokens: float) -> float:
    if policy.tokens is None:
        return pace.next_token
    return max(pace.next_token, now) + tokens * 60 / policy.tokens
