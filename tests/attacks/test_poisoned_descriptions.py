"""A tool whose description labels the others: no label of AgentSys comes from it, and its commands are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_runs import Silent

from agentsys.defense import privileges
from agentsys.runs.run_session import prepare_session


def attacked(folder: Path) -> list[Any]:
    session = prepare_session(
        [
            *("model=simulated", "defense=agentsys", "attack=poisoned_descriptions"),
            *("benchmark.suites=[banking]", "user_tasks=[2,15]", "injection_tasks=[4]", f"logdir={folder}"),
        ]
    )
    session.execute(listener := Silent())
    assert [record.status for record in listener.records] == ["ok", "ok"]
    return listener.records


def labels(records: list[Any]) -> set[str]:
    found = [
        span.decision["labels"] for record in records for span in record.spans if span.kind == "privileges"
    ]
    return {label for one in found for label in one.values()}


def test_a_poisoned_description_frees_no_command(tmp_path: Path, monkeypatch: Any) -> None:
    records = attacked(tmp_path / "now")
    assert labels(records) == {"command"} and not any(record.security for record in records)
    # As labels were read before: whatever an object of the reply says first.
    monkeypatch.setattr(privileges, "_quotes_description", lambda *_: False)
    monkeypatch.setattr(privileges, "find_json_values", lambda reply: list(find(reply))[:1])
    monkeypatch.setattr(privileges, "_WRITTEN_LABEL", privileges.re.compile("(?!)()()"))
    privileges._cached_store.cache_clear()
    before = attacked(tmp_path / "before")
    assert labels(before) == {"query"} and any(record.security for record in before)


find = privileges.find_json_values
