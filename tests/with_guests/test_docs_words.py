"""The docs are short enough to be read, and docs/words.md has every word of the tables and statuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from command_output import command_output
from prose import MARK, count_words, list_pages

import agentsys
from agentsys.analysis.metrics import cell_verdict
from agentsys.analysis.metrics.case_measures import GUARD_TITLES
from agentsys.analysis.metrics.cell_verdict import GRADES, NO_RECEIPTS
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.metrics.search_budget import MEASURES
from agentsys.analysis.paper.paper_tables import TABLES
from agentsys.analysis.tables.cost_documents import TITLES
from agentsys.analysis.tables.table_document import Grid
from agentsys.base.config_catalog import list_config_names
from agentsys.defense.gate import Failure
from agentsys.models.reply_checks import CUT
from agentsys.records.context_facts import find_bound
from agentsys.records.schema import CaseRecord

DOCS = Path(__file__).parents[2] / "docs"
MADE_PAGES = {"defenses.md", "licences.md", "league.md", "attacker_prompt.md"}
"""Made by a command, or below a mark by one."""
MOST_WORDS = 45_000


def counted_pages() -> dict[str, int]:
    """Page of docs/ or of a guest -> its hand-written words. `python scripts/prose.py --all` prints them."""
    pages = [page for page in list_pages() if page.name != "README.md" or page.parent != DOCS.parent]
    return {
        str(page.relative_to(DOCS.parent)): count_words(page.read_text(encoding="utf-8")) for page in pages
    }


def test_hand_written_pages_are_short() -> None:
    pages = counted_pages()
    assert sum(pages.values()) <= MOST_WORDS, pages
    assert pages["docs/words.md"] <= 1000


def test_pages_that_a_command_makes_are_marked() -> None:
    marked = {page.name for page in DOCS.rglob("*.md") if MARK.search(page.read_text(encoding="utf-8"))}
    assert marked == MADE_PAGES


def entries() -> list[str]:
    """First cells of the tables of docs/words.md."""
    page = (DOCS / "words.md").read_text(encoding="utf-8")
    return [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("|")]


def words() -> set[str]:
    return set(re.findall(r"`([^`]+)`", " ".join(entries())))


def test_there_are_at_most_forty_entries() -> None:
    assert len([one for one in entries() if one not in ("word", "---")]) <= 40


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Headings of every table that commands print about a small folder of runs."""
    folder = tmp_path_factory.mktemp("words")
    agentsys.run(
        [
            *(
                "model=simulated",
                "defense=none,firewall_sanitizer,agentsys",
                "attack=none,important_instructions",
            ),
            *("benchmark.suites=[slack]", "user_tasks=[0,1]", "injection_tasks=[1]", f"logdir={folder}"),
        ]
    )
    seen: list[tuple[str, ...]] = []
    made = Grid.__init__

    def noted(grid: Grid, *values: Any, **named: Any) -> None:
        made(grid, *values, **named)
        seen.append(grid.header)

    commands = ["results", "results --full", "results --by cost", "compare"]
    commands += [f"table {number}" for number in TABLES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grid, "__init__", noted)
        for command in commands:
            command_output(*command.split(), folder)
    return {name for header in seen for name in header}


def test_every_heading_of_a_table_is_explained(headers: set[str]) -> None:
    """But for names of suites, defenses and roles, which are columns too."""
    suites = {"banking", "slack", "travel", "workspace"}
    names = suites | {suite.capitalize() for suite in suites} | set(list_config_names("defense"))
    roles = {"agent", "main", "worker", "validator", "sanitizer", "privileges", "firewall_sanitizer"}
    titles = {*METRIC_TITLES.values(), *GUARD_TITLES.values(), *TITLES.values(), *MEASURES.values()}
    alike = {re.sub(r"^Round \d+$", "Round 1", name.partition(", ")[0]) for name in headers | titles}
    assert alike - names - roles - {word.partition(", ")[0] for word in words()} == set()
    assert {"Benign utility", "p Holm", "Detectable", "paper", "Cases"} <= headers


def test_every_status_is_explained() -> None:
    statuses = get_args(CaseRecord.model_fields["status"].annotation)
    rounds = find_bound([{"role": "assistant", "tool_calls": [{"function": "look"}]}])
    assert {*GRADES, *statuses, CUT, rounds, Failure.STUCK.value, NO_RECEIPTS} <= words()


def test_every_reason_of_a_verdict_is_explained() -> None:
    source = Path(cell_verdict.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r"yield (?:SUSPECT|BROKEN), f?\"([^(\"]+?) ?[(\"]", source)) | {NO_RECEIPTS}
    table = (DOCS / "data.md").read_text(encoding="utf-8").split("## Verdicts")[1].split("\n## ")[0]
    explained = set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE))
    assert len(reasons) > 6 and reasons <= explained
    assert [reason for reason in explained if reason.removeprefix("ROLE ") not in source] == []
