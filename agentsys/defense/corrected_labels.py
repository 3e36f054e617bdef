"""`read_corrections`: an operator's own labels of tools, which go before those that a model gives."""

from __future__ import annotations

from pathlib import Path

import yaml

from agentsys.defense.privileges import Labels, Privilege
from agentsys.errors import ConfigError

_WORDS = {label.value: label for label in Privilege}


def read_corrections(path: Path | None) -> Labels:
    """The labels in a YAML: a mapping from tools' names to `query` or `command`.

    Args:
        path: The file; None: there are none.

    Raises:
        ConfigError: If it cannot be read or says anything else.
    """
    if path is None:
        return {}
    where = f"defense.tool_labels {path}"
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}. Give a YAML in UTF-8, or null.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"{where} is no YAML{line}; write a line for each tool: NAME: query.") from None
    if not isinstance(stored, dict) or not stored:
        raise ConfigError(
            f"{where} has no labels; write a line for each tool: NAME: query, or NAME: command."
        )
    for tool, word in stored.items():
        if not isinstance(tool, str) or not isinstance(word, str) or word not in _WORDS:
            raise ConfigError(f"{where}: tool {tool!r} is {word!r}; write query or command.")
    return {tool: _WORDS[word] for tool, word in stored.items()}
