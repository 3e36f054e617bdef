"""FIDES in a few sentences, as one variant is set."""

from __future__ import annotations

from baselines.fides.settings import FidesSettings


def described(settings: FidesSettings) -> str:
    """5 to 10 sentences on labels, variables and policies."""
    return " ".join(
        [
            "One agent works through the request in an ordinary tool loop, in which the conversation, every"
            " argument and every field of a result have a label: who had a part in it, and who may read it.",
            *_labels(settings),
            *_planner(settings),
            *_policies(settings),
            f"It ends after {settings.max_rounds} rounds of calls.",
        ]
    )


def _labels(settings: FidesSettings) -> list[str]:
    if settings.labels == "strict":
        return ["A result is untrusted if somebody other than the user can have written it."]
    return ["A field is untrusted if the benchmark's injections can be written to it."]


def _planner(settings: FidesSettings) -> list[str]:
    if settings.planner == "basic":
        return ["The agent reads all results, and the conversation is then as untrusted as what it has read."]
    if settings.planner == "variables":
        return [
            "Every value in a result is kept in a variable that the agent can only name.",
            "Names are replaced by values when a call runs and in the final answer.",
        ]
    also = " or that others may not read" if settings.hide == "both" else ""
    return [
        f"A value that is less trusted than the conversation{also} is kept in a variable, and the agent reads"
        " its name.",
        "Names are replaced by values when a call runs and in the final answer.",
        "A quarantined model without tools answers questions about variables with a value of a declared type,"
        " which becomes a variable too.",
        "The agent may look at values, and the conversation is then as untrusted as they are.",
    ]


def _policies(settings: FidesSettings) -> list[str]:
    if not settings.policies:
        return ["No policy judges the calls."]
    return [
        "A call that changes something is refused if untrusted data had a part in its being made; where it"
        " only sends something, it may run if everybody it reaches may read all of it and it has no untrusted"
        " link.",
        "The agent is told which rule refused a call, and goes on.",
    ]
