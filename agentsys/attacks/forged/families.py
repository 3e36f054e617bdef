"""How models of a family write a conversation down: the marks between its turns.

Sources: the families and marks that ChatInject (arXiv 2509.22830) forges, and the chat templates on public
model cards. Llama 4's card has two line breaks after a role, where the attack's repository has one: the
card's are written. `llama3`, `chatml` (`qwen3` without thoughts) and `generic`, a control with the shape and
no marks, are our own additions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentsys.errors import ConfigError, require_known_name

AUTO_FAMILY = "auto"
"""The family of the attacked model, as its YAML says."""
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class ForgedTurn:
    """One turn of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True)
class ChatFamily:
    """The marks of one family."""

    opening: Mapping[Role, str]
    """Role -> what opens a turn of it."""
    end: str
    """What ends a turn; `""` where the next turn's opening does."""
    begins: str = ""
    """What stands in front of a conversation, where that takes the place of an end."""
    thought: str = ""
    """What a model that thinks writes first where it thinks nothing."""


def _enclose_role(before: str, after: str, **names: str) -> dict[Role, str]:
    """Openings in which the role's name stands between two marks."""
    roles: tuple[Role, ...] = ("system", "user", "assistant")
    return {role: f"{before}{names.get(role, role)}{after}" for role in roles}


FAMILIES: Mapping[str, ChatFamily] = {
    "qwen3": ChatFamily(_enclose_role("<|im_start|>", "\n"), end="<|im_end|>\n", thought="<think>\n\n</think>\n\n"),
    "chatml": ChatFamily(_enclose_role("<|im_start|>", "\n"), end="<|im_end|>\n"),
    "gpt-oss": ChatFamily(
        {
            "system": "<|start|>developer<|message|>",
            "user": "<|start|>user<|message|>",
            "assistant": "<|start|>assistant<|channel|>final<|message|>",
        },
        end="<|end|>",
    ),
    "llama-4": ChatFamily(_enclose_role("<|header_start|>", "<|header_end|>\n\n"), end="<|eot|>"),
    "llama3": ChatFamily(_enclose_role("<|start_header_id|>", "<|end_header_id|>\n\n"), end="<|eot_id|>"),
    "grok-2": ChatFamily(
        {"system": "System: ", "user": "Human: ", "assistant": "Assistant: "}, end="<|separator|>\n\n"
    ),
    "glm-4.5": ChatFamily(
        {"system": "<|system|>\n", "user": "<|user|>\n", "assistant": "<|assistant|>\n"},
        end="",
        begins="[gMASK]<sop>",
        thought="<think></think>\n",
    ),
    "kimi-k2": ChatFamily(
        {
            "system": "<|im_system|>system<|im_middle|>",
            "user": "<|im_user|>user<|im_middle|>",
            "assistant": "<|im_assistant|>assistant<|im_middle|>",
        },
        end="<|im_end|>",
    ),
    "generic": ChatFamily(_enclose_role("[", "]\n"), end="\n\n"),
}
"""Family -> its marks."""


def get_family(name: str) -> ChatFamily:
    """The family of this name.

    Raises:
        ConfigError: If there is none.
    """
    if name == AUTO_FAMILY:
        raise ConfigError(f"attack.family=auto: no model is known here; give one of {_list_families()}.")
    return FAMILIES[require_known_name("attack.family", name, FAMILIES)]


def read_family(model: Mapping[str, Any]) -> str:
    """Read the name of a model's family from its config.

    Raises:
        ConfigError: If it does not say, or says one that is not known.
    """
    family = model.get("chat_family")
    if family is None:
        raise ConfigError(
            f"attack.family=auto: model '{model.get('name', '?')}' has no chat_family; give attack.family or"
            f" +model.chat_family, one of {_list_families()}."
        )
    return require_known_name("model.chat_family", family, FAMILIES)


def render_turns(family: ChatFamily, turns: Sequence[ForgedTurn], *, thought: bool = True) -> str:
    """Turns as a conversation of a family, from the end of the turn that they stand in to an open answer.

    Args:
        family: The marks.
        turns: The forged turns, in order.
        thought: Whether the open answer begins with an empty thought, where the family has thoughts.
    """
    said = "".join(f"{family.opening[turn.role]}{turn.text}{family.end}" for turn in turns)
    begun = family.opening["assistant"] + (family.thought if thought else "")
    return f"{family.begins or family.end}{said}{begun}"


def render_plain(turns: Sequence[ForgedTurn]) -> str:
    """Turns as plain lines, without marks: a control."""
    return "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns)


def _list_families() -> str:
    return ", ".join(sorted(FAMILIES))
