"""What several tests share: running small plans on the simulated model."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

# Nothing of ours: the process that only deals tests out to workers reads this file as well, before it starts them.
if TYPE_CHECKING:
    from small_runs import Canonical

_TRACES = Path(__file__).parents[1] / "shared" / "data" / "traces"

# The same examples each time: what passed passes again. `HYPOTHESIS_PROFILE=default` draws others, and more.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell has its background commands ignore Ctrl-C, and their children inherit that: tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whatever is imported and collected stays to the end: looking for garbage in it took a fifth of the tests' time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on look for garbage in what tests make, and in nothing that was there before."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print as into a pipe, whatever the terminal or the test's worker says its width is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def no_fetched_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that the user of this machine fetched or installed (guards, data sets) decides a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data_home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def looked_up_once() -> Iterator[None]:
    """Keep what every run looks up anew and is the same for all tests, in modules that some test imports.

    Which installed package a module is of takes half a second, for each plan with a test's own classes; the
    simulated model's script, made of the ground truths of all tasks, up to two for each cell.
    """
    with pytest.MonkeyPatch.context() as patch:
        if (sources := sys.modules.get("agentsys.runs.source_files")) is not None:
            look_up = sources.packages_distributions
            packages = cache(lambda places: look_up())
            patch.setattr(
                sources,
                "packages_distributions",
                lambda: packages(tuple(place for place in sys.path if "site-packages" in place)),
            )
        if (cells := sys.modules.get("agentsys.runs.cell")) is not None:
            playbooks = KeptPlaybooks(cells.build_benchmark_playbook)
            patch.setattr(cells, "build_benchmark_playbook", playbooks)
            if (served := sys.modules.get("agentsys_plugins.serve.agent_server")) is not None:
                patch.setattr(served, "build_benchmark_playbook", playbooks)
        yield


class KeptPlaybooks:
    """Builds the playbook of a benchmark; that of the same tasks under the same name once."""

    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.build = build
        self.kept: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def __call__(self, benchmark: Any) -> Any:
        suites = [benchmark.suite(name) for name in benchmark.suite_names()]
        tasks = [
            task for suite in suites for task in (*suite.user_tasks.values(), *suite.injection_tasks.values())
        ]
        key = (benchmark.name, *map(id, tasks))
        if key not in self.kept:
            self.kept[key] = self.build(benchmark), tasks  # an id is a task's as long as the task is there
        return self.kept[key][0]


@pytest.fixture
def each_choice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sweep, as many combinations as its longest list has values, and every value in one of them.

    For tests of whether what somebody wrote composes: a name that does not exist or an option that does not
    fit shows in the first combination that holds it, and each takes Hydra a tenth of a second.
    """

    def fewest(axes: Sequence[Sequence[str]]) -> list[list[str]]:
        longest = max(map(len, axes), default=1)
        return [[axis[place % len(axis)] for axis in axes] for place in range(longest)]

    monkeypatch.setattr("agentsys.runs.compose._list_combinations", fewest)


@pytest.fixture
def run_cases(tmp_path: Path) -> Callable[..., dict[str, Canonical]]:
    """Run overrides on the simulated model into a folder; returns its records."""

    def run(overrides: Sequence[str], logdir: Path | None = None) -> dict[str, Canonical]:
        from small_runs import Silent, records_in

        from agentsys.runs.run_session import prepare_session

        folder = logdir or tmp_path / "runs"
        outcome = prepare_session([*overrides, f"logdir={folder}"]).execute(Silent())
        assert outcome.fatal is None
        return records_in(folder)

    return run


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of an archive of published runs -> folder it was unpacked into, for all tests to read."""

    @cache
    def unpack(name: str) -> Path:
        archive = _TRACES / f"{name}.tar.gz"
        if not archive.exists():
            pytest.skip(f"the published runs are not here ({archive.name})")
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        return folder

    return unpack
