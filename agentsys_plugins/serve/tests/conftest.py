"""No test of the front leaves a conversation for the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from front_clients import stop_desks


@pytest.fixture(autouse=True)
def _nobody_waits_afterwards() -> Iterator[None]:
    yield
    stop_desks()
