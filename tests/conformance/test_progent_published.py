"""Progent's published runs: recorded refusals word for word, and recorded calls through our gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from progent_recorded import ARCHIVE, RecordedTask, failed_condition, refusals, tasks_in
from progent_replay import Arguments, arguments_of, recorded_answers, replayed

from baselines.progent import progent_gate, progent_rules
from baselines.progent.progent_rules import ProgentSettings, find_condition_failure

REFERENCE = ProgentSettings(compat=True, base_rules="none")


@pytest.fixture(scope="module")
def tasks(published: Callable[[str], Path]) -> list[RecordedTask]:
    return tasks_in(published(ARCHIVE))


@pytest.fixture(scope="module")
def known(tasks: list[RecordedTask]) -> Arguments:
    return arguments_of(tasks)


def test_every_recorded_text_of_jsonschema_is_reproduced_byte_for_byte(
    tasks: list[RecordedTask], known: Arguments
) -> None:
    counted: Counter[str] = Counter()
    for result in refusals(tasks):
        if result.tool_is_refused:
            counted["tool"] += 1
            continue
        failed = failed_condition(result, tuple(known[result.tool]))
        if failed is None:
            assert "\n\nFailed validating" not in (result.cause or "")
            counted["other words"] += 1  # a regular expression, or a condition that is no schema
            continue
        assert find_condition_failure(failed.argument, failed.value, failed.schema) == failed.cause
        counted["schema that is none" if "in metaschema" in failed.cause else "value"] += 1
    assert counted == {"tool": 1093, "value": 256, "schema that is none": 68, "other words": 18}


def disagreeing(tasks: list[RecordedTask], known: Arguments, settings: ProgentSettings = REFERENCE) -> int:
    return sum(replayed(task, known, settings) != recorded_answers(task) for task in tasks)


@pytest.mark.slow
def test_recorded_calls_under_the_rules_they_tell_of_are_let_through_and_refused_as_recorded(
    tasks: list[RecordedTask], known: Arguments
) -> None:
    answers = [turn for task in tasks for turn in recorded_answers(task)]
    assert len(tasks) == 648
    assert sum(len(turn) for turn in answers) == 4363
    assert sum(answer.refused for turn in answers for answer in turn) == 1435
    assert sum(len(turn) > 1 for turn in answers) == 620
    assert disagreeing(tasks, known) == 0


Patch = pytest.MonkeyPatch


def every_rule_of_a_tool_is_tried(patch: Patch) -> None:
    decide = progent_rules.decide_call
    patch.setattr(
        progent_gate,
        "decide_call",
        lambda rules, tool, args, first_only: decide(rules, tool, args, first_only=False),
    )


def only_supplied_arguments_are_checked(patch: Patch) -> None:
    prepare = progent_gate.GatedRuntime._prepare_arguments

    def prepared(self: Any, function: str, args: Any) -> Any:
        policy, self.policy = self.policy, replace(self.policy, settings=MENDED)
        try:
            return prepare(self, function, args)
        finally:
            self.policy = policy

    patch.setattr(progent_gate.GatedRuntime, "_prepare_arguments", prepared)


MENDED = replace(REFERENCE, compat=False)
CHANGED: dict[Callable[[Patch], None], int] = {
    every_rule_of_a_tool_is_tried: 175,
    only_supplied_arguments_are_checked: 8,
}
"""Mended defect -> runs that come out differently once it alone is mended."""


@pytest.mark.slow
@pytest.mark.parametrize("mend", CHANGED)
def test_a_mended_defect_changes_the_runs_that_show_it(
    tasks: list[RecordedTask], known: Arguments, monkeypatch: Patch, mend: Callable[[Patch], None]
) -> None:
    mend(monkeypatch)
    assert disagreeing(tasks, known) == CHANGED[mend]
