"""ReplayModel: answers come from the record, and only while the conversation is the recorded one."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsys.errors import ConfigError
from agentsys.models.chat import (
    ChatModel,
    ChatRequest,
    ErrorKind,
    ModelError,
    Scene,
    ToolSpec,
    assistant,
    system,
    text_of,
    user,
)
from agentsys.models.recorded_runs import find_pipeline_folders
from agentsys.models.replay import ReplayModel

SCENE = Scene("banking", "user_task_0", None, "none")
CALL = {"function": "read_file", "args": {"file_path": "bill.txt"}, "id": "call_1"}
PAY = {"function": "send_money", "args": {"to": ["a", "b"], "amount": 5.5}, "id": "call_2"}


def tool(call: dict[str, Any], text: str, error: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call["id"], "tool_call": call, "error": error}


def says(text: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": calls}


OLD_FORM = [
    {"role": "system", "content": "Be good."},
    {"role": "user", "content": "Pay the bill."},
    says(None, [CALL]),
    tool(CALL, "Total: 5.5"),
    says("I pay.", [PAY]),
    tool(PAY, "", error="ValueError: no money"),
    says("Done."),
]


def new_form(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same conversation with contents as lists of blocks."""
    return [
        {**m, "content": None if m["content"] is None else [{"type": "text", "content": m["content"]}]}
        for m in messages
    ]


def store(root: Path, messages: list[dict[str, Any]], pipeline: str = "gpt-4o", **fields: Any) -> Path:
    path = root / pipeline / "banking" / "user_task_0" / "none" / "none.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {"pipeline_name": pipeline, "injections": {}, "messages": messages, "utility": True, **fields}
    path.write_text(json.dumps(run))
    return path


def live(raw: dict[str, Any]) -> ChatMessage:
    """A stored message as a pipeline would hold it."""
    block = [{"type": "text", "content": raw["content"] or ""}]
    match raw["role"]:
        case "system":
            return system(raw["content"])
        case "user":
            return user(raw["content"])
        case "assistant":
            calls = raw["tool_calls"]
            return assistant(raw["content"], calls and [FunctionCall(**copy.deepcopy(c)) for c in calls])
        case _:
            call = FunctionCall(**copy.deepcopy(raw["tool_call"]))
            return {**raw, "content": block, "tool_call": call}


def replay(root: Path, **options: Any) -> ChatModel:
    return ReplayModel("replay", root, **options).for_scene(SCENE)


def play(model: ChatModel, messages: list[dict[str, Any]]) -> tuple[list[ChatMessage], list[str]]:
    """Ask wherever the stored conversation has an assistant message; the replies and all notes."""
    replies, notes = [], []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            reply = model.complete(ChatRequest([live(m) for m in messages[:index]]))
            replies.append(reply.message)
            notes += reply.notes
    return replies, notes


def diverged(model: ChatModel, messages: list[ChatMessage], role: str = "agent") -> str:
    with pytest.raises(ModelError) as caught:
        model.complete(ChatRequest(messages, role=role))
    assert caught.value.kind is ErrorKind.REPLAY_DIVERGED
    return str(caught.value)


def test_list_spelled_as_text_still_agrees_after_the_executor_parsed_it(tmp_path: Path) -> None:
    spelled = {**PAY, "args": {**PAY["args"], "to": "['a', 'b']"}}  # type: ignore[dict-item]
    store(tmp_path, [*OLD_FORM[:4], says(None, [spelled]), tool(spelled, "ok"), says("Done.")])
    conversation = [*OLD_FORM[:4], says(None, [PAY]), tool(PAY, "ok")]
    reply = replay(tmp_path).complete(ChatRequest([live(m) for m in conversation]))
    assert text_of(reply.message) == "Done."


# --- where the conversation is not the recorded one -------------------------------------------------


OTHER_FILE = {**CALL, "args": {"file_path": "secrets.txt"}}
OTHER_TOOL = {**CALL, "function": "read_secrets.txt"}


@pytest.mark.parametrize(
    ("conversation", "words"),
    [
        ([OLD_FORM[0], OLD_FORM[0]], ["message 2: its role is system, in the record user"]),
        *(
            (
                [*OLD_FORM[:2], says(None, [call]), tool(call, "Total: 5.5")],
                ["message 3", "secrets.txt", "bill.txt"],
            )
            for call in (OTHER_FILE, OTHER_TOOL)
        ),
        (
            [*OLD_FORM[:2], says(None, [CALL, PAY]), tool(CALL, "Total: 5.5")],
            ["makes 2 tool calls, in the record 1"],
        ),
        ([OLD_FORM[0]], ["goes on with a user message"]),
        (OLD_FORM, ["record"]),
        ([*OLD_FORM, {"role": "user", "content": "Go on."}], ["record"]),
    ],
    ids=["role", "arguments", "tool", "number of calls", "no answer", "end", "behind the end"],
)
def test_another_conversation_diverges_and_the_difference_is_named(
    tmp_path: Path, conversation: list[dict[str, Any]], words: list[str]
) -> None:
    store(tmp_path, OLD_FORM)
    message = diverged(replay(tmp_path), [live(m) for m in conversation])
    assert [word for word in words if word not in message] == []


def test_helper_role_with_a_conversation_of_its_own_diverges(tmp_path: Path) -> None:
    store(tmp_path, OLD_FORM)
    message = diverged(replay(tmp_path), [system("You validate."), user("Allow send_money?")], "validator")
    assert "role 'validator'" in message


INTENT = ToolSpec(
    "read_file", "", {"properties": {"file_path": {}, "intent": {}}, "required": ["file_path", "intent"]}
)
"""The tool of the records, with a parameter that a defense added."""


@pytest.mark.parametrize("asked", [2, 4])
def test_a_recorded_call_without_what_the_tools_demand_now_diverges(tmp_path: Path, asked: int) -> None:
    store(tmp_path, OLD_FORM)
    request = ChatRequest([live(m) for m in OLD_FORM[:asked]], tools=[INTENT])
    with pytest.raises(ModelError) as caught:
        replay(tmp_path).complete(request)
    assert caught.value.kind is ErrorKind.REPLAY_DIVERGED
    assert re.search(r"read_file\(file_path='bill.txt'\) has no `intent`.*another defense", str(caught.value))


def test_a_case_without_calls_is_judged_by_another_one_of_its_suite(tmp_path: Path) -> None:
    store(tmp_path, [*OLD_FORM[:2], says("Done.")])
    request = ChatRequest([live(m) for m in OLD_FORM[:2]], tools=[INTENT])
    assert text_of(replay(tmp_path).complete(request).message) == "Done."
    with_calls = store(tmp_path, OLD_FORM).rename(tmp_path / "kept.json")
    store(tmp_path, [*OLD_FORM[:2], says("Done.")])
    other = tmp_path / "gpt-4o/banking/user_task_1/none/none.json"
    other.parent.mkdir(parents=True)
    with_calls.rename(other)
    with pytest.raises(ModelError, match="has no `intent`"):
        replay(tmp_path).complete(request)


def test_a_recorded_call_that_failed_for_want_of_a_parameter_is_the_models_own_slip(tmp_path: Path) -> None:
    failed = [*OLD_FORM[:3], tool(CALL, "", error="ValidationError: intent"), says("Sorry.")]
    store(tmp_path, failed)
    request = ChatRequest([live(m) for m in failed[:4]], tools=[INTENT])
    assert text_of(replay(tmp_path).complete(request).message) == "Sorry."


def test_a_value_that_is_a_defenses_refusal_now_diverges(tmp_path: Path) -> None:
    store(tmp_path, OLD_FORM)
    refused = [live(m) for m in [*OLD_FORM[:3], tool(CALL, '{"error": "no_intent"}')]]
    message = diverged(replay(tmp_path), refused)
    assert 'message 4: tool result 1 is a value in the record and {"error": "no_intent"} here' in message


@pytest.mark.parametrize(
    "text", ['{"error": 3}', '{"error": "x", "b": 1}', '["error"]', "{error}", "{" * 2000]
)
def test_other_results_that_look_alike_are_texts(tmp_path: Path, text: str) -> None:
    store(tmp_path, OLD_FORM)
    _, notes = play(replay(tmp_path), changed(3, text))
    assert notes == ["tool result 1 differs from the record (first difference at character 1)"]


def test_helper_role_inside_the_recorded_conversation_is_answered(tmp_path: Path) -> None:
    question = {"role": "user", "content": "Which tools are needed?"}
    store(tmp_path, [*OLD_FORM[:2], question, says("read_file"), *OLD_FORM[2:]])
    asked = [live(m) for m in [*OLD_FORM[:2], question]]
    assert text_of(replay(tmp_path).complete(ChatRequest(asked, role="filter")).message) == "read_file"


# --- texts may differ -------------------------------------------------------------------------------


def changed(index: int, text: str) -> list[dict[str, Any]]:
    return [{**m, "content": text} if i == index else m for i, m in enumerate(OLD_FORM)]


def test_other_text_is_an_error_under_strict(tmp_path: Path) -> None:
    store(tmp_path, OLD_FORM)
    model = replay(tmp_path, strict=True)
    message = diverged(model, [live(m) for m in changed(3, "Total: 7.5")[:4]])
    assert "message 4: tool result 1 differs" in message
    play(model, OLD_FORM)


# --- the trace folder -------------------------------------------------------------------------------


def test_several_pipelines_ask_for_a_name_and_take_it(tmp_path: Path) -> None:
    store(tmp_path, OLD_FORM, pipeline="one")
    store(tmp_path, OLD_FORM, pipeline="two")
    with pytest.raises(ConfigError, match=r"several pipelines.*model\.pipeline="):
        replay(tmp_path)
    request = ChatRequest([live(m) for m in OLD_FORM[:2]])
    assert replay(tmp_path, pipeline="two").complete(request).model_id == "two"
    with pytest.raises(ConfigError, match="Did you mean two"):
        replay(tmp_path, pipeline="twwo")


@pytest.mark.parametrize("traces", [None, "???", ""])
def test_no_traces_given_says_what_to_type(traces: str | None) -> None:
    with pytest.raises(ConfigError, match=r"model\.traces=FOLDER"):
        ReplayModel("replay", traces)


def test_missing_empty_or_packed_traces_are_one_clear_line(tmp_path: Path) -> None:
    packed = tmp_path / "runs.tar.gz"
    packed.write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for path, says_what in [
        (tmp_path / "nowhere", "no such folder"),
        (packed, "unpack it first"),
        (tmp_path / "empty", "no recorded runs there"),
    ]:
        with pytest.raises(ConfigError, match=says_what) as caught:
            ReplayModel("replay", path)
        assert "\n" not in str(caught.value)


def test_missing_record_ends_the_case_and_names_the_file(tmp_path: Path) -> None:
    store(tmp_path, OLD_FORM)
    model = ReplayModel("replay", tmp_path)
    other = Scene("banking", "user_task_1", "injection_task_2", "direct")
    for ask in (model.for_scene, model.read_recorded_injections):
        with pytest.raises(ModelError, match=r"banking/user_task_1/direct/injection_task_2\.json is missing"):
            ask(other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"messages": 3}',
        '{"messages": [{"role": "poet"}]}',
        '{"messages": [{"role": "tool"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
        '{"messages": [{"role": "assistant", "tool_calls": 1}]}',
        '{"messages": [{"role": "assistant", "tool_calls": [{"args": {}}]}]}',
        '{"messages": [], "injections": {"a": 1}}',
    ],
)
def test_corrupt_record_ends_the_case_in_one_line(tmp_path: Path, text: str) -> None:
    store(tmp_path, OLD_FORM).write_text(text)
    with pytest.raises(ModelError, match="cannot be read") as caught:
        replay(tmp_path)
    assert caught.value.kind is ErrorKind.REPLAY_DIVERGED
    assert "\n" not in str(caught.value)


# --- any conversation -------------------------------------------------------------------------------

TEXTS = st.text(max_size=20)
VALUES = st.one_of(TEXTS, st.integers(-5, 5), st.booleans(), st.none(), st.lists(TEXTS, max_size=2))
CALLS = st.builds(
    lambda name, args, n: {"function": name, "args": args, "id": f"call_{n}"},
    st.sampled_from(["read", "send", "search"]),
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=2),
    st.integers(0, 99),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": draw(TEXTS)},
        {"role": "user", "content": draw(TEXTS)},
    ]
    for calls in draw(st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=3)):
        messages.append(says(draw(st.none() | TEXTS), calls))
        messages += [tool(call, draw(TEXTS), draw(st.none() | TEXTS)) for call in calls]
    return [*messages, says(draw(TEXTS))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversations(), st.booleans())
def test_any_recorded_conversation_replays_exactly(
    tmp_path: Path, messages: list[dict[str, Any]], old: bool
) -> None:
    store(tmp_path, messages if old else new_form(messages))
    replies, notes = play(replay(tmp_path, strict=True), messages)
    assert replies == [live(m) for m in messages if m["role"] == "assistant"]
    assert notes == []


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def test_pipeline_folders_are_found_at_any_depth_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for pipeline in ("a", "deep/er/b"):
        for task in ("user_task_0", "user_task_1"):
            touch(tmp_path / pipeline / "slack" / task / "none" / "none.json")
    touch(tmp_path / ".agentsys" / "cache" / "x" / "y" / "z.json")
    touch(tmp_path / "a" / "slack" / "user_task_0" / "none" / "more" / "x.json")
    touch(tmp_path / "notes.json")
    assert find_pipeline_folders(tmp_path) == [tmp_path / "a", tmp_path / "deep/er/b"]
