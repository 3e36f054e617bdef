"""Tokens and cost as Inspect counts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inspect_ai.model import ModelUsage

from agentsys.analysis.html_report.loose import number
from agentsys.records.schema import RoleUsage


def convert_role_usage(used: RoleUsage) -> ModelUsage:
    """What one role used in one case."""
    return ModelUsage(
        input_tokens=used.prompt,
        output_tokens=used.completion,
        total_tokens=used.prompt + used.completion,
        input_tokens_cache_read=used.cached,
        reasoning_tokens=used.reasoning,
        total_cost=used.cost_usd,
    )


def convert_call_usage(call: Mapping[str, Any]) -> ModelUsage:
    """What one stored call used; nothing in it is trusted."""
    prompt, completion = (int(number(call.get(key)) or 0) for key in ("prompt", "completion"))
    return ModelUsage(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_cache_read=int(number(call.get("cached")) or 0),
        reasoning_tokens=int(number(call.get("reasoning")) or 0),
        total_cost=number(call.get("cost_usd")),
    )


def sum_usage(used: Iterable[ModelUsage]) -> ModelUsage:
    """The sum; its cost is unknown if one part's is."""
    listed = list(used)
    costs = [one.total_cost for one in listed]
    return ModelUsage(
        input_tokens=sum(one.input_tokens for one in listed),
        output_tokens=sum(one.output_tokens for one in listed),
        total_tokens=sum(one.total_tokens for one in listed),
        input_tokens_cache_read=sum(one.input_tokens_cache_read or 0 for one in listed),
        reasoning_tokens=sum(one.reasoning_tokens or 0 for one in listed),
        total_cost=None if None in costs else sum(cost for cost in costs if cost is not None),
    )
