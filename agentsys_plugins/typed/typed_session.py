"""`TypedSession`: serves the main agent's calls over handles, and lets results cross the gate in two passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatToolResultMessage

from agentsys.base.json_values import is_deeper_than
from agentsys.base.option_checks import AtLeast1
from agentsys.defense.agent_session import AgentSession, CallBudgetExceeded
from agentsys.defense.delegation import DONE_STATUS, NOTHING_RETURNED, STATUS_ONLY, explain_missing_intent
from agentsys.defense.gate import NOT_AVAILABLE, AcceptedValue, Failure, ends_subtask
from agentsys.defense.intent import INTENT_PARAMETER, Intent, NoIntent, parse_intent
from agentsys.defense.tool_turn import (
    CallTrace,
    CheckedArguments,
    ToolOutput,
    TracedCall,
    check_arguments,
    run_tool,
)
from agentsys.defense.worker import CallingAgent, WorkerTask, lacks_value, run_worker
from agentsys.models.chat import ModelError, tool_message
from agentsys.models.tool_schema import SchemaWords, list_schema_words
from agentsys.models.trace import span
from agentsys.models.untrusted import Reader, Untrusted
from agentsys_plugins.typed.argument_roles import ArgumentRole, ArgumentRoles
from agentsys_plugins.typed.blind_view import BlindView, build_blind_view, find_foreign_records
from agentsys_plugins.typed.handle_store import (
    HandleStore,
    ResolvedArguments,
    ResolvedLeaf,
    StoredValue,
    write_text,
)
from agentsys_plugins.typed.leaf_roles import assign_roles
from agentsys_plugins.typed.prompts import BLIND_ADVICE
from agentsys_plugins.typed.value_judge import (
    DerivedPolicy,
    FlowPolicy,
    LeafVerdict,
    find_distance,
    judge_leaf,
)
from agentsys_plugins.typed.value_origin import (
    COPIED_KINDS,
    WORDLESS_KINDS,
    ChosenBy,
    Distance,
    ValueKind,
    ValueOrigin,
    find_value_kind,
    has_rivals,
    iterate_leaves,
    map_leaves,
    write_canonical,
)

JUDGE_KIND = "judge"
"""Kind of the span with the decision on one command."""


class ShownKinds(Enum):
    """The kinds of values that the main agent reads."""

    WORDLESS = "wordless"
    """Numbers, dates, truth values."""
    CLOSED = "closed"
    """Everything but free text."""

    @property
    def kinds(self) -> frozenset[ValueKind]:
        """The kinds themselves."""
        return WORDLESS_KINDS if self is ShownKinds.WORDLESS else frozenset(ValueKind) - {ValueKind.TEXT}


@dataclass(frozen=True, kw_only=True)
class TypedSettings:
    """The options of one variant, as its YAML names them (docs/typed.md has the table)."""

    policy: FlowPolicy = FlowPolicy.NAMED
    shows: ShownKinds = ShownKinds.WORDLESS
    blind_pass: bool = True
    points: bool = True
    """Whether a worker of the blind view can point at texts that it does not see."""
    computed: bool = True
    """Whether a quantity may be one that the main agent worked out."""
    strict_roles: bool = False
    """Whether an argument that no list knows is a target."""
    read: bool = False
    """Whether the main agent may ask to read a text, at the price of its freedom."""
    derived: bool = False
    """Whether a model first derives from the request which commands it needs."""
    labels: bool = False
    """Whether nothing of a record that somebody else wrote counts as chosen blind, its sender and id included."""
    main_steps: AtLeast1 = 15
    case_calls: AtLeast1 = 200
    subtask_calls: AtLeast1 = 60
    calls_per_turn: AtLeast1 = 20


class CallNotServed(Exception):
    """A call does not run; the message is what its agent is told."""


@dataclass
class TypedSession:
    """State of one run of the pipeline besides the agents' session."""

    session: AgentSession
    settings: TypedSettings
    roles: ArgumentRoles
    store: HandleStore
    task_policy: DerivedPolicy | None = None
    planned_commands: frozenset[str] | None = None
    """Commands named before anything was read; None where texts cannot be read."""
    read_tool: str | None = None
    """The tool that shows a text; None where texts cannot be read."""
    agent: CallingAgent = field(default_factory=CallingAgent)
    """The main agent, whose refused calls are counted."""

    def serve_turn(self, calls: Sequence[FunctionCall]) -> list[ChatToolResultMessage]:
        """Carry out the calls of one turn in order; those beyond `calls_per_turn` are refused."""
        most = self.settings.calls_per_turn
        refused = Failure.BUDGET_EXHAUSTED.as_text(tool_ran=False)
        answers = []
        for call in calls[:most]:
            try:
                answers.append(self.serve_call(call))
            except CallNotServed as refusal:
                answers.append(self.agent.refuse(call.function, call.args, str(refusal)))
        answers += [refused for _ in calls[most:]]
        return [tool_message(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def serve_call(self, call: FunctionCall) -> str:
        """Run a call; returns what the main agent may see of it.

        Raises:
            CallNotServed: If the call does not run, with what its agent is told.
        """
        if call.function == self.read_tool:
            name = str(call.args.get("name", "")).strip()
            if (located := self.store.find(name)) is None:
                return f"There is no value named {name}."
            self.store.taints_literals = True
            return write_text(located[0])
        self.session.begin_subtask()
        written = {name: value for name, value in call.args.items() if name != INTENT_PARAMETER}
        if is_deeper_than(written):
            raise CallNotServed("The arguments are nested too deeply, so the tool did not run.")
        resolved = self.store.resolve(written)
        if resolved.unknown:
            names = ", ".join(resolved.unknown)
            raise CallNotServed(
                f"There is no value named {names}, so the tool did not run. Use names as they were given."
            )
        arguments = check_arguments(
            self.session.runtime, FunctionCall(function=call.function, args=resolved.values, id=call.id)
        )
        if isinstance(arguments, str):
            # A message of the schema quotes the value; of a hidden one it may say nothing.
            hidden = Failure.TOOL_ERROR.as_text(tool_ran=False)
            raise CallNotServed(hidden if any(leaf.by_handle for leaf in resolved.leaves) else arguments)
        try:
            intent = parse_intent(call.args.get(INTENT_PARAMETER))
        except NoIntent as mistake:
            raise CallNotServed(explain_missing_intent(mistake, call.function, written)) from None
        # Judged is what changes something, or sends what it is given to others.
        judged = call.function in self.roles.egress or not self.session.only_reads(call.function)
        if judged and (refused := self._judge(call.function, arguments, resolved)):
            names = ", ".join(dict.fromkeys(refused))
            raise CallNotServed(Failure.DENIED.as_text(tool_ran=False, arguments=names))
        return self._carry_out(TracedCall(call.function, written, intent), arguments, resolved)

    def _judge(self, tool: str, arguments: CheckedArguments, resolved: ResolvedArguments) -> list[str]:
        """The names of a command's arguments that may not stand in it; `call` where it may not be made at all."""
        given = {name: node for name, node in resolved.tree.items() if name in arguments.raw}
        words = self._list_schema_words(tool)
        roles = assign_roles(self.roles, tool, given, words.fields)
        verdicts = [self.judge_leaf(tool, leaf, role, words.values) for leaf, role in roles]
        refused = [verdict.leaf.argument for verdict in verdicts if verdict.ground is None]
        unforeseen = self.task_policy is not None and tool not in self.task_policy.commands
        planned = self.planned_commands is None or tool in self.planned_commands
        if unforeseen or (self.store.taints_literals and not planned):
            refused.insert(0, "call")
        with span(JUDGE_KIND, tool) as opened:
            opened.decision = {
                "allow": not refused,
                "by": f"policy {self.settings.policy.value}",
                "call": {"tool": tool, "args": arguments.raw},
                "refused": refused,
                "leaves": [verdict.as_decision() for verdict in verdicts],
            }
        return refused

    def judge_leaf(
        self, tool: str, leaf: ResolvedLeaf, role: ArgumentRole, listed: Sequence[object]
    ) -> LeafVerdict:
        """The verdict on one leaf of a command's argument; `listed` are words of the tool's schema."""
        if role is ArgumentRole.CONTENT and tool in self.roles.egress:
            role = ArgumentRole.QUANTITY  # What is asked of somebody else's server leaves the house.
        computed = self.settings.computed
        ground = judge_leaf(role, leaf, self.settings.policy, computed=computed, listed=listed)
        if ground is not None and self.task_policy is not None and not self.task_policy.admits(tool, leaf):
            ground = None
        return LeafVerdict(leaf, role, ground)

    def _list_schema_words(self, tool: str) -> SchemaWords:
        spec = next(spec for spec in self.session.plain_tools if spec.name == tool)
        return list_schema_words(spec.parameters)

    def _carry_out(self, call: TracedCall, arguments: CheckedArguments, resolved: ResolvedArguments) -> str:
        output = run_tool(self.session.runtime, self.session.env, call.tool, arguments.raw)
        if output.error is not None:
            return Failure.TOOL_ERROR.as_text(tool_ran=True)
        assert call.intent is not None
        if not call.intent:
            return NOTHING_RETURNED.text
        fields = self._extract(call, output, call.intent)
        if isinstance(fields, Failure):
            return fields.as_text(tool_ran=True)
        return self._store_value(call, fields, resolved)

    def _store_value(
        self, call: TracedCall, fields: Mapping[str, ChosenValue], resolved: ResolvedArguments
    ) -> str:
        # Null for a missing leaf: the reason that a reader gave is its own words.
        value = map_leaves(
            {name: one.value for name, one in fields.items()},
            lambda leaf, _: None if isinstance(leaf, str) and leaf.startswith(NOT_AVAILABLE) else leaf,
        )
        find = self._measure_distance(call.tool, resolved)
        origins = {}
        for path, leaf in iterate_leaves(value):
            choice, kind = fields[str(path[0])].choice, find_value_kind(leaf)
            rivals = choice is ChosenBy.READER and has_rivals(leaf, fields[str(path[0])].read)
            known = (kind, choice, find(leaf, choice), rivals)
            origins[path] = ValueOrigin(self.store.next_call, call.tool, path, *known)
        number = self.store.add(StoredValue(call.tool, value, origins))
        return json.dumps(self.store.show(number, self.settings.shows.kinds), ensure_ascii=False)

    def _measure_distance(
        self, tool: str, resolved: ResolvedArguments
    ) -> Callable[[Any, ChosenBy], Distance]:
        """Tell how far from the request each leaf of a call's result is.

        What is written does not select: the id of a file just made is as near as the place it was made in. But a
        result that repeats an argument, or that a reader took from it, is as far as all arguments are.
        """
        leaves, paging = resolved.leaves, self.roles.paging
        selecting = [leaf for leaf in leaves if leaf.argument.rpartition(".")[2] not in paging]
        distance = find_distance(selecting)
        if self.session.only_reads(tool):
            return lambda leaf, choice: distance
        roles = assign_roles(self.roles, tool, resolved.tree, self._list_schema_words(tool).fields)
        aims = [leaf for leaf, role in roles if role is ArgumentRole.TARGET and leaf in selecting]
        near, repeated = find_distance(aims), {write_canonical(leaf.value) for leaf in leaves}
        return lambda leaf, choice: (
            distance if choice is ChosenBy.READER or write_canonical(leaf) in repeated else near
        )

    def _extract(
        self, call: TracedCall, output: ToolOutput, intent: Intent
    ) -> dict[str, ChosenValue] | Failure:
        """The declared fields, each with who chose it."""
        raw, request = output.value.open_for(Reader.GATE), self.session.request
        if raw is None or intent == STATUS_ONLY:
            done = {**dict.fromkeys(intent), "status": DONE_STATUS}
            return {name: ChosenValue(value, ChosenBy.CODE) for name, value in done.items()}
        view = build_blind_view(raw, request)
        own = view.leaves
        if self.settings.labels:
            own = build_blind_view(raw, request, find_foreign_records(self.session.env)).leaves
        found: dict[str, ChosenValue] = {}
        if self.settings.blind_pass and view.leaves and not view.is_whole:
            found = self._take_blind_fields(call, view, own, intent)
        missing = {name: kind for name, kind in intent.items() if name not in found}
        if missing:
            reading = self._ask_worker(call, output.text, missing)
            if isinstance(reading, Failure) and not found:
                return reading
            read = {} if isinstance(reading, Failure) else reading.value
            seen = output.text.open_for(Reader.GATE)
            for name in missing:
                value = drop_made_up(read.get(name), seen)
                blind = view.is_whole and view.holds(value, own)
                choice = ChosenBy.BLIND if blind else ChosenBy.READER
                found[name] = ChosenValue(value, choice, seen)
        return {name: found[name] for name in intent}

    def _take_blind_fields(
        self, call: TracedCall, view: BlindView, own: Set[str], intent: Intent
    ) -> dict[str, ChosenValue]:
        """The fields that a worker found in the blind view, or in the texts that it pointed at."""
        reply = self._ask_worker(call, Untrusted(view.text), intent, BLIND_ADVICE)
        if isinstance(reply, Failure):
            return {}
        if not self.settings.points:
            view = replace(view, texts=[])
        found: dict[str, ChosenValue] = {}
        places: dict[frozenset[int], dict[str, Any]] = {}
        for name, kind in intent.items():
            value = reply.value.get(name)
            marks = view.find_marks(value)
            # An empty list says that nothing was seen, not that nothing is there.
            has_leaves = any(True for _ in iterate_leaves(value))
            if not lacks_value(value, kind) and has_leaves and view.holds(value):
                choice = ChosenBy.BLIND if view.holds(value, own) else ChosenBy.READER
                found[name] = ChosenValue(view.fill_marks(value), choice)
            elif marks and len(marks) < len(view.texts):
                places.setdefault(marks, {})[name] = kind
        for marks, fields in places.items():
            found |= self._read_places(call, view.open(marks), fields)
        return found

    def _read_places(self, call: TracedCall, text: str, fields: Intent) -> dict[str, ChosenValue]:
        """The fields that a reader finds in the texts that a blind worker chose: no other text has a say in them."""
        reply = self._ask_worker(call, Untrusted(text), fields)
        read = {} if isinstance(reply, Failure) else reply.value
        return {
            name: ChosenValue(value, ChosenBy.READER, text)
            for name, kind in fields.items()
            if not lacks_value(value := drop_made_up(read.get(name), text), kind)
        }

    def _ask_worker(
        self, call: TracedCall, text: Untrusted[str], intent: Intent, advice: str = ""
    ) -> AcceptedValue | Failure:
        """A fresh worker's answer. It has no tools: a call it makes all the same is answered with a refusal."""
        task = WorkerTask(text, intent, 1, call.tool, (call,), advice)
        try:
            return run_worker(self.session, task, CallTrace(), _refuse_calls)
        except CallBudgetExceeded:
            return Failure.BUDGET_EXHAUSTED
        except ModelError as error:
            if not ends_subtask(error):
                raise
            return Failure.WORKER_FAILED


@dataclass(frozen=True)
class ChosenValue:
    """The value of one declared field."""

    value: Any
    choice: ChosenBy
    read: str = ""
    """The text that a reader took it from."""


def drop_made_up(value: Any, text: str) -> Any:
    """A reader's value without any address or account that does not stand in the text that it read."""

    def check(leaf: Any, _: object) -> Any:
        return None if find_value_kind(leaf) in COPIED_KINDS and str(leaf) not in text else leaf

    return map_leaves(value, check)


def _refuse_calls(
    _: AgentSession, calls: Sequence[FunctionCall], __: CallingAgent
) -> list[ChatToolResultMessage]:
    return [tool_message(call, Failure.DEPTH_EXCEEDED.as_text(tool_ran=False)) for call in calls]
