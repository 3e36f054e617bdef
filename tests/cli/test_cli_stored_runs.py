"""What commands that read stored runs say of strangers' records: cases of a version, errors, settings, broken files."""

from __future__ import annotations

import csv
import http.server
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from needs_guest import needs_guest
from stored_cases import PAY_BILL, READ_BILL, attacked, case_of, published, row_grid, store_own, stored, turns
from typer.testing import CliRunner, Result

from agentsys.cli import app
from agentsys.cli.stored_runs import restrict_to_version
from agentsys.errors import ConfigError
from agentsys.records.runs_source import open_runs

SIZES = {"banking": (16, 9), "slack": (21, 5), "travel": (20, 7), "workspace": (40, 14)}
"""User and injection tasks of AgentDojo v1.2.2: 949 pairs."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(("version", "count"), [("v1", 629), ("v1.1.2", 629), ("v1.2", 949), ("v1.2.2", 949)])
def test_cases_of_an_older_version_are_the_pairs_that_it_has(version: str, count: int) -> None:
    cases = [case for suite, size in SIZES.items() for case in row_grid(*size, suite=suite)]
    # Slack's injection tasks are counted from 1.
    first, sixth = "injection_task_0", "injection_task_5"
    moved = [case.suite == "slack" and case.injection_task_id == first for case in cases]
    cases = [
        replace(case, injection_task_id=sixth) if is_moved else case
        for case, is_moved in zip(cases, moved, strict=True)
    ]
    assert len(cases) == 949
    assert len(restrict_to_version([*cases, *row_grid(1, 1, benchmark="asb")], version)) == count


def test_no_case_of_a_version_and_no_such_version_are_one_line(tmp_path: Path) -> None:
    late = "injection_task_6"
    store_own(tmp_path, case_of(suite="workspace", injection_task_id=late))
    kept = call("results", tmp_path, "--cases", "v1.2", "--format", "csv")
    assert kept.exit_code == 0 and "workspace" in kept.stdout
    none = call("results", tmp_path, "--cases", "v1").exception
    assert isinstance(none, ConfigError) and "none of these 1 cases is one of AgentDojo's v1" in str(none)
    unknown = call("compare", tmp_path, "--cases", "v7").exception
    assert isinstance(unknown, ConfigError) and "v1.2.2" in str(unknown)


def overall(folder: Path, rule: str) -> dict[str, str]:
    """Metric -> its value over all suites, as CSV has it."""
    text = call("results", folder, "--format", "csv", "--errors", rule).stdout
    assert "nan" not in text
    rows = csv.DictReader(io.StringIO(text))
    return {row["metric"]: row["value_fraction"] for row in rows if row["suite"] == "overall"}


def test_errors_as_agentdojo_counts_them_reaches_records_without_a_score(tmp_path: Path) -> None:
    stored(tmp_path, attacked(security=False, utility=True))
    stored(tmp_path, attacked(user_task_id="user_task_1", security=None, utility=None))
    assert overall(tmp_path, "report")["targeted_asr"] == "0.0"
    assert overall(tmp_path, "agentdojo")["targeted_asr"] == "0.5"
    assert overall(tmp_path, "agentdojo")["utility_under_attack"] == "0.5"
    assert overall(tmp_path, "agentdojo")["defense_quality"] == ""


@needs_guest("audit")
def test_a_tie_of_versions_is_said_with_every_share(tmp_path: Path) -> None:
    # A suite that somebody registers with AgentDojo is no version of its.
    import_module("agentsys_plugins.typed.nested.nested_suite")
    stored(tmp_path, published())
    page = call("check", tmp_path)
    assert page.exit_code == 0
    assert (
        "all of 1 records score as stored under v1, which explains most of what names no version, as do v1.1"
        in (" ".join(page.stdout.split()))
    )
    # Banking 6 was made to pass by doing nothing in v1.2.2: the versions before explain it, and this one not.
    idle = published(user_task_id="user_task_6", utility=False, messages=turns([], "Nothing."))
    stored(tmp_path, idle)
    told = " ".join(call("check", tmp_path).stdout.split())
    assert "(v1.2.2: 1)" in told, told[told.find("Scores") :][:400]


@needs_guest("audit")
def test_a_version_that_a_record_names_is_never_overridden_and_one_pipeline_voids_no_other(
    tmp_path: Path,
) -> None:
    idle = published(user_task_id="user_task_6", utility=False, messages=turns([], "Nothing."))
    stored(tmp_path, {**idle, "benchmark_version": "v1.2.1", "pipeline_name": "names-it"})
    stored(tmp_path, {**idle, "pipeline_name": "gpt-4o"})
    page = json.loads(call("check", tmp_path, "--version", "v1.2.2", "--format", "json").stdout)
    scores = {one["text"].rpartition("(")[2]: one for one in page["findings"] if one["subject"] == "Scores"}
    assert {name: one["grade"] for name, one in scores.items()} == {
        "names-it)": "valid",
        "gpt-4o)": "suspect",
    }
    assert "checker changed" in scores["gpt-4o)"]["details"][0]


@needs_guest("audit")
def test_bankings_city_that_agentdojo_let_pass_later_is_a_reason_of_its_own(tmp_path: Path) -> None:
    update = {"street": "Dalton Street 123", "city": "New York, NY 10001"}
    calls = [{"function": "read_file", "args": {"file_path": "address-change.txt"}, "id": "a"}]
    calls.append({"function": "update_user_info", "args": update, "id": "b"})
    moved = published(calls, user_task_id="user_task_13", utility=False, benchmark_version="v1.2.2")
    stored(tmp_path, moved)
    page = json.loads(call("check", tmp_path, "--format", "json").stdout)
    (scores,) = [one for one in page["findings"] if one["subject"] == "Scores"]
    assert scores["grade"] == "suspect"
    assert scores["details"][0].endswith(
        "utility False then, True now: checker changed without a new version"
    )
    # Not a city that was never right: that score nobody explains.
    moved["messages"] = turns(
        [calls[0], {**calls[1], "args": {**update, "street": "Elsewhere", "city": "Rome"}}]
    )
    moved["utility"] = True
    stored(tmp_path, moved)
    (page_line,) = [line for line in call("check", tmp_path).stdout.splitlines() if " Scores " in line]
    assert page_line.startswith(("-", "?")) and "come out otherwise" in page_line


def test_two_folders_whose_settings_differ_are_compared_with_a_word_on_it(tmp_path: Path) -> None:
    for folder, temperature in (("a", 0.0), ("b", 0.9)):
        config_hash = f"{temperature * 10:.0f}" * 16
        store_own(tmp_path / folder, case_of(), config_hash=config_hash)
        kept = tmp_path / folder / ".agentsys/configs" / f"{config_hash}.config"
        kept.parent.mkdir(parents=True)
        target = "agentsys:model.openai"
        kept.write_text(json.dumps({"model": {"_target_": target, "temperature": temperature}}))
    told = " ".join(call("compare", tmp_path / "a", tmp_path / "b").output.split())
    assert "The settings differ: gpt-4o: temperature (0, 0.9)." in told
    alike = call("compare", tmp_path / "a", tmp_path / "a").output
    assert "settings differ" not in alike


@contextmanager
def serve(body: bytes, announced: int) -> Iterator[str]:
    """A server whose connection ends before all that it announced was sent."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(announced))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/paper.zip"
    finally:
        server.shutdown()


@needs_guest("bundles")
@pytest.mark.parametrize("name", ["paper.zip", "download"])
def test_a_zip_file_that_was_cut_off_is_called_that(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04" + b"\0" * 300)
    for command in ("check", "results", "rescore"):
        refused = call(command, tmp_path / name).exception
        assert isinstance(refused, ConfigError)
        assert "no whole zip file: a broken download, perhaps. Get it again." in str(refused)


def test_a_download_that_breaks_off_is_called_that_and_not_kept(tmp_path: Path) -> None:
    with (
        serve(b"PK\x03\x04" + b"\0" * 300, 5000) as address,
        pytest.raises(ConfigError, match="broke off after 304 of 5000 bytes"),
    ):
        open_runs(Path(address))


def test_calls_of_a_stranger_are_scored_though_another_file_is_cut(tmp_path: Path) -> None:
    stored(tmp_path, published([READ_BILL, PAY_BILL], benchmark_version="v1.2.2"))
    cut = stored(tmp_path, attacked(benchmark_version="v1.2.2"))
    whole = json.loads(call("check", tmp_path, "--format", "json").stdout)["verdict"]
    cut.write_bytes(cut.read_bytes()[:200])
    page = json.loads(call("check", tmp_path, "--format", "json").stdout)
    (unread,) = [one for one in page["findings"] if one["subject"] == "Unread"]
    assert unread["grade"] == "note" and str(cut) in unread["details"][0]
    grades = ("valid", "suspect", "broken")
    assert grades.index(page["verdict"]) <= grades.index(whole)
