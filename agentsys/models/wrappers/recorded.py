"""`Recorded`: the outermost wrapper, which books every question and answer in the case's trace."""

from __future__ import annotations

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.odd_reply import count_oddities
from agentsys.models.trace import Tracer, current_tracer


class RecordingModel:
    """A model whose calls are booked under the current span of the current case."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model and book usage, cost and role, of an error too.

        Raises:
            ModelError: As the wrapped model does; `case_budget` if the case may ask no more.
        """
        tracer = current_tracer()
        _check_case_budget(tracer)
        tracer.model_asked(request)
        try:
            reply = self.model.complete(request)
        except ModelError as error:
            tracer.model_failed(request.role, error)
            raise
        tracer.model_answered(request.role, reply, count_oddities(request, reply))
        return reply


def _check_case_budget(tracer: Tracer) -> None:
    if tracer.usage_log is None:
        return
    budget = tracer.usage_log.meter.budget
    if budget.case_tokens is not None and tracer.tokens >= budget.case_tokens:
        text = f"budget.case_tokens={budget.case_tokens} is used up ({tracer.tokens:,} tokens)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)
    if budget.case_seconds is not None and tracer.seconds >= budget.case_seconds:
        text = f"budget.case_seconds={budget.case_seconds:g} is used up ({tracer.seconds:.1f} s)"
        raise ModelError(ErrorKind.CASE_BUDGET, text)
