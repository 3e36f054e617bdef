"""Parsers of what models and servers say take mutated replies: few here, all by `fuzz_parsers.py`."""

from __future__ import annotations

import fuzz_parsers
import pytest

TARGETS = {target.name: target for target in fuzz_parsers.targets()}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_reply_raises_nothing_but_our_own_errors(name: str) -> None:
    found = fuzz_parsers.fuzz(TARGETS[name], 600, seed=1)
    assert found.texts == 600
    assert found.crashes == []


@pytest.mark.slow
def test_a_parser_that_fails_or_dawdles_is_found() -> None:
    def bad(text: str) -> None:
        if "99999" in text:
            raise KeyError("x")
        if text == "12ü":
            sum(range(10_000_000))

    found = fuzz_parsers.fuzz(fuzz_parsers.Target("bad", bad, ["12ü", "12"]), 60, seed=0)
    assert "KeyError" in found.crashes[0][0]
    assert found.slow
