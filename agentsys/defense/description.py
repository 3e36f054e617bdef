"""AgentSys in a few sentences, as one variant is set: for attackers that know their target, and for docs."""

from __future__ import annotations

from agentsys.defense.gate import GateRule
from agentsys.defense.settings import AgentSysSettings, CommandJudge, FillMode, SanitizerTiming, WorkerTools


def describe_variant(settings: AgentSysSettings) -> str:
    """5 to 10 sentences: what is kept apart, what crosses, which checks there are, how far it goes."""
    parts = _describe_isolation(settings) if settings.isolation else _describe_no_isolation(settings)
    return " ".join(parts)


def _describe_isolation(settings: AgentSysSettings) -> list[str]:
    return [
        "The main agent reads the user's request and never a raw tool output.",
        "With every tool call it declares an intent: names of fields and their types, fixed before anything"
        " is seen.",
        "Each output goes to a fresh worker agent, which sees that output, the intent and a list of the calls"
        " that led to it, but neither the request nor the main conversation.",
        "The worker has to answer with one JSON object of the declared fields; only that object crosses to"
        " the main agent, everything else the worker says is dropped.",
        _GATE_TEXTS[settings.gate],
        _describe_tools(settings),
        *_describe_filling(settings),
        _describe_checks(settings),
        _describe_cleaning(settings),
        "A failure is told to the main agent as one of a few fixed words, never in the output's words.",
    ]


_GATE_TEXTS = {
    GateRule.SYNTACTIC: "The gate is syntactic: any JSON object passes, keys that nobody declared included.",
    GateRule.SCHEMA: (
        "The gate holds the object against the intent: undeclared keys are cut off, a missing field or a"
        " wrong type or a text beyond 20,000 characters is refused, and a text in a declared field passes"
        " whatever it says."
    ),
}


def _describe_tools(settings: AgentSysSettings) -> str:
    if settings.max_depth == 1 or settings.worker_tools is WorkerTools.NEVER:
        return "A worker has no tools."
    if settings.worker_tools is WorkerTools.ON_REQUEST:
        return (
            "A worker has no tools at first; once it has said that a field is missing it may call tools that"
            f" only look something up, down to depth {settings.max_depth}, and what they return goes to a"
            " further worker."
        )
    return (
        f"A worker may call tools itself, down to depth {settings.max_depth} and within"
        f" {settings.worker_steps} steps, and what they return goes to a further worker."
    )


def _describe_filling(settings: AgentSysSettings) -> list[str]:
    if settings.fill is FillMode.NONE:
        return []
    typed = (
        " and fields of a closed type that the tool's own value has" if settings.fill is FillMode.TYPED else ""
    )
    return [f"The status of a call that only acts{typed} are filled in by code, without a worker."]


_JUDGE_TEXTS = {
    CommandJudge.MODEL: (
        "a validator model that sees the request, the earlier calls and the proposed one, but no output, has"
        " to find it needed for the request"
    ),
    CommandJudge.RULES: "rules in code have to allow it: where it goes to must stand in the user's request",
    CommandJudge.HYBRID: (
        "rules in code refuse it where it goes to something that is not in the user's request, and a"
        " validator model, which sees no output, decides what they leave open"
    ),
}


def _describe_checks(settings: AgentSysSettings) -> str:
    if not settings.has_judge:
        return "No validator judges the calls that a worker proposes."
    both = settings.validate_main is settings.validator
    who = "a worker and the main agent" if both else "a worker"
    runs = "run" if both else "runs"
    said = f"Before {who} {runs} a tool that changes something, {_JUDGE_TEXTS[settings.validator]}."
    if both or settings.validate_main is CommandJudge.OFF:
        return said
    return (
        f"{said} The main agent's own calls of that kind are checked too: {_JUDGE_TEXTS[settings.validate_main]}."
    )


def _describe_cleaning(settings: AgentSysSettings) -> str:
    first = (
        "Every output is read by a sanitizer model first, which names passages that give instructions;"
        " those are cut out before the worker reads the rest."
    )
    again = (
        "After a denial a sanitizer model names the passages of the output that give instructions, they are"
        f" cut out and the extraction starts again, at most {settings.sanitize_budget} times per output."
    )
    if settings.sanitizer is SanitizerTiming.OFF:
        denied = "A denied call ends the subtask; nothing" if settings.has_judge else "Nothing"
        return f"{denied} is cut out of outputs."
    if settings.sanitizer is SanitizerTiming.BOTH:
        return f"{first} {again}"
    return first if settings.sanitizes_first else again


def _describe_no_isolation(settings: AgentSysSettings) -> list[str]:
    cleaning = (
        "After a denial all tool results in the conversation are read by a sanitizer model, the passages it"
        f" names as instructions are cut out and the step is tried again, at most"
        f" {settings.sanitize_budget} times."
        if settings.max_restarts
        else "After a denial the call is left out; nothing is cut out of results."
    )
    return [
        "One agent works for the user and reads every tool output raw, in its own conversation.",
        "There are no workers, no intents and no gate, so an output is kept from nothing.",
        "Tools are sorted beforehand into those that only look something up and those that change something.",
        f"Before a call of the second kind runs, {_JUDGE_TEXTS[settings.validator]}.",
        "Calls that only look something up are never judged.",
        cleaning,
        f"The agent takes at most {settings.main_steps} rounds of tool calls.",
    ]
