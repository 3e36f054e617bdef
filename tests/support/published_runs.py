"""Published runs for tests, unpacked where the archives are at hand."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

_TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of an archive of published runs -> folder it was unpacked into."""

    def unpack(name: str) -> Path:
        archive = _TRACES / f"{name}.tar.gz"
        if not archive.exists():
            pytest.skip(f"the published runs are not here ({archive.name})")
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        return folder

    return unpack
