"""What tests of guards share."""

from __future__ import annotations

import pytest

from agentsys_plugins.guards import guard_controls


@pytest.fixture(autouse=True)
def one_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask one text alone: each starts a process of its own; the test of that asks more."""
    monkeypatch.setattr(guard_controls, "ALONE", 1)
