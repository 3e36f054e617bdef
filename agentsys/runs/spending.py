"""`Spending`: what a run's cases cost so far, and whether one more fits into its budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from agentsys.models.budget import Meter
from agentsys.records.schema import CaseRecord
from agentsys.runs.plan import Job


class Spending:
    """Watches a run's budget.

    Args:
        meter: What the run spends, and may spend.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._of_cell: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)

    def add(self, job: Job, record: CaseRecord) -> None:
        """Note what a finished case cost."""
        usd = sum(usage.cost_usd or 0.0 for usage in record.usage.values())
        tokens = sum(usage.prompt + usage.completion for usage in record.usage.values())
        self._of_cell[id(job.cell)].append((usd, tokens))

    def fits(self, job: Job, running: Collection[Job]) -> bool:
        """Whether the running cases and one more fit; as long as nothing is known, one runs alone."""
        if not self.meter.limited:
            return True
        if not self._of_cell:
            return not running and self.meter.has_room()
        means = [self._mean(one) for one in (*running, job)]
        return self.meter.has_room(sum(usd for usd, _ in means), sum(tokens for _, tokens in means))

    def _mean(self, job: Job) -> tuple[float, float]:
        known = self._of_cell.get(id(job.cell)) or [one for some in self._of_cell.values() for one in some]
        return sum(usd for usd, _ in known) / len(known), sum(tokens for _, tokens in known) / len(known)
