"""Questions ahead of their turn: which are asked, who takes their replies, and where they are booked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_model import ScriptedModel

from agentsys.base.ledger import Ledger, read_ledger
from agentsys.errors import ConfigError
from agentsys.models import chat
from agentsys.models.budget import Budget, Meter, UsageLog
from agentsys.models.early_questions import questions_ahead
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import MeteredModel, RecordingModel


def asking(text: str) -> chat.ChatRequest:
    return chat.ChatRequest([chat.user(text)])


class Echo(ScriptedModel):
    """Repeats the question."""

    def __init__(self) -> None:
        super().__init__(
            [lambda request: f"re: {chat.text_of(request.messages[0])}"], repeat=True, usage=chat.Usage(10, 5)
        )

    @property
    def texts(self) -> list[str]:
        return sorted(chat.text_of(request.messages[0]) for request in self.requests)


def recorded(model: Any) -> RecordingModel:
    return RecordingModel(MeteredModel(model), side_by_side=True)


def test_an_equal_question_takes_the_reply_and_another_one_is_asked() -> None:
    model = Echo()
    outer = recorded(model)
    with questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("a"))
        assert chat.text_of(outer.complete(asking("b")).message) == "re: b"
        assert chat.text_of(outer.complete(asking("a")).message) == "re: a"
        assert model.texts == ["a", "b"]
        outer.complete(asking("a"))
    assert model.texts == ["a", "a", "b"]


def test_the_record_has_questions_in_their_turn_and_none_that_nobody_took() -> None:
    outer = recorded(Echo())
    with use_tracer(Tracer()) as tracer, questions_ahead(outer) as early:
        assert early is not None
        for text in ("never", "late"):
            early.ask(asking(text))
        assert (tracer.spans, tracer.tokens) == ([], 0)
        with tracer.span("worker"):
            outer.complete(asking("late"))
    assert [(span.kind, len(span.calls)) for span in tracer.spans] == [("worker", 1)]
    assert tracer.tokens == 15


def test_a_reply_that_nobody_took_is_in_ledger_and_budget_when_the_block_ends(tmp_path: Path) -> None:
    outer, books = recorded(Echo()), UsageLog(Meter(), Ledger(tmp_path / "ledger.jsonl"))
    with use_tracer(Tracer(usage_log=books, case="suite/case")), questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("never"))
    assert books.meter.tokens == 15
    assert [entry.case for entry in read_ledger(tmp_path / "ledger.jsonl")] == ["suite/case"]


def test_an_error_counts_in_its_turn_only() -> None:
    failing = ScriptedModel([chat.ModelError(chat.ErrorKind.SERVER_ERROR, "down"), chat.assistant("up")])
    outer = recorded(failing)
    with use_tracer(Tracer()) as tracer, questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("a"))
        with pytest.raises(chat.ModelError, match="down"):
            outer.complete(asking("a"))
        assert chat.text_of(outer.complete(asking("a")).message) == "up"
    assert [call.error for call in tracer.all_calls] == ["server_error", None]


def test_a_case_whose_tokens_are_used_up_takes_no_reply() -> None:
    outer, books = recorded(Echo()), UsageLog(Meter(Budget(case_tokens=15)))
    with use_tracer(Tracer(usage_log=books)), questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("b"))
        outer.complete(asking("a"))
        with pytest.raises(chat.ModelError, match="case_tokens=15 is used up"):
            outer.complete(asking("b"))


def test_of_equal_questions_one_is_asked_ahead() -> None:
    model = Echo()
    with questions_ahead(recorded(model)) as early:
        assert early is not None
        early.ask(asking("a"))
        early.ask(asking("a"))
    assert model.texts == ["a"]


def test_a_model_that_others_wrap_is_still_found() -> None:
    class Wrapper(chat.ModelWrapper):
        def complete(self, request: chat.ChatRequest) -> Any:
            return self.model.complete(request)

    model = Echo()
    outer = Wrapper(recorded(model))
    with questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("a"))
        outer.complete(asking("a"))
    assert model.texts == ["a"]


@pytest.mark.parametrize("model", [Echo(), RecordingModel(Echo())])
def test_a_model_that_does_not_allow_it_is_asked_in_turn(model: chat.ChatModel) -> None:
    with questions_ahead(model) as early:
        assert early is None


def test_replies_of_another_model_are_not_taken() -> None:
    first, second = recorded(Echo()), recorded(other := Echo())
    with questions_ahead(first) as early:
        assert early is not None
        early.ask(asking("a"))
        second.complete(asking("a"))
    assert other.texts == ["a"]


def test_bugs_in_an_adapter_are_raised_in_their_turn() -> None:
    outer = recorded(ScriptedModel([ConfigError("broken")]))
    with questions_ahead(outer) as early:
        assert early is not None
        early.ask(asking("a"))
        with pytest.raises(ConfigError, match="broken"):
            outer.complete(asking("a"))
