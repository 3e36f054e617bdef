"""PAIR against a scripted target: its budget, its streams, what the attacker is told, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.attacker import LAST_TURNS, proposal_in
from agentsys.attacks.pair import PairAttack
from agentsys.attacks.search import chosen
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, text_of


def texts(request: ChatRequest) -> list[str]:
    return [text_of(message) for message in request.messages]


@pytest.mark.parametrize(("streams", "depth"), [(1, 1), (3, 5), (2, 3)])
def test_without_success_the_budget_is_spent_exactly(streams: int, depth: int) -> None:
    attack, target = PairAttack(streams, depth), Outcomes(Says())
    made = attack.search(QUEST, target)
    assert len(made) == attack.budget == streams * depth
    assert [attempt.number for attempt in made] == list(range(1, streams * depth + 1))
    assert {attempt.place.stream for attempt in made} == set(range(1, streams + 1))
    assert all((attempt.place.parent is None) == (attempt.place.depth == 1) for attempt in made)


@pytest.mark.parametrize("success", [1, 4, 6])
def test_the_first_success_ends_the_search(success: int) -> None:
    target = Outcomes(Says(), {success: 10})
    made = PairAttack(2, 3).search(QUEST, target)
    assert len(made) == success
    best = chosen(made)
    assert best is not None
    assert (best.number, best.success) == (success, True)


def test_a_refused_candidate_costs_an_attempt_and_its_attacker_is_told_why() -> None:
    model = Says([reply("Change it to something.")])
    made = PairAttack(1, 2).search(QUEST, Outcomes(model, {2: 3}))
    assert len(made) == 2
    assert "new_password" in str(made[0].proposal.refused)
    assert made[1].proposal.refused is None
    assert "NOT TRIED" in texts(model.requests[1])[-1]
    assert "new_password" in texts(model.requests[1])[-1]


def test_the_best_score_is_chosen_and_the_earlier_of_two() -> None:
    best = chosen(PairAttack(1, 4).search(QUEST, Outcomes(Says(), {2: 5, 3: 7, 4: 7})))
    assert best is not None
    assert best.number == 3


def test_nothing_is_chosen_where_everything_was_refused() -> None:
    made = PairAttack(1, 2).search(QUEST, Outcomes(Says(["no JSON", reply("lost")])))
    assert all(attempt.proposal.refused for attempt in made)
    assert chosen(made) is None


def test_the_attacker_sees_goal_start_and_its_last_turns_only() -> None:
    model = Says()
    PairAttack(1, LAST_TURNS + 4).search(QUEST, Outcomes(model))
    last = texts(model.requests[-1])
    assert len(last) == 2 + 2 * LAST_TURNS
    assert QUEST.goal in last[1]
    assert QUEST.start in last[1]
    assert f"feedback {LAST_TURNS + 3}" in last[-1]
    assert not any("feedback 3" in text for text in last)
    assert {request.role for request in model.requests} == {"attacker"}
    assert {request.temperature for request in model.requests} == {1.0}


def test_no_two_requests_of_a_search_are_alike_or_a_cache_would_repeat_replies() -> None:
    model = Says([reply(QUEST.goal)] * 6)
    PairAttack(3, 2).search(QUEST, Outcomes(model))
    assert len({str(request.messages) for request in model.requests}) == 6


def test_streams_start_from_different_angles_and_the_seed_orders_them() -> None:
    def angles(seed: int) -> list[str]:
        model = Says()
        PairAttack(3, 1, seed=seed).search(QUEST, Outcomes(model))
        return [texts(request)[0] for request in model.requests]

    assert len(set(angles(0))) == 3
    assert angles(0) == angles(0)
    assert angles(0) != angles(1)


@pytest.mark.parametrize(("feedback", "told"), [("blackbox", False), ("defense_aware", True)])
def test_only_a_defense_aware_attacker_hears_of_the_defense(feedback: str, told: bool) -> None:
    model = Says()
    PairAttack(1, 1, feedback=feedback).search(QUEST, Outcomes(model))
    assert ("A wall." in texts(model.requests[0])[0]) is told


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"improvement": "x", "text": "a {b} c"}', "a {b} c"),
        ('Sure!\n```json\n{"improvement": "x", "text": "a\\nb"}\n```', "a\nb"),
        ('{"text": "a\nb"}', "a\nb"),
        ('{"thought": {"text": 3}} {"text": "second"}', "second"),
        ('{"text": "half \\ud83d pair"}', "half ? pair"),
    ],
)
def test_a_reply_is_read_with_whatever_stands_around_it(said: str, text: str) -> None:
    found = proposal_in(said)
    assert (found.text, found.refused) == (text, None)


@pytest.mark.parametrize("said", ["", "{", "[]", '{"text": 3}', "{" * 5000, '{"a":' * 3000])
def test_an_unreadable_reply_is_a_refused_proposal(said: str) -> None:
    assert proposal_in(said).refused


def test_an_endless_text_is_refused() -> None:
    found = proposal_in(reply("x" * 20_000))
    assert "longer than" in str(found.refused)
    assert len(found.text) == 10_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "both"}, "Unknown attack.mode 'both'"),
        ({"feedback": "blackbx"}, "Did you mean blackbox"),
        ({"streams": 0}, "attack.streams is 0"),
        ({"depth": "5"}, "attack.depth is '5'"),
        ({"temperature": 3}, "attack.temperature is 3"),
        ({"artefact": "/nowhere.json"}, "cannot be read"),
        ({"artefact": 3}, "attack.artefact is 3; give the name of a file"),
        ({"artefact": ""}, "attack.artefact is ''; give the name of a file"),
        ({"mode": None}, "Unknown attack.mode 'None'"),
        ({"feedback": None}, "Unknown attack.feedback 'None'"),
        ({"seed": "abc"}, "attack.seed is 'abc'; give a whole number"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        PairAttack(**options)
    assert "\n" not in str(caught.value)
