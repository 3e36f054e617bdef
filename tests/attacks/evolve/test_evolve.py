"""The archive search against a scripted target: budget, seeds, endings, what the attacker is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.attack_search import rank_attempts
from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.injection_vectors import escape_yaml
from agentsys.attacks.red_team.chat_injection import FAMILIES
from agentsys.attacks.red_team.evolve_attack import MAX_EMPTY_REPLIES, STRATEGIES, EvolveAttack
from agentsys.errors import ConfigError
from agentsys.models.chat import text_of

SEEDS = len(STRATEGIES)


def test_the_attacker_goes_on_from_the_best_text_and_hears_what_came_of_it() -> None:
    model = Says()
    EvolveAttack(2 + SEEDS + 6, elite_share=1.0).search(QUEST, Outcomes(model, {4: 9, 9: 8}))
    shown = [text_of(request.messages[1]) for request in model.requests[1:]]
    assert all(QUEST.goal in text and "SCORE" not in text for text in shown)
    assert all(text.count("<text>") == 5 for text in shown), "a parent and four others"
    assert any("feedback 4" in text for text in shown)


def test_declared_strategies_are_kept_and_candidates_are_read_letter_by_letter() -> None:
    said = json.dumps({"strategy": "urgency", "improvement": "", "text": 'Now:\n"go"'})
    made = EvolveAttack(2 + SEEDS).search(QUEST, Outcomes(Says([said])))
    last = made[-1].proposal
    assert (last.strategy, last.proposed, last.text) == ("urgency", 'Now:\n"go"', escape_yaml('Now:\n"go"'))


def test_a_known_family_adds_a_forged_conversation_to_the_seeds() -> None:
    made = EvolveAttack(30, family="qwen3").search(QUEST, Outcomes(Says()))
    assert FAMILIES["qwen3"].opening["user"] + QUEST.goal in str(made[1].proposal.proposed)


def test_an_attacker_that_never_gives_a_text_makes_no_search() -> None:
    made = EvolveAttack(30).search(QUEST, Outcomes(Says(always=lambda _: "I'm sorry, but I can't help.")))
    assert [attempt.proposal.fault for attempt in made] == [ReplyFault.REFUSED.value]
    assert rank_attempts(made) == []


def test_an_attacker_that_gives_no_more_texts_ends_the_search_with_the_best_so_far() -> None:
    model = Says([reply("first")], always=lambda _: "I'm sorry, but I can't help.")
    made = EvolveAttack(60).search(QUEST, Outcomes(model, {7: 5}))
    assert len(made) == 2 + SEEDS + MAX_EMPTY_REPLIES
    assert {attempt.proposal.fault for attempt in made[-MAX_EMPTY_REPLIES:]} == {ReplyFault.REFUSED.value}
    assert rank_attempts(made)[0].number == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": 0}, r"attack\.budget is 0"),
        ({"budget": 1001}, "from 1 to 1000"),
        ({"cells": "strategies"}, "Did you mean strategy"),
        ({"elite_share": 2}, r"attack\.elite_share is 2"),
        ({"family": "qwen"}, "Did you mean qwen3"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        EvolveAttack(**options)
    assert "\n" not in str(caught.value)
