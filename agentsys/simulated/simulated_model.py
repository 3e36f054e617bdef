"""`SimulatedModel`: a `ChatModel` that follows a playbook. Not an LLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache

from agentdojo.types import ChatAssistantMessage

from agentsys.errors import ConfigError, require_known_name
from agentsys.models.chat import ChatReply, ChatRequest, Scene, read_role, text_of
from agentsys.models.pricing import estimate_usage
from agentsys.models.reply_checks import is_connection_question, make_connection_answer
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated import simulated_role
from agentsys.simulated.playbook_index import Playbook, PlaybookIndex
from agentsys.simulated.scripted_agent import play_plain_agent
from agentsys.simulated.simulated_role import ReaderKind
from agentsys.simulated.slips import apply_slips

OTHER_ATTACKS = "other"
"""Key for all attacks that `susceptibility` does not name."""
_PROBABILITIES = ("susceptibility", "validator_false_accept", "validator_false_deny", "sanitizer_recall")

NO_PART_NOTE = "has no simulated part, and was played by the plain agent"
"""Part of the note on a reply in a role for which no handler exists (`simulated_roles`)."""


class SimulatedModel:
    """The simulated model, configured by a YAML; it can answer once it has a playbook (`with_playbook`).

    Args:
        name: The name in configs, records and tables.
        susceptibility: Probability that a visible goal is obeyed; 1.0 is the worst case. Or one by attack:
            beginnings of attacks' names, and `other` for the rest (1.0 if left out).
        verbatim: True: a worker returns the whole text around a value; False: the value alone.
        validator_false_accept: Probability that a validator accepts a wrong call.
        validator_false_deny: Probability that a validator denies a right call.
        sanitizer_recall: Probability that a sanitizer finds a given goal.
        reader: Reaction of a reader of results to a goal: `hostile` returns the goal's value of the requested
            kind, or the goal's text; `literal` follows the text.
        sloppiness: One rate for all slips, or rates of single ones (see `SLIP_KINDS`); 0: no slips.
        calls_per_turn: Most calls of an agent in one turn: neighbouring ones that read, if none needs another's result.
        seed: Seed of the draws outside a case; a case's own seed replaces it.
    """

    def __init__(
        self,
        name: str = "simulated",
        *,
        susceptibility: float | Mapping[str, float] = 1.0,
        verbatim: bool = False,
        validator_false_accept: float = 0.0,
        validator_false_deny: float = 0.0,
        sanitizer_recall: float = 1.0,
        reader: str = "literal",
        sloppiness: float | Mapping[str, float] = 0.0,
        calls_per_turn: int = 1,
        seed: int = 0,
    ) -> None:
        self.name = name
        by_attack = (
            dict(susceptibility) if isinstance(susceptibility, Mapping) else {OTHER_ATTACKS: susceptibility}
        )
        self.options = simulated_role.SimulatedOptions(
            by_attack.pop(OTHER_ATTACKS, 1.0),
            by_attack,
            verbatim,
            validator_false_accept,
            validator_false_deny,
            sanitizer_recall,
            seed,
            ReaderKind(require_known_name("model.reader", reader, list(ReaderKind))),
            simulated_role.parse_sloppiness(name, sloppiness),
            simulated_role.check_count(name, "calls_per_turn", calls_per_turn),
        )
        values = {option: getattr(self.options, option) for option in _PROBABILITIES}
        values |= {f"susceptibility.{attack}": value for attack, value in by_attack.items()}
        for option, value in values.items():
            simulated_role.check_probability(name, option, value)
        self._roles: Mapping[str, simulated_role.SimulatedRole] = {}
        self._index: Callable[[], PlaybookIndex] | None = None
        self._scene: Scene | None = None

    def with_playbook(
        self, playbook: Callable[[], Playbook], roles: Mapping[str, simulated_role.SimulatedRole]
    ) -> SimulatedModel:
        """Copy the model with a playbook and role handlers; other roles are played as a plain agent."""
        twin = copy(self)
        # Built on first use: a finished run never needs it.
        twin._index = lru_cache(maxsize=1)(lambda: PlaybookIndex(playbook()))
        twin._roles = dict(roles)
        return twin

    def warm_up(self) -> None:
        """Build the index of the playbook now."""
        if self._index is not None:
            self._index()

    def for_scene(self, scene: Scene) -> SimulatedModel:
        """Copy the model for one case, which its draws depend on."""
        twin = copy(self)
        twin._scene = scene
        return twin

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ConfigError: If the model was never given a playbook.
        """
        if self._index is None:
            raise ConfigError(
                f"Model '{self.name}' is simulated and has no playbook; "
                "hand it one with `.with_playbook(playbook, roles)`."
            )
        request = read_role(request)
        knowledge = simulated_role.make_knowledge(self._index(), self.options, self._scene)
        handler = self._roles.get(request.role)

        def play(asked: ChatRequest) -> ChatAssistantMessage:
            if is_connection_question(asked):
                return make_connection_answer()
            return play_plain_agent(asked, knowledge) if handler is None else handler(asked, knowledge)

        message = play(request)
        sloppy = knowledge.options.sloppiness
        if sloppy.rates:
            message = apply_slips(message, request, knowledge, play, handler)
        notes = [sloppy.note] if sloppy.rates else []
        if handler is None and request.role not in ACTING_ROLES and not is_connection_question(request):
            notes.append(f"role '{request.role}' {NO_PART_NOTE}")
        usage = estimate_usage(request, message)
        # Log-probability 0: it is always sure.
        likely = ({text_of(message): 0.0},) if request.logprobs else ()
        return ChatReply(
            message, usage, cost_usd=0.0, model_id="simulated", notes=tuple(notes), logprobs=likely
        )
