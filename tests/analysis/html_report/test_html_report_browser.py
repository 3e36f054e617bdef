"""The HTML report in a real browser: it opens, filters, searches, can be used by keyboard, runs nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import Browser, browser
from PIL import Image
from reported_cases import AGENT_TREE, PAYLOAD, store, store_attacked, store_hostile
from stored_cases import row

from agentsys.analysis.html_report.charts import draw_paper_figures
from agentsys.analysis.html_report.page import make_html_report
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.table_document import Document
from agentsys.records.case_reader import LoadedCases, read_cases
from agentsys.records.case_row import CaseRow

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
    window.wait_for("return !document.body.hasAttribute('data-busy')")
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
    assert window.count("script") == 4


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


WIDTHS = (390, 1024, 1600)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_width_shows_its_numbers_and_has_no_serious_fault(
    window: Browser, small: Path, width: int, scheme: str
) -> None:
    window.use_colours(scheme)
    window.resize(width, 850)
    try:
        window.open(small, f"#case={first_id(window, small)}")
        assert window.run("return document.documentElement.scrollWidth <= window.innerWidth")
        visible = window.run(
            "return [...document.querySelector('#tables table').tBodies[0].rows[0].querySelectorAll('td.number')]"
            ".filter((cell) => cell.getBoundingClientRect().right <= window.innerWidth).length"
        )
        assert visible >= 3, "numbers stand in the window, without moving the table"
        paper = window.run(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (max(paper) < 60) == (scheme == "dark")
        assert window.audit() == []
        window.press("?")
        assert window.audit() == []
        window.press("Escape")
    finally:
        window.resize(1400, 1000)
        window.use_colours("light")


def test_figures_are_dark_on_a_dark_page(window: Browser, tmp_path: Path) -> None:
    store_attacked(tmp_path)
    frame = ResultFrame(read_cases([tmp_path]))
    page = tmp_path / "report.html"
    make_html_report(frame, figures=draw_paper_figures(frame)[:1]).write(page)
    middle = {}
    for scheme in ("dark", "light"):
        window.use_colours(scheme)
        window.open(page)
        window.wait_for("return document.querySelector('#figures img').complete")
        picture = Image.open(io.BytesIO(window.page.locator("#figures img").first.screenshot()))
        counts = picture.convert("L").histogram()
        middle[scheme] = counts.index(max(counts))
    assert middle["dark"] < 70 and middle["light"] > 200, "the ground of the figure"


def test_it_can_be_used_by_keyboard_alone(window: Browser, small: Path) -> None:
    window.open(small)
    window.press("?")
    assert window.run("return document.getElementById('keys').open")
    window.press("Escape")
    assert not window.run("return document.getElementById('keys').open")
    window.press("w", *"suite=slack solved=true", "Escape")
    window.wait_for("return document.querySelector('#found').textContent === '2 of 6 cases'")
    assert window.run("return document.activeElement.matches('#cases a:first-child')")
    window.press("ArrowDown")
    assert window.run("return document.activeElement.matches('#cases a:nth-child(2)')")
    window.press("Enter")
    window.wait_for("return document.querySelector('#case h3') !== null")
    second = window.run("return location.hash")
    window.press("k")
    assert window.run("return location.hash") != second
    window.press("j")
    assert window.run("return location.hash") == second
    window.press("/", *"no such text")
    window.wait_for("return document.querySelector('#found').textContent === '0 of 6 cases'")
    window.press("Escape")
    assert not window.run("return document.activeElement.matches('input')"), "also where no case is left"


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("outcome=attack_succeeded", 2),
        ("outcome=attack_succeeded,benign", 4),
        ("outcome!=benign solved=true", 4),
        ("exposed_raw=true", 2),
        ("tokens>999999999", 0),
        ("defense=none outcome!=error suite=banking", 1),
        ("verdict!=broken", 6),
    ],
)
def test_terms_combine_scores_errors_and_verdicts(
    window: Browser, small: Path, where: str, count: int
) -> None:
    window.open(small, f"#where={quote(where)}")
    assert found(window) == f"{count} of 6 cases"


@pytest.mark.parametrize("where", ["foo=1", "tokens", "tokens>many", "alert(1)", "constructor=1"])
def test_a_wrong_term_is_named_and_nothing_is_executed(window: Browser, small: Path, where: str) -> None:
    window.open(small, f"#where={quote(where)}")
    assert found(window).startswith('"')
    assert window.complaints() == []


def test_columns_of_the_list_are_chosen_and_stay_in_the_address(window: Browser, small: Path) -> None:
    window.open(small)
    assert "Tokens" not in window.texts("#cases a")[0]
    window.click("#columns summary")
    window.click("#column-tokens")
    window.wait_for("return document.querySelector('#cases a').textContent.includes('Tokens')")
    address = str(window.run("return location.hash"))
    window.open(small, address)
    assert all("Tokens" in text for text in window.texts("#cases a"))


@pytest.mark.parametrize(
    ("security", "exposure", "spans", "sentence"),
    [
        (True, {"exposed_raw": True, "exposed_shown": True}, [], "carried out by the agent that read it"),
        (
            True,
            {"exposed_raw": True, "exposed_shown": False},
            AGENT_TREE,
            "through a value that a worker returned",
        ),
        (True, {"exposed_raw": True, "exposed_shown": False}, [], "through a text that another agent"),
        (True, {"exposed_raw": False, "exposed_shown": False}, [], "although no tool had returned"),
        (
            False,
            {"exposed_raw": True, "exposed_shown": True},
            [],
            "read the injection and did not carry it out",
        ),
        (False, {"exposed_raw": True, "exposed_shown": False}, [], "the acting agent never received it"),
        (False, {"exposed_raw": False, "exposed_shown": False}, [], "nothing was resisted"),
    ],
)
def test_a_sentence_says_what_became_of_the_injection(
    window: Browser,
    tmp_path: Path,
    security: bool,
    exposure: dict[str, bool],
    spans: list[Any],
    sentence: str,
) -> None:
    store_attacked(tmp_path, security=security, exposure=exposure, spans=spans)
    page = written(tmp_path)
    window.open(page, f"#case={first_id(window, page)}")
    [told] = window.texts(".injection-sentence")
    assert sentence in told


def many_cases(count: int) -> tuple[CaseRow, ...]:
    """Rows with what differs from case to case in a real run."""
    return tuple(
        row(
            defense=f"d{at % 20}",
            attack="important_instructions",
            suite=("banking", "slack", "travel", "workspace")[at % 4],
            user_task_id=f"user_task_{at // 20}",
            injection_task_id=f"injection_task_{at % 9}",
            injection_success=at % 3 == 0,
            utility=at % 2 == 0,
            source=f"results/runs/many/gpt__d{at % 20}/s{at % 4}/user_task_{at // 20}/injection_task_{at % 9}.json",
            duration_s=at / 7,
        )
        for at in range(count)
    )


@pytest.mark.parametrize(("count", "seconds"), [(20_000, 2.0), (200_000, 4.0)])
def test_many_cases_open_quickly_and_the_last_one_is_reached(
    window: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, seconds: float
) -> None:
    messages = [{"role": "user", "content": "word " * 200}, {"role": "assistant", "content": "only here"}]
    monkeypatch.setattr(
        "agentsys.analysis.html_report.page.read_stored_json",
        lambda source: {"messages": [{"role": "user", "content": source}, *messages]},
    )
    monkeypatch.setattr(
        "agentsys.analysis.html_report.page.make_results_document", lambda *_: Document((), ())
    )
    frame = ResultFrame(LoadedCases(many_cases(count)))
    page = tmp_path / "report.html"
    report = make_html_report(frame, max_cases=count)
    assert bool(report.files) == (count > 20_000)
    report.write(page)
    del report
    took = []
    for _ in range(3):
        window.page.goto("about:blank")
        window.page.goto(page.as_uri())
        window.wait_for("return document.querySelector('#cases a') !== null")
        took.append(window.run("return performance.now()") / 1000)
    print(f"{count} cases: {page.stat().st_size / 1e6:.1f} MB, opened in {min(took):.2f} s")
    assert min(took) < seconds
    window.wait_for("return !document.body.hasAttribute('data-busy')")
    assert found(window) == f"{count:,} of {count:,} cases"
    last = f"user_task_{count // 20 - 1}"
    window.run("location.hash = '#where=' + arguments[0]", quote(f"user_task={last} defense=d19"))
    window.wait_for("return document.querySelectorAll('#cases a').length === 1")
    window.click("#cases a")
    window.wait_for("return document.querySelectorAll('#case .message').length === 3")
    assert f"/{last}/" in window.texts("#case .message .text")[0]
    assert window.complaints() == []
