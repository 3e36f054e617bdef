"""The report that is served while a run goes on: fresh, read-only, for browsers of this machine alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from browser import PATIENCE_S, browser
from reported_cases import store_attacked

from agentsys.analysis.html_report.page import HtmlReport, make_html_report
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.records.case_reader import read_cases
from agentsys_plugins.serve.follow_command import FollowedReport
from agentsys_plugins.serve.served_model.model_server import Server


@contextmanager
def followed(folder: Path) -> Iterator[httpx.Client]:
    def make(stamp: str) -> HtmlReport:
        return make_html_report(ResultFrame(read_cases([folder])), follow=stamp, beside=f"data-{stamp}")

    report = FollowedReport(make, [folder])
    with (
        Server(report, "127.0.0.1", 0) as server,
        httpx.Client(base_url=f"{server.base_url}/{report.secret}/", trust_env=False) as client,
    ):
        yield client


def test_the_page_grows_with_the_run_and_says_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsys_plugins.serve.follow_command._REST", 0)
    with followed(tmp_path) as client:
        empty = client.get("")
        assert "No case yet" in empty.text and empty.headers["Refresh"] == "2"
        store_attacked(tmp_path)
        first, stamp = client.get("").text, client.get("stamp").text
        assert f'"follow":"{stamp}"' in first and "Follows the run" in first
        assert client.get("stamp").text == stamp
        store_attacked(tmp_path, user_task_id="user_task_1")
        assert client.get("stamp").text != stamp
        assert "<b>2</b> cases" in client.get("").text


def test_data_beside_the_page_are_served_as_long_as_the_page_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys.analysis.html_report.page.MOST_IN_ONE_FILE", 0)
    store_attacked(tmp_path)
    with followed(tmp_path) as client:
        [beside] = re.findall(r'"beside":"([\w-]+)"', client.get("").text)
        answer = client.get(f"{beside}/index-0.js")
        assert answer.text.startswith('agentsysPart("index-0"')
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        for path in ("data-0/index-0.js", f"{beside}/no.js", f"{beside}/..%2f..%2fetc"):
            assert client.get(path).status_code == 404, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "attacker.example:80"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_web_pages_get_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    store_attacked(tmp_path)
    with followed(tmp_path) as client:
        for path in ("", "stamp"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
        allowed = client.get("", headers={"Sec-Fetch-Site": "same-origin"})
        assert allowed.status_code == 200
        assert "Access-Control-Allow-Origin" not in allowed.headers
        assert "frame-ancestors 'none'" in allowed.headers["Content-Security-Policy"]


def test_nothing_can_be_changed_and_without_the_address_nothing_is_there(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with followed(tmp_path) as client:
        client.get("")
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, "").status_code == 405
        assert httpx.get(str(client.base_url.copy_with(path="/")), trust_env=False).status_code == 404
    assert [path for path in sorted(tmp_path.rglob("*")) if ".agentsys" not in path.parts] == before


@pytest.mark.slow
def test_a_browser_shows_the_cases_of_a_run_as_they_end(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    command = [sys.executable, "-m", "agentsys", "report", "--follow", str(tmp_path)]
    environment = os.environ | {"COLUMNS": "300"}
    with browser() as window:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            [address] = re.findall(r"http://127\.0\.0\.1:\d+/[\w-]+/", process.stdout.readline())
            window.open(address)
            assert window.texts("#found") == ["1 of 1 case"]
            window.click("#cases a")
            window.wait_for("return document.querySelector('#case h3') !== null")
            store_attacked(tmp_path, user_task_id="user_task_1")
            end = time.monotonic() + PATIENCE_S
            window.wait_for("return document.querySelector('#found').textContent === '2 of 2 cases'")
            assert time.monotonic() < end
            window.wait_for("return document.querySelector('#case h3') !== null")
            assert window.complaints() == []
        finally:
            process.terminate()
            process.wait(30)
        window.wait_for("return document.getElementById('following').textContent.includes('ended')")


def test_without_the_guest_the_command_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from agentsys.cli import app
    from agentsys.errors import ConfigError

    store_attacked(tmp_path)
    monkeypatch.setattr("agentsys.cli.report_command.load_extensions", lambda: ())
    result = CliRunner().invoke(app, ["report", "--follow", str(tmp_path)])
    assert isinstance(result.exception, ConfigError) and "guest 'serve'" in str(result.exception)


def test_a_file_is_not_promised_where_none_is_written(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from agentsys.cli import app
    from agentsys.errors import ConfigError

    store_attacked(tmp_path)
    result = CliRunner().invoke(app, ["report", "--follow", "--out", "page.html", str(tmp_path)])
    assert isinstance(result.exception, ConfigError) and "Leave out --out" in str(result.exception)
