"""Files of others that hold many cases: dumps with one trace a line, and logs of Inspect's AgentDojo port."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from needs_guest import needs_guest
from stored_cases import CALLING, published
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases

CALLS = [
    {"role": "user", "content": "Pay."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "x"}'}}
        ],
    },
    {
        "role": "tool",
        "content": "Paid.",
        "tool_call_id": "1",
        "tool_call": {"function": "pay", "args": {"to": "x"}},
    },
    {"role": "assistant", "content": "Done."},
]


def explorer_trace(**facts: Any) -> dict[str, Any]:
    known = {
        "suite_name": "banking", "model": "gpt-4o-2024-05-13", "success": True, "security": False,
        "user_task_id": "user_task_3", "injection_task_id": "injection_task_1", "attack_type": "direct",
    }  # fmt: skip
    return {"messages": CALLS, "metadata": known | facts, "annotations": []}


def write_lines(path: Path, *traces: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in traces))
    return path


def test_a_dump_of_the_explorer_is_read_line_by_line(tmp_path: Path) -> None:
    facts = explorer_trace(user_task_id="user_task_4", security=True)
    dump = write_lines(
        tmp_path / "dump.jsonl",
        {"metadata": {"name": "a whole dump"}},
        explorer_trace(),
        [{"metadata": facts["metadata"]}, *CALLS],
        explorer_trace(user_task_id="user_task_5", injection_task_id=None, attack_type=None, security=True),
        published(
            suite_name="slack",
            pipeline_name="gpt-4o-2024-05-13-tool_filter",
            messages=CALLING,
            security=False,
        ),
        explorer_trace(user_task_id="user_task_6", model="gpt-4o-2024-05-13-fence"),
        '{"messages": [',
    )
    for given in (tmp_path, dump):
        found = read_cases([given])
        rows = {(case.user_task_id, case.defense): case for case in found.cases if case.suite == "banking"}
        assert [rows[f"user_task_{at}", "none"].injection_success for at in (3, 4, 5)] == [False, True, None]
        assert rows["user_task_3", "none"].trajectory_length == 1
        assert rows["user_task_3", "none"].calls == {"pay": 1}
        assert rows["user_task_6", "fence"].model == "gpt-4o-2024-05-13"
        assert {case.defense for case in found.cases if case.suite == "slack"} == {"tool_filter"}
        assert [skip.path for skip in found.skipped_files] == [f"{dump}#7"]


def inspect_log(*scores: dict[str, Any] | None, injection: str | None = "1") -> dict[str, Any]:
    named = {} if injection is None else {"injection_task_id": injection}
    samples = [
        {
            "id": f"banking-u{at}",
            "epoch": 1,
            "metadata": {"task_suite_name": "banking", "task_id": str(at), **named},
            "scores": None if value is None else {"injection_task_scorer": {"value": value}},
        }
        for at, value in enumerate(scores)
    ]
    about = {
        "task": "inspect_evals/agentdojo", "model": "openai/gpt-4o", "task_version": "1-A",
        "task_args": {"attack": "important_instructions"},
    }  # fmt: skip
    return {"version": 2, "status": "success", "eval": about, "samples": samples}


@pytest.mark.parametrize("form", ["json", "eval"])
def test_inspects_port_is_read_by_its_own_scores_and_its_polarity_is_said(tmp_path: Path, form: str) -> None:
    log = inspect_log({"utility": "C", "security": "C"}, {"utility": "I", "security": "I"}, None)
    path = tmp_path / f"2031-01-01T00-00-00+00-00_agentdojo_x.{form}"
    if form == "json":
        path.write_text(json.dumps(log))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", json.dumps({"eval": log["eval"]}))
            for sample in log["samples"]:
                archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
    found = read_cases([tmp_path])
    assert [(case.utility, case.injection_success, case.status) for case in found.cases] == [
        (True, True, "ok"), (False, False, "ok"), (False, False, "error"),
    ]  # fmt: skip
    assert {(case.benchmark, case.model, case.defense) for case in found.cases} == {
        ("inspect_agentdojo", "openai/gpt-4o", "none")
    }
    assert "1.0 where every attack was carried out" in found.resolution_notes[-1]


def test_benign_logs_of_inspect_have_no_attack(tmp_path: Path) -> None:
    path = tmp_path / "2031-01-01T00-00-00+00-00_agentdojo_x.json"
    path.write_text(json.dumps(inspect_log({"utility": "C"}, injection=None)))
    (case,) = read_cases([path]).cases
    assert (case.attack, case.injection_success, case.injection_task_id) == ("none", None, None)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"eval": 5}', '{"eval": {"task": "agentdojo"}, "samples": [5, {}]}']
)
def test_a_log_that_is_none_is_said_and_never_fatal(tmp_path: Path, content: str) -> None:
    (tmp_path / "2031-01-01T00-00-00+00-00_agentdojo_x.json").write_text(content)
    write_lines(tmp_path / "notes.jsonl", "5", '{"text": "no trace"}')
    with pytest.raises(ConfigError, match="No stored cases"):
        read_cases([tmp_path])


@needs_guest("audit")
def test_a_dump_is_not_executed_again_and_that_is_what_check_says(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text(json.dumps(published()))
    page = " ".join(CliRunner().invoke(app, ["check", str(tmp_path)]).output.split())
    assert "1 record could not be scored again" in page
    assert "all.jsonl: not one case" in page
    (tmp_path / "all.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    with pytest.raises(ConfigError, match=r"no line of .*all\.jsonl says which case it is"):
        read_cases([tmp_path])
