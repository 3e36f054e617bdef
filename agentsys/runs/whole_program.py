"""Defenses that run a program of their own cannot be led through a benchmark's several turns."""

from __future__ import annotations

from agentsys.contracts import Benchmark, Defense
from agentsys.errors import ConfigError


def check_conversation(defense: Defense, benchmark: Benchmark) -> None:
    """Refuse a defense that decides by itself how the conversation goes where the benchmark wants to.

    Raises:
        ConfigError: If the defense says `whole_program` and a suite says `several_turns`.
    """
    if not getattr(defense, "whole_program", False):
        return
    led = [name for name in benchmark.suite_names() if getattr(benchmark.suite(name), "several_turns", False)]
    if led:
        raise ConfigError(
            f"Defense '{defense.name}' runs a program of its own from request to answer, so it cannot "
            f"take part in the several turns of {benchmark.name} ({led[0]}); run it where the conversation "
            "is one user turn (benchmark.mode=react, if the benchmark has modes)."
        )
