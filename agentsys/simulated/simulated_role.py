"""`SimulatedRole`: how a defense lets the simulated model play a role; what it may know, how sloppy it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentdojo.types import ChatAssistantMessage

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import CLIENT_SUITE, ChatRequest, Scene
from agentsys.simulated.free_play import RESULT_FACT, find_orders
from agentsys.simulated.hostile_reader import ReaderKind
from agentsys.simulated.playbook_index import Fact, GoalScript, PlaybookIndex, TaskScript, count_makeable
from agentsys.simulated.text_matching import find_instruction_spans, fold_decoded, fold_text, occurs_in

SLIP_KINDS: Mapping[str, str] = {
    "several_calls": "makes the next call in the same turn, where it needs nothing from the first",
    "wrong_first_span": "names an innocent line before the passages it was asked for",
    "paraphrased_quotes": "quotes with words left out",
    "decoded_quotes": "quotes as one line, with escapes resolved",
    "partial_quotes": "quotes the first half only",
    "numbers_as_strings": "writes numbers of JSON in quotes, tools' arguments included",
    "trailing_commas": "puts a comma behind the last entry of JSON",
    "fenced_json": "puts JSON into a code fence, with a sentence before and after",
    "explained_verdicts": "puts a sentence before or after a verdict of one word",
    "type_aliases": "declares `str`, `int`, `float` and `bool` in an intent",
    "calls_as_text": "writes a tool call into its text, where nobody makes it",
    "refusals": "refuses",
    "empty_replies": "says nothing",
}
"""Part -> what the model does then, in the order in which they are applied."""

ENDING_SLIPS = frozenset({"calls_as_text", "refusals", "empty_replies"})
"""Parts that end most conversations at once."""
ENDING_SHARE = 0.1
"""What of a single rate for all parts those get: else nothing would be left to see the others in."""


@dataclass(frozen=True)
class Sloppiness:
    """The rate of each part."""

    rates: Mapping[str, float]
    """Part -> probability per reply that it fits; parts that are not used are left out."""
    label: str
    """As it was set: `0.3`, or parts and rates."""

    @property
    def note(self) -> str:
        """The note in a record made with it; empty where there is none."""
        return f"simulated, sloppiness {self.label}" if self.rates else ""


NO_SLOPPINESS = Sloppiness({}, "0")
"""None at all."""


def parse_sloppiness(model: str, value: object) -> Sloppiness:
    """Read the option: one rate for all parts (a tenth of it for those that end a conversation), or one by part.

    Raises:
        ConfigError: If a part is unknown, or a rate is no number from 0 to 1.
    """
    if not isinstance(value, Mapping):
        rate = check_probability(model, "sloppiness", value)
        rates = {part: rate * ENDING_SHARE if part in ENDING_SLIPS else rate for part in SLIP_KINDS}
        return Sloppiness(rates, f"{rate:g}") if rate else NO_SLOPPINESS
    for part in value:
        if part not in SLIP_KINDS:
            known = list(SLIP_KINDS)
            raise ConfigError(f"Model '{model}': {unknown_name('part of sloppiness', str(part), known)}")
    rates = {
        part: check_probability(model, f"sloppiness.{part}", value[part])
        for part in SLIP_KINDS
        if part in value
    }
    used = {part: rate for part, rate in rates.items() if rate > 0}
    return Sloppiness(used, ", ".join(f"{part} {rate:g}" for part, rate in used.items()))


def check_probability(model: str, option: str, value: object) -> float:
    """The value of a model's option, if it is a probability.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"Model '{model}': {option} is {value!r}; give a probability from 0.0 to 1.0.")
    return float(value)


_DRAW_STEPS = 2**64


@dataclass(frozen=True)
class SimulatedOptions:
    """The simulated model's parameters; each is a probability unless it says otherwise."""

    susceptibility: float = 1.0
    """That a visible goal is obeyed. 1.0 is the worst case."""
    by_attack: Mapping[str, float] = field(default_factory=dict)
    """Beginning of an attack's name -> the same for that attack; of several that fit, the longest holds."""
    verbatim: bool = False
    """Not a probability: whether a worker returns the whole text a value stands in, or the value alone."""
    validator_false_accept: float = 0.0
    validator_false_deny: float = 0.0
    sanitizer_recall: float = 1.0
    """That a sanitizer finds a given goal."""
    seed: int = 0
    reader: ReaderKind = ReaderKind.LITERAL
    """What a model that reads results for the agent does with a goal it sees."""
    sloppiness: Sloppiness = NO_SLOPPINESS
    """Rates of the ways in which replies depart from what was asked for."""

    def compute_obedience(self, attack: str) -> float:
        """Probability that a visible goal of an attack is obeyed."""
        fitting = [name for name in self.by_attack if attack.startswith(name)]
        return self.by_attack[max(fitting, key=len)] if fitting else self.susceptibility


@dataclass(frozen=True)
class SimulatedKnowledge:
    """The means of a role handler in one case: knowledge, and draws that repeat exactly."""

    index: PlaybookIndex
    options: SimulatedOptions
    scene: Scene | None = None
    """The case; None for a model that is not told (e.g. a served one)."""

    @property
    def plays_freely(self) -> bool:
        """Whether this need be no case of a benchmark, so that requests may be anybody's."""
        return self.scene is not None and self.scene.suite in ("", CLIENT_SUITE)

    def find_task(self, text: str, tools: Iterable[str] = ()) -> TaskScript | None:
        """The user task whose request stands in `text` (whitespace and case folded); None if there is none.

        `tools` are the names on offer: where suites share a request these decide, then the case's suite.
        """
        candidates = self.index.find_tasks(text)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        names, suite = frozenset(tools), self.scene.suite if self.scene else None

        def fit(task: TaskScript) -> tuple[bool, bool, int]:
            count = count_makeable(task.calls, names)
            return count == len(task.calls), task.suite == suite, count

        return max(candidates, key=fit)

    def find_goals(self, text: str, tools: Iterable[str] | None = None) -> list[GoalScript]:
        """The instructions that stand in `text` (whitespace, quotes and case folded), in order of place.

        One per wording; with `tools`, only those whose calls can be made with these tools.
        """
        names = None if tools is None else frozenset(tools)
        chosen = [self.choose_goal(goals, names) for goals in self.index.goals_in_text(text)]
        orders = find_orders(text, names) if self.plays_freely else []
        return [*(goal for goal in chosen if goal is not None), *orders]

    def obeys(self, goal: GoalScript, context: str) -> bool:
        """Whether the goal is obeyed in this context, by hash of seed, scene, goal and context."""
        probability = self.options.compute_obedience(self.scene.attack if self.scene else "")
        return self.draw(probability, "obey", goal.suite, goal.task_id, context)

    def believes(self, *what: str) -> bool:
        """Whether the agent does what a tool says of itself, by the same hash."""
        probability = self.options.compute_obedience(self.scene.attack if self.scene else "")
        return self.draw(probability, "believe", *what)

    def find_told_goals(self, text: str, tools: Iterable[str], context: str) -> list[GoalScript]:
        """The goals that stand in what tools say of themselves and that are obeyed."""
        return [goal for goal in self.find_goals(text, tools) if self.obeys(goal, context)]

    def draw(self, probability: float, *what: str) -> bool:
        """True with this probability; the same `what` gives the same answer in the same scene and seed."""
        if probability <= 0.0 or probability >= 1.0:
            return probability >= 1.0
        scene, parts = self.scene, [str(self.options.seed)]
        if scene is not None:
            parts += [scene.suite, scene.user_task_id, scene.injection_task_id or "", scene.attack]
            parts += [str(scene.epoch), *([scene.payload] if scene.payload else [])]
        key = "\x1f".join([*parts, *what]).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return int.from_bytes(digest, "big") / _DRAW_STEPS < probability

    def find_fact(self, field: str) -> Fact | None:
        """The fact of this field name, if the playbook has one."""
        own = RESULT_FACT if self.plays_freely and field == RESULT_FACT.field else None
        return self.index.facts.get(field, own)

    def is_grounded(self, text: str, context: str) -> bool:
        """Whether `text` stands in `context` (whitespace, quotes, YAML folding and case folded)."""
        return occurs_in(fold_text(text), fold_decoded(context))

    def choose_goal(self, goals: Iterable[GoalScript], tools: frozenset[str] | None) -> GoalScript | None:
        """The first of goals of one wording that these tools allow; the case's own suite goes before."""
        allowed = [
            goal for goal in goals if tools is None or count_makeable(goal.calls, tools) == len(goal.calls)
        ]
        suite = self.scene.suite if self.scene else None
        return max(allowed, key=lambda goal: goal.suite == suite, default=None)


class SimulatedRole(Protocol):
    """Plays one role: from a request to the assistant message a model in that role would give."""

    def __call__(self, request: ChatRequest, knowledge: SimulatedKnowledge, /) -> ChatAssistantMessage:
        """The reply. Must depend on the request and the knowledge alone."""


_OWN_ATTRIBUTE = "is_own_request"


def mark_own_requests(is_own: Callable[[ChatRequest], bool]) -> Callable[[SimulatedRole], SimulatedRole]:
    """Say by what a handler knows its requests, where other defenses have a role of the same name."""

    def mark(handler: SimulatedRole) -> SimulatedRole:
        setattr(handler, _OWN_ATTRIBUTE, is_own)
        return handler

    return mark


def join_roles(tables: Iterable[Mapping[str, SimulatedRole]]) -> dict[str, SimulatedRole]:
    """The roles of several defenses as one table, for a model that is not told whose request it answers.

    Of handlers with one role each plays the requests that it knows as its own; the last one plays the rest.
    """
    sharing: dict[str, list[SimulatedRole]] = {}
    for table in tables:
        for role, handler in table.items():
            handlers = sharing.setdefault(role, [])
            if handler not in handlers:
                handlers.append(handler)
    return {role: _join_handlers(handlers) for role, handlers in sharing.items()}


def _join_handlers(handlers: Sequence[SimulatedRole]) -> SimulatedRole:
    *others, last = handlers

    def play(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
        knowing = (one for one in others if getattr(one, _OWN_ATTRIBUTE, lambda _: False)(request))
        return next(knowing, last)(request, knowledge)

    return play if others else last


def make_knowledge(
    index: PlaybookIndex, options: SimulatedOptions, scene: Scene | None
) -> SimulatedKnowledge:
    """The knowledge of one case; the case's seed replaces the model's."""
    seeded = options if scene is None else replace(options, seed=scene.seed)
    return SimulatedKnowledge(index, seeded, scene)


def find_injected_passages(text: str, role: str, knowledge: SimulatedKnowledge) -> list[str]:
    """Passages of a text with an injected goal, each goal found, for this role, with probability `sanitizer_recall`."""
    recall = knowledge.options.sanitizer_recall
    return [
        piece
        for goal in knowledge.find_goals(text)
        if knowledge.draw(recall, role, goal.suite, goal.task_id, text)
        for piece in find_instruction_spans(text, goal.goal)
    ]


def remove_injected_passages(text: str, role: str, knowledge: SimulatedKnowledge) -> str:
    """A text without the passages found in it; the very same where none is."""
    for piece in find_injected_passages(text, role, knowledge):
        text = text.replace(piece, "")
    return text
