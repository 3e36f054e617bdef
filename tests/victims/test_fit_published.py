"""Profiles fitted to published runs, where these are at hand: what docs/victims.md promises, reduced."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.simulated.victim.profile import load_profile
from agentsys.records.reading import read_cases
from agentsys.victims.fit import (
    PublishedRuns,
    digest_of,
    fitted_profile,
    grid_of,
    is_crippled,
    profile_yaml,
    published_runs,
    with_validation,
)
from agentsys.victims.forecast import forecasts
from agentsys.victims.recovery import recovered
from agentsys.victims.solutions import Solutions, solutions

ROOT = Path(__file__).parents[2]
RECOVERY_RUNS = 5
MINI = "agentdojo-gpt-4o-mini-2024-07-18"


@pytest.fixture(scope="module")
def dojo(published: Callable[[str], Path]) -> Iterator[tuple[PublishedRuns, Solutions, Path]]:
    folder = published(MINI)
    rows = read_cases([folder]).cases
    found = solutions(rows)
    yield published_runs(rows, found.ways), found, folder


@pytest.mark.slow
def test_the_shipped_profile_is_what_the_published_runs_give(
    dojo: tuple[PublishedRuns, Solutions, Path],
) -> None:
    runs, found, _ = dojo
    assert (len(runs.attacked), len(runs.exposed)) == (629, 556)
    shipped = load_profile("gpt-4o-mini")
    source = shipped.fitted_to.source
    fitted = fitted_profile(runs, found.ways, name="gpt-4o-mini", version=found.version, source=source)
    profile = with_validation(fitted, runs, found.ways)
    assert profile.fitted_to == shipped.fitted_to
    assert profile.without_exposure == (2, 73)
    assert profile.needs["slack/injection_task_4"] == ("post_webpage",)
    assert len(profile_yaml(profile)) < 20_000
    for factor, sd in shipped.obey.sd.items():
        assert profile.obey.sd[factor] == pytest.approx(sd, rel=0.1)
    unseen = profile.validation
    assert 1 - unseen["user"].brier / unseen["user"].base >= 0.20
    assert unseen["user"].ece <= unseen["user"].floor + 3
    assert 1 - unseen["injection"].brier / unseen["injection"].base >= 0.30
    assert unseen["injection"].ece <= unseen["injection"].floor + 5
    assert all(abs(unseen[name].overall) <= 2.5 for name in ("user", "injection"))
    assert all(unseen[name].worst_suite <= 5 for name in ("user", "injection"))
    assert unseen["suite"].worst_suite > 20  # what the page says not to do


@pytest.mark.slow
def test_truths_on_the_grid_of_the_published_runs_are_found_again(
    dojo: tuple[PublishedRuns, Solutions, Path],
) -> None:
    """`agentsys fit --validate` draws thirty; the page has what came of them."""
    found = recovered(grid_of(dojo[0]), RECOVERY_RUNS)
    assert found.within >= 1 - 1.5 / RECOVERY_RUNS
    assert found.user_sd >= 1 - 1.5 / RECOVERY_RUNS and found.injection_sd >= 1 - 2.5 / RECOVERY_RUNS
    assert found.brier <= found.ideal + 0.03
    assert 0.5 <= found.rare <= 1.5


def test_the_forecast_of_its_own_runs_is_exact_and_says_in_sample(
    dojo: tuple[PublishedRuns, Solutions, Path],
) -> None:
    runs, found, folder = dojo
    profile = load_profile("gpt-4o-mini")
    rows = forecasts(profile, runs, read_cases([folder]).cases, found.ways)
    assert {row.note for row in rows} == {"in-sample"} and {row.kind for row in rows} == {"fitted"}
    overall = rows[-1]
    # Two attacks succeeded though no tool returned the payload: 0.3 points that are not forecast.
    assert overall.published - overall.forecast == pytest.approx(100 * 2 / 629, abs=0.1)


def test_the_digest_is_of_the_runs_and_not_of_their_order(
    dojo: tuple[PublishedRuns, Solutions, Path],
) -> None:
    runs, _, _ = dojo
    assert digest_of(runs.behaviours) == digest_of(list(runs.behaviours)[::-1])
    changed = [replace(runs.behaviours[0], content="other"), *runs.behaviours[1:]]
    assert digest_of(runs.behaviours) != digest_of(changed)


def test_a_host_that_drops_calls_is_seen(dojo: tuple[PublishedRuns, Solutions, Path]) -> None:
    cases = list(dojo[0].behaviours)
    silent = [
        replace(case, manners=replace(case.manners, calls=0)) if place % 4 == 0 else case
        for place, case in enumerate(cases)
    ]
    assert is_crippled(silent) and not is_crippled(cases)


def test_other_runs_are_refused_in_one_line(dojo: tuple[PublishedRuns, Solutions, Path]) -> None:
    _, found, folder = dojo
    rows = [row for row in read_cases([folder]).cases if not row.is_injection_task_alone]
    with pytest.raises(ConfigError, match="some of these are simulated"):
        published_runs([replace(rows[0], simulated=True), *rows[1:]], found.ways)
    with pytest.raises(ConfigError, match="of one model on one benchmark"):
        published_runs([replace(rows[0], model="other"), *rows[1:]], found.ways)
    with pytest.raises(ConfigError, match="a victim needs 30"):
        published_runs(rows[:3], found.ways)
    with pytest.raises(ConfigError, match="AgentDojo or of AgentDyn"):
        solutions([replace(row, benchmark="asb") for row in rows])


def test_the_command_refuses_runs_without_an_attack(published: Callable[[str], Path], tmp_path: Path) -> None:
    folder = published(MINI)
    benign = next(folder.rglob("banking/user_task_0/none"))
    done = CliRunner().invoke(app, ["fit", str(benign), "--name", "x", "--out", str(tmp_path / "x.yaml")])
    assert "nothing to fit" in str(done.exception)
    assert not (tmp_path / "x.yaml").exists()


AGENTDYN = "agentdyn-gpt-4o-mini-2024-07-18"


@pytest.mark.slow
def test_agentdyn_under_defenses_is_what_the_page_says(
    published: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = ROOT.parent / "shared" / "data" / "agentdyn" / "agentdyn-package.tar.gz"
    if not package.exists():
        pytest.skip(f"AgentDyn's package is not here ({package.name})")
    checkout = tmp_path_factory.mktemp("agentdyn")
    with tarfile.open(package) as packed:
        packed.extractall(checkout, filter="data")
    rows = read_cases([published(AGENTDYN)]).cases
    found = solutions(rows, checkout=str(checkout))
    runs = published_runs(rows, found.ways)
    profile = fitted_profile(runs, found.ways, name="mini", version=found.version)
    against = read_cases([published(f"{AGENTDYN}-{name}") for name in ("progent", "drift")]).cases
    told = {(row.defense, row.suite): row for row in forecasts(profile, runs, against, found.ways)}
    progent, drift = told["progent", "overall"], told["drift", "overall"]
    assert abs(progent.forecast - progent.published) < 4
    assert all(row.published <= row.forecast + 3.5 for row in told.values())
    assert drift.published < drift.forecast
    page = (ROOT / "docs" / "victims.md").read_text(encoding="utf-8")
    for row in told.values():
        line = next(one for one in page.splitlines() if one.lower().startswith(f"| {row.defense} | bound"))
        columns = dict(zip(("shopping", "github", "dailylife", "overall"), line.split("|")[3:7], strict=True))
        forecast, seen = (float(part) for part in columns[row.suite].split("/"))
        assert forecast == pytest.approx(row.forecast, abs=0.3)
        assert seen == pytest.approx(row.published, abs=0.06)
