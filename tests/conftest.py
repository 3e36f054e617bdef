"""What several tests share: running small plans on the simulated model."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from published_runs import published as published
from small_runs import Canonical, Silent, records_in

# The same examples each time: what passed passes again. `HYPOTHESIS_PROFILE=default` draws others, and more.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Whatever is imported and collected stays to the end: looking for garbage in it took a fifth of the tests' time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on look for garbage in what tests make, and in nothing that was there before."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print as into a pipe, whatever the terminal or the test's worker says its width is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def each_choice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sweep, as many combinations as its longest list has values, and every value in one of them.

    For tests of whether what somebody wrote composes: a name that does not exist or an option that does not
    fit shows in the first combination that holds it, and each takes Hydra a tenth of a second.
    """

    def fewest(axes: Sequence[Sequence[str]]) -> list[list[str]]:
        longest = max(map(len, axes), default=1)
        return [[axis[place % len(axis)] for axis in axes] for place in range(longest)]

    monkeypatch.setattr("agentsys.runs.compose._combinations", fewest)


@pytest.fixture
def run_cases(tmp_path: Path) -> Callable[..., dict[str, Canonical]]:
    """Run overrides on the simulated model into a folder; returns its records."""

    def run(overrides: Sequence[str], logdir: Path | None = None) -> dict[str, Canonical]:
        from agentsys.runs.run_session import prepare_session

        folder = logdir or tmp_path / "runs"
        outcome = prepare_session([*overrides, f"logdir={folder}"]).execute(Silent())
        assert outcome.fatal is None
        return records_in(folder)

    return run
