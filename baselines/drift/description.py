"""DRIFT in a few sentences, as one variant is set."""

from __future__ import annotations

from baselines.drift.settings import DriftSettings


def described(settings: DriftSettings) -> str:
    """5 to 10 sentences on planner, validator and isolator."""
    parts = [
        "One agent works through the request and reads tool results in one conversation.",
        *_plan(settings),
        *_isolator(settings),
        f"Calls run only while the agent was asked with at most {settings.message_cap} messages, in at most"
        f" {settings.max_rounds} turns after the first.",
    ]
    return " ".join(parts)


def _plan(settings: DriftSettings) -> list[str]:
    if not settings.build_constraints:
        return ["There is no plan, so that calls are held against nothing.", "No call is judged."]
    planned = [
        "Before anything untrusted is read, a planner writes down from the request which tools will be called"
        " in which order, and what their arguments must be or where they must come from.",
        "A planned call has to have the planned arguments.",
    ]
    if not settings.dynamic_validation:
        return [*planned, "A call outside the plan is refused, and the plan cannot grow."]
    seen = "with its arguments" if settings.judge_arguments else "by its tool's name, without its arguments"
    return [
        *planned,
        "A call outside the plan is let through if its tool only reads; if it writes or executes, a judge"
        f" model decides from the request, the plan and the call ({seen}) whether it serves the request.",
        "A call that was let through becomes part of the plan.",
    ]


def _isolator(settings: DriftSettings) -> list[str]:
    if not settings.injection_isolation:
        return ["Nothing is cut out of tool results.", "No model looks through them before the agent does."]
    unreadable = {"withhold": "a notice stands for the result", "keep": "the result is kept"}
    return [
        "Each tool result is first read by a detector model, which names instructions in it that conflict"
        " with the request; what it names is cut out before the agent reads the rest.",
        f"If the detector twice gives no readable answer, {unreadable[settings.unreadable_detection]}.",
    ]
