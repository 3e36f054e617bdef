"""A mark for the core's tests that need a guest: `make test-core` leaves them out."""

from __future__ import annotations

import pytest

from agentsys.extensions import list_absent_guests


def needs_guest(name: str) -> pytest.MarkDecorator:
    absent = f"agentsys_plugins.{name}" in list_absent_guests()
    return pytest.mark.skipif(absent, reason=f"the guest {name} is not installed")
