"""The HTML report in a real browser: it opens, filters, searches, can be used by keyboard, runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser
from reported_cases import PAYLOAD, store, store_attacked, store_hostile

from agentsys.analysis.html_report.page import make_html_report
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.records.case_reader import read_cases

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def written(folder: Path) -> Path:
    reading = read_cases([folder])
    page = folder / "report.html"
    page.write_text(make_html_report(ResultFrame(reading), [str(folder)]).html, encoding="utf-8")
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
    assert window.count("#tables table") > 3


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("suite", "slack", 3),
        ("attack", "important_instructions", 4),
        ("outcome", "attack_succeeded", 2),
        ("task", "solved", 4),
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


def test_text_is_searched_in_messages_and_calls_and_shown_marked(window: Browser, small: Path) -> None:
    window.open(small)
    window.type("[name=q]", "ONLY IN slack (")
    window.wait_for("return document.querySelector('#found').textContent === '1 of 6 cases'")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case mark.hit') !== null")
    assert window.texts("#case mark.hit") == ["only in slack ("]


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


def test_every_link_in_the_tables_leads_to_cases(window: Browser, small: Path) -> None:
    window.open(small)
    hashes = window.run(
        "return [...document.querySelectorAll('#tables td a')].map((a) => a.getAttribute('href'))"
    )
    assert len(hashes) > 10
    for address in dict.fromkeys(hashes):
        window.run("location.hash = arguments[0]", address)
        window.wait_for("return !document.querySelector('#found').textContent.startsWith('0 ')")


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
