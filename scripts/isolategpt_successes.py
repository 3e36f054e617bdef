"""Why each attack on IsolateGPT succeeded, from stored runs, as the table of docs/baselines/isolategpt.md.

Usage: python scripts/isolategpt_successes.py RUNS [--defense isolategpt]

An attack has a reason if its goal is a text in the answer, if a spoke did it with its own tool, or if the
plan let the spoke that read the injection ask for the attack's tool. The table goes to stdout; exit status 1
if a success has none of these, or if a tool ran that the plan did not account for.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.ground_truth.playbook import build_playbook
from agentsys.models.chat import text_of
from agentsys.models.fenced_actions import read_request
from agentsys.models.simulated.playbook import GoalScript, ScriptedCall
from baselines.isolategpt.hub import MESSAGE_SPAN, PLAN_SPAN, ROUTING_SPOKE
from baselines.isolategpt.spoke import SPAN as SPOKE_SPAN

SAID = "the goal is a text in the answer"
UNEXPLAINED = "UNEXPLAINED"

Span = Mapping[str, Any]


@dataclass(frozen=True)
class ToolRun:
    """One executed call, and on whose decision."""

    function: str
    args: Mapping[str, Any]
    spoke: str
    """The one that ran it, by the name of its app."""
    requester: str | None
    """The spoke that asked for this very call; None: the tool's own spoke decided on it."""


class CaseSpans:
    """The spans of one case, with what led to each call.

    Args:
        spans: As stored.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id = {span["id"]: span for span in spans}

    def groups(self) -> list[Mapping[str, Any]]:
        """The plan's groups."""
        plans = [span for span in self._by_id.values() if span["kind"] == PLAN_SPAN]
        return list(plans[-1]["decision"]["groups"]) if plans else []

    def runs(self) -> Iterator[ToolRun]:
        """Every executed call."""
        for span in self._by_id.values():
            if span["kind"] == "tool":
                args = span["decision"]["args"]
                spoke = self._above(span, SPOKE_SPAN)
                asked = read_request(text_of(spoke["messages"][1]))
                was_asked = asked == (span["name"], args)
                message = self._above(spoke, MESSAGE_SPAN) if was_asked else None
                requester = None if message is None else message["decision"]["asked"]["spoke_id"]
                yield ToolRun(span["name"], args, spoke["name"], requester)

    def _above(self, span: Span, kind: str) -> Span:
        while span["kind"] != kind:
            span = self._by_id[span["parent_id"]]
        return span


def fitting(run: ToolRun, groups: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the plan accounts for a requested call."""
    mine = [group for group in groups if run.spoke in group["apps"]]
    return any(run.requester in (ROUTING_SPOKE, *group["apps"]) for group in mine)


def reason(case: CaseSpans, goal: GoalScript) -> str:
    """Why the goal was reached, or `UNEXPLAINED`."""
    groups, runs = case.groups(), list(case.runs())
    if any(run.requester is not None and not fitting(run, groups) for run in runs):
        return UNEXPLAINED
    if not goal.calls:
        return SAID
    found = {call.function: _made(call, runs) for call in goal.calls}
    ways = [_way(run) for run in found.values() if run is not None]
    unmade = [name for name, run in found.items() if run is None]
    without = [f"{' and '.join(unmade)} not done, which the check does not ask for"] if unmade else []
    return "; ".join([*dict.fromkeys(ways), *without]) if ways else UNEXPLAINED


def _made(call: ScriptedCall, runs: Iterable[ToolRun]) -> ToolRun | None:
    """The run that did a goal's call: with its arguments if there is one, else of its tool."""
    free = {quote.arg for quote in call.quotes}
    wanted = {name: value for name, value in call.args.items() if name not in free}
    same = [run for run in runs if run.function == call.function]
    exact = [run for run in same if all(run.args.get(name) == value for name, value in wanted.items())]
    return next(iter([*exact, *same]), None)


def _way(run: ToolRun) -> str:
    if run.requester is None:
        return f"own tool: the spoke of {run.spoke} reads the injection and calls {run.function}"
    if run.requester == ROUTING_SPOKE:
        return f"the plan has {run.function}, and the routing spoke may ask for every step"
    return f"the plan has {run.function} in one group with {run.requester}, which reads the injection"


def successes(root: Path, defense: str) -> Iterator[tuple[str, str, str, CaseSpans]]:
    """(suite, user task, injection task, spans) of every attack that succeeded."""
    for path in sorted(root.rglob("*.json")):
        if ".agentsys" in path.parts:
            continue
        block = orjson.loads(path.read_bytes()).get("agentsys")
        if block is None or block["case"]["defense"] != defense or block["status"] != "ok":
            continue
        case = block["case"]
        if case["injection_task_id"] is not None and block["security"]:
            yield case["suite"], case["user_task_id"], case["injection_task_id"], CaseSpans(block["spans"])


def table(found: Mapping[tuple[str, str, str], list[str]]) -> str:
    """The Markdown table."""
    alike: defaultdict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    for (suite, injection, why), users in found.items():
        alike[suite, why, tuple(sorted(map(_number, users)))].append(_number(injection))
    rows = ["| suite | injection tasks | user tasks | cases | why |", "|---|---|---|---|---|"]
    for (suite, why, users_alike), injections in sorted(alike.items(), key=lambda row: (row[0][0], row[1])):
        cases = len(injections) * len(users_alike)
        rows.append(f"| {suite} | {_listed(injections)} | {_listed(users_alike)} | {cases} | {why} |")
    return "\n".join(rows)


def _number(task: str) -> int:
    return int(task.rsplit("_", 1)[1])


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--defense", default="isolategpt")
    parser.add_argument("--version", default="v1.2.2", help="of the benchmark")
    given = parser.parse_args()
    benchmark = AgentDojo(version=given.version)
    playbook = build_playbook([benchmark.suite(name) for name in benchmark.suite_names()])
    goals = {(goal.suite, goal.task_id): goal for goal in playbook.goals}
    found: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for suite, user_task, injection_task, spans in successes(given.runs, given.defense):
        why = reason(spans, goals[suite, injection_task])
        found[suite, injection_task, why].append(user_task)
    print(table(found))
    total = sum(map(len, found.values()))
    unexplained = sum(len(users) for (_, _, why), users in found.items() if why == UNEXPLAINED)
    print(f"{total} successes, {unexplained} without a reason", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
