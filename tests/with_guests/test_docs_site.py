"""The documentation as a whole: pages are listed, links lead somewhere, names, columns and pictures are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from draw_pictures import PICTURES
from errors_page import PAGES as MADE_IN_PART
from errors_page import fill_page
from parsed_sources import list_product_files

import agentsys
import agentsys.plugins
from agentsys.models.chat import ErrorKind
from agentsys.records.case_row import COLUMNS
from agentsys.records.pipeline_names import _DEFENSES
from agentsys.records.schema import CaseRecord
from agentsys.runs import run_case

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def nav() -> list[str]:
    """The pages that mkdocs.yml lists, in order."""
    listed = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return re.findall(r"[\w/-]+\.md", str(listed))


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as the site and GitHub make them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def dead_links(page: Path) -> list[str]:
    found = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def test_every_page_is_listed_once_and_every_listed_page_is_there() -> None:
    assert sorted(nav()) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](gone.md) [b](page.md#one-two) [c](#three) `[d](x.md)`\n")
    assert dead_links(page) == ["gone.md", "#three", "x.md"]


def test_every_public_name_has_its_place_on_a_page() -> None:
    api = (DOCS / "api.md").read_text(encoding="utf-8")
    for name in set(agentsys.__all__) - {"__version__"}:
        assert f"::: agentsys.{name}\n" in api, name
    assert "::: agentsys.plugins\n" in (DOCS / "plugins.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_site_builds_offline_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "plugins.html").read_text(encoding="utf-8")
    assert [name for name in agentsys.plugins.__all__ if f'id="agentsys.plugins.{name}"' not in page] == []
    assert "https://fonts." not in page


_IMPORT = re.compile(
    r"^\s*from ((?:agentsys|agentsys_plugins|baselines)[\w.]*) import ([\w, ]+)", re.MULTILINE
)


def test_what_pages_import_is_there() -> None:
    """Looked for in the source: to import it all would take seconds."""
    found = [
        pair for page in (*PAGES, *OUTSIDE) for pair in _IMPORT.findall(page.read_text(encoding="utf-8"))
    ]
    assert found
    for module, names in found:
        place = ROOT.joinpath(*module.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        source = file.read_text(encoding="utf-8")
        lacking = [name for name in names.split(",") if not re.search(rf"\b{name.split()[0]}\b", source)]
        assert lacking == [], module


def test_pages_that_code_and_configs_name_are_there() -> None:
    """With their headings: a message may name one, and the wheel has them all."""
    named = re.compile(r"\bdocs/([\w/]+\.md)(#[\w-]+)?")
    files = [*list_product_files(""), *list_product_files("", ("configs", "examples"))]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".yaml", ".md")]
    found = {pair for text in texts for pair in named.findall(text)}
    assert len(found) > 20
    assert [page for page, _ in found if not (DOCS / page).is_file()] == []
    assert [pair for pair in found if pair[1] and pair[1][1:] not in anchors(DOCS / pair[0])] == []


def test_what_pages_name_of_ours_is_there() -> None:
    """Classes in backticks, and paths of the checkout."""
    source = "\n".join(
        path.read_text("utf-8")
        for path in (*list_product_files(), *list_product_files(folders=("examples",)))
    )
    theirs = {"CodeAgent", "JoyYizhu", "KillWait", "LangChain", "LangGraph", "MyEmbedder", "ToolCallingAgent"}
    for page in (*PAGES, *OUTSIDE[:2]):
        text = page.read_text(encoding="utf-8")
        classes = re.findall(r"`[^`\n]*?\b([A-Z][a-z]+(?:[A-Z][a-z]+)+)\b", text)
        assert {one for one in classes if not re.search(rf"\b{one}\b", source)} <= theirs, page.name
        paths = re.findall(
            r"`((?:agentsys|agentsys_plugins|baselines|tests|scripts|perf|examples)/[\w/.]+)`", text
        )
        assert [
            one for one in paths if not re.search("SUITE|NAME", one) and not (ROOT / one).exists()
        ] == [], page.name


def test_the_first_page_leads_to_every_other_of_its_folder() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in text} == set()


DATA = (DOCS / "data.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DATA.split(f"## {title}\n")[1].split("\n## ")[0]


def named(text: str) -> list[str]:
    """The names in the first column of a table."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_the_columns_are_those_of_the_frame_in_its_order() -> None:
    assert tuple(named(section("Columns"))) == COLUMNS


def test_every_field_of_the_records_block_is_explained() -> None:
    assert sorted(named(section("The record's own block"))) == sorted(CaseRecord.model_fields)


def test_every_kind_of_error_is_explained() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert {f"`{kind.value}`" for kind in ErrorKind} <= set(re.findall(r"`\w+`", page))
    source = Path(__file__).parents[2] / "agentsys" / "runs" / "run_case.py"
    named = re.findall(r'(?:CaseError\(|kind, cause = )"(\w+)"', source.read_text(encoding="utf-8"))
    raised = {*named, *run_case._BROKEN.values(), *run_case._UNFIT.values()}
    assert {"config", "scorer", "defense", "not_injectable"} <= raised
    assert {f"`{kind}`" for kind in raised} <= set(re.findall(r"`\w+`", page))


@pytest.mark.parametrize("page", MADE_IN_PART)
def test_tables_made_from_the_code_are_those_of_the_code(page: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    assert fill_page(page) == written, "python scripts/errors_page.py writes them"


def test_every_ending_that_tells_a_defense_is_named() -> None:
    assert {ending for ending in _DEFENSES if f"-{ending}" not in section("Whose run it is")} == set()


IMAGES = ROOT / "docs" / "images"
SHOWING = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def shown_pictures() -> dict[Path, list[str]]:
    """Picture -> its descriptions on the pages that show it."""
    found: dict[Path, list[str]] = {}
    for page in SHOWING:
        for words, path in _SHOWN.findall(page.read_text(encoding="utf-8")):
            found.setdefault((page.parent / path).resolve(), []).append(words)
    return found


def test_every_picture_that_a_page_shows_is_there_and_is_described() -> None:
    assert shown_pictures()
    for path, descriptions in shown_pictures().items():
        assert path.is_file(), f"no picture {path}"
        assert all(len(words) > 20 for words in descriptions), f"{path} is shown without words"


def test_every_picture_is_shown_by_a_page() -> None:
    assert {path.resolve() for path in IMAGES.iterdir()} <= set(shown_pictures())


def test_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in IMAGES.iterdir()) < 1_000_000


def test_the_script_draws_each_of_them() -> None:
    assert set(PICTURES) == {path.stem for path in IMAGES.iterdir()}


def test_a_kept_figure_has_the_colours_it_was_drawn_in() -> None:
    """Defenses are told apart by them: amber is not vermilion, pink is not brown."""
    from PIL import Image

    palette = Image.open(IMAGES / "figure3.png").getpalette() or []
    kept = list(zip(palette[::3], palette[1::3], palette[2::3], strict=True))
    for drawn in ((0, 114, 178), (213, 94, 0), (230, 159, 0), (204, 121, 167)):
        assert min(max(abs(a - b) for a, b in zip(one, drawn, strict=True)) for one in kept) < 30
