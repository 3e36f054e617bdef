"""`Outlook`s of a run: what a victim says of the cases of a sweep that are not run, for tables to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentsys.models.simulated.model import OTHER
from agentsys.models.simulated.role import SimulatedOptions
from agentsys.models.simulated.victim.kinds import FACTOR
from agentsys.models.simulated.victim.outlook import asr_range
from agentsys.records.stored_plan import Outlook
from agentsys.runs.forecast import IntervalAlone, victim_of
from agentsys.runs.plan import Job
from agentsys.runs.preflight import BlockedCell
from agentsys.runs.settings import Settings


def intervals(blocked: Iterable[BlockedCell], jobs: Sequence[Job]) -> Iterator[Outlook]:
    """The interval of each attacked cell of a defense that only rewords.

    Args:
        blocked: Cells that cannot run; those with another reason are passed over.
        jobs: What runs: the interval is of the cases that the same attack has there, so that it stands
            beside their numbers.
    """
    for one in blocked:
        profile, missing, labels = victim_of(one.settings), one.missing, one.settings.labels
        if profile is None or not isinstance(missing, IntervalAlone) or missing.shifts is None:
            continue
        pairs = {
            (job.case.suite, job.case.user_task_id, job.case.injection_task_id or "")
            for job in jobs
            if (job.case.model, job.case.attack) == (labels["model"], labels["attack"])
        }
        wording = profile.attacks[labels["attack"]].shift
        shifts = wording + missing.shifts[0], wording + missing.shifts[1]
        obeyed = _obedience(one.settings)
        low, high = (obeyed * end for end in asr_range(profile, shifts, pairs or None))
        benchmark, version = missing.place
        yield Outlook(
            benchmark=benchmark,
            version=version,
            model=labels["model"],
            defense=labels["defense"],
            attack=labels["attack"],
            kind=FACTOR,
            low=round(low, 1),
            high=round(high, 1),
            cases=len(pairs),
        )


def _obedience(settings: Settings) -> float:
    """The factor of the probability to obey that the model's options ask for under the cell's attack."""
    given = settings.model.get("susceptibility", 1.0)
    by_attack = dict(given) if isinstance(given, Mapping) else {OTHER: given}
    options = SimulatedOptions(by_attack.pop(OTHER, 1.0), by_attack)
    return options.obedience(settings.labels["attack"])
