"""`Reader`: the quarantined model as the function that programs call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import EnumMeta
from typing import Any, Protocol

from pydantic import BaseModel, create_model

from agentsys.models.chat import ChatModel
from baselines.camel.language.failure import ProgramError
from baselines.camel.language.machine import ClassValue, FunctionValue
from baselines.camel.language.rendering import to_str, type_name
from baselines.camel.prompts import AGAIN, QUARANTINED
from baselines.camel.signatures import QUERY
from baselines.flow.label import label_from_tool
from baselines.flow.label_table import to_value
from baselines.flow.quarantine import NoTypedAnswer, QuarantinedModel
from baselines.flow.values import Instance, Value

ENOUGH_FIELD = "have_enough_information"
OUTPUT_FIELD = "output"
_SCALARS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


class AnswerSource(Protocol):
    """Where answers come from."""

    def answer(self, question: str, schema: type) -> BaseModel | None:
        """An object with the field `have_enough_information`; None if there is no answer."""
        ...


@dataclass
class ModelAnswers:
    """Answers of a model; they are kept, in order."""

    quarantine: QuarantinedModel
    replies: list[BaseModel | None] = field(default_factory=list)

    def answer(self, question: str, schema: type) -> BaseModel | None:
        """Ask."""
        found: BaseModel | None
        try:
            found = self.quarantine.ask(question, add_answer_flag(schema))
        except NoTypedAnswer:
            found = None
        self.replies.append(found)
        return found


@dataclass
class RecordedAnswers:
    """Recorded answers, in order; where none is left there is none."""

    recorded: Iterator[BaseModel | None]

    def answer(self, question: str, schema: type) -> BaseModel | None:
        """The next one."""
        return next(self.recorded, None)


def build_model_answers(model: ChatModel, attempts: int) -> ModelAnswers:
    """Answers of this model."""
    return ModelAnswers(QuarantinedModel(model, QUARANTINED, AGAIN, attempts))


def query_assistant(answers: AnswerSource, arguments: Mapping[str, Value]) -> Value:
    """What `query_ai_assistant` returns: untrusted, whatever it was asked.

    Raises:
        ProgramError: If the schema cannot be one, or there is no answer. The text tells nothing else.
        ModelError: If the model gave no reply.
    """
    if set(arguments) != {"query", "output_schema"}:
        raise ProgramError("TypeError", f"{QUERY} takes query and output_schema")
    schema = _read_schema(arguments["output_schema"])
    answer = answers.answer(to_str(arguments["query"]), schema)
    if answer is None or not getattr(answer, ENOUGH_FIELD, False):
        raise ProgramError("NotEnoughInformationError", "")
    label = label_from_tool(QUERY)
    if issubclass(schema, BaseModel):
        whole = to_value(answer, label)
        assert isinstance(whole, Instance)
        return Instance(label, schema, whole.fields)
    return to_value(getattr(answer, OUTPUT_FIELD), label)


def _read_schema(value: Value) -> type:
    if isinstance(value, FunctionValue) and value.name in _SCALARS:
        return _SCALARS[value.name]
    if isinstance(value, ClassValue) and (isinstance(value.of, EnumMeta) or issubclass(value.of, BaseModel)):
        return value.of
    raise ProgramError("TypeError", f"'{type_name(value)}' is no schema", value.full)


def add_answer_flag(schema: type) -> type[BaseModel]:
    """The schema as the model is asked for it: with a field that says whether the text held the answer."""
    fields: dict[str, Any] = {ENOUGH_FIELD: (bool, ...)}
    if issubclass(schema, BaseModel):
        return create_model(schema.__name__, __base__=schema, **fields)
    fields = {OUTPUT_FIELD: (schema, ...), **fields}
    return create_model("Answer", **fields)
