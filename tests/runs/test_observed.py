"""A case's agent is at work at its seat, attempt by attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime

from agentsys.models.trace import Tracer, tracing
from agentsys.runs.observed import Observed


class Seat:
    """Notes who is at it, and for which attempt it was asked for."""

    def __init__(self) -> None:
        self.asked, self.taken = list[bool](), False

    @contextmanager
    def __call__(self, *, goes_on: bool = False) -> Iterator[float]:
        self.asked.append(goes_on)
        self.taken = True
        yield 0.25
        self.taken = False


def test_each_attempt_is_made_at_a_seat_and_only_the_first_may_be_given_up() -> None:
    seat, tracer, seen = Seat(), Tracer(), list[bool]()

    class Pipeline(BasePipelineElement):  # type: ignore[misc]
        name = "one"

        def query(self, query: str, *rest: Any) -> Any:
            seen.append(seat.taken)
            return query, *rest

    observed = Observed(Pipeline(), tracer, seat=seat)
    with tracing(tracer):
        for _ in range(2):
            observed.query("do it", FunctionsRuntime([]), EmptyEnv())
    assert seat.asked == [False, True] and seen == [True, True] and not seat.taken
    assert observed.waited_s == 0.5
