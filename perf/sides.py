"""The two runners that are compared, each as one function: AgentDojo's own and ours, on the same cases.

Each is called in a fresh process (`apart`), so that neither finds the other's imports, caches or
garbage. Imports and what is loaded once for a run (suites' files, SDK clients, the plan) are done
before the clocks start.
"""

from __future__ import annotations

import heapq
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VERSION = "v1.2.2"
ATTACK = "important_instructions"

Pair = tuple[str, str, str]
"""Suite, user task, injection task."""


@dataclass(frozen=True)
class Measured:
    """What one side needed for its cases."""

    cases: int
    wall_s: float
    cpu_s: float
    """Of this process, all threads, and of the processes it started."""
    calls_by_suite: dict[str, int]
    """Model calls in the conversations."""
    results: dict[str, list[bool]]
    """`suite/user task/injection task` -> utility, security."""
    peak_mb: float = 0.0
    """Most memory this process held at a time, and the largest one that it started, in MiB."""
    middle_calls_per_s: float = 0.0
    """Calls a second while the middle eight tenths of the cases ended: without start and end of the run."""
    schedule: float = 0.0
    """Share of the workers' time that calls would fill if they alone took time: no worker has a case any more
    while the last ones end."""

    @property
    def calls(self) -> int:
        """Model calls of all suites."""
        return sum(self.calls_by_suite.values())


@dataclass(frozen=True)
class Executor:
    """How our side runs its cases."""

    workers: int = 32
    kind: str = "threads"
    address: str | None = None
    """Of a Ray cluster."""

    @property
    def overrides(self) -> list[str]:
        """As the command line has it."""
        chosen = [f"executor={self.kind}", f"executor.workers={self.workers}"]
        return [*chosen, f"executor.address={self.address}"] if self.address else chosen


def agentdojo(base_url: str, pairs: Sequence[Pair], logdir: Path, executor: Executor) -> Measured:
    """AgentDojo's runner with its own OpenAI element and its own attack, one case after the other.

    It is entered at `run_task_with_injection_tasks`, which `benchmark_suite_with_injections` calls
    for each user task: that one also runs each injection task alone, which is no case of ours. It knows of
    no executor.
    """
    import openai
    from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, load_system_message
    from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
    from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
    from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
    from agentdojo.attacks.attack_registry import load_attack
    from agentdojo.benchmark import run_task_with_injection_tasks
    from agentdojo.logging import OutputLogger
    from agentdojo.task_suite.load_suites import get_suites

    model = OpenAILLM(openai.OpenAI(base_url=base_url, api_key="x"), "simulated")
    loop = ToolsExecutionLoop([ToolsExecutor(), model])
    pipeline = AgentPipeline([SystemMessage(load_system_message(None)), InitQuery(), model, loop])
    pipeline.name = "local-served"
    suites = get_suites(VERSION)
    attacks = {name: load_attack(ATTACK, suites[name], pipeline) for name in {pair[0] for pair in pairs}}
    for name in attacks:
        suites[name].load_and_inject_default_environment({})  # reads its files, which are then kept
    for name, user_task in _by_user_task(pairs):
        # Once per user task, so it would weigh more in a subset than in the grid. Ours does it on the clock.
        attacks[name].get_injection_candidates(suites[name].get_user_task_by_id(user_task))
    results: dict[str, list[bool]] = {}
    wall, cpu = time.perf_counter(), _cpu_s()
    with OutputLogger(str(logdir)):
        for (name, user_task), injection_tasks in _by_user_task(pairs).items():
            task = suites[name].get_user_task_by_id(user_task)
            utility, security = run_task_with_injection_tasks(
                suites[name], pipeline, task, attacks[name], logdir, False, injection_tasks, VERSION
            )
            results |= {f"{name}/{u}/{i}": [utility[u, i], security[u, i]] for u, i in utility}
    wall, cpu = time.perf_counter() - wall, _cpu_s() - cpu
    return Measured(len(results), wall, cpu, Stored.below(logdir).calls(), results, _peak_mb())


def ours(base_url: str, pairs: Sequence[Pair], logdir: Path, executor: Executor) -> Measured:
    """Our runner. Cases of the plan that are not among the pairs are left out."""
    from dataclasses import replace

    from agentsys.runs.executors.outcome import Listener
    from agentsys.runs.planning.jobs import Jobs

    class Deaf(Listener):
        """Shows nothing."""

    session = _session(base_url, logdir, sorted({pair[0] for pair in pairs}), overrides=executor.overrides)
    wanted = set(pairs)
    jobs = Jobs(block.where(lambda job: _pair(job.case) in wanted) for block in session.plan.todo.blocks)
    session = replace(session, plan=replace(session.plan, todo=jobs))
    session = session.looked_at()
    for cell in session.plan.todo.cells:
        cell.warm_up()  # as AgentDojo's side has imported and read what it needs
    wall, cpu = time.perf_counter(), _cpu_s()
    outcome = session.execute(Deaf())
    wall, cpu = time.perf_counter() - wall, _cpu_s() - cpu
    if outcome.errors or outcome.fatal:
        raise RuntimeError(f"{outcome.errors} cases failed; {outcome.fatal}")
    peak, stored = _peak_mb(), Stored.below(logdir)
    return Measured(
        len(jobs),
        wall,
        cpu,
        stored.calls(),
        stored.results(),
        peak,
        stored.middle(),
        schedule=_filled(jobs, executor.workers, stored.calls_of()),
    )


def _filled(jobs: Sequence[Any], workers: int, calls: Mapping[Pair, int]) -> float:
    """Share of the workers' time that is filled, each taking the next case as it becomes free."""
    from agentsys.runs.planning.run_order import RunOrder

    order, now, under_way = RunOrder(jobs, workers), 0, list[tuple[int, int]]()
    begun = list[Any]()
    while True:
        while len(under_way) < workers and (job := next(order, None)) is not None:
            heapq.heappush(under_way, (now + calls[_pair(job.case)], len(begun)))
            begun.append(job)
        if not under_way:
            return sum(calls.values()) / (workers * now)
        now, place = heapq.heappop(under_way)
        order.ended(begun[place].case, calls[_pair(begun[place].case)])


Side = Callable[[str, Sequence[Pair], Path, Executor], Measured]
SIDES: dict[str, Side] = {"agentdojo": agentdojo, "ours": ours}


def grid(suites: Sequence[str], limit: int | None = None) -> list[Pair]:
    """Every attacked case of these suites, or at most `limit` of each suite, evenly spread."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session("http://127.0.0.1:9/v1", Path(folder), suites, limit)
        return [_pair(job.case) for job in session.plan.jobs]


def apart(side: str, base_url: str, pairs: Sequence[Pair], executor: Executor | None = None) -> Measured:
    """One side in a fresh process and a fresh log folder.

    Args:
        side: One of `SIDES`.
        base_url: Of the server that both ask.
        pairs: The cases.
        executor: None: threads, 32 cases at a time.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked: dict[str, Any] = {"side": side, "base_url": base_url, "pairs": list(pairs), "logdir": folder}
        asked["executor"] = asdict(executor or Executor())
        done = subprocess.run(
            [sys.executable, __file__], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
        )
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _session(
    base_url: str,
    logdir: Path,
    suites: Sequence[str],
    limit: int | None = None,
    overrides: Sequence[str] = (),
) -> Any:
    from agentsys.runs.session import prepare

    chosen = ["model=served", f"model.base_url={base_url}", "defense=none", f"attack={ATTACK}"]
    chosen += [f"benchmark.version={VERSION}", f"benchmark.suites=[{','.join(suites)}]"]
    chosen += [f"logdir={logdir}", *overrides]
    return prepare(chosen if limit is None else [*chosen, f"limit={limit}"])


def _pair(case: Any) -> Pair:
    return case.suite, case.user_task_id, case.injection_task_id


def _by_user_task(pairs: Sequence[Pair]) -> dict[tuple[str, str], list[str]]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for suite, user_task, injection_task in pairs:
        grouped.setdefault((suite, user_task), []).append(injection_task)
    return grouped


def child_cpu_s(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds of a command, start included, and the most MiB that any command so far held at a time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _peak_mb() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_maxrss for one in used) / 1024


@dataclass(frozen=True)
class Stored:
    """The records that a side left, in the order in which they were written."""

    records: list[dict[str, Any]]
    written_s: list[float]

    @classmethod
    def below(cls, logdir: Path) -> Stored:
        """Those of a log folder."""
        paths = sorted(logdir.rglob("injection_task_*.json"), key=lambda path: path.stat().st_mtime_ns)
        times = [path.stat().st_mtime_ns / 1e9 for path in paths]
        return cls([json.loads(path.read_bytes()) for path in paths], times)

    def calls(self, first: int = 0, end: int | None = None) -> dict[str, int]:
        """Model calls by suite, of all of them or of a stretch."""
        calls: Counter[str] = Counter()
        for record in self.records[first:end]:
            calls[record["suite_name"]] += _calls(record)
        return dict(calls)

    def calls_of(self) -> dict[Pair, int]:
        """Model calls by case."""
        return {_named(record): _calls(record) for record in self.records}

    def middle(self) -> float:
        """Calls a second between the end of the first tenth of the cases and the begin of the last."""
        tenth = len(self.records) // 10
        last = len(self.records) - tenth
        seconds = self.written_s[last - 1] - self.written_s[tenth]
        return sum(self.calls(tenth + 1, last).values()) / seconds if seconds > 0 else float("nan")

    def results(self) -> dict[str, list[bool]]:
        """`suite/user task/injection task` -> utility, security."""
        return {"/".join(_named(one)): [one["utility"], one["security"]] for one in self.records}


def _named(record: dict[str, Any]) -> Pair:
    return record["suite_name"], record["user_task_id"], record["injection_task_id"]


def _calls(record: dict[str, Any]) -> int:
    return sum(one["role"] == "assistant" for one in record["messages"])


def main() -> None:
    """What `apart` starts: one side, asked for on stdin, answered on stdout."""
    asked = json.loads(sys.stdin.read())
    pairs = [(suite, user_task, injection_task) for suite, user_task, injection_task in asked["pairs"]]
    executor = Executor(**asked["executor"])
    measured = SIDES[asked["side"]](asked["base_url"], pairs, Path(asked["logdir"]), executor)
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
