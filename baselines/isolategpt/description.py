"""IsolateGPT in a few sentences, as one variant is set."""

from __future__ import annotations

from baselines.isolategpt.settings import IsolateGPTSettings

_END = "What an agent does with its own tools, and what it says in the end, is not checked."


def described(settings: IsolateGPTSettings) -> str:
    """5 to 10 sentences on plan, spokes, messages and permissions."""
    plan = (
        "Before anything untrusted is read, a planner writes down from the request which tools are needed and"
        " which of them take what others return."
    )
    if settings.retrieved is not None:
        plan += f" It is shown only the {settings.retrieved} tools that are spelled most like the request."
    if settings.apps == "one_app":
        return " ".join([plan, *_one_agent(settings), _END])
    return " ".join([plan, *_spokes(settings), *_messages(settings), *_permissions(settings), _END])


def _one_agent(settings: IsolateGPTSettings) -> list[str]:
    answer = "refuses" if settings.permissions == "deny_all" else "agrees"
    return [
        "All tools belong to one agent, which reads all results raw in one conversation: nothing is kept"
        " apart.",
        f"The user is asked once, before it starts, and {answer}.",
        "Where the plan names no tool, an agent without tools answers.",
    ]


def _spokes(settings: IsolateGPTSettings) -> list[str]:
    own = {
        "per_tool": "Each tool has an agent of its own, with a conversation of its own",
        "per_app": "The tools of an app share an agent, which has a conversation of its own",
    }[settings.apps]
    return [
        f"{own}; it reads the results of its own tools raw.",
        "The request goes to the agent of the first planned tool, or, where the plan has several parts that"
        " do not depend on each other, to one without tools.",
    ]


def _messages(settings: IsolateGPTSettings) -> list[str]:
    most = " of at most 256 characters" if settings.strict_response else ""
    return [
        "An agent reaches another one's tool only through a hub, by a typed request that must follow the"
        f" tool's schema, and hears nothing of it but a final answer{most}."
    ]


def _permissions(settings: IsolateGPTSettings) -> list[str]:
    return {
        "expected_only": [
            "The hub asks a user before it lets one agent use another's tool, and warns where the plan does"
            " not account for it.",
            "This user refuses whatever comes with a warning, and allows the rest.",
        ],
        "always_allow": [
            "The hub asks a user before it lets one agent use another's tool.",
            "This user allows everything, warned or not.",
        ],
        "deny_all": [
            "The hub asks a user before it runs anything.",
            "This user refuses everything, so that no tool is ever run.",
        ],
    }[settings.permissions]
