"""`AsbData`: a folder of data files, read and checked against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agentsys.benchmarks.asb import files
from agentsys.benchmarks.asb.agent import AsbAgent, AttackTool, NormalTool
from agentsys.benchmarks.asb.files import AgentRow, AttackToolRow, NormalToolRow
from agentsys.errors import ConfigError, unknown_name


@dataclass(frozen=True)
class AsbData:
    """A data set."""

    agents: tuple[AsbAgent, ...]
    """In the file's order."""
    checksum: str
    """SHA-256, in hex, of the files that were read."""


def read_data(folder: Path) -> AsbData:
    """The data set in a folder.

    Raises:
        ConfigError: Naming the file, the line and what is wrong there.
    """
    agents = files.read_rows(folder / files.AGENTS_FILE, AgentRow)
    normal = files.read_rows(folder / files.NORMAL_TOOLS_FILE, NormalToolRow)
    attack = files.read_rows(folder / files.ATTACK_TOOLS_FILE, AttackToolRow)
    _check_names(folder, agents, normal, attack)
    made = tuple(_build_agent(row, [r for _, r in normal], [r for _, r in attack]) for _, row in agents)
    for agent in made:
        if not agent.normal_tools or not agent.attack_tools:
            lacking = files.NORMAL_TOOLS_FILE if not agent.normal_tools else files.ATTACK_TOOLS_FILE
            raise ConfigError(f"{folder / lacking} has no tool of '{agent.name}'; add one or drop the agent.")
    return AsbData(made, _checksum(folder))


def _check_names(
    folder: Path,
    agents: Sequence[tuple[int, AgentRow]],
    normal: Sequence[tuple[int, NormalToolRow]],
    attack: Sequence[tuple[int, AttackToolRow]],
) -> None:
    known = [row.agent_name for _, row in agents]
    if not known:
        raise ConfigError(f"{folder / files.AGENTS_FILE} names no agent.")
    _check_distinct(folder / files.AGENTS_FILE, ((number, row.agent_name) for number, row in agents), set())
    tools: set[str] = set()
    for file, rows in ((files.NORMAL_TOOLS_FILE, normal), (files.ATTACK_TOOLS_FILE, attack)):
        _check_distinct(folder / file, ((number, row.name) for number, row in rows), tools)
        for number, row in rows:
            if row.agent not in known:
                raise ConfigError(f"{folder / file} line {number}: {unknown_name('agent', row.agent, known)}")


def _check_distinct(path: Path, named: Iterable[tuple[int, str]], seen: set[str]) -> None:
    for number, name in named:
        if name in seen:
            raise ConfigError(f"{path} line {number}: '{name}' is taken already; rename it or drop the line.")
        seen.add(name)


def _build_agent(row: AgentRow, normal: Iterable[NormalToolRow], attack: Iterable[AttackToolRow]) -> AsbAgent:
    own = tuple(
        NormalTool(tool.name, tool.description, tool.achievements)
        for tool in normal
        if tool.agent == row.agent_name
    )
    others = tuple(
        AttackTool(
            tool.name, tool.description, tool.instruction, tool.goal, tool.style, tool.aggressive == "True"
        )
        for tool in attack
        if tool.agent == row.agent_name
    )
    parts = [row.agent_name, row.tasks, [asdict(tool) for tool in own], [asdict(tool) for tool in others]]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return AsbAgent(row.agent_name, tuple(row.tasks), own, others, digest)


def _checksum(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in files.FILES:
        digest.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return digest.hexdigest()
