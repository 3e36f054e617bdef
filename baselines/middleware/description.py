"""What the middleware does as it is set, in plain English."""

from __future__ import annotations

from baselines.middleware.settings import GuardSettings, Layer

_NORMALIZATION = (
    " Texts that tools return are cleaned first: hidden and executable markup, invisible and disguising"
    " characters and encoded instructions are taken out, and a text in which nothing is found stays as it is."
)
_POLICY = (
    " A tool call that a policy in a file does not allow, by tool, argument, URL or path, does not run. Each"
    " text is scored from 0 to 10 by a list of patterns: from {rewrite:g} the sentences with instructions are"
    " cut, from {quarantine:g} {held} is held for review, from {block:g} it is blocked."
)
_CONTAGION = (
    " What the agent writes into calls, what inner agents return and the answer are compared with what was"
    " read: copied or paraphrased instructions, and words that ask to be passed on, are scored and withheld"
    " alike."
)


def described(settings: GuardSettings, inner: str | None) -> str:
    """The layers that act, and what they are put around.

    Args:
        settings: Of the guard.
        inner: The description of the defense inside; None: the plain agent.
    """
    limits = settings.thresholds
    scores = {"rewrite": limits.rewrite, "quarantine": limits.quarantine, "block": limits.block}
    held = "the text" if settings.scope == "text" else "what gives instructions in the text"
    texts = {
        Layer.NORMALIZATION: _NORMALIZATION,
        Layer.POLICY: _POLICY.format(**scores, held=held),
        Layer.CONTAGION: _CONTAGION,
    }
    acting = [layer for layer in Layer if settings.has(layer)]
    names = ", ".join(acting)
    start = (
        f"Code without a model stands between the agent, its tools and other agents (layers: {names})."
        + "".join(texts[layer] for layer in acting)
    )
    if inner is not None:
        return f"{start} Behind it works another defense. {_beginning(inner)}"
    return (
        f"{start} The agent itself is the plain one, which reads the request and the screened results in one"
        " conversation. The checks know neither the user's request nor the model's reasons."
        " An attack in words that no pattern knows passes."
    )


def _beginning(text: str) -> str:
    """The first sentences of a description: a few, so that both together stay readable."""
    sentences = text.split(". ")
    return ". ".join(sentences[:3]).rstrip(".") + "."
