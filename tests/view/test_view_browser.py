"""The live view in a real browser: it follows a run, opens cases on demand, runs nothing it is given."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PATIENCE_S, Browser, browser
from reported_cases import PAYLOAD, store, store_attacked, store_hostile

from agentsys.errors import ConfigError
from agentsys.view import measured
from agentsys.view.server import ViewServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "PAUSE_S", 0.2)


def server_at(port: int, folder: Path) -> ViewServer:
    """A server at the port of one that has ended; a connection to that one may still hold it for a moment."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ViewServer([folder], port=port)
        except ConfigError:
            if time.monotonic() > end:
                pytest.skip(f"somebody else has taken port {port}")
            time.sleep(1)


def wait_for_cases(window: Browser, count: int) -> None:
    text = f"{count:,} of {count:,} case{'s' if count > 1 else ''}"
    window.wait_for("return document.querySelector('#found').textContent === arguments[0]", text)


def complaints(window: Browser, server: ViewServer) -> list[str]:
    """Without those of the page of an earlier test, whose server has ended."""
    return [line for line in window.complaints() if server.address in line or "net::ERR" not in line]


def wait_for_numbers(window: Browser) -> None:
    window.wait_for("return document.querySelectorAll('#tables td a').length > 0")


def test_new_cases_are_shown_as_they_are_written(window: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with ViewServer([folder]) as server:
        window.open(server.address)
        window.wait_for("return document.querySelector('#cases p').textContent === 'No case yet.'")
        store_attacked(folder)
        wait_for_cases(window, 1)
        store_attacked(folder, defense="none", security=True, spans=[])
        wait_for_cases(window, 2)
        window.wait_for("return document.querySelector('#live a').textContent.includes('none')")
        assert window.texts("#cases .chip.bad") == ["injection carried out"]
        # The newest first, unless another order is asked for.
        assert window.texts("#cases .case-under")[0] == "none / important_instructions"
        options = "return [...document.querySelector('#filters [name=defense]').options].map((o) => o.value)"
        assert window.run(options) == ["", "agentsys", "none"]
        assert complaints(window, server) == []


@pytest.mark.slow
def test_what_is_being_read_stays_while_cases_come_and_go(window: Browser, tmp_path: Path) -> None:
    first = store_attacked(tmp_path)
    with ViewServer([tmp_path]) as server:
        window.open(server.address)
        wait_for_cases(window, 1)
        window.click("#cases a")
        window.wait_for("return document.querySelector('#case mark.injected') !== null")
        window.run("document.querySelector('#case details.system').open = true")
        window.run("document.querySelector('#cases a').focus()")
        other = store_attacked(tmp_path, user_task_id="user_task_1")
        wait_for_cases(window, 2)
        assert window.run("return document.querySelector('#case details.system').open")
        assert window.run("return document.activeElement.getAttribute('aria-current')") == "true"
        assert window.count("#cases a[aria-current]") == 1
        store_attacked(tmp_path, security=True)
        window.wait_for(
            "return document.querySelector('#case .chip.bad').textContent === 'injection carried out'"
        )
        # Written again with the same outcome and the same length.
        first.write_text(first.read_text().replace("The bill is paid.", "The bill is lost."))
        window.wait_for("return document.querySelector('#case').textContent.includes('The bill is lost.')")
        other.unlink()
        wait_for_cases(window, 1)
        first.unlink()
        window.wait_for("return document.querySelectorAll('#cases a').length === 0")


def test_a_table_leads_to_cases_and_two_defenses_stand_side_by_side(window: Browser, tmp_path: Path) -> None:
    store_attacked(tmp_path)
    store_attacked(tmp_path, defense="none", security=True, spans=[])
    with ViewServer([tmp_path]) as server:
        window.open(server.address)
        wait_for_numbers(window)
        window.run("document.querySelector('#tables td a[href*=attack_succeeded]').click()")
        window.wait_for("return document.querySelector('#found').textContent === '1 of 2 cases'")
        window.click("#cases a")
        window.wait_for("return document.querySelector('#case .beside a') !== null")
        window.click("#case .beside a")
        window.wait_for("return document.querySelectorAll('#case .half').length === 2")
        marked = ["".join(text.split()) for text in window.texts("#case .half .message.tool mark.injected")]
        assert marked == ["".join(PAYLOAD.split())] * 2
        assert window.count("#case .tree") == 1
        address = str(window.run("return location.href"))
        window.open(address)
        window.wait_for("return document.querySelectorAll('#case .half').length === 2")
        window.run("document.querySelector('#tables thead button').click()")
        assert window.count("#tables th[aria-sort]") == 1
        assert complaints(window, server) == []


def test_texts_are_searched(window: Browser, tmp_path: Path) -> None:
    for task in range(3):
        messages = [{"role": "user", "content": f"number {task} of many"}]
        store(tmp_path, user_task_id=f"user_task_{task}", stored={"messages": messages})
    with ViewServer([tmp_path]) as server:
        window.open(server.address, "#q=NUMBER 2 of")
        window.wait_for("return document.querySelector('#found').textContent === '1 of 3 cases'")
        window.click("#cases a")
        window.wait_for("return document.querySelector('#case mark.hit') !== null")
        assert window.texts("#case mark.hit") == ["number 2 of"]


def test_nothing_an_attacker_wrote_is_executed(window: Browser, tmp_path: Path) -> None:
    store_attacked(tmp_path)
    with ViewServer([tmp_path]) as server:
        window.open(server.address)
        wait_for_cases(window, 1)
        store_hostile(tmp_path)
        wait_for_cases(window, 2)
        window.wait_for("return document.querySelectorAll('#tables h3').length === 2")
        window.run("document.querySelector('#cases a').click()")
        window.wait_for("return document.querySelector('#case .hidden-character') !== null")
        for _ in range(3):  # what opens may hold more to open
            window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            window.run("return new Promise((done) => setTimeout(done, 50))")
        window.run(
            "document.querySelectorAll('#case a, #numbers a, #case button').forEach((one) => one.click())"
        )
        window.run("return new Promise((done) => setTimeout(done, 200))")
        assert window.alert_text() is None
        assert window.run("return window.pwned === undefined")
        assert complaints(window, server) == []
        asked = window.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert all(str(name).startswith(server.address) for name in asked)
        foreign = (
            "img, iframe, object, embed, svg [onload], [onerror], [ontoggle], #numbers script, #case script"
        )
        assert window.count(foreign) == 0
        links = (
            "return [...document.querySelectorAll('a')].every((a) => a.getAttribute('href').startsWith('#'))"
        )
        assert window.run(links)
        refused = (
            "try { document.body.innerHTML = '<b>'; return 'done'; } catch (error) { return error.name; }"
        )
        assert window.run(refused) == "TypeError"


@pytest.mark.slow
def test_a_server_that_ended_is_told_and_the_next_one_is_followed(window: Browser, tmp_path: Path) -> None:
    store(tmp_path)
    with ViewServer([tmp_path]) as server:
        window.open(server.address)
        wait_for_cases(window, 1)
        port = int(server.address.rstrip("/").rpartition(":")[2])
    window.wait_for("return document.querySelector('#live.lost') !== null")
    store(tmp_path, user_task_id="user_task_5")
    with server_at(port, tmp_path):
        wait_for_cases(window, 2)
        assert window.count("#live.lost") == 0


@pytest.mark.slow
def test_the_list_of_thousands_is_there_before_their_texts(window: Browser, tmp_path: Path) -> None:
    path = store(tmp_path, stored={"messages": [{"role": "user", "content": "said once"}]})
    content = json.loads(path.read_text())
    for task in range(1, 1200):
        content["user_task_id"] = content["agentsys"]["case"]["user_task_id"] = f"user_task_{task}"
        (path.parent / f"{task}.json").write_text(json.dumps(content))
    with ViewServer([tmp_path]) as server:
        window.open(server.address, "#order=task")
        wait_for_cases(window, 1200)
        assert window.count("#cases a") == 100
        at_once = "return JSON.parse(document.querySelector('#index-data').textContent).length"
        window.open(server.address, "#order=task")
        assert window.run(at_once) == 1000
        wait_for_cases(window, 1200)
        assert (
            window.run("return document.querySelector('#index-data').textContent.includes('said once')")
            is False
        )
        window.click("#cases a:nth-of-type(3)")
        window.wait_for("return document.querySelector('#case .text') !== null")
        assert window.texts("#case .text") == ["said once"]
        asked = window.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert sum("/case/" in str(name) for name in asked) == 1
