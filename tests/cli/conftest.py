"""What `main` sets for its whole process is set back: here it is the tests' process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Python's collector looks again, as often as before."""
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*before)
