"""The thought signatures that a Gemini model keeps while many cases share it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from providers_under_test import model_at

from agentsys.models.providers import google


def test_threads_forget_the_oldest_signatures_without_disturbing_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(google, "_MAX_SIGNATURES", 3)
    model, usual = model_at("google", "http://127.0.0.1:9"), sys.getswitchinterval()
    assert isinstance(model, google.GoogleModel)

    def remember(thread: int) -> None:
        for number in range(1000):
            model.restore({f"{thread}-{number}": "signature"})

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remember, range(8)))
    finally:
        sys.setswitchinterval(usual)
    assert len(model._signatures) == 3
