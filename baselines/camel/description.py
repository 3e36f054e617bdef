"""CaMeL in a few sentences, as one variant is set."""

from __future__ import annotations

from baselines.camel.settings import CamelSettings


def described(settings: CamelSettings) -> str:
    """5 to 10 sentences on planner, interpreter, quarantined model and policies."""
    return " ".join(
        [
            "A planner model sees the request and the tools, and writes a program before anything is read.",
            "It never sees what a tool returns: of a program that fails it learns the line, the kind of"
            " error, and the text only if no tool had a part in it.",
            "An interpreter runs the program on values that know where they came from and who may read them.",
            "A quarantined model without tools turns text into values of a declared type, which stay"
            " untrusted.",
            *_policies(settings),
            f"After {settings.attempts} failed programs the task ends without an answer.",
        ]
    )


def _policies(settings: CamelSettings) -> list[str]:
    if settings.enforcement == "off":
        return ["No policy judges the calls."]
    control = (
        "What a branch or loop depended on counts for everything assigned in it and for the calls in it."
        if settings.mode == "strict"
        else "What a branch or loop depended on counts for the calls in it, not for what is assigned in it."
    )
    sentences = [
        "Before a tool that changes something runs, a policy of the suite looks at where its arguments came"
        " from and who may read them; a call it does not allow ends the task.",
        control,
    ]
    if settings.enforcement == "replay":
        sentences.append("Policies look at a second run of programs that were recorded without them.")
    if settings.as_published:
        sentences.append("Policies and labels keep the slips of the reference implementation.")
    return sentences
