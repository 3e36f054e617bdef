"""`repeats`: how often a run did again exactly what it had done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsys.models.trace import Tracer

ACTING_TOOLS = frozenset(
    {
        "add_calendar_event_participants",
        "add_user_to_channel",
        "append_to_file",
        "cancel_calendar_event",
        "create_calendar_event",
        "create_file",
        "delete_email",
        "delete_file",
        "invite_user_to_slack",
        "post_webpage",
        "remove_user_from_slack",
        "reschedule_calendar_event",
        "reserve_car_rental",
        "reserve_hotel",
        "reserve_restaurant",
        "schedule_transaction",
        "send_channel_message",
        "send_direct_message",
        "send_email",
        "send_money",
        "share_file",
        "update_password",
        "update_scheduled_transaction",
        "update_user_info",
    }
)
"""AgentDojo's tools that act. Reading a page or unread mail leaves a trace in the environment, too, and
is not among them."""


def count_repeats(tracer: Tracer) -> int:
    """Calls of acting tools, in the scored run, that had been made before with the same arguments.

    Failed calls are not counted.
    """
    done: list[tuple[str, Mapping[str, Any]]] = []
    again = 0
    for (name, args, error), attempt in zip(tracer.executed_calls, tracer.executed_attempts, strict=True):
        if name in ACTING_TOOLS and error is None and attempt == tracer.attempt:
            again += (name, args) in done
            done.append((name, args))
    return again
