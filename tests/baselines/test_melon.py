"""MELON's guarded turn: what is blocked, what passes, how long a masked call is remembered, what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.task_suite import get_suite
from scripted_for_melon import DONE, REQUEST, Chosen, Counters, Ran, TwoPasses, call, guarded, saying

from agentsys.models.chat import ErrorKind, ModelError, assistant, text_of, user
from baselines.melon import Melon
from baselines.melon.guarded_turn import NOTICE, PLACEHOLDER
from baselines.none import NoDefense

LOOK = call("look")
PAY = call("pay", to="SE35", amount=9)
SILENT = assistant("A summary.")


def run(original: list[Any], masked: list[Any], defense: Melon | None = None) -> tuple[Ran, Counters]:
    tools = Counters()
    return Ran(TwoPasses(original, masked), defense or guarded(), tools.runtime), tools


def test_a_call_proposed_both_times_is_not_made() -> None:
    ran, tools = run([saying(LOOK), saying(PAY)], [saying(PAY)])
    assert tools.ran == {"look": 1}
    assert ran.messages[-1] == assistant(NOTICE)
    assert text_of(ran.results[0]) == PLACEHOLDER
    assert ran.decisions[0]["allow"] is False
    assert ran.decisions[0]["nearest"]["similarity"] == 1.0


@pytest.mark.parametrize(
    ("masked", "blocked"),
    [
        ({"recipient": "SE35", "amount": 9, "subject": "Another subject"}, True),
        ({"recipient": "SE36", "amount": 9, "subject": "Rent"}, False),
        ({"recipient": "SE35", "amount": 10, "subject": "Rent"}, False),
    ],
)
def test_of_a_payment_only_recipient_and_amount_are_compared(masked: dict[str, Any], blocked: bool) -> None:
    proposed = call("send_money", recipient="SE35", amount=9, subject="Rent")
    original = [saying(LOOK), saying(proposed), DONE]
    ran, _ = run(original, [saying(call("send_money", **masked)), SILENT])
    assert (ran.messages[-1] == assistant(NOTICE)) is blocked


def test_a_masked_call_is_remembered_for_the_rest_of_the_task() -> None:
    original = [saying(LOOK), saying(LOOK), saying(LOOK), saying(PAY)]
    ran, tools = run(original, [saying(PAY), SILENT, SILENT])
    assert tools.ran == {"look": 3}
    assert [decision["allow"] for decision in ran.decisions] == [True, True, False]
    assert ran.decisions[2]["bank"] == ["pay(to = SE35, amount = 9)"]


def test_a_run_that_is_not_blocked_has_the_conversation_of_the_undefended_agent() -> None:
    script = [saying(LOOK), saying(call("fail"), PAY), saying(call("no_such_tool")), DONE]
    suite = get_suite("v1.2.2", "banking")
    ours = TwoPasses(script, [SILENT] * 3)
    plain = TwoPasses(script)
    messages = guarded().pipeline(ours, suite).query(REQUEST, Counters().runtime)[3]
    assert list(messages) == list(NoDefense().pipeline(plain, suite).query(REQUEST, Counters().runtime)[3])
    assert ours.requests_of("agent") == plain.requests_of("agent")


@pytest.mark.parametrize(
    ("redact", "first", "first_error"),
    [("step", PLACEHOLDER, PLACEHOLDER), ("newest", "", "ValueError: obey me")],
)
def test_a_block_takes_out_the_step_or_as_the_reference_its_newest_result(
    redact: str, first: str, first_error: str
) -> None:
    original = [saying(LOOK), saying(call("fail"), LOOK), saying(PAY)]
    ran, _ = run(original, [SILENT, saying(PAY)], guarded(redact=redact))
    earlier, failed, newest = ran.results
    assert text_of(earlier) == "sight 1"
    assert (text_of(failed), failed["error"]) == (first, first_error)
    assert newest["content"] == [{"type": "text", "content": PLACEHOLDER}]
    assert newest["error"] is None


def test_the_request_is_repeated_in_the_original_pass_only() -> None:
    model = TwoPasses([saying(LOOK), saying(LOOK), DONE], [SILENT, SILENT])
    ran = Ran(model, guarded(repeat_request=True), Counters().runtime)
    assert [text_of(m) for m in ran.messages if m["role"] == "user"] == [REQUEST] * 3
    assert [r.messages[-1] for r in model.requests_of("agent")] == [user(REQUEST)] * 3
    assert not any(REQUEST in text_of(m) for r in model.requests_of("melon_masked") for m in r.messages)


DOWN = ModelError(ErrorKind.SERVER_ERROR, "down")


class Broken:
    """An embedder whose vectors are what it was made with, or an error."""

    name = "broken"

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def embed(self, texts: Any) -> Any:
        if isinstance(self.rows, ModelError):
            raise self.rows
        return self.rows


@pytest.mark.parametrize(
    "rows",
    [
        DOWN,
        [],
        [[1.0, 0.0]],
        [[0.0, 0.0]] * 2,
        [[float("nan")], [1.0]],
        [[float("inf")], [1.0]],
        [[1.0], [1.0, 2.0]],
        None,
        [[], []],
    ],
)
@pytest.mark.parametrize("on_failure", ["error", "block"])
def test_a_failing_embedder_never_lets_a_call_through(rows: Any, on_failure: str) -> None:
    tools = Counters()
    model = TwoPasses([saying(LOOK), saying(PAY)], [saying(LOOK)])
    defense = guarded(Broken(rows), on_failure=on_failure)
    if on_failure == "error":
        with pytest.raises(ModelError):
            Ran(model, defense, tools.runtime)
    else:
        ran = Ran(model, defense, tools.runtime)
        assert ran.messages[-1] == assistant(NOTICE)
        assert ran.decisions[0]["failure"] in ("server_error", "malformed_reply")
    assert tools.ran == {"look": 1}


def test_vectors_that_change_their_length_between_requests_are_a_failure() -> None:
    vectors = {"look()": [1.0, 0.0], "pay(to = SE35, amount = 9)": [0.0, 1.0], "fail()": [0.0, 0.0, 1.0]}
    original = [saying(LOOK), saying(PAY), saying(call("fail"))]
    with pytest.raises(ModelError, match="changed the length"):
        run(original, [saying(LOOK), SILENT], guarded(Chosen(vectors)))


def test_a_failing_masked_pass_is_treated_alike() -> None:
    ran, tools = run([saying(LOOK), saying(PAY)], [DOWN], guarded(on_failure="block"))
    assert (tools.ran, ran.messages[-1]) == ({"look": 1}, assistant(NOTICE))
    with pytest.raises(ModelError):
        run([saying(LOOK), saying(PAY)], [DOWN])


def test_a_refused_key_ends_the_run_even_where_failures_block() -> None:
    with pytest.raises(ModelError):
        run([saying(LOOK), saying(PAY)], [ModelError(ErrorKind.BAD_KEY, "no")], guarded(on_failure="block"))


def test_the_masked_calls_have_a_role_of_their_own_and_their_tokens_are_reported() -> None:
    ran, _ = run([saying(LOOK), saying(LOOK), DONE], [SILENT, SILENT])
    assert ran.roles == {"agent": 3, "melon_masked": 2}
    assert ran.spans[0].usage.prompt == 1300
    assert ran.decisions[0]["overhead"] == {
        "roles": {"melon_masked": {"calls": 1, "prompt": 1300, "completion": 10}},
        "tokens": 1310,
        "ratio": round(1310 / 410, 3),
    }
