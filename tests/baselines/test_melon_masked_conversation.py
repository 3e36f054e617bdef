"""What the masked pass reads: the system message and every tool output once, and nothing else of the case."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scripted_for_melon import DONE, REQUEST, Counters, Ran, TwoPasses, call, guarded, saying

from agentsys.models.chat import assistant, system, text_of, user
from baselines.melon.guarded_turn import build_masked_conversation

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
