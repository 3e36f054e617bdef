"""The served model's batches, asked through the vendors' own SDKs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from scripted_for_serving import Scripted, anthropic_client, openai_client, says

from agentsys.models.serving import Faults, Server, serve

PATIENCE_S = 60


def lines(*names: str, url: str = "/v1/chat/completions") -> bytes:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return b"".join(
        json.dumps({"custom_id": name, "method": "POST", "url": url, "body": asked}).encode() + b"\n"
        for name in names
    )


def sent(client: openai.OpenAI, data: bytes, **more: Any) -> Any:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **more
    )


def until(look: Callable[[], Any], ended: Callable[[Any], bool]) -> Any:
    give_up = time.monotonic() + PATIENCE_S
    while not ended(found := look()):
        assert time.monotonic() < give_up, f"still {found}"
        time.sleep(0.02)
    return found


def ended(client: openai.OpenAI, batch: Any) -> Any:
    last = {"completed", "failed", "expired", "cancelled"}
    return until(lambda: client.batches.retrieve(batch.id), lambda found: found.status in last)


def in_file(client: openai.OpenAI, name: str | None) -> dict[str, Any]:
    told = [json.loads(line) for line in client.files.content(str(name)).text.splitlines()]
    return {line["custom_id"]: line for line in told}


def test_openais_batch_is_under_way_first_and_tells_every_line_by_its_id() -> None:
    with serve(Scripted(says("Hello.")), batch_delay_s=0.3) as server:
        client = openai_client(server)
        batch = sent(client, lines("a", "b", "c"), metadata={"mark": "x"})
        assert (batch.status, batch.output_file_id) == ("in_progress", None)
        done = ended(client, batch)
        found = in_file(client, done.output_file_id)
        assert (done.status, done.error_file_id, done.metadata) == ("completed", None, {"mark": "x"})
        assert done.request_counts.completed == 3
        assert found.keys() == {"a", "b", "c"} and list(found) != ["a", "b", "c"], "kept the requests' order"
        reply = found["b"]["response"]
        assert (reply["status_code"], reply["body"]["choices"][0]["message"]["content"]) == (200, "Hello.")
        assert [one.id for one in client.batches.list()] == [batch.id]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (lines("a", "a"), "duplicate_custom_id"),
        (b"", "empty_file"),
        (b"{not json}\n", "invalid_json_line"),
        (lines("a", url="/v1/responses"), "invalid_url"),
    ],
)
def test_a_file_with_a_slip_fails_as_a_whole_and_asks_nothing(data: bytes, code: str) -> None:
    model = Scripted(says("Hello."))
    with serve(model, batch_delay_s=0.0) as server:
        client = openai_client(server)
        done = ended(client, sent(client, data))
    assert (done.status, done.errors.data[0].code, done.output_file_id) == ("failed", code, None)
    assert model.asked == []


def test_a_cancelled_batch_answers_nothing_more() -> None:
    model = Scripted(says("Hello."))
    with serve(model, batch_delay_s=PATIENCE_S) as server:
        client = openai_client(server)
        batch = sent(client, lines("a"))
        client.batches.cancel(batch.id)
        done = ended(client, batch)
        told = in_file(client, done.error_file_id)
    assert (done.status, told["a"]["error"]["code"], model.asked) == ("cancelled", "batch_cancelled", [])


def test_faults_make_lines_fail_expire_go_missing_and_break() -> None:
    seen = {}
    for kind in ("500", "timeout", "reset", "invalid_json"):
        with serve(Scripted(says("Hi.")), batch_delay_s=0.0) as server:
            client = openai_client(server)
            data = lines("a")
            file = client.files.create(file=("in.jsonl", data), purpose="batch")
            _every_line(server, kind)
            made = {"input_file_id": file.id, "endpoint": "/v1/chat/completions"}
            batch = server_batch(client, made)
            done = ended(client, batch)
            files = [
                client.files.content(name).content
                for name in (done.output_file_id, done.error_file_id)
                if name
            ]
            seen[kind] = (done.status, b"".join(files))
    assert seen["500"][0] == "completed" and json.loads(seen["500"][1])["response"]["status_code"] == 500
    assert (
        seen["timeout"][0] == "expired" and json.loads(seen["timeout"][1])["error"]["code"] == "batch_expired"
    )
    assert seen["reset"] == ("completed", b"")
    with pytest.raises(ValueError):
        json.loads(seen["invalid_json"][1])


def server_batch(client: openai.OpenAI, made: dict[str, str]) -> Any:
    return client.batches.create(completion_window="24h", **made)  # type: ignore[arg-type]


def _every_line(server: Server, kind: str) -> None:
    """From here on every line draws this fault, and no request about batches does."""
    plan = server._listener.exchange._plan
    plan.faults = Faults(rate=1.0, kinds=(kind,), hold_s=0.0)
    plan._kinds = plan.faults.kinds  # type: ignore[assignment]
    quiet = server._listener.batches
    quiet._plan = type(plan)(Faults())


def test_anthropics_batch_through_its_sdk() -> None:
    with serve(Scripted(says("Hello.")), batch_delay_s=0.3) as server:
        client = anthropic_client(server)
        params: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        bad: Any = {**params, "messages": [{"role": "robot", "content": "Hi"}]}
        made: Any = [{"custom_id": "a", "params": params}, {"custom_id": "b", "params": bad}]
        batch = client.messages.batches.create(requests=made)
        assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 2)
        done = until(
            lambda: client.messages.batches.retrieve(batch.id), lambda one: one.processing_status == "ended"
        )
        found = {one.custom_id: one.result for one in client.messages.batches.results(batch.id)}
        assert [one.id for one in client.messages.batches.list()] == [batch.id]
    assert (done.request_counts.succeeded, done.request_counts.errored) == (1, 1)
    good, refused = found["a"], found["b"]
    assert good.type == "succeeded" and good.message.content[0].type == "text"
    assert refused.type == "errored" and refused.error.error.type == "invalid_request_error"


@pytest.mark.parametrize("ids", [["a", "a"], ["a b"], [], ["x" * 65]])
def test_anthropics_custom_ids_are_checked(ids: list[str]) -> None:
    params: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    made: Any = [{"custom_id": one, "params": params} for one in ids]
    with serve(Scripted(says("Hello."))) as server, pytest.raises(anthropic.BadRequestError):
        anthropic_client(server).messages.batches.create(requests=made)


def test_a_batch_may_be_there_although_its_answer_was_lost() -> None:
    with serve(Scripted(says("Hi.")), faults=Faults(rate=1.0, kinds=("reset",), max_in_a_row=1)) as server:
        client = anthropic_client(server)
        params: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.batches.list()
        assert len(list(client.messages.batches.list())) == 1
