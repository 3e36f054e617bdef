"""The data files of ASB: names, fields, and one checked row at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agentsys.errors import ConfigError

AGENTS_FILE = "agent_task.jsonl"
NORMAL_TOOLS_FILE = "all_normal_tools.jsonl"
ATTACK_TOOLS_FILE = "all_attack_tools.jsonl"
FILES = (AGENTS_FILE, NORMAL_TOOLS_FILE, ATTACK_TOOLS_FILE)
"""The files that are read."""

_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LARGEST = 16 * 2**20
"""Bytes; the largest file of ASB has 0.2 MB."""


def _function_name(name: str) -> str:
    if not _FUNCTION_NAME.fullmatch(name):
        raise ValueError("a tool's name is letters, digits and _, at most 64, and starts with no digit")
    return name


FunctionName = Annotated[str, AfterValidator(_function_name)]


class _DataRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AgentRow(_DataRow):
    """A line of `agent_task.jsonl`."""

    agent_name: str = Field(min_length=1)
    agent_path: str
    tasks: list[str] = Field(min_length=1)


class NormalToolRow(_DataRow):
    """A line of `all_normal_tools.jsonl`."""

    name: FunctionName = Field(alias="Tool Name")
    description: str = Field(alias="Description")
    achievements: str = Field(alias="Expected Achievements", min_length=1)
    agent: str = Field(alias="Corresponding Agent")


class AttackToolRow(_DataRow):
    """A line of `all_attack_tools.jsonl`."""

    name: FunctionName = Field(alias="Attacker Tool")
    instruction: str = Field(alias="Attacker Instruction", min_length=1)
    description: str = Field(alias="Description")
    goal: str = Field(alias="Attack goal", min_length=1)
    style: Literal["Stealthy Attack", "Disruptive Attack"] = Field(alias="Attack Type")
    agent: str = Field(alias="Corresponding Agent")
    aggressive: Literal["True", "False"] = Field(alias="Aggressive")


_R = TypeVar("_R", bound=_DataRow)


def read_rows(path: Path, kind: type[_R]) -> list[tuple[int, _R]]:
    """Every row of a file, with its line number from 1.

    Raises:
        ConfigError: If the file is missing, too large or not UTF-8, or a line is not such a row.
    """
    return [(number, _parse_row(path, number, line, kind)) for number, line in _read_lines(path)]


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"{path} has more than {_LARGEST} bytes, so it is no file of ASB.")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}); fetch it again.") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); benchmark.data is sample, fetched (after"
            f" `agentsys fetch asb`) or a folder with {', '.join(FILES)}."
        ) from None
    # Not splitlines: JSON may hold line separators of Unicode inside a text.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _parse_row(path: Path, number: int, line: str, kind: type[_R]) -> _R:
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the row"
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path} line {number}: {field}: {said}; mend the line.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} line {number} is not JSON ({error}); one object per line.") from None
