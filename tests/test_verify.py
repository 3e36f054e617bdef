"""scripts/verify.py, its claims and docs/claims.md; no figure of README and docs is without a row."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(
    r"\d ?%"  # a share
    r"|\d of (?:the |all )?\d"
    r"|\d / [+-]?\d"
    r"|\dx\b|\d (?:times|points|seconds|minutes|hours|ms|s|kB|MB|GB)\b"
    r"|[|/(] ?\**\d+\.\d+[*)]* \|$"  # a number in a table's last cell
)
"""What looks like a claim in a line of a page; 95% alone is the level of every interval."""
GENERATED = ROOT / "docs" / "claims.md"


def _verify() -> Any:
    spec = importlib.util.spec_from_file_location("verify", ROOT / "scripts" / "verify.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verify"] = module
    spec.loader.exec_module(module)
    return module


verify = _verify()
KNOWN = verify.claims()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def claim(**fields: object) -> Any:
    return verify.Claim.model_validate(
        {"page": "README.md", "says": "benign utility 43.6, 1,234.5", **fields}
    )


def test_there_are_at_least_sixty_and_each_stands_on_its_page() -> None:
    assert len({one.row() for one in KNOWN.claims}) == len(KNOWN.claims) >= 60
    assert [f"{one.page}: {one.says}" for one in KNOWN.claims if not one.stands] == []


def test_every_test_that_a_claim_names_exists() -> None:
    missing = []
    for path in {test.partition("::")[0] for one in KNOWN.claims for test in one.tests}:
        tree = ast.parse((ROOT / path).read_text("utf-8") if (ROOT / path).exists() else "")
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        known = {path, *(f"{path}::{name}" for name in there)} if there else set()
        missing += [
            t for one in KNOWN.claims for t in one.tests if t.partition("::")[0] == path and t not in known
        ]
    assert missing == []


def test_every_run_is_read_and_made() -> None:
    read = {one.cells["run"] for one in KNOWN.claims if one.cells}
    assert read == set(KNOWN.runs)
    assert all(f"logdir={name} " in command for name, command in KNOWN.runs.items())
    for one in KNOWN.claims:
        counts = {len(value) for value in one.cells.values() if isinstance(value, list)}
        assert not one.cells or (len(counts) == 1 and max(counts) <= len(verify.NUMBER.findall(one.says)))


def _uncovered(page: Path) -> list[str]:
    """Lines of a page with a figure that neither a claim nor a reason covers."""
    name, text = str(page.relative_to(ROOT)), page.read_text("utf-8")
    known = [*KNOWN.claims, *(one for group in KNOWN.no_claims.values() for one in group)]
    spans = [span for one in known if fnmatch(name, one.page) and (span := one.span(text))]
    found, start, code = [], 0, False
    for line in text.splitlines(keepends=True):
        end = start + len(line)
        code ^= line.startswith("```")
        figure = not code and FIGURE.search(line.rstrip().replace("95%", ""))
        if figure and not any(first < end and start < last for first, last in spans):
            found.append(f"{name}: {line.rstrip()}")
        start = end
    return found


def test_no_figure_of_readme_and_docs_is_without_a_claim_or_a_reason() -> None:
    found = [line for page in PAGES if page != GENERATED for line in _uncovered(page)]
    assert found == [], "check it (scripts/claims.yaml), or take the figure out"


def test_every_reason_is_still_needed() -> None:
    texts = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
    stale = [
        f"{one.page}: {one.says}"
        for group in KNOWN.no_claims.values()
        for one in group
        if not any(fnmatch(name, one.page) and one.span(text) for name, text in texts.items())
    ]
    assert stale == []


def test_the_page_has_a_row_for_every_claim_and_none_fails() -> None:
    rows = [line for line in GENERATED.read_text("utf-8").splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(KNOWN.claims)
    assert [
        one.says for one, row in zip(KNOWN.claims, rows, strict=True) if not row.startswith(one.row())
    ] == []
    assert [row for row in rows if "**fails**" in row] == []


@pytest.mark.parametrize("fields", [{}, {"tests": ["a"], "prints": "b"}, {"tests": ["a"], "note": "b"}])
def test_a_claim_has_one_check(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        claim(**fields)


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("two lines", "two\n lines"),
        ("of ... lines", "of two\n lines"),
        ("two ...", "two\n lines.\n"),
        ("gone ... lines", None),
    ],
)
def test_words_are_found_however_they_are_wrapped(says: str, found: str | None) -> None:
    text = "# Head\nof two\n lines.\n\n# Next"
    span = verify.Said(page="README.md", says=says).span(text)
    assert (span and text[slice(*span)]) == found


ROWS = '[{"suite": "slack", "value": 43.618}, {"suite": "all", "value": 1234.5}]'


def test_a_cell_holds_to_the_decimals_it_is_printed_with() -> None:
    cells = {"run": "grid", "suite": ["slack", "all"]}
    assert verify.cells_seen(claim(cells=cells), ROWS) == verify.Seen(False, "43.6, 1,234.5")
    assert verify.cells_seen(claim(cells=cells), ROWS.replace("43.6", "43.7")).fails
    assert (
        verify.cells_seen(claim(cells=cells | {"suite": ["travel", "all"]}), ROWS).figure == "0 rows, 1,234.5"
    )


def test_what_is_printed_is_the_words_or_the_figures_or_within_a_bound() -> None:
    words = claim(prints="a")
    assert not verify.printed_seen(words, "so: benign utility  43.6, 1,234.5.").fails
    assert verify.printed_seen(words, "benign utility 43.7").fails
    same = claim(prints="a", pattern=r"ratio ([\d.]+)")
    assert verify.printed_seen(same, "ratio 43.6") == verify.Seen(False, "43.6")
    assert verify.printed_seen(same, "ratio 43.7").fails and verify.printed_seen(same, "").fails
    bound = claim(prints="a", pattern=r"ratio ([\d.]+)", at_least=5)
    assert not verify.printed_seen(bound, "ratio 5.2").fails and verify.printed_seen(bound, "ratio 4.9").fails


def _case(name: str, *outcome: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="tests.test_a", name=name)
    for kind in outcome[:1]:
        ElementTree.SubElement(case, kind, message="".join(outcome[1:]))
    return case


@pytest.mark.parametrize(
    ("case", "seen"),
    [
        (_case("test_b[1]"), (False, "as stated")),
        (_case("test_b[1]", "failure"), (True, "test_b[1] fails")),
        (_case("test_b", "skipped", "runs are not here (x)"), (False, "not checked here: needs traces")),
        (_case("test_b", "skipped", "no Chromium"), (True, "skipped: no Chromium")),
        (_case("test_c"), (True, "test_b did not run")),
    ],
)
def test_what_came_of_a_test_is_read_from_its_report(
    case: ElementTree.Element, seen: tuple[bool, str]
) -> None:
    one = claim(tests=["tests/test_a.py::test_b"])
    assert verify.tests_seen(one, [case, _case("test_c")]) == verify.Seen(*seen)


def test_what_was_not_checked_now_stays_on_the_page_and_what_fails_is_told() -> None:
    first, second = (one.row() for one in KNOWN.claims[:2])
    before = verify.page(KNOWN, {first: verify.Seen(False, "as stated")}, "")
    assert f"{first} as stated | " in before and f"{second} not checked yet | " in before
    after = verify.page(KNOWN, {second: verify.Seen(True, "<b>|")}, before)
    assert f"{first} as stated | " in after and f"{second} **fails**: &lt;b&gt;\\| | " in after


def test_a_command_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    said = verify.said_by(f"{sys.executable} -c 'raise SystemExit(\"so\")'", tmp_path)
    assert isinstance(said, RuntimeError) and str(said) == "so"
    assert verify.said_by(f"{sys.executable} -c 'print(1)'", tmp_path) == "1\n"
