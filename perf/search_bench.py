"""The time of searches, for `make bench`: PAIR and TAP on a simulated model that waits before each reply.

Also alone: python perf/search_bench.py [SUSCEPTIBILITY]. At 0, the default, no text succeeds, and every search spends
its whole budget.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, Scene
from agentsys.records.schema import CaseRecord
from agentsys.runs.run_session import prepare_session
from agentsys.runs.run_totals import Listener
from agentsys.simulated.simulated_model import SimulatedModel

LATENCY_S = 0.2
WORKERS = 16
MODEL = f"""
_target_: {Path(__file__).stem}.DelayedModel
name: delayed
prose_name: AI assistant
simulated: true
context_tokens: null
price: null
susceptibility: 0
"""
PLAN = ["model=delayed", "defense=none", "benchmark.suites=[banking,slack]", "user_tasks=[0]"]
PLAN += ["injection_tasks=[1,2,3,4]", f"executor.workers={WORKERS}"]


class DelayedReplies:
    """A model that waits before each reply."""

    replies = 0

    def __init__(self, model: ChatModel) -> None:
        self.name, self._model = model.name, model

    def complete(self, request: ChatRequest) -> ChatReply:
        """Wait, then ask the model."""
        DelayedReplies.replies += 1
        time.sleep(LATENCY_S)
        return self._model.complete(request)


class DelayedModel(SimulatedModel):
    """The simulated model with a wait before each reply."""

    def for_scene(self, scene: Scene) -> Any:
        """Return the model of one case."""
        return DelayedReplies(super().for_scene(scene))


class CountingListener(Listener):
    """Counts stored attempts."""

    def __init__(self) -> None:
        self.attempts = 0

    def on_case_stored(self, record: CaseRecord) -> None:
        """Do nothing."""

    def on_attempt_stored(self, record: CaseRecord) -> None:
        """Count an attempt on one case."""
        self.attempts += 1


def search_rows(susceptibility: str = "0") -> Iterator[tuple[str, ...]]:
    """Measure each attack: seconds, replies, share of the speed of 16 replies at a time, attempts, thrown away."""
    module = sys.modules.setdefault(
        Path(__file__).stem, sys.modules[__name__]
    )  # One counter, also as a script.
    for attack in ("pair", "tap"):
        with tempfile.TemporaryDirectory() as name:
            folder, listener = Path(name), CountingListener()
            (folder / "model").mkdir()
            (folder / "model" / "delayed.yaml").write_text(MODEL, encoding="utf-8")
            chosen = [
                *PLAN,
                f"attack={attack}",
                f"model.susceptibility={susceptibility}",
                f"logdir={name}/runs",
            ]
            session = prepare_session(chosen, config_dirs=[folder], plugin_paths=[Path(__file__).parent])
            module.DelayedReplies.replies, begun = 0, time.perf_counter()
            outcome = session.execute(listener)
            seconds, replies = time.perf_counter() - begun, module.DelayedReplies.replies
        limit = replies * LATENCY_S / WORKERS / seconds
        thrown_away = getattr(outcome, "summary", "") or "none"
        yield attack, f"{seconds:.1f}", str(replies), f"{limit:.0%}", str(listener.attempts), thrown_away


if __name__ == "__main__":
    for row in search_rows(*sys.argv[1:]):
        print(*row, sep="  ")
