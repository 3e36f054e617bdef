"""A headless Chromium, Debian's own, driven by Playwright: `make browser` installs what it needs besides."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    # Whatever a page asks for over the network goes to a port where nobody listens; a server of a test's own
    # is on loopback.
    "--host-resolver-rules=MAP * 127.0.0.1:9, EXCLUDE 127.0.0.1",
]
PATIENCE_S = 120.0
"""How long anything may take: the machine may be slow, and busy with other tests."""
AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"


class Browser:
    """One open window.

    Args:
        page: Playwright's page.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self._complaints: list[str] = []
        self._dialogs: list[str] = []
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("pageerror", lambda error: self._complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self._dialogs.append(dialog.message), dialog.dismiss()))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type in ("warning", "error"):
            self._complaints.append(f"{message.type}: {message.text}")

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Load a file, or an address, from scratch, and wait until the page has put itself together."""
        address = page if isinstance(page, str) else page.as_uri()
        self.page.goto("about:blank")
        self._complaints.clear()
        self.page.goto(f"{address}{fragment}", timeout=PATIENCE_S * 1000)
        self.wait_for("return !document.body.hasAttribute('data-busy')")

    def run(self, script: str, *arguments: object) -> Any:
        """The value a script returns; it runs in the page as a user's console would."""
        return self.page.evaluate(f"(given) => (function () {{ {script} }}).apply(null, given)", [*arguments])

    def texts(self, selector: str) -> list[str]:
        """The text of every element that matches."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        found: list[str] = self.run(script, selector)
        return found

    def count(self, selector: str) -> int:
        """How many elements match."""
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str) -> None:
        """Click the first element that matches, as a mouse would."""
        self.page.locator(selector).first.click()

    def type(self, selector: str, text: str) -> None:
        """Send keys to the first element that matches."""
        self.page.locator(selector).first.press_sequentially(text)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self.page.keyboard.press(key)
            self.wait_for("return !document.body.hasAttribute('data-busy')")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def use_colours(self, scheme: str) -> None:
        """Ask pages for `light` or `dark`."""
        self.page.emulate_media(color_scheme=scheme)

    def wait_for(self, script: str, *arguments: object, seconds: float = PATIENCE_S) -> None:
        """Wait until a script returns something true."""
        self.page.wait_for_function(
            f"(given) => (function () {{ {script} }}).apply(null, given)",
            arg=[*arguments],
            timeout=seconds * 1000,
        )

    def picture(self) -> bytes:
        """What the window shows, as a PNG."""
        shown: bytes = self.page.screenshot()
        return shown

    def alert_text(self) -> str | None:
        """The text of a dialog that opened; None if there was none."""
        return self._dialogs[-1] if self._dialogs else None

    def complaints(self) -> list[str]:
        """What the console has had of warnings and errors since the page was opened."""
        self.page.wait_for_timeout(50)
        return self._complaints

    def audit(self) -> list[str]:
        """The serious and critical faults that axe-core finds; skips the test where it is missing."""
        if not AXE.exists():
            pytest.skip("no axe-core here (make browser)")
        # Not through the page's own policy, which no script of others passes.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{fault['id']}: {node['target']} {node.get('failureSummary', '')}"
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]


@contextmanager
def browser() -> Iterator[Browser]:
    """A fresh browser; skips the test where Chromium or Playwright is missing."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("no Playwright here (make browser)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=_FLAGS)
        try:
            yield Browser(opened.new_page(viewport={"width": 1400, "height": 1000}))
        finally:
            opened.close()
