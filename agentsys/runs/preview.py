"""Previews of a run: an estimate of a plan's cost, and the text that an attack writes.

For an estimate the simulated model plays sample cases. Pipelines, prompts and tool schemas are the real ones, and the
simulated model follows the ground truth, so calls and prompt sizes are close to a real model's; the length of its
replies is not known. A search counts with its whole budget, as if no candidate succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.attacks.attack_search import Attempt, AttemptPosition, Judgement, Plan, Propose
from agentsys.attacks.attacker_prompt import ATTACKER_ROLES
from agentsys.attacks.injection_vectors import unescape_for_suite
from agentsys.base.grouping import group_by
from agentsys.contracts import AttackKind, NotInjectable, Victim
from agentsys.errors import ConfigError, require_known_name
from agentsys.models.build_model import ModelCard, parse_card
from agentsys.models.chat import ChatModel, Usage
from agentsys.models.pricing import cost_usd
from agentsys.models.trace import Tracer, use_tracer
from agentsys.records.schema import RoleUsage
from agentsys.runs.build_record import sum_usage_by_role
from agentsys.runs.cell import CellBuilder, CellLabels, Job, JobList
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate
from agentsys.runs.run_case import make_case_scene, run_case
from agentsys.runs.search_plan import find_first_of_searches, find_search_cases, get_searched_attack
from agentsys.runs.search_quest import build_quest
from agentsys.runs.store import Store

SAMPLES_PER_SUITE = 2
"""Cases played per cell and suite."""


class CostEstimate(NamedTuple):
    """Estimated tokens and cost of one cell."""

    tokens: int
    """Prompt and completion tokens of all its cases."""
    cost_usd: float | None
    """US dollars; None if a model in use has no price."""
    fails: str | None = None
    """The error if its cases cannot run here; then nothing is estimated."""


def rehearse_jobs(jobs: JobList, store: Store, config_dirs: Sequence[Path]) -> JobList:
    """Copy cases with the simulated model in place of theirs, to estimate their cost."""
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=True)
    return jobs.replace_cells(lambda cell: builder.build(cell.settings))


_MOST_PER_CASE = Usage(prompt=200_000, completion=5_000)
"""Upper bound of the tokens of a case under any shipped defense."""


def can_cost_more(jobs: JobList, usd: float) -> bool:
    """True if cases could cost more than `usd` dollars, by a quick upper bound; if False, no estimate is needed."""
    most = 0.0
    for blocks in group_by(jobs.blocks, lambda block: id(block.cell)).values():
        some = JobList(blocks)
        dearest = max(cost_usd(_MOST_PER_CASE, card.price) or 0.0 for card in some[0].cell.stack.cards)
        most += (len(some) + count_queries(some)) * dearest
    return most > usd


def estimate_costs(jobs: JobList, cards: Mapping[str, ModelCard]) -> dict[CellLabels, CostEstimate]:
    """Estimate tokens and cost of every cell among `jobs`.

    Args:
        jobs: Cases over the simulated model (a session prepared as a rehearsal), in the plan's order.
        cards: Model name -> card, for models that play only some roles.
    """
    return {
        labels: _estimate_cell([*by_suite.values()], cards)
        for labels, by_suite in jobs.group_by_labels().items()
    }


def _estimate_cell(suites: Sequence[JobList], cards: Mapping[str, ModelCard]) -> CostEstimate:
    tokens, cost = 0.0, 0.0
    known = True
    for jobs in suites:
        card = jobs[0].cell.card
        played = [
            run_case(jobs[i * len(jobs) // SAMPLES_PER_SUITE])
            for i in range(min(SAMPLES_PER_SUITE, len(jobs)))
        ]
        for run in played:
            if run.error is not None and run.error.ends_cell:
                return CostEstimate(0, None, run.error.message)
        samples = [sum_usage_by_role(run.tracer.all_calls) for run in played]
        # Queries of searches are runs of the same agent; the attacker's cost is added below.
        runs = (len(jobs) + count_queries(jobs)) / len(samples)
        weighed = [(runs, *item) for sample in samples for item in sample.items()]
        for weight, role, usage in [*weighed, *estimate_attacker_usage(jobs)]:
            tokens += weight * (usage.prompt + usage.completion)
            asked = cards.get(card.roles.get(role, ""), card)
            spent = cost_usd(Usage(usage.prompt, usage.completion), asked.price)
            known = known and spent is not None
            cost += weight * (spent or 0.0)
    return CostEstimate(round(tokens), cost if known else None)


_FEEDBACK = "x" * 450
"""Placeholder of a typical length for the feedback on an attempt."""


def count_queries(jobs: JobList) -> int:
    """Most queries that the searches for these cases can make."""
    searches = map(get_searched_attack, find_first_of_searches(jobs.searched))
    return sum(attack.budget * attack.search_on for attack in searches)


def estimate_attacker_usage(jobs: JobList) -> list[tuple[int, str, RoleUsage]]:
    """Estimate the attacker's usage for cases of one suite: (number of searches, role, usage of one search)."""
    first = find_first_of_searches(jobs.searched)
    for job in first:
        try:
            used = _rehearse_search(find_search_cases(job))
            return [(len(first), role, usage) for role, usage in used.items() if role in ATTACKER_ROLES]
        except NotInjectable:
            continue
    return []


def _rehearse_search(homes: Sequence[Job]) -> Mapping[str, RoleUsage]:
    tracer, job = Tracer(), homes[0]
    with use_tracer(tracer):
        quest = build_quest(homes)
        get_searched_attack(job).search(quest, _UnmovedTarget(job.cell.stack.for_scene(make_case_scene(job))))
    return sum_usage_by_role(tracer.all_calls)


@dataclass
class _UnmovedTarget:
    """A target on which no attempt succeeds, without running an agent."""

    model: ChatModel
    number: int = 0

    def attempt(self, position: AttemptPosition, propose: Propose, plan: Plan | None = None) -> Attempt:
        self.number += 1
        proposal = propose(self.model)
        return Attempt(self.number, position, proposal, success=False, judgement=Judgement(1, _FEEDBACK))


class AttackText(NamedTuple):
    """An attack's text for one injection vector."""

    vector: str
    written: str
    """As the attack wrote it."""
    read: str
    """As a model reads it: YAML folds line breaks and resolves escapes."""


def build_attack_texts(
    overrides: Sequence[str],
    suite_name: str,
    user_task: str,
    injection_task: str,
    config_dirs: Sequence[Path],
) -> tuple[list[AttackText], Sequence[str]]:
    """Build the texts for one pair of tasks, and a line on the source of each text taken from elsewhere.

    Args:
        overrides: Hydra overrides that choose attack, benchmark and model (for the victim's name).
        suite_name: The suite.
        user_task: A user task's id, or its number.
        injection_task: An injection task's id, or its number.
        config_dirs: The user's own config folders.

    Raises:
        ConfigError: If a name is unknown, the attack writes nothing, or the task cannot be injected.
    """
    settings = compose(overrides, config_dirs)[0]
    benchmark = instantiate("benchmark", settings.benchmark)
    attack = instantiate("attack", settings.attack)
    if attack.kind is AttackKind.NONE:
        raise ConfigError("Attack 'none' writes nothing; name another one (agentsys list attacks).")
    suite = benchmark.suite(suite_name)
    victim = Victim(parse_card(settings.model).prose_name, benchmark.user_name)
    user = _find_task("user_task", user_task, suite.user_tasks)
    injection = _find_task("injection_task", injection_task, suite.injection_tasks)
    try:
        written: Mapping[str, str] = attack.injections(suite, user, injection, victim)
    except NotInjectable as error:
        raise ConfigError(str(error)) from None
    texts = [AttackText(vector, text, unescape_for_suite(suite, text)) for vector, text in written.items()]
    return texts, attack.provenance


def _find_task(kind: str, name: str, tasks: Mapping[str, Any]) -> Any:
    full = f"{kind}_{name}" if name.isdigit() else name
    return tasks[require_known_name(kind.replace("_", " "), full, tasks)]
