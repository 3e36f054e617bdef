"""PAIR against a scripted target: its budget, its streams, what the attacker is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.attack_search import rank_attempts
from agentsys.attacks.attacker_prompt import LAST_TURNS
from agentsys.attacks.search_attacks import PairAttack
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, text_of


def texts(request: ChatRequest) -> list[str]:
    return [text_of(message) for message in request.messages]


@pytest.mark.parametrize(("streams", "depth"), [(1, 1), (3, 5), (2, 3), (30, 3)])
def test_without_success_the_budget_is_spent_exactly(streams: int, depth: int) -> None:
    attack, target = PairAttack(streams, depth), Outcomes(Says())
    made = attack.search(QUEST, target)
    assert len(made) == attack.budget == streams * depth + 1
    assert [attempt.number for attempt in made] == list(range(1, streams * depth + 2))
    assert {attempt.place.stream for attempt in made[1:]} == set(range(1, streams + 1))
    assert all((attempt.place.parent is None) == (attempt.place.depth <= 1) for attempt in made)


def test_the_start_text_is_the_first_attempt_and_its_success_ends_the_search() -> None:
    made = PairAttack(2, 3).search(QUEST, Outcomes(Says(), {1: 10}))
    assert [attempt.proposal.text for attempt in made] == [QUEST.start_text]


@pytest.mark.parametrize("success", [1, 4, 6])
def test_the_first_success_ends_the_search(success: int) -> None:
    target = Outcomes(Says(), {success: 10})
    made = PairAttack(2, 3).search(QUEST, target)
    assert len(made) == success
    best = rank_attempts(made)[0]
    assert (best.number, best.success) == (success, True)


@pytest.mark.parametrize(("scores", "best"), [({}, 1), ({3: 5, 4: 7, 5: 7}, 4), ({1: 5, 3: 5}, 1)])
def test_the_best_score_is_chosen_and_of_equals_the_start_text_or_the_earlier(
    scores: dict[int, int], best: int
) -> None:
    made = PairAttack(1, 4).search(QUEST, Outcomes(Says(), scores))
    assert rank_attempts(made)[0].number == best


def test_the_attacker_sees_goal_start_and_its_last_turns_only() -> None:
    model = Says()
    PairAttack(1, LAST_TURNS + 4).search(QUEST, Outcomes(model))
    last = texts(model.requests[-1])
    assert len(last) == 2 + 2 * LAST_TURNS
    assert QUEST.goal in last[1]
    assert QUEST.start_text in last[1]
    assert "feedback 1" in last[1], "what came of the start text"
    assert f"feedback {LAST_TURNS + 4}" in last[-1]
    assert not any("feedback 4" in text for text in last)
    assert {request.role for request in model.requests} == {"attacker"}
    assert {request.temperature for request in model.requests} == {1.0}


def test_no_two_requests_of_a_search_are_alike_or_a_cache_would_repeat_replies() -> None:
    model = Says([reply(QUEST.goal)] * 6)
    PairAttack(3, 2).search(QUEST, Outcomes(model))
    assert len({str(request.messages) for request in model.requests}) == 6


@pytest.mark.parametrize(("feedback", "told"), [("blackbox", False), ("defense_aware", True)])
def test_only_a_defense_aware_attacker_hears_of_the_defense(feedback: str, told: bool) -> None:
    model = Says()
    PairAttack(1, 1, feedback=feedback).search(QUEST, Outcomes(model))
    assert ("A wall." in texts(model.requests[0])[1]) is told


def test_a_file_of_ones_own_is_told_in_place_of_the_defenses_description(tmp_path: Path) -> None:
    (tmp_path / "told.txt").write_text("The gate takes any key.")
    model = Says()
    options = {"feedback": "defense_aware", "knowledge_file": str(tmp_path / "told.txt")}
    PairAttack(1, 1, **options).search(QUEST, Outcomes(model))
    assert "The gate takes any key." in texts(model.requests[0])[1]
    assert "A wall." not in texts(model.requests[0])[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "both"}, "Unknown attack.mode 'both'"),
        ({"feedback": "blackbx"}, "Did you mean blackbox"),
        ({"knowledge": "ful"}, "Did you mean full"),
        ({"on_topic": "words"}, "Unknown attack.on_topic 'words'"),
        ({"judge": "me"}, "Unknown attack.judge 'me'"),
        ({"search_on": 0}, "attack.search_on is 0"),
        ({"knowledge_file": "/nowhere.txt"}, "cannot be read"),
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
