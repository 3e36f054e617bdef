"""The HTML report in a real browser: it opens, filters, searches, can be used by keyboard, runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser
from reported_cases import PAYLOAD, store, store_attacked, store_hostile

from agentsys.analysis.html_report.build import ReportLimits, html_report
from agentsys.analysis.tables.report import report
from agentsys.records.reading import read_cases

pytestmark = pytest.mark.slow
CASES = 1_203
LIST_IS_IN_VIEW = (
    "const place = document.querySelector("
    "'#trajectories').getBoundingClientRect();"
    "return scrollY > 0 && place.top < innerHeight / 2"
)


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def written(folder: Path) -> Path:
    reading = read_cases([folder])
    page = folder / "report.html"
    page.write_text(html_report(reading, report(reading, replicates=5), [str(folder)]).html, encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six cases: two defenses, two suites, benign and attacked."""
    folder = tmp_path_factory.mktemp("small")
    for suite in ("banking", "slack"):
        store_attacked(folder, suite=suite, simulated=suite == "slack", exposure={"exposed_raw": True})
        store_attacked(
            folder, suite=suite, defense="none", security=True, simulated=suite == "slack", spans=[]
        )
        store(
            folder,
            suite=suite,
            attack="none",
            utility=False,
            simulated=suite == "slack",
            stored={"messages": [{"role": "user", "content": f"only in {suite} (benign)"}]},
        )
    return written(folder)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    store_hostile(folder)
    store_attacked(folder)
    return written(folder)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    for task in range(CASES):
        messages = [{"role": "user", "content": f"number {task} of many. " + "All the same words. " * 40}]
        store(folder, user_task_id=f"user_task_{task}", stored={"messages": messages})
    return written(folder)


def choose(window: Browser, name: str, value: str) -> None:
    """Choose an option as a user would: the page hears a `change` event."""
    window.run(
        "const select = document.querySelector(`#filters [name=${arguments[0]}]`);"
        "select.value = arguments[1];"
        "select.dispatchEvent(new Event('change', {bubbles: true}))",
        name,
        value,
    )


def first_id(window: Browser, page: Path) -> str:
    """The id of the first case of the list, as a link has it."""
    window.open(page)
    return str(window.run("return document.querySelector('#cases a').dataset.id"))


def found(window: Browser) -> str:
    return window.texts("#found")[0]


def test_it_opens_without_a_complaint_and_asks_nothing_of_the_network(window: Browser, small: Path) -> None:
    window.open(small)
    assert found(window) == "6 of 6 cases"
    assert window.complaints() == []
    assert window.run("return performance.getEntriesByType('resource').length") == 0
    assert window.run("return document.querySelectorAll('#tables tbody tr').length") > 4
    assert window.count("#figures svg circle") > 3


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("suite", "slack", 3),
        ("defense", "none", 2),
        ("attack", "none", 2),
        ("attack", "important_instructions", 4),
        ("outcome", "attack_succeeded", 2),
        ("outcome", "attack_failed", 2),
        ("outcome", "benign", 2),
        ("task", "solved", 4),
        ("task", "failed", 2),
        ("model", "gpt-4o (simulated)", 3),
    ],
)
def test_each_filter_leaves_its_cases(
    window: Browser, small: Path, name: str, value: str, count: int
) -> None:
    window.open(small)
    choose(window, name, value)
    assert found(window) == f"{count} of 6 cases"
    assert window.count("#cases a") == count


def test_filters_add_up_and_are_cleared_together(window: Browser, small: Path) -> None:
    window.open(small)
    choose(window, "suite", "slack")
    choose(window, "attack", "important_instructions")
    assert found(window) == "2 of 6 cases"
    window.click("#filters button[type=reset]")
    window.wait_for("return document.querySelector('#found').textContent === '6 of 6 cases'")


def test_text_is_searched_in_messages_and_calls_and_shown_marked(window: Browser, small: Path) -> None:
    window.open(small)
    window.type("[name=q]", "ONLY IN slack (")
    window.wait_for("return document.querySelector('#found').textContent === '1 of 6 cases'")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case mark.hit') !== null")
    assert window.texts("#case mark.hit") == ["only in slack ("]


def test_a_search_that_finds_nothing_says_so(window: Browser, small: Path) -> None:
    window.open(small, "#q=.*")
    assert found(window) == "0 of 6 cases"
    assert window.texts("#cases p") == ["No case matches these filters."]


def test_a_case_shows_its_conversation_with_the_injection_marked(window: Browser, small: Path) -> None:
    window.open(small, "#suite=banking&outcome=attack_succeeded")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case .message.tool') !== null")
    [marked] = window.texts("#case .message.tool mark.injected")
    assert "".join(marked.split()) == "".join(PAYLOAD.split())
    assert window.texts("#case .message.user .text") == ["Pay the bill."]
    assert window.texts("#case .call .text") == ['{"path": "bill.txt"}']
    assert window.count("#cases a[aria-current=true]") == 1


def test_the_agent_tree_is_nested_and_folds(window: Browser, small: Path) -> None:
    window.open(small, "#suite=banking&outcome=attack_failed")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case .tree') !== null")
    heads = "#case .tree details.span > summary"
    assert window.count(heads) == 6
    nested = window.texts("#case .tree li li li li > details.span > summary")
    assert len(nested) == 1
    assert nested[0].startswith("validatorsend_moneydenied")
    assert "70 → 1 tokens, 1 call" in nested[0]
    worker = window.texts("#case .tree li li li > details.span[open] > summary")[0]
    assert "ended: denied" in worker and "injection in context" in worker
    window.run("[...document.querySelectorAll('.buttons button')].at(-1).click()")
    assert window.count("#case .tree details.span[open]") == 0


def test_a_number_in_a_table_leads_to_its_cases_and_the_page_goes_there(window: Browser, small: Path) -> None:
    window.open(small)
    window.run(
        "const links = [...document.querySelectorAll('#tables td a')];"
        "links.find((link) => link.hash.includes('attack_succeeded')).click()"
    )
    window.wait_for("return document.querySelector('#found').textContent === '1 of 6 cases'")
    assert window.texts("#cases .chip.bad") == ["injection carried out"]
    assert window.run(LIST_IS_IN_VIEW)


def test_a_link_to_a_filter_opens_at_the_list(window: Browser, small: Path) -> None:
    window.open(small, "#suite=slack&outcome=attack_succeeded")
    assert found(window) == "1 of 6 cases"
    assert window.run(LIST_IS_IN_VIEW)
    window.open(small)
    assert window.run("return scrollY") == 0


def test_every_link_in_the_tables_leads_to_cases(window: Browser, small: Path) -> None:
    window.open(small)
    hashes = window.run(
        "return [...document.querySelectorAll('#tables td a')].map((a) => a.getAttribute('href'))"
    )
    assert len(hashes) > 10
    for address in dict.fromkeys(hashes):
        window.run("location.hash = arguments[0]", address)
        window.wait_for("return !document.querySelector('#found').textContent.startsWith('0 ')")


def test_columns_sort_and_come_back_to_their_order(window: Browser, small: Path) -> None:
    window.open(small)
    # Headings of the first table's first column of numbers: benign utility; the columns before hold names.
    column = "return [...document.querySelector('#tables tbody').rows].map((row) => row.cells[0].textContent)"
    before = window.run(column)
    assert len(before) == 2 and before[0] != before[1]
    button = "#tables thead th:first-child button"
    orders = []
    for _ in range(3):
        window.run("document.querySelector(arguments[0]).click()", button)
        orders.append(window.run(column))
    assert orders == [sorted(before), sorted(before, reverse=True), before]
    window.run(
        "const buttons = [...document.querySelectorAll('#tables thead button')];"
        "buttons.find((button) => button.textContent === 'Targeted ASR').click()"
    )
    asr = column.replace("cells[0].textContent", "cells[4].textContent").replace("row.cells", "+row.cells")
    asr = asr.replace(".textContent", ".firstChild.textContent")
    assert window.run(asr) == sorted(window.run(asr), reverse=True)
    assert window.count("#tables th[aria-sort=descending]") == 1


def test_two_defenses_of_one_case_stand_side_by_side(window: Browser, small: Path) -> None:
    window.open(small, "#suite=banking&defense=none&outcome=attack_succeeded")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case h3') !== null")
    assert window.texts("#case .beside a") == ["agentsys"]
    window.click("#case .beside a")
    window.wait_for("return document.querySelectorAll('#case .half').length === 2")
    assert window.texts("#case .under") == [
        "none / important_instructions",
        "agentsys / important_instructions",
    ]
    assert window.count("#case .half .tree") == 1
    assert window.texts("#case .half:first-child .chips .bad") == ["injection carried out"]
    # The two stores hold the same conversation.
    assert window.count("#case .parting") == 0
    lefts = window.run(
        "return [...document.querySelectorAll('#case .half')].map((h) => h.getBoundingClientRect().left)"
    )
    assert lefts[0] < lefts[1]
    address = str(window.run("return location.hash"))
    window.open(small, address)
    window.wait_for("return document.querySelectorAll('#case .half').length === 2")
    window.resize(390, 800)
    try:
        assert window.run("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        window.resize(1400, 1000)
    window.click("#case .beside a:last-child")
    window.wait_for("return document.querySelectorAll('#case .half').length === 0")


def test_a_link_to_a_case_that_is_not_there_says_so(window: Browser, small: Path) -> None:
    window.open(small, "#case=aaaaaaaaaa")
    window.wait_for("return document.querySelector('#case .banner') !== null")
    assert "not among these runs" in window.texts("#case .banner")[0]


def test_the_list_can_be_put_into_another_order(window: Browser, small: Path) -> None:
    window.open(small, "#order=newest")
    rows = "return JSON.parse(document.querySelector('#index-data').textContent)"
    newest = [row["id"] for row in sorted(window.run(rows), key=lambda row: -row["written"])]
    listed = window.run("return [...document.querySelectorAll('#cases a')].map((a) => a.dataset.id)")
    assert listed == newest
    choose(window, "order", "task")
    listed = window.run("return [...document.querySelectorAll('#cases a')].map((a) => a.dataset.id)")
    assert listed == [row["id"] for row in window.run(rows)]


def test_simulated_cases_are_marked_in_the_list_and_above(window: Browser, small: Path) -> None:
    window.open(small)
    assert window.count("#cases .chip.simulated") == 3
    assert "3 of 6 cases" in " ".join(window.texts(".banner.simulated")[0].split())


def test_a_view_can_be_linked_to_and_back_leads_to_the_one_before(window: Browser, small: Path) -> None:
    window.open(small, "#defense=none")
    window.click("#cases a:nth-of-type(2)")
    window.wait_for("return document.querySelector('#case h3') !== null")
    assert window.texts("#case h3")[0].startswith("slack")
    window.run("history.back()")
    window.wait_for("return document.querySelector('#case h3') === null")
    assert found(window) == "2 of 6 cases"
    window.click("header nav a[href='#errors']")
    assert found(window) == "2 of 6 cases"


def test_the_list_works_by_keyboard(window: Browser, small: Path) -> None:
    window.open(small)
    window.type("body", "/")
    assert window.run("return document.activeElement.name") == "q"
    window.type("body", "\ue00c")  # Escape
    window.run("document.querySelector('#cases a').focus()")
    window.type("#cases a", "\ue015")  # arrow down
    assert window.run("return document.activeElement === document.querySelectorAll('#cases a')[1]")
    window.type("#cases a:nth-of-type(2)", "\ue007")  # Enter
    window.wait_for("return document.querySelector('#case h3') !== null")
    assert window.texts(".neighbours")[0].count("2 of 6") == 1
    window.type("body", "j")
    window.wait_for("return document.querySelector('.neighbours').textContent.includes('3 of 6')")
    window.type("body", "k")
    window.wait_for("return document.querySelector('.neighbours').textContent.includes('2 of 6')")


def test_nothing_an_attacker_wrote_is_executed(window: Browser, hostile: Path) -> None:
    window.open(hostile)
    assert found(window) == "2 of 2 cases"
    window.click("#cases a:nth-of-type(1)")
    window.wait_for("return document.querySelector('#case h3') !== null")
    for _ in range(3):  # what opens may hold more to open
        window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        window.run("return new Promise((done) => setTimeout(done, 100))")
    window.type("[name=q]", "<img src")
    window.wait_for("return document.querySelector('#case mark.hit') !== null")
    assert window.count("#case mark.hit") > 5
    window.run("document.querySelectorAll('#case a, #cases a, #case button').forEach((one) => one.click())")
    window.run("return new Promise((done) => setTimeout(done, 200))")
    assert window.alert_text() is None
    assert window.run("return window.pwned === undefined")
    assert window.complaints() == []
    assert window.run("return performance.getEntriesByType('resource').length") == 0
    links = "return [...document.querySelectorAll('a')].every((a) => a.getAttribute('href').startsWith('#'))"
    assert window.run(links)
    foreign = "img, iframe, object, embed, svg [onload], [onerror], [ontoggle], #case script, #case style"
    assert window.count(foreign) == 0
    assert window.count("script") == 3


def test_hidden_characters_are_shown_by_their_code(window: Browser, hostile: Path) -> None:
    window.open(hostile, f"#case={first_id(window, hostile)}")
    shown = set(window.texts("#case .hidden-character"))
    assert {"U+202E", "U+0000", "U+001B", "U+2028"} <= shown


def test_the_policy_stops_markup_and_scripts_that_a_mistake_of_ours_would_let_in(
    window: Browser, small: Path
) -> None:
    window.open(small)
    for slip in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.setAttribute('onclick', 'window.pwned = 1')",
        "document.createElement('script').textContent = 'window.pwned = 1'",
    ):
        refused = f"try {{ {slip}; return 'done'; }} catch (error) {{ return error.name; }}"
        assert window.run(refused) == "TypeError"
    window.run(
        "const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x'; document.body.append(i)"
    )
    window.wait_for("return document.querySelector('body > img').complete")
    assert "Content Security Policy" in " ".join(window.complaints())


def test_a_thousand_cases_open_at_once_and_are_listed_by_the_hundred(window: Browser, large: Path) -> None:
    window.open(large)
    took = window.run("return performance.getEntriesByType('navigation')[0].domComplete")
    assert took < 5_000
    assert found(window) == f"{CASES:,} of {CASES:,} cases"
    assert window.count("#cases a") == 100
    window.click("#cases button.more")
    assert window.count("#cases a") == 200
    took = window.run(
        "const q = document.querySelector('[name=q]'); q.value = 'number 1202 of';"
        "const start = performance.now();"
        "q.dispatchEvent(new Event('change', {bubbles: true})); return performance.now() - start"
    )
    assert took < 3_000
    assert found(window) == f"1 of {CASES:,} cases"


def test_a_case_far_down_the_list_is_brought_into_view(window: Browser, large: Path) -> None:
    window.open(large)
    far = window.run("return JSON.parse(document.querySelector('#index-data').textContent)[700].id")
    window.open(large, f"#case={far}")
    inside = (
        "const list = document.querySelector('#cases').getBoundingClientRect();"
        "const link = document.querySelector('#cases [aria-current]').getBoundingClientRect();"
        "return link.top >= list.top && link.bottom <= list.bottom"
    )
    assert window.run(inside)
    assert window.count("#cases a") == 800


def test_wide_content_scrolls_inside_the_page_on_a_narrow_screen(window: Browser, small: Path) -> None:
    first = first_id(window, small)
    window.open(small, f"#case={first}")
    window.resize(420, 900)
    try:
        assert window.run("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        window.resize(1400, 1000)


def test_a_report_with_trajectories_left_out_says_where_they_are(window: Browser, tmp_path: Path) -> None:
    store_attacked(tmp_path)
    reading = read_cases([tmp_path])
    page = tmp_path / "report.html"
    page.write_text(html_report(reading, report(reading, replicates=5), limits=ReportLimits(cases=0)).html)
    window.open(page, f"#case={first_id(window, page)}")
    assert "left out" in window.texts("#case .banner")[0]
    assert str(tmp_path) in window.texts("#case .facts")[0]
