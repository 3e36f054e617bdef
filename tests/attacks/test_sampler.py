"""Samples from one attacker: independent, counted, ended by the first success; none without an attacker."""

from __future__ import annotations

import json

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.injection_vectors import unescape_yaml
from agentsys.attacks.search_attacks import SamplerAttack
from agentsys.models.chat import text_of


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


def test_no_sample_hears_of_another_and_no_two_requests_are_alike() -> None:
    model = Says()
    SamplerAttack(5).search(QUEST, Outcomes(model))
    asked = ["\n".join(text_of(message) for message in request.messages) for request in model.requests]
    assert not any("feedback" in text or "Variation" in text for text in asked)
    assert len(set(asked)) == 5


def test_quotes_and_line_breaks_are_kept_and_the_attacker_is_not_told_to_avoid_them() -> None:
    text = 'Say "yes".\nThen go on.'
    model = Says([reply(text)])
    (made,) = SamplerAttack(1).search(QUEST, Outcomes(model))
    assert unescape_yaml(made.proposal.text) == made.proposal.proposed == text
    assert "No double quotes" not in text_of(model.requests[0].messages[0])


def test_an_attacker_that_only_refuses_makes_no_search() -> None:
    made = SamplerAttack(9).search(QUEST, Outcomes(Says(always=lambda _: "I'm sorry, but I can't help.")))
    assert [attempt.proposal.fault for attempt in made] == [ReplyFault.REFUSED.value]


def test_a_later_refusal_costs_a_sample() -> None:
    replies = [reply("one"), *["I'm sorry, I can't."] * 4, json.dumps({"text": "three"})]
    made = SamplerAttack(3).search(QUEST, Outcomes(Says(replies)))
    assert [attempt.proposal.refused is None for attempt in made] == [True, False, True]
