"""The judge: whether a command may run, by the role of each argument and the provenance of each of its leaves.

`DerivedPolicy` is what one request allows, derived by a model before anything is read, and checked by quotation. It
can only refuse more than the fixed policy does: a line whose quotation does not stand in the request is dropped, and
a command that no line names may not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agentsys.defense.agent_session import CallBudgetExceeded
from agentsys.defense.gate import find_first_object
from agentsys.defense.prompts import format_sections
from agentsys.defense.tool_turn import format_json_line
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, system, text_of, user
from agentsys.models.trace import mark_reply_unreadable, span
from agentsys.models.untrusted import UserRequest
from agentsys_plugins.typed.argument_roles import ArgumentRole
from agentsys_plugins.typed.handle_store import ResolvedLeaf, list_number_forms
from agentsys_plugins.typed.prompts import TASK_POLICY, TASK_POLICY_SECTIONS
from agentsys_plugins.typed.simulated_typed import TASK_POLICY_ROLE
from agentsys_plugins.typed.value_origin import ChosenBy, Distance, ValueKind, ValueOrigin


class FlowPolicy(Enum):
    """How far a value may come from."""

    WORDS = "words"
    """The user's words, and values that no reader of foreign text chose."""
    SOLE = "sole"
    """Also addresses and accounts that a reader took out of a source which the user pointed at, if there was no other
    of the kind to choose from, and its other closed values."""
    NAMED = "named"
    """Also any closed value that a reader took out of such a source."""
    REACHABLE = "reachable"
    """Also values found at two removes."""
    OFF = "off"
    """Any value: hiding alone."""


class LeafGround(Enum):
    """Why a leaf may stand in a command."""

    REQUEST = "request"
    EMPTY = "empty"
    """Null, true or false."""
    SCHEMA = "schema"
    """A word that the tool's own schema lists."""
    BLIND = "blind"
    READER = "reader"
    VIA = "via"
    COMPUTED = "computed"
    """A quantity that the main agent worked out."""
    CONTENT = "content"
    UNJUDGED = "unjudged"
    """There is no policy."""


@dataclass(frozen=True)
class LeafVerdict:
    """The judge's word on one leaf of an argument."""

    leaf: ResolvedLeaf
    role: ArgumentRole
    ground: LeafGround | None
    """None: refused."""

    def as_decision(self) -> dict[str, object]:
        """The verdict as JSON-ready data for the record."""
        return {
            "argument": self.leaf.argument,
            "role": self.role.value,
            "ground": None if self.ground is None else self.ground.value,
            "from": [
                f"{one.tool}.{'.'.join(map(str, one.path))}: {one.kind.value}, {one.choice.name.lower()}"
                f", {one.distance.name.lower()}"
                for one in self.leaf.origins[:10]
            ],
        }


def judge_leaf(
    role: ArgumentRole,
    leaf: ResolvedLeaf,
    policy: FlowPolicy,
    *,
    computed: bool = True,
    listed: Sequence[object] = (),
) -> LeafGround | None:
    """Why a leaf may stand in a command; None where it may not.

    `computed`: whether a quantity may be one that the main agent made; `listed`: words of the tool's schema.
    """
    if policy is FlowPolicy.OFF:
        return LeafGround.UNJUDGED
    if leaf.in_request:
        return LeafGround.REQUEST
    if role is ArgumentRole.SECRET:
        return None
    if leaf.value is None or isinstance(leaf.value, bool):
        return LeafGround.EMPTY
    if leaf.is_made and leaf.value in listed:
        return LeafGround.SCHEMA
    if role is ArgumentRole.CONTENT:
        far = bool(leaf.origins) and all(one.distance is Distance.VIA for one in leaf.origins)
        return None if policy is FlowPolicy.WORDS and far else LeafGround.CONTENT
    if role is ArgumentRole.QUANTITY and leaf.is_made:
        return LeafGround.COMPUTED if computed else None
    if leaf.spliced:
        return None
    grounds = [ground for one in leaf.origins if (ground := _judge_origin(one, policy)) is not None]
    return min(grounds, key=_BEST.index, default=None)


_BEST = [LeafGround.BLIND, LeafGround.READER, LeafGround.VIA]


def _judge_origin(origin: ValueOrigin, policy: FlowPolicy) -> LeafGround | None:
    """Why a value of this provenance may be a target; a text never may."""
    if origin.kind is ValueKind.TEXT:
        return None
    if origin.distance is Distance.VIA:
        return LeafGround.VIA if policy is FlowPolicy.REACHABLE else None
    if origin.choice is not ChosenBy.READER:
        return LeafGround.BLIND
    if policy is FlowPolicy.WORDS or (policy is FlowPolicy.SOLE and origin.has_rivals):
        return None
    return LeafGround.READER


def find_distance(leaves: Sequence[ResolvedLeaf]) -> Distance:
    """How the request leads to a call's result, by the leaves of its selecting arguments."""
    if not leaves:
        return Distance.OWN
    return Distance.NAMED if all(map(_is_near, leaves)) else Distance.VIA


def _is_near(leaf: ResolvedLeaf) -> bool:
    if leaf.in_request or leaf.value is None or isinstance(leaf.value, bool):
        return True
    return not leaf.spliced and any(
        one.kind is not ValueKind.TEXT
        and one.choice is not ChosenBy.READER
        and one.distance is not Distance.VIA
        for one in leaf.origins
    )


FROM_REQUEST = "request"
_MIN_QUOTE = 3


ValueSource = tuple[str, str]
"""Where one argument's value has to come from (`request`, or a tool's name), and the user's words that say so."""


@dataclass(frozen=True)
class DerivedPolicy:
    """The commands that a request needs, and where their arguments come from."""

    commands: Mapping[str, Mapping[str, ValueSource]] = field(default_factory=dict)
    """Command -> argument, or path -> source; a leaf without one is judged by the fixed policy alone."""

    def admits(self, tool: str, leaf: ResolvedLeaf) -> bool:
        """True if a leaf of a command comes from where the request says; false for a command it does not name."""
        if tool not in self.commands:
            return False
        place = leaf.argument.replace("[]", "")
        lines = [line for path, line in self.commands[tool].items() if f"{place}.".startswith(f"{path}.")]
        return leaf.value is None or isinstance(leaf.value, bool) or all(_fits(leaf, *line) for line in lines)


def _fits(leaf: ResolvedLeaf, source: str, because: str) -> bool:
    """True if a leaf comes from where a line says."""
    if source == FROM_REQUEST:
        return leaf.in_request and any(map(UserRequest(because).says, list_number_forms(leaf.value)))
    return leaf.in_request or any(origin.tool == source for origin in leaf.origins)


def derive_policy(model: ChatModel, request: UserRequest, tools: Sequence[ToolSpec]) -> DerivedPolicy:
    """Ask a model for the policy of a request."""
    told = ((tool.name, tool.description, tool.arguments) for tool in tools)
    described = [
        {"name": name, "does": " ".join(does.split()), "arguments": list(given)} for name, does, given in told
    ]
    question = format_sections(TASK_POLICY_SECTIONS, [format_json_line(described), request.text])
    messages = [system(TASK_POLICY), user(question)]
    with span(TASK_POLICY_ROLE) as opened:
        opened.messages = messages
        try:
            reply = model.complete(ChatRequest(messages, role=TASK_POLICY_ROLE)).message
        except CallBudgetExceeded:
            return DerivedPolicy()
        policy = read_derived_policy(text_of(reply), request, tools)
        opened.messages = [*messages, reply]
        opened.decision = {"commands": {name: sorted(lines) for name, lines in policy.commands.items()}}
        if find_first_object(text_of(reply)) is None:
            mark_reply_unreadable()
    return policy


def read_derived_policy(reply: str, request: UserRequest, tools: Sequence[ToolSpec]) -> DerivedPolicy:
    """The lines of a reply whose quotations stand in the request; nothing else of it counts."""
    said = (find_first_object(reply) or {}).get("commands")
    if isinstance(said, list):
        said = {one.get("tool", one.get("name")): one for one in said if isinstance(one, dict)}
    arguments = {tool.name: tool.arguments for tool in tools}
    commands: dict[str, dict[str, ValueSource]] = {}
    for name, line in said.items() if isinstance(said, dict) else ():
        if name not in arguments or not isinstance(line, dict) or not _is_quoted(line, request):
            continue
        given = line.get("arguments")
        sources = given.items() if isinstance(given, dict) else ()
        commands[name] = {
            argument.replace("[]", ""): _read_source(source, request, arguments)
            for argument, source in sources
            if re.split(r"[.\[]", argument)[0] in arguments[name]
        }
    return DerivedPolicy(commands)


def _is_quoted(line: Mapping[str, Any], request: UserRequest) -> bool:
    quote = line.get("because")
    return isinstance(quote, str) and len(quote.strip()) >= _MIN_QUOTE and request.says(quote)


def _read_source(line: object, request: UserRequest, tools: Mapping[str, Any]) -> ValueSource:
    """A line on an argument; one that cannot be believed asks for the user's own words."""
    if isinstance(line, dict) and _is_quoted(line, request):
        source = str(line.get("from", FROM_REQUEST)).partition("(")[0].strip()
        if source in tools or source == FROM_REQUEST:
            return source, line["because"]
    return FROM_REQUEST, request.text
