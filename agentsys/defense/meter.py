"""`CallMeter`: counts a case's model calls, so that no output can make the agents ask without end."""

from __future__ import annotations

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest


class OutOfCalls(Exception):
    """An agent below the main one wanted to ask a model and may not any more."""


class CallMeter:
    """Model calls of one run of the pipeline: those of the main agent, and those of everybody it set to work.

    What the main agent may need is kept back, so an output that uses up the rest cannot keep it from
    answering.

    Args:
        model: The model behind all agents.
        case_calls: Most calls in all.
        subtask_calls: Most calls of one subtask: what a single call of the main agent sets off.
        main_calls: Most calls of the main agent; how many are kept back for it.
    """

    def __init__(self, model: ChatModel, *, case_calls: int, subtask_calls: int, main_calls: int) -> None:
        self._model = model
        self._left = case_calls
        self._subtask_calls = self._subtask_left = subtask_calls
        self._kept_back = main_calls

    def begin_subtask(self) -> None:
        """Let a new subtask begin, with calls of its own."""
        self._subtask_left = self._subtask_calls

    @property
    def main_model(self) -> ChatModel:
        """The model as the main agent asks it."""
        return _MeteredModel(self, self._model, main=True)

    @property
    def inner_model(self) -> ChatModel:
        """The model as workers, validators and sanitizers ask it.

        It raises `OutOfCalls` when theirs are spent.
        """
        return _MeteredModel(self, self._model, main=False)

    def count_call(self, *, main: bool) -> None:
        """Count one call.

        Raises:
            OutOfCalls: If it may not be made.
        """
        if main and self._kept_back:
            self._kept_back -= 1
        elif self._left <= self._kept_back or (not main and self._subtask_left <= 0):
            raise OutOfCalls
        self._left -= 1
        if not main:
            self._subtask_left -= 1


class _MeteredModel:
    """The model, each call counted first."""

    def __init__(self, meter: CallMeter, model: ChatModel, *, main: bool) -> None:
        self._meter, self._model, self._main = meter, model, main

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            OutOfCalls: If no call is left.
            ModelError: If the model raises it.
        """
        self._meter.count_call(main=self._main)
        return self._model.complete(request)
