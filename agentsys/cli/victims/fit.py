"""`agentsys fit`: published runs of a model -> a profile that the simulated model draws from."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.tables.output import OutputFormat
from agentsys.cli.output import FormatOption, put, say
from agentsys.cli.stored_runs import NamesOption, read_stored
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_name import NO_DEFENSE


def fit(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Undefended runs of one model, with messages.")
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="The profile's name: up to 40 characters.")],
    validate: Annotated[
        bool, typer.Option("--validate", help="Forecast what was left out as well, and show how well.")
    ] = False,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Defended runs to forecast and set beside; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The profile's file; default: NAME.yaml.")
    ] = None,
    source: Annotated[
        str, typer.Option(metavar="TEXT", help="Whose runs these are, and their licence.")
    ] = "not stated",
    version: Annotated[
        str | None, typer.Option(metavar="V", help="AgentDojo's version; default: what the records name.")
    ] = None,
    checkout: Annotated[
        str, typer.Option(metavar="DIR", help="AgentDyn's checkout, for runs of its suites.")
    ] = "fetched",
    form: FormatOption = OutputFormat.TABLE,
    names: NamesOption = None,
) -> None:
    """Fit a victim to published runs: a file for model.victim=FILE, with its error inside."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.victims.fit import fitted_profile, profile_yaml, published_runs, with_validation
    from agentsys.victims.solutions import solutions

    path = out or Path(f"{name}.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out {path}: a profile's file ends in .yaml.")
    started = time.monotonic()
    rows = _undefended(read_stored(runs, names, whole_names=True).cases)
    ways, used = solutions(rows, version, checkout)
    behaved = published_runs(rows, ways)
    profile = fitted_profile(behaved, ways, name=name, version=used, source=source)
    seconds = time.monotonic() - started
    if validate:
        profile = with_validation(profile, behaved, ways)
    text = profile_yaml(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if validate or against:
        from agentsys.victims.fit import grid_of
        from agentsys.victims.forecast import forecasts
        from agentsys.victims.recovery import recovered
        from agentsys.victims.validation_document import Writing, validation_output

        told = read_stored(against, names, whole_names=True).cases if against else ()
        rows_against = forecasts(profile, behaved, told, ways)
        recovery = recovered(grid_of(behaved)) if validate else None
        took = Writing(seconds, len(text.encode()))
        put(validation_output(profile, behaved, ways, recovery, rows_against, took), form)
    say(f"Wrote {path}: {profile.label}, {len(behaved.exposed)} exposed.", sys.stderr)
    say(f"Next: agentsys run model=simulated model.victim={shlex.quote(str(path))} ...", sys.stderr)


def _undefended(cases: Iterable[CaseRow]) -> list[CaseRow]:
    kept = [case for case in cases if case.defense == NO_DEFENSE and not case.is_injection_task_alone]
    if all(case.attack == NO_ATTACK for case in kept):
        raise ConfigError("No attacked case without a defense in these runs: there is nothing to fit.")
    return kept
