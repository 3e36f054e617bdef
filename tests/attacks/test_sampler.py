"""Samples from one attacker: independent, counted, ended by the first success; none without an attacker."""

from __future__ import annotations

import json

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.search_attacks import SamplerAttack


def test_without_success_as_many_texts_are_tried_as_samples_and_the_start_text_is_none_of_them() -> None:
    target = Outcomes(Says())
    made = SamplerAttack(7).search(QUEST, target)
    assert len(made) == SamplerAttack(7).budget == 7
    assert len({attempt.proposal.text for attempt in made}) == 7
    assert QUEST.start_text not in {attempt.proposal.text for attempt in made}


@pytest.mark.parametrize("success", [1, 5, 10])
def test_the_first_success_ends_it(success: int) -> None:
    made = SamplerAttack(10).search(QUEST, Outcomes(Says(), {success: 10}))
    assert [attempt.success for attempt in made] == [False] * (success - 1) + [True]


def test_a_later_refusal_costs_a_sample() -> None:
    replies = [reply("one"), *["I'm sorry, I can't."] * 4, json.dumps({"text": "three"})]
    made = SamplerAttack(3).search(QUEST, Outcomes(Says(replies)))
    assert [attempt.proposal.refused is None for attempt in made] == [True, False, True]
