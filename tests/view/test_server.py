"""The live view's server: who may ask what, and what is answered."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from browser import PATIENCE_S
from reported_cases import PAYLOAD, store, store_attacked, store_hostile

from agentsys.errors import ConfigError
from agentsys.view.server import ViewServer


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def ask(
    server: ViewServer, path: str, method: str = "GET", host: str | None = None, body: str = ""
) -> Response:
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", place.netloc if host is None else host)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode() or None)
        answer = connection.getresponse()
        return Response(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def settled(server: ViewServer, count: int) -> list[dict[str, Any]]:
    """The rows, once there are so many of them."""
    version = 0
    while True:
        rows = json.loads(ask(server, "/changes?since=0&numbers=0").text)
        if len(rows["rows"]) >= count:
            return list(rows["rows"])
        version = rows["version"]
        server.runs.changes(version, seconds=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("runs")
    store_attacked(folder)
    store_attacked(folder, defense="none", security=True, spans=[])
    store_hostile(folder)
    (folder.parent / "secret.json").write_text('{"secret": 1}')
    with ViewServer([folder]) as running:
        settled(running, 3)
        yield running


def test_the_page_has_the_list_and_the_policy_of_the_report(server: ViewServer) -> None:
    found = ask(server, "/")
    assert found.status == 200
    assert found.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', found.text)
    assert policy is not None
    assert "connect-src &#39;self&#39;" in policy[1]
    assert "default-src &#39;none&#39;" in policy[1] and "trusted-types &#39;none&#39;" in policy[1]
    index = re.search(r'id="index-data">(.*?)</script>', found.text, re.DOTALL)
    assert index is not None and len(json.loads(index[1])) == 3
    assert 'trajectory-data">' not in found.text
    assert PAYLOAD not in found.text


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.attacker.example:{port}",
        "",
    ],
)
def test_another_name_is_refused(server: ViewServer, host: str) -> None:
    port = urlsplit(server.address).port
    for path in ("/", "/changes?since=0", "/numbers"):
        found = ask(server, path, host=host.format(port=port))
        assert (found.status, "user_task" in found.text) == (403, False)
    assert ask(server, "/", host=f"localhost:{port}").status == 200


def test_two_names_in_one_question_are_refused(server: ViewServer) -> None:
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", place.netloc)
    connection.putheader("Host", "attacker.example")
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "NONSENSE"])
def test_only_get_is_answered(server: ViewServer, method: str) -> None:
    found = ask(server, "/", method=method, body="since=0" if method == "POST" else "")
    assert (found.status, found.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.json",
        "/..%2fsecret.json",
        "/case/../../secret.json",
        "/case/%2e%2e%2fsecret.json",
        "/case//etc/passwd",
        "/case/aaaaaaaaaa",
        "/case/",
        "/etc/passwd",
        "//etc/passwd",
        "/report.html",
        "/nothing",
        "/numbers/x",
        "/%00",
        "http://attacker.example/secret.json",
    ],
)
def test_there_is_nothing_at_other_paths(server: ViewServer, path: str) -> None:
    found = ask(server, path)
    assert found.status == 404
    assert "secret" not in found.text and "root:" not in found.text


def test_every_answer_is_kept_from_other_pages(server: ViewServer) -> None:
    rows = settled(server, 3)
    for path in ("/", f"/case/{rows[0]['id']}", "/changes?since=0&numbers=0", "/search?q=a", "/nothing"):
        headers = ask(server, path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert not any(name.lower().startswith("access-control") for name in headers)


def test_a_case_is_its_texts_and_what_it_makes_of_them(server: ViewServer) -> None:
    row = next(row for row in settled(server, 3) if row["outcome"] == "attack_succeeded")
    told = [json.loads(ask(server, f"/case/{row['id']}").text) for _ in range(2)]
    numbers = [{number for number, _ in one["texts"]} for one in told]
    assert not numbers[0] & numbers[1], "the texts of two answers have different numbers"
    texts = dict(map(tuple, told[0]["texts"]))
    (marked,) = [texts[part] for part in told[0]["trajectory"]["messages"][3]["parts"]]
    assert "".join(marked[1].split()) == "".join(PAYLOAD.split())


def test_what_an_attacker_wrote_leaves_as_escapes(server: ViewServer) -> None:
    row = next(row for row in settled(server, 3) if row["outcome"] == "error")
    found = ask(server, f"/case/{row['id']}")
    assert found.headers["Content-Type"] == "application/json"
    assert found.text.isascii() and not set("<>&") & set(found.text)
    assert "<script>window.pwned" in json.dumps(json.loads(found.text))


def test_texts_are_searched_in_the_files(server: ViewServer) -> None:
    rows = {row["id"]: row for row in settled(server, 3)}

    def found(query: str) -> list[str]:
        ids = json.loads(ask(server, f"/search?q={query}").text)["ids"]
        names = [rows[one]["defense"] for one in ids]
        return sorted("hostile" if "script" in name else name for name in names)

    assert found("PAY%20the%20bill") == ["agentsys", "none"]
    assert found("%3Cimg%20src=%22x%22") == ["hostile"]
    assert found("%E2%80%AE") == ["hostile"]
    assert found("") == found("never%20said") == []


def test_numbers_come_as_a_document_with_the_links_of_the_report(server: ViewServer) -> None:
    link = (
        'href="#model=gpt-4o&amp;defense=none&amp;attack=important_instructions&amp;outcome=attack_succeeded"'
    )
    numbers, found = 0, ask(server, "/numbers")
    while link not in found.text:  # not measured yet, or while files were still being read
        told = ask(server, f"/changes?since={server.runs.version}&numbers={numbers}")
        numbers, found = json.loads(told.text)["numbers"], ask(server, "/numbers")
    assert found.status == 200
    assert "<script" not in found.text.replace("&lt;script", "")


def test_news_are_told_to_whoever_waits(tmp_path: Path) -> None:
    store(tmp_path)
    with ViewServer([tmp_path]) as server:
        settled(server, 1)
        version = server.runs.version
        heard: list[Any] = []
        waiting = threading.Thread(
            target=lambda: heard.append(
                json.loads(ask(server, f"/changes?since={version}&numbers={server._measured.version}").text)
            )
        )
        waiting.start()
        store(tmp_path, user_task_id="user_task_7")
        settled(server, 2)
        waiting.join(PATIENCE_S)
        later = json.loads(ask(server, f"/changes?since={version}&numbers=0").text)
        assert [row["user_task"] for row in later["rows"]] == ["user_task_7"]
        assert heard and heard[0]["run"] == later["run"]


def test_an_empty_folder_is_a_page_without_cases(tmp_path: Path) -> None:
    with ViewServer([tmp_path]) as server:
        assert '<script type="application/json" id="index-data">[]</script>' in ask(server, "/").text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", ""])
def test_others_cannot_be_served(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="not loopback; the live view is served on"):
        ViewServer([tmp_path], host=host)


def test_a_port_in_use_is_one_line(server: ViewServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give another port, or 0 for any"):
        ViewServer([tmp_path], port=urlsplit(server.address).port or 0)


def test_the_loopback_of_ipv6_is_served_under_its_own_names(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    with ViewServer([tmp_path], host="::1") as server:
        port = urlsplit(server.address).port
        assert server.address == f"http://[::1]:{port}/"
        assert ask(server, "/").status == 200
        assert ask(server, "/", host=f"localhost:{port}").status == 200
        assert ask(server, "/", host=f"127.0.0.1:{port}").status == 403
        assert ask(server, "/", host=f"[::2]:{port}").status == 403
