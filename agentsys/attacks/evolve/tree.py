"""`EvolveTreeAttack`: one template for a whole suite, found by tree search over changes of templates.

Source: AgentVigil (arXiv 2505.05849, EMNLP Findings 2025): a corpus of templates, Monte-Carlo tree search
over mutations of them, rewards for successes and for goals that nothing reached before. The words are ours.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsys.attacks.attacker.reply import FAULTS
from agentsys.attacks.evolve.attack import GIVE_UP
from agentsys.attacks.evolve.nodes import TemplateNode, TemplateTree
from agentsys.attacks.evolve.template_mutator import CROSSOVER, MUTATORS, SIMILAR, template_request
from agentsys.attacks.evolve.templates import GOAL, seed_templates
from agentsys.attacks.literal import written_for
from agentsys.attacks.search import Attempt, Place, Proposal, Quest, Target
from agentsys.attacks.search_options import TEMPLATE, SearchOptions, check_count, check_number
from agentsys.attacks.searched import Searched
from agentsys.attacks.template import filled
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import InjectionTask, Suite, UserTask, Victim
from agentsys.errors import ConfigError
from agentsys.grouping import grouped
from agentsys.models.chat import ChatModel, ChatRequest

_SHOWN = 3
"""User requests that the attacker is shown, of those that its templates are tried on."""


class EvolveTreeAttack(Searched):
    """Searches templates with a place for the goal, one search per suite, on a sample of its pairs of tasks.

    Args:
        templates: Templates at most, those it starts from included.
        pairs: Pairs of tasks that each template is tried on; templates x pairs is the budget of attempts.
        sample: Pairs that a search is made on, drawn from all of the suite; the others are held out.
        seeds: How many of the 20 templates the search starts from.
        exploration: UCT's constant.
        coverage: What a pair that no earlier template broke adds to a reward, beside the share of successes.
        best: How many templates the artefact keeps; one of them stands in the run's own cases.
        name: The attack's name.
        options: Any of `SearchOptions` but `mode` and `search_on`, by name.

    Raises:
        ConfigError: If an option is out of range or the artefact cannot be read.
    """

    literal = True

    def __init__(
        self,
        templates: int = 60,
        pairs: int = 3,
        sample: int = 10,
        seeds: int = 20,
        exploration: float = 1.4,
        coverage: float = 0.5,
        best: int = 5,
        *,
        name: str = "evolve_tree",
        **options: Any,
    ) -> None:
        super().__init__(name, SearchOptions(**options))
        self.mode = TEMPLATE
        self.pairs = check_count("attack.pairs", pairs)
        self.search_on = check_count("attack.sample", sample)
        if self.pairs > self.search_on:
            raise ConfigError(f"attack.pairs is {pairs}, of a sample of {sample}; give attack.sample more.")
        self.budget = check_count("attack.templates", templates) * self.pairs
        self.seeds = check_count("attack.seeds", seeds)
        self.exploration = check_number("attack.exploration", exploration, 0, 100)
        self.coverage = check_number("attack.coverage", coverage, 0, 100)
        self.best = check_count("attack.best", best)

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The artefact's template, filled in; without an artefact the first one that the search starts from.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If the artefact has no template for the suite.
        """
        if self._artefact is None:
            template = seed_templates(suite, user_task, injection_task)[0]
        else:
            template = next(iter(super().injections(suite, user_task, injection_task, victim).values()))
        text = written_for(suite, filled(template, user_task, injection_task, victim))
        return dict.fromkeys(injectable_vectors(suite, user_task), text)

    def search(self, quest: Quest, target: Target) -> Sequence[Attempt]:
        """Template after template, until the budget is spent or the attacker gives no more of them."""
        return _TreeSearch(self, quest, target).run()

    def settled_on(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """The best templates: by share of successes, then by score, then the earliest."""
        given = [attempt for attempt in attempts if attempt.proposal.refused is None]
        tried = grouped(given, lambda attempt: attempt.proposal.text)
        summed = sorted(
            (_summed(found) for found in tried.values()), key=lambda one: (-one[0], -one[1], one[2].number)
        )
        found = [attempt for _, _, attempt in summed]
        return found if self._options.save_all else found[: self.best]

    def _first_request(self, quest: Quest, variation: int) -> ChatRequest:
        return template_request(self.attacker_of(quest), None, None, SIMILAR, -variation)

    def checked(self, model: ChatModel, quest: Quest, proposal: Proposal) -> Proposal:
        """The template as it was written; it is filled in later. Without a place for the goal it is none."""
        if GOAL in proposal.text:
            return proposal
        return replace(proposal, refused=f"the template has no {GOAL} where the goal is to stand")


def _summed(attempts: Sequence[Attempt]) -> tuple[float, float, Attempt]:
    """A template's share of successes, its mean score, and its first run as what stands for all of them."""
    share = sum(attempt.success for attempt in attempts) / len(attempts)
    score = sum(attempt.judgement.score for attempt in attempts) / len(attempts)
    judgement = replace(attempts[0].judgement, score=round(score))
    return share, score, replace(attempts[0], success=share == 1.0, share=share, judgement=judgement)


def _placeheld(quest: Quest) -> Quest:
    """The search as its attacker is told of it: with placeholders, and some of the requests."""
    known = replace(
        quest.known,
        situations=quest.known.situations[:_SHOWN],
        goal_tools=(),
        user_name="{user}",
        model_name="{model}",
    )
    return replace(quest, goal=GOAL, goal_calls=(), tool="", mend=None, known=known)


class _TreeSearch:
    """One search under way."""

    def __init__(self, attack: EvolveTreeAttack, quest: Quest, target: Target) -> None:
        self._attack, self._quest, self._target = attack, quest, target
        self._told = _placeheld(quest)
        self._tree = TemplateTree(attack.exploration)
        self._made: list[Attempt] = []
        self._templates = self._unusable = 0
        self._used: Counter[int] = Counter()
        self._broken: set[int] = set()

    def run(self) -> Sequence[Attempt]:
        seeds = list(self._quest.seeds[: self._attack.seeds])
        while len(self._made) < self._attack.budget and self._unusable < GIVE_UP:
            self._templates += 1
            draw = random.Random(f"{self._attack.seed}\n{self._quest.id}\n{self._templates}")
            if self._templates <= len(seeds):
                self._tried(draw, None, self._seed(seeds[self._templates - 1]))
            else:
                self._tried(draw, *self._mutation(draw, first=self._templates == len(seeds) + 1))
            if self._made[0].proposal.fault in FAULTS:
                break
        return self._made

    def _seed(self, text: str) -> Callable[[ChatModel], Proposal]:
        seed = Proposal(text, "one of the templates that the search starts from")
        if self._made:
            return lambda model: seed

        def opening(model: ChatModel) -> Proposal:
            first = self._attack.first(model, self._told)
            return first if first.fault is not None else replace(seed, ahead=first)

        return opening

    def _mutation(
        self, draw: random.Random, *, first: bool
    ) -> tuple[TemplateNode | None, Callable[[ChatModel], Proposal]]:
        """A template to go on from, and how the attacker is asked for what is to be made of it."""
        ahead = self._made[0].proposal.ahead
        if first and ahead is not None:
            return self._tree.roots[0], lambda model: replace(ahead, strategy=SIMILAR)
        parent = self._tree.selected()
        others = [node for node in self._tree.nodes() if node is not parent]
        mutator = draw.choice(sorted(MUTATORS) if others else sorted(set(MUTATORS) - {CROSSOVER}))
        other = draw.choice(others) if mutator == CROSSOVER else None
        request = template_request(
            self._attack.attacker_of(self._told), parent, other, mutator, self._templates
        )
        return parent, lambda model: replace(self._attack.asked(model, self._told, request), strategy=mutator)

    def _tried(
        self, draw: random.Random, parent: TemplateNode | None, propose: Callable[[ChatModel], Proposal]
    ) -> None:
        """Try one template on its pairs, and put what came of it into the tree."""
        place = self._place(parent)
        runs: dict[int, Attempt] = {}
        for pair in self._drawn(draw):
            if len(self._made) >= self._attack.budget:
                break
            self._made.append(self._target.attempt(place, propose, pair))
            proposal = self._made[-1].proposal
            if GOAL not in proposal.text or proposal.fault is not None:
                self._unusable += proposal.fault is not None
                if parent is not None:
                    self._tree.failed(parent)
                return
            runs[pair] = self._made[-1]
            self._used[pair] += 1
            again = replace(proposal, refused=None, ahead=None)
            propose = _same(again)
        self._unusable = 0
        won = {pair for pair, attempt in runs.items() if attempt.success}
        reward = (len(won) + self._attack.coverage * len(won - self._broken)) / len(runs)
        self._broken |= won
        self._tree.add(next(iter(runs.values())).proposal.text, parent, list(runs.values()), reward)

    def _place(self, parent: TemplateNode | None) -> Place:
        if parent is None:
            return Place(0, 0, None)
        stream = 1 + self._tree.roots.index(parent.root)
        return Place(stream, parent.depth + 1, parent.attempts[0].number)

    def _drawn(self, draw: random.Random) -> list[int]:
        """The pairs for one template: those that were used least, in an order drawn by the seed."""
        shuffled = draw.sample(range(len(self._quest.pairs)), len(self._quest.pairs))
        return sorted(shuffled, key=lambda pair: self._used[pair])[: self._attack.pairs]


def _same(proposal: Proposal) -> Callable[[ChatModel], Proposal]:
    return lambda model: proposal
