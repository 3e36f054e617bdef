"""`agentsys plan-size`: how many cases tell two defenses apart, and what they cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.cli.output import say

if TYPE_CHECKING:
    from agentsys.runs.session import Session

_DEFAULTS = ("model=gpt-4o-mini", "attack=important_instructions", "defense=none,tool_filter")
"""What is planned where nothing else is said: a key that is given takes the place of the one here."""


def plan_size(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[overrides]", help="The run that is planned, as for `agentsys run`."),
    ] = None,
    difference: Annotated[
        float, typer.Option(metavar="POINTS", min=0.5, max=99.0, help="The true difference to be found.")
    ] = 5.0,
    power: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="Share of such runs that are to find it.")
    ] = 0.8,
    rate: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", min=0.5, max=99.5, help="ASR undefended. Default: the victim's."),
    ] = None,
    victim: Annotated[
        str, typer.Option(metavar="NAME", help="Profile whose rate and task difficulties are assumed.")
    ] = "gpt-4o-mini",
) -> None:
    """Say how many cases tell two defenses apart, by the paired test's t part, and what they cost."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.analysis.statistics.planning import Difficulties, cases_needed
    from agentsys.cli.dry_run import planned_suites
    from agentsys.errors import ConfigError
    from agentsys.models.simulated.victim.predict import asr_range
    from agentsys.models.simulated.victim.profile import load_profile
    from agentsys.runs.session import prepare

    profile = load_profile(victim)
    before = asr_range(profile, (0.0, 0.0))[0] if rate is None else rate
    if before <= difference:
        raise ConfigError(
            f"An ASR of {before:.1f}% cannot fall by {difference:g} points; give --rate above that, or a "
            "smaller --difference."
        )
    given = {one.partition("=")[0] for one in overrides or ()}
    defaults = [one for one in _DEFAULTS if one.partition("=")[0] not in given]
    session = prepare([*defaults, *(overrides or ())], rehearsal=True)
    suites = planned_suites(job.case for job in session.plan.jobs)
    tasks = Difficulties(profile.obey.sd["user"], profile.obey.sd["injection"])
    needed = cases_needed(suites, before / 100, (before - difference) / 100, power, tasks)
    planned = sum(suite.cases for suite in suites)
    if math.isnan(needed):
        say(f"No number of cases finds {difference:g} points from {before:.1f}% with {power:.0%} power.")
        return
    say(
        f"{needed:,.0f} cases per defense find a fall of the ASR from {before:.1f}% by {difference:g} points "
        f"with {power:.0%} power. This plan has {planned:,.0f}"
        + ("." if needed <= planned else "; more cases mean more tasks, of both kinds.")
    )
    for line in _costs(session, needed):
        say(line)
    say(
        f"Assumed, from what is {profile.label}: tasks differ by a "
        f"logit sd {tasks.user:.1f} of user tasks, {tasks.injection:.1f} of injection tasks. Where all tasks "
        "agree, fewer cases will do (docs/statistics.md)."
    )


def _costs(session: Session, needed: float) -> list[str]:
    """What so many cases cost under each defense, from what the plan's are estimated at."""
    from agentsys.cli.dry_run import counts_by_cell
    from agentsys.runs.estimate import estimate

    counts = counts_by_cell(session.plan.todo)
    told = []
    for key, guess in estimate(session.plan.todo, {}).items():
        per_case = None if guess.cost_usd is None else guess.cost_usd / counts[key]
        cost = "cost not known" if per_case is None else f"about ${per_case * needed:,.2f}"
        told.append(f"  {key[1]}: {cost} ({guess.tokens / counts[key]:,.0f} tokens a case, estimated)")
    return told
