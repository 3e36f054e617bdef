"""The store: atomic files, corrupt ones are kept and count as not run; a model's odd reply costs no other case."""

from __future__ import annotations

import copy
import errno
import json
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentdojo.benchmark import load_task_results
from agentdojo.functions_runtime import FunctionCall
from small_runs import Silent

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, Usage, assistant, text_of
from agentsys.records.case import Case
from agentsys.records.case_reader import load_runs
from agentsys.records.schema import CaseRecord
from agentsys.runs.run_session import prepare_session
from agentsys.runs.store import Store, StoreError

CASE = Case(
    benchmark="agentdojo",
    version="v1.2.2",
    suite="banking",
    user_task_id="user_task_0",
    injection_task_id=None,
    attack="none",
    model="simulated",
    defense="none",
)
RECORD = CaseRecord(case=CASE, status="ok", simulated=True, utility=True, security=False, config_hash="abc")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agentsys": 3}', b"\xff\xfe", b'{"utility": true}'])
def test_a_file_that_does_not_parse_counts_as_not_run_and_is_kept_aside(
    tmp_path: Path, content: bytes
) -> None:
    store = Store(tmp_path)
    path = tmp_path / CASE.key
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert store.read_case_status(CASE).status == "corrupt"
    store.write(RECORD, {})
    assert store.read_case_status(CASE).status == "ok"
    assert path.with_suffix(".json.corrupt").read_bytes() == content


def test_a_full_disk_leaves_the_old_record_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    path = store.write(RECORD, {"n": 1})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agentsys.base.atomic_file.os.fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Finished cases are safe; make room"):
        store.write(RECORD, {"n": 2})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_log_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError, match=r"Cannot write to .*logdir=\.\.\."):
        Store(blocked / "runs")


def test_a_temporary_file_left_by_a_kill_is_no_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(RECORD, {})
    path.with_name(f".{path.name}.1-2.tmp").write_bytes(b"{")
    assert [p.name for p in path.parent.glob("*.json")] == [path.name]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def calls(args: dict[str, Any], call_id: str = "call_1", name: str = "get_channels") -> ChatReply:
    return ChatReply(assistant(None, [FunctionCall(function=name, args=args, id=call_id)]))


def fails(message: str) -> ChatReply:
    raise ModelError(ErrorKind.BAD_REQUEST, message)


def crashes() -> ChatReply:
    raise KeyError("choices")


def leaves() -> ChatReply:
    raise SystemExit(3)


def gives_up() -> ChatReply:
    raise CancelledError


DONE = ChatReply(assistant("done", None), Usage(10, 5))
ODD: dict[str, Callable[[], ChatReply]] = {
    "a number beyond 64 bits": lambda: calls({"amount": 10**30}),
    "a number of 5000 digits": lambda: calls({"amount": 10**5000}),
    "counts beyond 64 bits": lambda: replace(DONE, usage=Usage(2**70, 2**65)),
    "arguments 300 deep": lambda: calls(nested(300)),
    "arguments 240 deep": lambda: calls(nested(240)),
    "arguments 20000 deep": lambda: calls(nested(20_000)),
    "half a surrogate pair in an error": lambda: fails("bad \udc80 thing"),
    "in the model's id": lambda: replace(DONE, model_id="m\ud800"),
    "in a call's id": lambda: calls({}, "c\udfff"),
    "in arguments": lambda: calls({"a\udc80": ["b\udc80"]}),
    "in a tool's name": lambda: calls({}, name="x\udc80"),
    "in a note": lambda: replace(DONE, notes=("n\udc80",)),
    "in the text": lambda: replace(DONE, message=assistant("said \udc80", None)),
    "no number": lambda: calls({"amount": float("nan"), "most": float("inf")}),
    "counts that are none": lambda: replace(DONE, usage=Usage("many", None)),  # type: ignore[arg-type]
    "no reply": lambda: None,  # type: ignore[dict-item, return-value]
    "a bug": crashes,
    "an exit": leaves,
    "a task given up": gives_up,
}


class OddModel:
    """Answers Slack's user task 2 oddly and is done with the others at once."""

    def __init__(self, name: str, how: str) -> None:
        self.name, self._how = name, how

    def complete(self, request: ChatRequest) -> ChatReply:
        first = next(text_of(message) for message in request.messages if message["role"] == "user")
        answered = any(message["role"] == "assistant" for message in request.messages)
        return DONE if answered or "Invite Dora" not in first else copy.copy(ODD[self._how]())


def session(tmp_path: Path, how: str, *more: str) -> Any:
    (tmp_path / "conf/model").mkdir(parents=True, exist_ok=True)
    yaml = f"_target_: {__name__}.OddModel\nname: odd\nprose_name: Odd\nhow: {json.dumps(how)}\n"
    (tmp_path / "conf/model/odd.yaml").write_text(yaml)
    plan = ["model=odd", "benchmark.suites=[slack]", "user_tasks=[0,1,2]", "executor.workers=1", *more]
    return prepare_session([*plan, f"logdir={tmp_path / 'runs'}"], config_dirs=[tmp_path / "conf"])


def files(tmp_path: Path) -> list[Path]:
    return [p for p in sorted((tmp_path / "runs").rglob("*.json")) if ".agentsys" not in p.parts]


QUICK = {"in a call's id", "a number of 5000 digits", "arguments 20000 deep", "a task given up"}
"""Of the odd replies, those that no other test stands for."""


@pytest.mark.parametrize(
    "how", [how if how in QUICK else pytest.param(how, marks=pytest.mark.slow) for how in ODD]
)
def test_an_odd_reply_is_stored_and_read_and_costs_no_other_case(tmp_path: Path, how: str) -> None:
    read_trajectory = pytest.importorskip(
        "agentsys_plugins.audit.rescoring.read_trajectories"
    ).read_trajectory
    outcome = session(tmp_path, how).execute(Silent())
    assert (outcome.finished, outcome.fatal) == (3, None)
    for path in files(tmp_path):
        *_, pipeline, suite, user, attack, name = path.with_suffix("").parts
        load_task_results(pipeline, suite, user, attack, name, tmp_path / "runs")
        read_trajectory(str(path))
    assert len(load_runs(tmp_path / "runs")) == 3
    blocks = [json.loads(path.read_bytes())["agentsys"] for path in files(tmp_path)]
    # The next run takes what is finished for finished and goes on with what is not.
    again = session(tmp_path, how)
    errors = [block for block in blocks if block["status"] == "error"]
    assert how != "a task given up" or [block["error_kind"] for block in errors] == ["model"]
    assert len(again.plan.open_jobs) == len(errors) <= 2
    assert again.plan.corrupt == ()
    assert again.execute(Silent()).fatal is None
