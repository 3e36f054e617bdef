"""`AgentDyn`: the benchmark, its three suites from one checkout."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import cast

from agentsys.benchmarks.agentdyn.checkout import FETCHED, SUITES, read_checkout
from agentsys.benchmarks.agentdyn.modules import load_suites
from agentsys.benchmarks.agentdyn.suite import adapted_suite
from agentsys.benchmarks.clock import DEFAULT, parsed_clock
from agentsys.benchmarks.loading.environment import Injection
from agentsys.contracts import Suite
from agentsys.errors import ConfigError, unknown_name

_INJECTIONS = ("folded", "exact")
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
        clock: str = DEFAULT,
        answer: str = "last_assistant",
    ) -> None:
        for option, value, known in (("injection", injection, _INJECTIONS), ("answer", answer, _ANSWERS)):
            if value not in known:
                raise ConfigError(unknown_name(f"benchmark.{option}", str(value), known))
        self.injection = cast("Injection", injection)
        self.clock = parsed_clock(clock)
        self.user_name = user_name
        self.answer = answer
        changes = [value for value in (injection, answer) if value not in ("folded", "last_assistant")]
        self.name = "+".join(["agentdyn", *changes])
        self._names = _offered(suites)
        self.checkout = read_checkout(str(source))
        self.version = self.checkout.version
        self._loaded = load_suites(self.checkout)
        self._adapted: dict[str, Suite] = {}
        self._lock = Lock()

    def suite_names(self) -> Sequence[str]:
        """The offered suites, in the fork's order."""
        return self._names

    def suite(self, name: str) -> Suite:
        """One suite, the same object on every call.

        Raises:
            ConfigError: If it is none of the three.
        """
        if name not in SUITES:
            raise ConfigError(unknown_name(f"suite of {self.name} {self.version}", name, SUITES))
        with self._lock:
            if name not in self._adapted:
                self._adapted[name] = adapted_suite(
                    self._loaded[name],
                    self.checkout,
                    self.injection,
                    last_assistant=self.answer == "last_assistant",
                )
            return self._adapted[name]


def _offered(suites: Sequence[str] | None) -> tuple[str, ...]:
    wanted = SUITES if suites is None else [suites] if isinstance(suites, str) else suites
    for name in wanted:
        if name not in SUITES:
            raise ConfigError(unknown_name("suite of benchmark.suites", str(name), SUITES))
    if not wanted:
        raise ConfigError("benchmark.suites=[] leaves no suite; name some, or give null for all.")
    return tuple(name for name in SUITES if name in wanted)
