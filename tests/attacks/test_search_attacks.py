"""Searches against a scripted target: PAIR, TAP's tree, and independent samples; what the attacker is told."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted_for_searches import QUEST, Outcomes, Says, reply

from agentsys.attacks.attack_search import rank_attempts
from agentsys.attacks.attacker_prompt import LAST_TURNS
from agentsys.attacks.search_attacks import PairAttack, SamplerAttack, TapAttack
from agentsys.attacks.search_options import Artefact, ArtefactEntry, read_artefact
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
        ({"mode": "both"}, "Unknown attack mode 'both'"),
        ({"feedback": "blackbx"}, "Did you mean blackbox"),
        ({"knowledge": "ful"}, "Did you mean full"),
        ({"search_on": 0}, "attack: search_on is 0"),
        ({"knowledge_file": "/nowhere.txt"}, "cannot be read"),
        ({"streams": 0}, "attack.streams is 0"),
        ({"depth": "5"}, "attack.depth is '5'"),
        ({"temperature": 3}, "attack: temperature is 3"),
        ({"artefact": "/nowhere.json"}, "cannot be read"),
        ({"artefact": 3}, "attack: artefact is 3; give a value of the type string, or null"),
        ({"seed": "abc"}, "attack: seed is 'abc'; give a value of the type integer, or null"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        PairAttack(**options)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("branching", "width", "depth", "budget"),
    [(2, 3, 4, 18), (3, 3, 3, 21), (1, 1, 5, 5), (4, 10, 2, 20), (4, 10, 10, 340)],
)
def test_without_success_the_budget_is_the_start_text_and_the_trees_size(
    branching: int, width: int, depth: int, budget: int
) -> None:
    attack = TapAttack(branching, width, depth)
    assert attack.budget == budget + 1
    assert len(attack.search(QUEST, Outcomes(Says()))) == budget + 1


def test_only_the_best_leaves_are_refined() -> None:
    target = Outcomes(Says(), {2: 3, 3: 7, 4: 5})
    TapAttack(3, 2, 2).search(QUEST, target)
    assert [attempt.place.parent for attempt in target.made] == [None] * 4 + [3] * 3 + [4] * 3
    assert [attempt.place.stream for attempt in target.made] == [0, 1, 2, 3, 2, 2, 2, 3, 3, 3]


def test_a_candidate_that_the_judge_finds_off_topic_costs_an_attempt_and_is_not_refined() -> None:
    model = Says([reply("new_password is a fine word."), reply("go")], off=["fine word"])
    made = TapAttack(2, 2, 2).search(QUEST, Outcomes(model))
    assert "off topic" in str(made[1].proposal.refused)
    assert [attempt.place.parent for attempt in made] == [None, None, None, 3, 3]
    assert len(model.judged) == 4
    assert model.judged[0].role == "attacker_judge"


def test_the_first_success_ends_the_search_of_a_tree() -> None:
    assert len(TapAttack(2, 3, 4).search(QUEST, Outcomes(Says(), {4: 10}))) == 4


def test_which_of_equal_leaves_go_on_is_drawn_by_the_seed_and_repeats() -> None:
    def parents(seed: int) -> list[int | None]:
        made = TapAttack(3, 4, 3, seed=seed).search(QUEST, Outcomes(Says(), rest=5))
        return [attempt.place.parent for attempt in made]

    assert parents(1) == parents(1)
    assert len({tuple(parents(seed)) for seed in range(6)}) > 1


EMPTY = Artefact(
    attack="pair-transfer",
    mode="transfer",
    benchmark="agentdojo",
    version="v1.2.2",
    model="simulated",
    defense="none",
    entries=(),
)


def entry(text: str, user_task: str | None = None, injection_task: str = "injection_task_0") -> ArtefactEntry:
    return ArtefactEntry(
        suite="banking",
        user_task=user_task,
        injection_task=injection_task,
        text=text,
        success=True,
        attempts=3,
    )


def with_entries(*entries: ArtefactEntry) -> str:
    return json.dumps({**EMPTY.model_dump(), "entries": [one.model_dump() for one in entries]})


def test_the_texts_of_a_newer_search_take_the_place_of_all_of_an_older_one() -> None:
    def several(count: int) -> list[ArtefactEntry]:
        return [entry(f"text {n} of {count}").model_copy(update={"variant": n}) for n in range(count)]

    three = EMPTY.with_search(several(3)).with_search([entry("other", injection_task="injection_task_1")])
    assert (three.format, three.variants) == (2, (0, 1, 2))
    found = three.find_entry("banking", "user_task_9", "injection_task_0", 2)
    assert found is not None
    assert found.text == "text 2 of 3"
    two = three.with_search(several(2))
    assert two.variants == (0, 1)
    assert two.with_search(several(1)).format == 1, "as files of one text per search always were"
    assert b"variant" not in two.with_search(several(1)).as_json()


@pytest.mark.parametrize("attack", [TapAttack, partial(PairAttack, name="pair-per_case", mode="per_case")])
def test_another_attacks_or_modes_artefact_is_refused_as_results_would_bear_the_wrong_name(
    attack: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(EMPTY.with_search([entry("text")]).as_json())
    assert PairAttack(name="pair-transfer", artefact=str(path)).replays
    with pytest.raises(ConfigError, match="holds texts of attack 'pair-transfer'"):
        attack(artefact=str(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (json.dumps({**EMPTY.model_dump(), "format": 3}), "format"),
        (json.dumps({**EMPTY.model_dump(), "entries": [{"suite": "x"}]}), r"entries\.0\.user_task"),
        (with_entries(entry("a"), entry("b")), "two texts for 'banking injection_task_0'; keep one"),
        (with_entries(entry("a")).replace('"a"', '""'), r"entries\.0\.text: String should have at least 1"),
        (with_entries(entry("a")).replace('"a"', r'"\ud800"'), r"entries\.0\.text: .*unicode string"),
        ("[]", "no artefact of a search: Input should be"),
    ],
)
def test_anything_else_is_one_line_with_the_mend(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        read_artefact(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
