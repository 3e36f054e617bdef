"""What `agentsys fit --validate` prints: how far a profile's forecasts can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentsys.analysis.tables.document import Document, Grid, cells
from agentsys.analysis.tables.output import Output, grid_records
from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import VictimProfile
from agentsys.victims.blocks import Point
from agentsys.victims.fit import PublishedRuns, first_points
from agentsys.victims.forecast import OVERALL, ForecastRow
from agentsys.victims.recovery import Recovery
from agentsys.victims.solutions import Ways

UNSEEN = {"user": "user tasks (10 folds)", "injection": "injection tasks, each", "suite": "suites, each"}
DO_NOT_USE = (
    "Do not use a profile for suites, goals or attacks that it has no runs of: the last line says why."
)


@dataclass(frozen=True)
class Writing:
    """What the profile took."""

    seconds: float
    """Of reading and fitting, without the validation."""
    size: int
    """Of the file, in bytes."""


def validation_output(
    profile: VictimProfile,
    runs: PublishedRuns,
    ways: Ways,
    recovery: Recovery | None,
    against: Sequence[ForecastRow] = (),
    took: Writing | None = None,
) -> Output:
    """Make a validation ready to be written."""
    grids = [_unseen(profile), _offsets(profile, first_points(profile, runs, ways))]
    sections = [(profile.label, [*grids, *([_taken(took, runs)] if took is not None else [])])]
    if recovery is not None:
        sections.append(("Truths that are known", [_recovery(recovery)]))
    if against:
        sections.append(("Published runs", [_against(against)]))
    document = Document(sections, list(_notes(profile)))
    return Output("agentsys fit", document, grid_records(document))


def _unseen(profile: VictimProfile) -> Grid:
    header = ("Unseen", "Brier skill, %", "ECE", "Noise floor", "Overall error", "Worst suite")
    rows = [
        cells(
            UNSEEN[factor],
            f"{100 * (1 - skill.brier / skill.base):.0f}",
            *(f"{value:.1f}" for value in (skill.ece, skill.floor)),
            f"{skill.overall:+.1f}",
            f"{skill.worst_suite:.1f}",
        )
        for factor, skill in profile.validation.items()
    ]
    return Grid(
        "forecasts of what was left out, points unless it says percent", header, rows, 1, captioned=True
    )


def _offsets(profile: VictimProfile, points: Sequence[Point]) -> Grid:
    """Mean forecast beside the observed rate, suite by suite: in-sample, and no validation."""
    suites = sorted({point.levels["suite"] for point in points})
    rows = []
    for suite in [*suites, OVERALL]:
        chosen = [point for point in points if suite in (point.levels["suite"], OVERALL)]
        mean = sum(probability(profile.obey, p.levels, p.covariates) for p in chosen) / len(chosen)
        observed = sum(p.outcome for p in chosen) / len(chosen)
        rows.append(cells(suite, str(len(chosen)), f"{100 * mean:.1f}", f"{100 * observed:.1f}"))
    header = ("Suite", "Exposed cases", "Forecast, %", "Observed, %")
    return Grid("obeyed where the payload was returned (in-sample)", header, rows, names=1, captioned=True)


def _taken(took: Writing, runs: PublishedRuns) -> Grid:
    rows = [
        cells("cases", str(len(runs.behaviours))),
        cells("seconds to read and fit them", f"{took.seconds:.1f}"),
        cells("kB of the file", f"{took.size / 1000:.1f}"),
    ]
    return Grid("what the profile took", ("Profile", "Taken"), rows, names=1, captioned=True)


def _recovery(found: Recovery) -> Grid:
    rows = [
        cells("second run within 4 points, %", f"{100 * found.within:.0f}"),
        cells("sd of user tasks within a factor of 1.6, %", f"{100 * found.user_sd:.0f}"),
        cells("sd of injection tasks within a factor of 1.6, %", f"{100 * found.injection_sd:.0f}"),
        cells("Brier score on the second run", f"{found.brier:.3f}"),
        cells("Brier score of the truth itself", f"{found.ideal:.3f}"),
        cells("forecast of truths at 1%, %", f"{found.rare:.2f}"),
        cells("drawn of these, %", f"{found.rare_drawn:.2f}"),
    ]
    return Grid(f"{found.runs} synthetic runs", ("Recovery", "Found"), rows, names=1, captioned=True)


def _against(rows: Sequence[ForecastRow]) -> Grid:
    header = ("Defense", "Kind", "Suite", "Cases", "Forecast ASR, %", "Published ASR, %", "Note")
    listed = [
        cells(
            row.defense,
            row.kind,
            row.suite,
            str(row.cases),
            f"{row.forecast:.1f}",
            f"{row.published:.1f}",
            row.note,
        )
        for row in rows
    ]
    breaks = frozenset(
        place for place, row in enumerate(rows) if place and row.defense != rows[place - 1].defense
    )
    return Grid("forecast and published", header, listed, names=3, breaks=breaks, captioned=True)


def _notes(profile: VictimProfile) -> Iterator[str]:
    yield DO_NOT_USE
    if "structural" not in profile.usable_for:
        yield (
            "The host of these runs dropped calls or answers: the profile is for undefended forecasts alone, "
            "and a defense is not forecast with it."
        )
    hits, cases = profile.without_exposure
    if hits:
        yield f"{hits} of {cases} attacks succeeded though no tool returned the payload: not forecast."
    yield "bound: an upper bound of the ASR, as the defense refuses more than its structure does."
