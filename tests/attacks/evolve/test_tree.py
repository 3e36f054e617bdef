"""The tree search against a scripted target: budget, pairs, rewards, changes, endings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scripted_for_searches import QUEST, Says, reply

from agentsys.attacks.attacker.reply import ReplyFault
from agentsys.attacks.evolve.attack import GIVE_UP
from agentsys.attacks.evolve.template_mutator import MUTATORS
from agentsys.attacks.evolve.tree import EvolveTreeAttack
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal, Quest
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, text_of

SEEDS = ("First: {goal}", "Second, {user}: {goal}", "Third. {goal}")


def quest(pairs: int) -> Quest:
    return replace(QUEST, pairs=tuple(replace(QUEST, goal=f"goal {n}") for n in range(pairs)), seeds=SEEDS)


@dataclass
class Pairs:
    """Says which templates succeed on which pairs, and what was tried."""

    model: ChatModel
    wins: Callable[[str, int], bool] = lambda text, pair: False
    made: list[Attempt] = field(default_factory=list)
    on: list[int] = field(default_factory=list)

    def attempt(
        self, place: Place, propose: Callable[[ChatModel], Proposal], pair: int | None = None
    ) -> Attempt:
        assert pair is not None
        proposal = propose(self.model)
        won = proposal.refused is None and self.wins(proposal.text, pair)
        judged = Judgement(10 if won else 1, f"feedback {len(self.made) + 1}")
        self.made.append(Attempt(len(self.made) + 1, place, proposal, won, judged, float(won)))
        self.on.append(pair)
        return self.made[-1]


def numbered(number: int) -> str:
    return reply(f"Template {number}: {{goal}}")


def searched(target: Pairs, sample: int = 4, **options: Any) -> EvolveTreeAttack:
    attack = EvolveTreeAttack(**{"templates": 10, "pairs": 3, "sample": sample, **options})
    attack.search(quest(sample), target)
    return attack


@pytest.mark.parametrize(("templates", "pairs"), [(1, 1), (4, 2), (10, 3)])
def test_the_budget_is_spent_exactly_and_each_template_is_asked_for_once(templates: int, pairs: int) -> None:
    model = Says(always=numbered)
    target = Pairs(model)
    attack = searched(target, templates=templates, pairs=pairs)
    assert len(target.made) == attack.budget == templates * pairs
    # The first proposal is asked for before anything is tried, and used where the seeds end.
    assert len(model.requests) == max(templates - len(SEEDS), 1)
    texts = list(dict.fromkeys(attempt.proposal.text for attempt in target.made))
    assert texts[: len(SEEDS)] == list(SEEDS)[:templates]
    assert len(texts) == templates


def test_pairs_take_turns_and_a_template_meets_none_twice() -> None:
    target = Pairs(Says(always=numbered))
    searched(target, templates=8)
    assert set(Counter(target.on).values()) == {6}
    assert all(len(set(target.on[place : place + 3])) == 3 for place in range(0, 24, 3))


def test_what_refused_nothing_costs_one_attempt_and_gives_no_node() -> None:
    said = [numbered(1), reply("no place for it"), numbered(3)]
    target = Pairs(Says(said, always=numbered))
    searched(target, templates=6)
    refused = [attempt for attempt in target.made if attempt.proposal.refused]
    assert [attempt.number for attempt in refused] == [13]
    assert "no {goal}" in str(refused[0].proposal.refused)
    assert len(target.made) == 18
    assert target.made[13].proposal.text == "Template 3: {goal}"


def test_the_search_goes_on_from_what_breaks_pairs_and_more_so_from_what_breaks_new_ones() -> None:
    target = Pairs(Says(always=numbered), wins=lambda text, pair: text == SEEDS[1])
    searched(target, templates=5, exploration=0.0, pairs=2)
    # Two seeds break nothing; what is made first comes from the first seed, then the best is gone on from.
    assert [target.made[number].place.parent for number in (6, 8)] == [1, 3]
    assert target.made[8].place.stream == 2

    def gone_on_from(coverage: float) -> int | None:
        target = Pairs(Says(always=numbered), wins=lambda text, pair: text in SEEDS[:2])
        searched(target, templates=5, exploration=0.0, pairs=2, sample=2, coverage=coverage)
        return target.made[8].place.parent

    # The second seed breaks what the first had broken: coverage speaks for the first alone, whose mean falls
    # by a half with what was made of it.
    assert (gone_on_from(0.0), gone_on_from(2.0)) == (3, 1)


def test_all_five_changes_are_drawn_and_the_attacker_is_told_what_came_of_a_template() -> None:
    model = Says(always=numbered)
    target = Pairs(model, wins=lambda text, pair: pair == 0)
    searched(target, templates=40)
    assert {attempt.proposal.strategy for attempt in target.made[12:]} == set(MUTATORS)
    asked = [text_of(request.messages[1]) for request in model.requests[1:]]
    assert all(re.search(r"It succeeded on \d of 3 pairs; mean score", text) for text in asked)
    two = [text for text in asked if "The second template" in text]
    assert len(two) == sum(MUTATORS["crossover"] in text for text in asked) > 0
    assert not any("goal 0" in text or QUEST.goal in text for text in asked), "a template is for any goal"


def test_the_same_seed_makes_the_same_search_and_another_one_another() -> None:
    def asked(seed: int, search: str = "") -> list[str]:
        model = Says(always=numbered)
        EvolveTreeAttack(9, sample=4, seed=seed).search(replace(quest(4), id=search), Pairs(model))
        return [str(request.messages) for request in model.requests]

    assert asked(0) == asked(0)
    assert asked(0) != asked(1)
    assert asked(0) != asked(0, "b")
    assert len(set(asked(0))) == len(asked(0)), "a cache of replies would give two templates one draw"


def test_an_attacker_that_never_gives_a_text_makes_no_search() -> None:
    target = Pairs(Says(always=lambda number: "I'm sorry, but I can't help with that."))
    searched(target)
    (only,) = target.made
    assert only.proposal.fault == ReplyFault.REFUSED.value


def test_an_attacker_that_stops_giving_texts_ends_the_search_with_what_it_has() -> None:
    target = Pairs(Says([numbered(1)], always=lambda number: "I'm sorry, but I can't help with that."))
    attack = searched(target, templates=40)
    assert len(target.made) == 3 * (len(SEEDS) + 1) + GIVE_UP
    assert [attempt.proposal.text for attempt in attack.settled_on(target.made)] == [
        *SEEDS,
        "Template 1: {goal}",
    ]


def test_the_best_templates_are_those_with_the_highest_share_then_score_then_first() -> None:
    target = Pairs(
        Says(always=numbered), wins=lambda text, pair: text == SEEDS[2] or (text == SEEDS[1] and pair < 2)
    )
    attack = searched(target, templates=5, best=2)
    kept = attack.settled_on(target.made)
    assert [(attempt.proposal.text, attempt.success) for attempt in kept] == [
        (SEEDS[2], True),
        (SEEDS[1], False),
    ]
    every = EvolveTreeAttack(5, sample=4, save_all=True)
    assert len(every.settled_on(target.made)) == 5


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"pairs": 4, "sample": 3}, "attack.sample"),
        ({"exploration": -1}, "attack.exploration"),
        ({"best": 0}, "attack.best"),
    ],
)
def test_options_out_of_range_are_one_line(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        EvolveTreeAttack(**options)
