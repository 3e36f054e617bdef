"""The pictures of README and docs: each is shown, each is there, and a script draws all of them."""

from __future__ import annotations

import re
from pathlib import Path

from draw_pictures import PICTURES

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def shown() -> dict[Path, list[str]]:
    """Picture -> its descriptions on the pages that show it."""
    found: dict[Path, list[str]] = {}
    for page in PAGES:
        for words, path in _SHOWN.findall(page.read_text(encoding="utf-8")):
            found.setdefault((page.parent / path).resolve(), []).append(words)
    return found


def test_every_picture_that_a_page_shows_is_there_and_is_described() -> None:
    assert shown()
    for path, descriptions in shown().items():
        assert path.is_file(), f"no picture {path}"
        assert all(len(words) > 20 for words in descriptions), f"{path} is shown without words"


def test_every_picture_is_shown_by_a_page() -> None:
    assert {path.resolve() for path in IMAGES.iterdir()} <= set(shown())


def test_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in IMAGES.iterdir()) < 1_000_000


def test_the_script_draws_each_of_them() -> None:
    assert set(PICTURES) == {path.stem for path in IMAGES.iterdir()}
