"""`AgentDyn`: the benchmark, its three suites from one checkout."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from agentsys.benchmarks.agentdyn.checkout import FETCHED, AGENTDYN_SUITES, read_checkout
from agentsys.benchmarks.agentdyn.modules import load_fork_suites
from agentsys.benchmarks.agentdyn.suite import adapt_fork_suite
from agentsys.benchmarks.clock import DEFAULT_CLOCK, parse_clock
from agentsys.benchmarks.options import parse_injection, choose_suites
from agentsys.contracts import Suite
from agentsys.errors import require_known_name

_ANSWERS = ("last_assistant", "last_message")


class AgentDyn:
    """Implements `agentsys.contracts.Benchmark`.

    Its version is the checkout's commit, so that results of two states of the benchmark, or of AgentDojo and
    AgentDyn, never meet in one mean. `exact`, and an answer rule other than the fork's, are part of its name.

    Args:
        source: `fetched` (after `agentsys fetch agentdyn`), or the folder of a checkout.
        suites: The suites to offer; None means all three.
        injection: `folded` or `exact` (see agentsys.benchmarks.loading.environment).
        user_name: The user's name as attacks address it.
        clock: The time that tools read: where each case's clock starts, or `real`.
        answer: `last_assistant`, as the fork has it, or `last_message`, as AgentDojo has it: a conversation
            that ends otherwise is then an error.

    Raises:
        ConfigError: If there is no checkout, or an option is not known.
    """

    def __init__(
        self,
        source: str = FETCHED,
        suites: Sequence[str] | None = None,
        injection: str = "folded",
        user_name: str = "Emma Johnson",
        clock: str = DEFAULT_CLOCK,
        answer: str = "last_assistant",
    ) -> None:
        self.injection = parse_injection(injection)
        self.clock = parse_clock(clock)
        self.user_name = user_name
        self.answer = require_known_name("benchmark.answer", answer, _ANSWERS)
        changes = [value for value in (injection, answer) if value not in ("folded", "last_assistant")]
        self.name = "+".join(["agentdyn", *changes])
        self._names = choose_suites("suite of benchmark.suites", suites, AGENTDYN_SUITES)
        self.checkout = read_checkout(str(source))
        self.version = self.checkout.version
        self._loaded = load_fork_suites(self.checkout)
        self._adapted: dict[str, Suite] = {}
        self._lock = Lock()

    def suite_names(self) -> Sequence[str]:
        """The offered suites, in the fork's order."""
        return self._names

    def suite(self, name: str) -> Suite:
        """One suite, the same object on every call."""
        require_known_name(f"suite of {self.name} {self.version}", name, AGENTDYN_SUITES)
        with self._lock:
            if name not in self._adapted:
                self._adapted[name] = adapt_fork_suite(
                    self._loaded[name],
                    self.checkout,
                    self.injection,
                    last_assistant=self.answer == "last_assistant",
                )
            return self._adapted[name]
