"""`agentsys check` says in one page and one status whether stored runs hold; every reader takes a bundle."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import threading
import zipfile
from functools import partial
from pathlib import Path

import orjson
import pytest
from bundled_runs import SIMULATED, changed, run
from typer.testing import CliRunner, Result

import agentsys
from agentsys.cli import FORMER_COMMANDS, app
from agentsys.errors import ConfigError
from agentsys.records.runs_source import open_runs


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checked") / "runs"
    run(folder, *SIMULATED)
    return folder


@pytest.fixture(scope="module")
def bundle(runs: Path) -> Path:
    pack_bundle = pytest.importorskip("agentsys_plugins.bundles.pack_bundle").pack_bundle
    return pack_bundle(runs, runs.with_name("paper.zip")).file


def turn_score(content: bytes) -> bytes:
    record = orjson.loads(content)
    record["security"] = record["agentsys"]["security"] = not record["security"]
    return orjson.dumps(record)


def test_a_whole_folder_holds_and_a_folder_with_a_case_removed_does_not(runs: Path, tmp_path: Path) -> None:
    good = call("check", str(runs), "--format", "json")
    assert good.exit_code == 0, good.output
    found = json.loads(good.stdout)
    grades = {one["subject"]: one["grade"] for one in found["findings"]}
    assert grades.pop("Cells") in ("valid", "suspect")  # a few cases say little
    assert grades == dict.fromkeys(("Records", "Complete", "Scores"), "valid") | {"Benchmark": "note"}
    copy = tmp_path / "copy"
    for path in (path for path in runs.rglob("*") if path.is_file()):
        target = copy / path.relative_to(runs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    victims = sorted(copy.rglob("injection_task_*.json"))
    victims[0].unlink()
    victims[1].write_bytes(turn_score(victims[1].read_bytes()))
    bad = call("check", str(copy))
    assert bad.exit_code == 1
    assert re.search(r"^- Complete .*\n.*unfinished: 1 of", bad.stdout, re.MULTILINE)
    assert re.search(r"^- Scores +1 score of .* come out otherwise", bad.stdout, re.MULTILINE)
    assert "Does not hold" in bad.stdout
    assert "Complete   no planned case" not in bad.stdout
    copy = tmp_path / "cut"
    shutil.copytree(runs, copy)
    next(copy.rglob("injection_task_*.json")).write_bytes(b'{"agentsys": ')
    cut = call("check", str(copy))
    assert cut.exit_code == 1 and "1 file unreadable" in cut.stdout
    assert re.search(
        r"^  Complete +no planned case lacks a file; some cannot be read", cut.stdout, re.MULTILINE
    )


@pytest.mark.slow
def test_a_bundle_with_a_turned_score_does_not_hold(bundle: Path) -> None:
    first = sorted(
        n for n in zipfile.ZipFile(bundle).namelist() if n.startswith("records/") and "injection" in n
    )[0]
    turned = changed(bundle, lambda name, content: turn_score(content) if name == first else content)
    result = call("check", str(turned))
    assert result.exit_code == 1
    assert "- Run again" in result.stdout and "- Members" in result.stdout and "security" in result.stdout


def test_every_reader_takes_a_bundle_and_its_address(
    runs: Path, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(bundle.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/paper.zip"
    try:
        expected = call("results", str(runs), "--format", "csv").stdout
        for given in (str(bundle), address):
            assert call("results", given, "--format", "csv").stdout == expected
            assert call("report", given, "--no-figures").exit_code == 0
            assert call("compare", given).exit_code == 0
            assert len(agentsys.load_runs(given)) == len(agentsys.load_runs(runs))
        gone = call("results", address.replace("paper", "gone"))
        assert isinstance(gone.exception, ConfigError) and "404" in str(gone.exception)
    finally:
        server.shutdown()
    assert (tmp_path / "report.html").is_file()  # never in the cache


@pytest.mark.parametrize("member", ["records/../../out.json", "records//etc/x.json", "records/a\\..\\b.json"])
def test_a_bundle_writes_nowhere_but_its_own_folder(member: str, bundle: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("bundle.json", "{}")
        archive.writestr(member, "{}")
    with pytest.raises(ConfigError, match="refused"):
        open_runs(bad)
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        archive.writestr("bundle.json", "{}")
        archive.writestr("records/a.json", "{}")
        archive.writestr("records/a.json/b.json", "{}")
    with pytest.raises(ConfigError, match="two of its members"):
        open_runs(tmp_path / "twice.zip")
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(ConfigError, match=r"no bundle.*agentsys bundle DIR"):
        open_runs(tmp_path / "none.zip")


@pytest.mark.parametrize("old", sorted(FORMER_COMMANDS))
def test_a_former_command_names_the_new_one(old: str) -> None:
    result = call(old, "x")
    assert isinstance(result.exception, ConfigError)
    assert f"agentsys {FORMER_COMMANDS[old]}" in str(result.exception)
    new = FORMER_COMMANDS[old].split()[0]
    assert call(new, *([] if new.startswith("-") else ["--help"])).exit_code == 0
