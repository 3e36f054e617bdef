"""Exposure on published runs with real model outputs: gpt-4o-mini, important_instructions, no defense."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsys.models.chat import ChatRequest
from agentsys.runs.case_watch import ExposureWatch

ARCHIVE = Path(__file__).parents[3] / "shared/data/traces/agentdojo-gpt-4o-mini-2024-07-18.tar.gz"
pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason=f"published runs are not at {ARCHIVE}")


def attacked() -> Iterator[dict[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if "/user_task_" in member.name and "/important_instructions/injection_task_" in member.name:
                file = archive.extractfile(member)
                assert file is not None
                yield json.load(file)


def test_published_runs_are_exposed_as_often_as_was_measured() -> None:
    cases, missed, fractions = Counter[str](), Counter[str](), set()
    successes_without = set()
    for record in attacked():
        watch = ExposureWatch(record["injections"])
        watch.model_asked(ChatRequest(record["messages"], role="agent"))
        cases[record["suite_name"]] += 1
        if watch.summarize().exposed_shown:
            fractions.add(watch.summarize().shown_fraction)
            continue
        missed[record["suite_name"]] += 1
        if record["security"]:
            successes_without.add((record["suite_name"], record["user_task_id"]))
    assert cases == {"workspace": 240, "travel": 140, "banking": 144, "slack": 105}
    assert missed == {"workspace": 30, "travel": 2, "banking": 35, "slack": 6}
    assert fractions == {1.0}
    # The landlord's account number is the attacker's there, in the versions before v1.1.1.
    assert successes_without == {("banking", "user_task_15")}
