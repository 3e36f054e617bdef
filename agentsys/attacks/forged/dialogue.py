"""Dialogues in which a forged user talks a forged assistant into a goal, one per injection task: a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import RootModel, ValidationError

from agentsys.attacks.forged.families import ForgedTurn
from agentsys.errors import ConfigError

Dialogues = Mapping[tuple[str, str], tuple[ForgedTurn, ...]]
"""Suite and injection task -> turns."""
_DIALOGUE_FORM = 'Give JSON: {"SUITE": {"injection_task_0": ["the user", "the assistant", ..., "the user"]}}.'


class _DialogueFile(RootModel[dict[str, dict[str, list[str]]]]):
    """Suite -> injection task -> texts, the user's first."""


def make_turns(texts: list[str]) -> tuple[ForgedTurn, ...]:
    """Texts said in turn, so that the user has the last word.

    Raises:
        ValueError: If there are none, or an even number of them.
    """
    if len(texts) % 2 == 0:
        raise ValueError(f"{len(texts)} turns; the user begins and ends, so give an odd number")
    return tuple(ForgedTurn("assistant" if place % 2 else "user", text) for place, text in enumerate(texts))


def read_dialogues(path: Path) -> Dialogues:
    """Read a file of dialogues.

    Raises:
        ConfigError: Naming the file, the place in it and what should be there.
    """
    try:
        found = _DialogueFile.model_validate(json.loads(path.read_text("utf-8"))).root
    except OSError as error:
        raise ConfigError(f"attack.dialogue {path} cannot be read: {error.strerror}. {_DIALOGUE_FORM}") from None
    except ValidationError as error:
        where = " > ".join(ascii(part) for part in error.errors()[0]["loc"])
        raise ConfigError(f"attack.dialogue {path}, {where or 'file'}: not a dialogue. {_DIALOGUE_FORM}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"attack.dialogue {path} is not JSON: {error}. {_DIALOGUE_FORM}") from None
    said = ((suite, task, texts) for suite, tasks in found.items() for task, texts in tasks.items())
    return {
        (suite, f"injection_task_{task}" if task.isdecimal() else task): _check_turns(path, task, texts)
        for suite, task, texts in said
    }


def _check_turns(path: Path, task: str, said: list[str]) -> tuple[ForgedTurn, ...]:
    try:
        return make_turns(said)
    except ValueError as error:
        raise ConfigError(f"attack.dialogue {path}, {task[:40]!a}: {error}. {_DIALOGUE_FORM}") from None
