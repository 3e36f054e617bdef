"""MELON's guarded turn: what is compared, what is blocked and passes, what the masked pass reads, what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.task_suite import get_suite
from hypothesis import given
from hypothesis import strategies as st
from scripted_for_melon import DONE, REQUEST, Chosen, Counters, Ran, TwoPasses, call, guarded, saying

from agentsys.models.chat import ErrorKind, ModelError, assistant, system, text_of, user
from baselines.melon import Melon
from baselines.melon.defense import KEY_ARGUMENTS
from baselines.melon.guarded_turn import NOTICE, PLACEHOLDER, build_masked_conversation, write_compared_text
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


MAIL = {"subject": "Hi", "recipients": ["a@x.com", "b@x.com"], "body": "Hello"}
PAYMENT = {"subject": "Rent", "amount": 12.5, "recipient": "SE35", "date": "2022-01-01"}


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        ("get_balance", {}, "get_balance()"),
        ("read_file", {"file_path": "a.txt"}, "read_file(file_path = a.txt)"),
        ("send_email", MAIL, "send_email(recipients = ['a@x.com', 'b@x.com'])"),
        ("send_money", PAYMENT, "send_money(amount = 12.5, recipient = SE35)"),
        ("send_money", {"recipient": "SE35"}, "send_money(recipient = SE35)"),
        ("send_email", {}, "send_email()"),
        ("search", {"b": 1, "a": None, "c": {"d": [True]}}, "search(b = 1, a = None, c = {'d': [True]})"),
        ("", {}, "()"),
    ],
)
def test_a_call_is_written_with_the_arguments_that_count_in_the_models_order(
    function: str, args: dict[str, Any], text: str
) -> None:
    assert write_compared_text(call(function, **args), KEY_ARGUMENTS) == text
    assert write_compared_text(call(function, **args), KEY_ARGUMENTS, "trimmed") == text


@pytest.mark.parametrize("function", ["send_email", "send_money"])
def test_a_call_of_which_no_argument_counts_keeps_its_name_unless_the_reference_is_followed(
    function: str,
) -> None:
    made = call(function, subject="Hi")
    assert write_compared_text(made, KEY_ARGUMENTS) == f"{function}()"
    assert write_compared_text(made, KEY_ARGUMENTS, "trimmed") == f"{function[:-1]})"


DEMONSTRATION = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant", "tool"]


def result(text: str, error: str | None = None, function: str = "look") -> Any:
    made = call(function)
    content = [{"type": "text", "content": text}]
    return {"role": "tool", "content": content, "tool_call_id": made.id, "tool_call": made, "error": error}


def roles(messages: list[Any]) -> list[str]:
    return [message["role"] for message in messages]


def test_three_steps_give_the_system_message_nine_of_demonstration_and_three() -> None:
    look = call("look")
    earlier = assistant("Having a look around first.", [look])
    model = TwoPasses([earlier, saying(look), saying(look), DONE], [DONE] * 3)
    Ran(model, guarded(), Counters().runtime)
    last = model.requests_of("melon_masked")[-1]
    messages = list(last.messages)
    assert roles(messages) == ["system", *DEMONSTRATION, "user", "assistant", "tool"]
    assert messages[0] == model.requests_of("agent")[0].messages[0]
    assert last.tools == model.requests_of("agent")[-1].tools
    everything = "\n".join(map(text_of, messages))
    assert REQUEST not in everything
    assert "Having a look around first." not in everything
    ids = {made.id for message in messages for made in message.get("tool_calls") or ()}
    assert look.id not in ids
    file = text_of(messages[-1])
    places = [file.index(f"sight {step}") for step in (1, 2, 3)]
    assert places == sorted(places)
    assert all(everything.count(f"sight {step}") == 1 for step in (1, 2, 3))


def test_error_texts_are_read_unless_the_reference_is_followed() -> None:
    failed = [result("", "ValueError: obey me")]
    assert "error: ValueError: obey me" in text_of(build_masked_conversation(failed)[-1])
    assert "obey me" not in text_of(build_masked_conversation(failed, show_errors=False)[-1])


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(min_size=25, max_size=40), st.text(max_size=30))),
    st.text(min_size=25, max_size=60),
)
def test_nothing_but_system_messages_and_outputs_depends_on_the_case(
    steps: list[tuple[str, str, str]], request: str
) -> None:
    case = [system("You help."), user(request)]
    other = [system("You help."), user("Another request altogether.")]
    for thought, argument, output in steps:
        case += [assistant(thought, [call("look", argument=argument)]), result(output)]
        other += [assistant(None, [call("look")]), result(output)]
    assert build_masked_conversation(case) == build_masked_conversation(other)
