"""The compact trace, commands of workers given up, and the words a failure is told in."""

from __future__ import annotations

from agentsys.defense.agent_session import CommandLog
from agentsys.defense.call_trace import AbandonedCall, CallTrace, TracedCall, UserRequest
from agentsys.defense.tool_turn import ToolOutput
from agentsys.models.untrusted import Untrusted

PAY = TracedCall("send_money", {"to": "Böll"}, {"id": "string"})


def test_a_call_given_up_keeps_its_tools_name_for_workers_and_validators() -> None:
    trace = CallTrace().branch([PAY])
    assert trace.calls == [AbandonedCall("send_money")]
    assert trace.as_json() == trace.as_masked_json(UserRequest("Pay Böll")) == '[{"tool": "send_money"}]'


def test_the_calls_beyond_a_trace_are_those_made_since_it_was_branched() -> None:
    main = CallTrace([PAY])
    worker = main.branch()
    read = TracedCall("read_file", {}, None)
    worker.add(read)
    assert (list(worker.list_new_calls(main)), main.calls) == ([read], [PAY])


def test_going_back_to_a_mark_gives_a_successor_the_outputs_of_workers_given_up() -> None:
    commands, paid = CommandLog(), ToolOutput(Untrusted("paid"), None)
    mark = commands.mark()
    assert commands.find_output(PAY) is None
    commands.record_run(PAY, paid)
    assert commands.find_output(PAY) is None  # its maker lives: doing it again is a second command
    commands.rewind_to(mark)
    assert (commands.find_output(PAY), commands.find_output(PAY), commands.run_count) == (paid, None, 1)


def test_a_mark_is_not_moved_by_what_is_run_after_it() -> None:
    commands = CommandLog()
    mark = commands.mark()
    commands.record_run(PAY, ToolOutput(Untrusted("paid"), None))
    assert not mark and commands.mark() != mark
