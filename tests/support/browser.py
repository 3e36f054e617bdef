"""A headless Chromium for the report's tests, driven through chromedriver's own protocol (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

_FLAGS = [
    "--headless=new",
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
    "--window-size=1400,1000",
]
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key under which WebDriver hands out elements."""
PATIENCE_S = 120.0
"""How long anything may take: the machine may be slow, and busy with other tests."""
# No proxy: chromedriver listens on loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One open window.

    Args:
        session: The session's address at chromedriver.
    """

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Load a file, or an address, from scratch, also where only the part after `#` differs."""
        address = page if isinstance(page, str) else page.as_uri()
        self._post("url", {"url": "about:blank"})
        self._post("url", {"url": f"{address}{fragment}"})

    def run(self, script: str, *arguments: object) -> Any:
        """The value a script returns; it runs in the page as a user's console would."""
        return self._post("execute/sync", {"script": script, "args": list(arguments)})

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
        self._post(f"element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Send keys to the first element that matches."""
        self._post(f"element/{self._find(selector)}/value", {"text": text})

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in CSS pixels."""
        self._post("window/rect", {"width": width, "height": height})

    def wait_for(self, script: str, *arguments: object, seconds: float = PATIENCE_S) -> None:
        """Wait until a script returns something true."""
        end = time.monotonic() + seconds
        while not self.run(script, *arguments):
            assert time.monotonic() < end, f"still not so after {seconds} s: {script}"
            time.sleep(0.05)

    def picture(self) -> bytes:
        """What the window shows, as a PNG."""
        with _OPENER.open(f"{self._session}/screenshot", timeout=PATIENCE_S) as answer:
            return base64.b64decode(json.load(answer)["value"])

    def alert_text(self) -> str | None:
        """The text of an open dialog; None if there is none."""
        try:
            with _OPENER.open(f"{self._session}/alert/text", timeout=10) as answer:
                return str(json.load(answer)["value"])
        except urllib.error.HTTPError:
            return None

    def complaints(self) -> list[str]:
        """What the console holds of warnings and errors, and what was asked from the network."""
        entries = self._post("se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def _find(self, selector: str) -> str:
        found = self._post("element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _post(self, command: str, body: object) -> Any:
        return _call(f"{self._session}/{command}", body)


@contextmanager
def browser(scheme: str = "light") -> Iterator[Browser]:
    """A fresh browser; skips the test where Chromium or its driver is missing.

    Args:
        scheme: `light` or `dark`: the colours the page is asked for.
    """
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium chromium-driver)")
    # Chromium leaves folders behind where it keeps temporary files; these go with ours.
    kept = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with kept as scratch, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [driver, "--port=0"], stdout=said, stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": scratch}
        )
        try:
            address = f"http://127.0.0.1:{_port(said)}"
            session = f"{address}/session/{_new_session(address, chromium, scheme)}"
            try:
                yield Browser(session)
            finally:
                with suppress(OSError):  # too busy to say goodbye: the driver ends what it started
                    request = urllib.request.Request(session, method="DELETE")
                    _OPENER.open(request, timeout=PATIENCE_S).close()
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_S)


def _new_session(address: str, chromium: str, scheme: str) -> str:
    dark = ["--force-dark-mode"] if scheme == "dark" else []
    options = {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": [*_FLAGS, *dark]},
        "goog:loggingPrefs": {"browser": "ALL"},
        "unhandledPromptBehavior": "ignore",
    }
    return str(_call(f"{address}/session", {"capabilities": {"alwaysMatch": options}})["sessionId"])


def _call(url: str, body: object) -> Any:
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with _OPENER.open(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"]) from None


def _port(said: IO[str]) -> int:
    """The port that chromedriver says it has taken: nobody else can have got in between."""
    end = time.monotonic() + PATIENCE_S
    while True:
        said.seek(0)
        found = re.search(r"started successfully on port ([0-9]+)", said.read())
        if found:
            return int(found[1])
        assert time.monotonic() < end, "chromedriver did not start"
        time.sleep(0.05)
