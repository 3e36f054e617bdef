"""`SuiteWorld`: what the programs of one task can reach: the suite's tools and the quarantined model.

Tools are shown to the planner as Python signatures; a call runs where a policy of the suite, read from data, allows
it (`CamelJudge`), and its result is labelled; `query_ai_assistant` asks the quarantined model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, EnumMeta
from functools import lru_cache
from typing import Any, Literal, get_args

from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatToolResultMessage
from pydantic import BaseModel, create_model
from pydantic_core import PydanticUndefined

from agentsys.models.chat import ChatModel, tool_message
from agentsys.models.pipeline_elements import choose_free_name, has_reading_name, write_tool_value
from agentsys.models.trace import span
from agentsys.models.untrusted import Reader, call_tool
from baselines.camel.language.machine import CallDenied, ClassValue, FunctionValue, ProgramError, ToolValue
from baselines.camel.language.operators import to_str, write_type_name
from baselines.camel.prompts import QUARANTINED
from baselines.flow.labelled_values import (
    FROM_USER,
    FlowLabel,
    GroupLookup,
    Instance,
    LabelTable,
    SuiteData,
    Value,
    label_from_tool,
    list_channel_members,
    list_event_participants,
    list_file_sharers,
    load_packaged_file,
    read_identities,
    to_native,
    to_value,
)
from baselines.flow.quarantined_model import ask_for_shape, make_query_contract


class ReadableBy(SuiteData):
    """Requires that the readers named here may read the arguments of `what`."""

    what: tuple[str, ...]
    """Arguments."""
    by: tuple[str, ...] = ()
    """Arguments that hold identities."""
    by_members_of: str | None = None
    """The argument that names a channel."""
    by_participants_of: str | None = None
    """The argument that names a calendar event."""
    by_sharers_of: str | None = None
    """The argument that names a file."""


class CamelCondition(SuiteData):
    """A conjunction of conditions; the empty conjunction is true."""

    trusted: tuple[str, ...] = ()
    """Arguments that must be trusted."""
    trusted_if_given: tuple[str, ...] = ()
    """Arguments that must be trusted if they are there at all."""
    not_trusted: tuple[str, ...] = ()
    """Arguments that must be untrusted, as a published inverted rule requires."""
    public: tuple[str, ...] = ()
    """Arguments that everyone may read."""
    readable: ReadableBy | None = None
    attached_files_shared_with: tuple[str, ...] = ()
    """Arguments with identities who must share every file of `attachments`."""
    any_of: tuple[CamelCondition, ...] = ()
    """At least one of these must be true."""
    raises: Literal["KeyError", "NotImplementedError"] | None = None
    """Exception that the rule itself raises, which the program sees as an error."""


class CamelPolicies(SuiteData):
    """The file of one suite."""

    free: tuple[str, ...]
    """Tools that change nothing."""
    rules: Mapping[str, CamelCondition]
    """Tool -> the condition under which it may run. A tool without an entry may not."""
    published: Mapping[str, CamelCondition] = {}
    """Tool -> the reference implementation's rule, if `rules` corrects a slip in it."""
    generated: bool = False
    """True if the policies were generated from the tools' names because the suite has no file."""


@lru_cache(maxsize=64)
def load_written_policies(suite: str) -> CamelPolicies | None:
    """Load the policies of a suite; None if it has no file."""
    return load_packaged_file(f"{suite}.yaml", CamelPolicies, "baselines.camel", "policies")


def generate_policies(tools: Mapping[str, Iterable[str]]) -> CamelPolicies:
    """Generate policies for any tools: reading is free, everything else takes trusted arguments only."""
    free = tuple(name for name in tools if has_reading_name(name, "query"))
    rules = {name: CamelCondition(trusted=tuple(tools[name])) for name in tools if name not in free}
    return CamelPolicies(free=free, rules=rules, generated=True)


@dataclass(frozen=True)
class CamelJudge:
    """Decides on calls by the policies of a suite."""

    policies: CamelPolicies
    as_published: bool = False

    def find_denial(
        self, tool: str, arguments: Mapping[str, Value], control: FlowLabel, environment: object
    ) -> str | None:
        """Return why a call is denied; None if it is allowed. Arguments include defaults unless `as_published`.

        Raises:
            ProgramError: If the rule itself breaks.
        """
        if tool in self.policies.free:
            return None
        if not control.is_public:
            return "whether it is made depends on something that not everyone may read"
        rule = (self.as_published and self.policies.published.get(tool)) or self.policies.rules.get(tool)
        if rule is None:
            return "no policy allows it"
        return _PolicyCheck(arguments, environment).find_violation(rule)


@dataclass(frozen=True)
class _PolicyCheck:
    arguments: Mapping[str, Value]
    environment: Any

    def find_violation(self, rule: CamelCondition) -> str | None:
        """Return the first violated part of a condition; None if it holds."""
        if rule.raises is not None:
            raise ProgramError(rule.raises, "the policy of this tool is broken")
        optional = [name for name in rule.trusted_if_given if name in self.arguments]
        for name in (*rule.trusted, *optional):
            if not self._find_argument_value(name).full.is_trusted:
                return f"{name} is not trusted"
        for name in rule.not_trusted:
            if self._find_argument_value(name).full.is_trusted:
                return f"{name} is trusted"
        for name in rule.public:
            if not self._find_argument_value(name).full.is_public:
                return f"not everyone may read {name}"
        if rule.readable is not None:
            readers = set(self._find_readers(rule.readable))
            for name in rule.readable.what:
                if not self._find_argument_value(name).full.is_readable_by(readers):
                    return f"somebody addressed may not read {name}"
        if rule.attached_files_shared_with and not self._are_files_shared(rule.attached_files_shared_with):
            return "an attached file is not shared with everyone addressed"
        reasons = []
        for option in rule.any_of:
            reason = self.find_violation(option)
            if reason is None:
                return None
            reasons.append(reason)
        return ", and ".join(reasons) or None

    def _find_readers(self, wanted: ReadableBy) -> Iterable[str]:
        yield from self._find_identities(wanted.by)
        groups: tuple[tuple[str | None, GroupLookup], ...] = (
            (wanted.by_members_of, list_channel_members),
            (wanted.by_participants_of, list_event_participants),
            (wanted.by_sharers_of, list_file_sharers),
        )
        for argument, group in groups:
            if argument is not None:
                yield from group(self.environment, str(self._make_native(argument)))

    def _are_files_shared(self, addressed: Iterable[str]) -> bool:
        readers = set(self._find_identities(addressed))
        attached = [item for item in self._make_native("attachments") or [] if isinstance(item, dict)]
        files = [item.get("file_id") for item in attached if item.get("type") == "file"]
        return all(readers <= set(list_file_sharers(self.environment, str(file))) for file in files)

    def _find_identities(self, names: Iterable[str]) -> Iterable[str]:
        for name in names:
            yield from read_identities(self._make_native(name))

    def _make_native(self, name: str) -> Any:
        return to_native(self._find_argument_value(name))

    def _find_argument_value(self, name: str) -> Value:
        if name not in self.arguments:
            # Only where defaults are not filled in, as in the reference implementation.
            raise ProgramError("KeyError", repr(name))
        return self.arguments[name]


QUERY = "query_ai_assistant"
"""The quarantined model, as a function."""


def build_tool_values(functions: Iterable[Function]) -> dict[str, ToolValue]:
    """Build every tool by name, with the quarantined model."""
    tools = {f.name: ToolValue(FROM_USER, f.name, tuple(f.parameters.model_fields)) for f in functions}
    query = choose_free_name(QUERY, tools)
    return {**tools, query: ToolValue(FROM_USER, query, ("query", "output_schema"), reads=True)}


def find_result_types(functions: Iterable[Function]) -> list[type]:
    """Find the pydantic classes and enumerations in what tools return or take, each once."""
    types: dict[str, type] = {}
    for function in functions:
        fields = function.parameters.model_fields.values()
        for annotation in (function.return_type, *(parameter.annotation for parameter in fields)):
            for kind in _find_types_in(annotation, set()):
                types.setdefault(kind.__name__, kind)
    return list(types.values())


def _find_types_in(annotation: Any, seen: set[type]) -> Iterator[type]:
    for inside in get_args(annotation):
        yield from _find_types_in(inside, seen)
    if not isinstance(annotation, type) or annotation in seen:
        return
    seen.add(annotation)
    if issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _find_types_in(field.annotation, seen)
    elif issubclass(annotation, Enum):
        yield annotation


def format_signature(function: Function) -> str:
    """Write a tool as a Python function with its description."""
    fields = function.parameters.model_fields.items()
    parameters = ", ".join(
        f"{name}: {_format_annotation(field.annotation)}"
        + ("" if field.default is PydanticUndefined else f" = {field.default!r}")
        for name, field in fields
    )
    head = f"def {function.name}({parameters}) -> {_format_annotation(function.return_type)}:"
    described = [f"    {name}: {field.description}" for name, field in fields if field.description]
    return "\n".join([head, f'    """{function.description.strip()}', *described, '    """'])


def format_class(of: type) -> str:
    """Write a class as its definition."""
    if issubclass(of, Enum):
        return "\n".join([f"class {of.__name__}(Enum):", *(f"    {m.name} = {m.value!r}" for m in of)])
    fields: Mapping[str, Any] = getattr(of, "model_fields", {})
    lines = [f"    {name}: {_format_annotation(field.annotation)}" for name, field in fields.items()]
    return "\n".join([f"class {of.__name__}(BaseModel):", *lines])


_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


def _format_annotation(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    return _MODULES.sub("", inspect.formatannotation(annotation))


ENOUGH_FIELD = "have_enough_information"
OUTPUT_FIELD = "output"
_SCALARS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


QUERY_CONTRACT = make_query_contract(QUARANTINED, {OUTPUT_FIELD: "Middlemarch", ENOUGH_FIELD: True})
"""The quarantined model's answer."""
AnswerReader = Callable[[str, type], BaseModel | None]
"""Question and schema -> an object with the field `have_enough_information`; None: there is no answer."""


def ask_reader(model: ChatModel, attempts: int, question: str, schema: type) -> BaseModel | None:
    """Ask the quarantined model."""
    return ask_for_shape(model, QUERY_CONTRACT, question, add_answer_flag(schema), attempts)


def query_assistant(reader: AnswerReader, arguments: Mapping[str, Value]) -> Value:
    """Answer `query_ai_assistant`; the value is always untrusted.

    Raises:
        ProgramError: If the schema cannot be one, or there is no answer. The text tells nothing else.
        ModelError: If the model gave no reply.
    """
    if set(arguments) != {"query", "output_schema"}:
        raise ProgramError("TypeError", f"{QUERY} takes query and output_schema")
    schema = _read_schema(arguments["output_schema"])
    answer = reader(to_str(arguments["query"]), schema)
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
    raise ProgramError("TypeError", f"'{write_type_name(value)}' is no schema", value.full)


def add_answer_flag(schema: type) -> type[BaseModel]:
    """Add a field to the schema that says whether the text held the answer."""
    fields: dict[str, Any] = {ENOUGH_FIELD: (bool, ...)}
    if issubclass(schema, BaseModel):
        return create_model(schema.__name__, __base__=schema, **fields)
    fields = {OUTPUT_FIELD: (schema, ...), **fields}
    return create_model("Answer", **fields)


POLICY = "camel_policy"
"""The kind of the spans of verdicts."""


@dataclass
class SuiteWorld:
    """The functions that programs of one task can call.

    Calls go through the runtime, so a run books them; `messages` holds them for the conversation's record.
    """

    runtime: FunctionsRuntime
    environment: TaskEnvironment
    table: LabelTable
    judge: CamelJudge | None
    """None: no policies."""
    reader: AnswerReader
    messages: list[ChatToolResultMessage] = field(default_factory=list)
    """A result for each call that ran since the list was emptied."""

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        """Run a tool, or ask the quarantined model.

        Raises:
            CallDenied: If a policy does not allow it; nothing has happened then.
            ProgramError: If it failed.
            ModelError: If the quarantined model gave no reply.
        """
        if tool == choose_free_name(QUERY, self.runtime.functions):
            return query_assistant(self.reader, arguments)
        function = self.runtime.functions[tool]
        if self.judge is not None:
            self._check_policy(function, arguments, control, self.judge)
        plain = {name: to_native(value) for name, value in arguments.items()}
        call = FunctionCall(function=tool, args=plain, id=f"call_{len(self.messages)}")
        # Tools may change the lists they are given, and the record shows what they were given.
        outcome = call_tool(self.runtime, self.environment, tool, call.model_copy(deep=True).args)
        error = outcome.error
        text = "" if error else write_tool_value(outcome.value.open_for(Reader.RECORD))
        failure = None if error is None else error.text.open_for(Reader.RECORD)
        self.messages.append(tool_message(call, text, failure))
        if outcome.error is not None:
            # The label that the call gives every error of a tool keeps the words from the planner.
            raise ProgramError(outcome.error.kind, outcome.error.message.open_for(Reader.GATE))
        return self.table.label_result(tool, outcome.value.open_for(Reader.GATE))

    def _check_policy(
        self, function: Function, arguments: Mapping[str, Value], control: FlowLabel, judge: CamelJudge
    ) -> None:
        fields = function.parameters.model_fields.items()
        defaults = {name: field.default for name, field in fields if not field.is_required()}
        if any(name not in defaults and name not in arguments for name, _ in fields):
            return  # The tool will say what is missing, and do nothing.
        filled = {} if judge.as_published else {n: to_value(raw, FROM_USER) for n, raw in defaults.items()}
        filled.update(arguments)
        with span(POLICY, function.name) as opened:
            reason = judge.find_denial(function.name, filled, control, self.environment)
            opened.decision = {"allow": reason is None, "reason": reason or ""}
            if judge.policies.generated:
                opened.decision["generated"] = True
        if reason is not None:
            raise CallDenied(function.name, reason)
