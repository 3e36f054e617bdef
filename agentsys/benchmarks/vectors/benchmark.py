"""`Vectors`: the benchmark, one suite per vector, on one half of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentsys.benchmarks.options import offered
from agentsys.benchmarks.vectors.corpus import Half, corpus
from agentsys.benchmarks.vectors.suite import VectorSuite
from agentsys.errors import known_name, member_named
from agentsys.models.simulated.role import SimulatedRole


class Vectors:
    """Implements `agentsys.contracts.Benchmark`.

    The half is part of the benchmark's name: results of the two never meet in one column.

    Args:
        half: `development`, `held_out`, `later` or `all`.
        suites: The vectors to offer; None means all twelve.
        user_name: The user's name as attacks address it.

    Raises:
        ConfigError: If a half or a vector is not known.
    """

    injection = "exact"
    """Injected texts are put in as they are, without a YAML file in between."""

    def __init__(
        self, half: str = "held_out", suites: Sequence[str] | None = None, user_name: str = "the user"
    ) -> None:
        found, part = corpus(), member_named("benchmark.half", half, Half)
        self.name = f"vectors-{half}"
        self.version = f"1-{found.digest[:8]}"
        self.user_name = user_name
        self._suites = {
            name: VectorSuite(name, found.vectors[name], part, found.digest)
            for name in offered("vector of benchmark.suites", suites, found.vectors)
        }

    def suite_names(self) -> Sequence[str]:
        """The offered vectors, in the corpus's order."""
        return tuple(self._suites)

    def suite(self, name: str) -> VectorSuite:
        """One vector's suite, the same object on every call."""
        return self._suites[known_name(f"vector of {self.name}", name, self._suites)]

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """How the simulated model reads disguised text."""
        from agentsys.benchmarks.vectors.simulated import roles

        return roles()
