"""`Searched`: what PAIR and TAP share - settings, start text, artefact, asking the attacker, judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks import attacker as attackers
from agentsys.attacks.artefact import Artefact, read_artefact
from agentsys.attacks.attacker.prompt import UNUSABLE, Attacker
from agentsys.attacks.attacker.reply import FAULTS, proposal_in
from agentsys.attacks.attacker.simulated import play_attacker
from agentsys.attacks.attacker.topic import off_topic, play_judge, rating
from agentsys.attacks.judge import Feedback, feedback_named, judged, what_it_did
from agentsys.attacks.knowledge import knowledge_named
from agentsys.attacks.opi import ObservationInjection
from agentsys.attacks.registered import RegisteredAttack
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal, QueryFacts, Quest, Target
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import Attack, AttackKind, Victim
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of, user
from agentsys.models.simulated.role import SimulatedRole

MODES = ("transfer", "per_case")
TOPIC = ("model", "none")
JUDGES = ("calls", "model")
REASKS = 3
"""How often an attacker whose reply gave no text is asked again, in the same conversation."""
OPENINGS = 3
"""Fresh conversations, each with its re-asks, before a search counts as having no attacker."""
_ASKED_CHARS = 4000
"""Characters of an unusable reply that stand in the conversation that goes on."""


class Searched:
    """An attack whose text an attacker model searches for (see agentsys.attacks.search).

    Args:
        name: The attack's name; the YAML puts mode and knowledge into it.
        mode: `transfer` or `per_case`.
        knowledge: `none`, `task` or `full`: see `Knowledge`.
        feedback: `blackbox` or `defense_aware`.
        knowledge_file: A text that is told in place of the defense's description, or null.
        attacker: Name of the YAML of the attacker's model; None: the run's model. The run looks at it.
        temperature: The attacker's.
        on_topic: `model`: a model says whether a candidate is off topic, and prunes it; `none`.
        judge: `calls`: scores below a success come from the agent's calls; `model`: from a model.
        search_on: User tasks that a candidate is tried on in mode `transfer`.
        seed: Orders the attacker's strategies and breaks ties.
        artefact: A file of an earlier search; its texts are used and nothing is searched.

    Raises:
        ConfigError: If an option is none of those, a file cannot be read, or another attack made it.
    """

    kind = AttackKind.TARGETED
    searched = True
    left_out = "has no text in its artefact for"
    budget = 0

    def __init__(
        self,
        name: str,
        *,
        mode: str = "transfer",
        knowledge: str = "task",
        feedback: str = "blackbox",
        knowledge_file: str | None = None,
        attacker: str | None = None,
        temperature: float = 1.0,
        on_topic: str = "none",
        judge: str = "calls",
        search_on: int = 3,
        seed: int | None = None,
        artefact: str | None = None,
    ) -> None:
        self.name = name
        self.mode = _one_of("attack.mode", mode, MODES)
        self.knowledge = knowledge_named(knowledge)
        self.attacker = attacker
        self.search_on = count("attack.search_on", search_on) if self.mode == "transfer" else 1
        self.seed = _seed(seed)
        self._feedback = feedback_named(feedback)
        self._told = None if knowledge_file is None else _text_in(knowledge_file)
        self._temperature = _number("attack.temperature", temperature)
        self._prunes = _one_of("attack.on_topic", on_topic, TOPIC) == "model"
        self._critic = _one_of("attack.judge", judge, JUDGES) == "model"
        self._artefact = None if artefact is None else _artefact_of(name, artefact)

    @property
    def replays(self) -> bool:
        """Whether texts come from an artefact."""
        return self._artefact is not None

    def applies_to(
        self, suite: TaskSuite[Any], user_task: BaseUserTask[Any], injection_task: BaseInjectionTask[Any]
    ) -> bool:
        """Always, except that an artefact must have a text."""
        ids = (suite.name, user_task.ID, injection_task.ID)
        return self._artefact is None or self._artefact.entry(*ids) is not None

    def injections(
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """The artefact's text in every vector; without an artefact the text that a search starts from.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If the artefact has no text for these tasks.
        """
        if self._artefact is None:
            return plain_attack(injection_task).injections(suite, user_task, injection_task, victim)
        entry = self._artefact.entry(suite.name, user_task.ID, injection_task.ID)
        if entry is None:
            raise ConfigError(
                f"attack.artefact has no text for suite {suite.name}, {user_task.ID}, {injection_task.ID}."
            )
        return dict.fromkeys(injectable_vectors(suite, user_task), entry.text)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """The attacker and its judge, for the simulated model."""
        return {attackers.ROLE: play_attacker, attackers.JUDGE: play_judge}

    def search(self, quest: Quest, target: Target) -> Sequence[Attempt]:
        """Make attempts until one succeeds or the budget is spent."""
        raise NotImplementedError

    def judged(self, quest: Quest, facts: QueryFacts, text: str, model: ChatModel) -> Judgement:
        """The score of a query and what its attacker hears of it."""
        asks = self._critic and not facts.success
        rated = rating(model, quest.goal, what_it_did(facts)) if asks else None
        return judged(quest, facts, self._feedback, text, rated)

    def opened(self, quest: Quest, target: Target) -> Attempt:
        """The first attempt: the start text, which is tried once the attacker has shown that it proposes.

        Asking first keeps what a search is from depending on whether its start text succeeded. Where the
        attacker gives nothing, the attempt is refused with its fault, and nothing was run.
        """
        place = Place(1, 1, None)

        def propose(model: ChatModel) -> Proposal:
            for variation in range(1, OPENINGS + 1):
                first = self._asked(model, quest, self._attacker(quest).request(place, (), variation))
                if first.fault is None:
                    return Proposal(quest.start, "the text that the search starts from", ahead=first)
            return first

        return target.attempt(Place(0, 0, None), propose)

    @staticmethod
    def ends(first: Attempt) -> bool:
        """Whether nothing follows the first attempt: it succeeded, or there is no attacker."""
        return first.success or first.proposal.fault in FAULTS

    def proposing(
        self, quest: Quest, place: Place, path: Sequence[Attempt], *, start: Attempt, variation: int = 1
    ) -> Callable[[ChatModel], Proposal]:
        """How the candidate at `place` is asked for and checked.

        Args:
            quest: Of this search.
            place: Where the candidate stands.
            path: The attempts it refines, the first one's first.
            start: The first attempt; the proposal it was made with is taken where it belongs.
            variation: Which candidate for this place, from 1.
        """
        ahead = start.proposal.ahead
        if ahead is not None and (place.stream, place.depth, variation) == (1, 1, 1):
            return lambda model: ahead
        request = self._attacker(quest).request(place, tuple(path), variation, start)
        return lambda model: self._asked(model, quest, request)

    def _asked(self, model: ChatModel, quest: Quest, request: ChatRequest) -> Proposal:
        """A proposal; where a reply gives none, its attacker is told why and asked again, free of budget."""
        messages = list(request.messages)
        for _ in range(1 + REASKS):
            said = text_of(model.complete(replace(request, messages=tuple(messages))).message)
            proposal = proposal_in(said)
            if proposal.fault is None:
                return self._checked(model, quest, proposal)
            messages += [
                assistant(said[:_ASKED_CHARS] or "(nothing)"),
                user(UNUSABLE.format(why=proposal.refused)),
            ]
        return proposal

    def _checked(self, model: ChatModel, quest: Quest, proposal: Proposal) -> Proposal:
        """The proposal in characters that can be injected, refused where the judge finds it off topic."""
        text = proposal.text if quest.mend is None else quest.mend(proposal.text)
        kept = proposal if text == proposal.text else replace(proposal, text=text, proposed=proposal.text)
        return replace(kept, refused=off_topic(model, quest.goal, text)) if self._prunes else kept

    def _attacker(self, quest: Quest) -> Attacker:
        aware = self._feedback is Feedback.DEFENSE_AWARE
        told = quest.defense if aware else ""
        told = told if self._told is None else self._told
        return Attacker(quest, self._temperature, self.seed, self.knowledge, told)


def plain_attack(injection_task: BaseInjectionTask[Any]) -> Attack:
    """The attack whose text a search starts from; its name is the label of that attack's own cases.

    AgentDojo's standard attack; where the injection task names a tool, ASB's strongest, which names it.
    """
    if isinstance(getattr(injection_task, "attack_tool", None), str):
        return ObservationInjection("combined_attack")
    return RegisteredAttack("important_instructions")


def count(option: str, value: object) -> int:
    """A whole number from 1 to 1000.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ConfigError(f"{option} is {value!r}; give a whole number from 1 to 1000.")
    return value


def _one_of(option: str, value: object, known: Sequence[str]) -> str:
    # YAML 1.1 readers make a bare `none` a text and `null` a None; both mean the same here.
    if str(value) not in known:
        raise ConfigError(unknown_name(option, str(value), known))
    return str(value)


def _seed(value: object) -> int:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"attack.seed is {value!r}; give a whole number, or null for the run's.")
    return value or 0


def _text_in(file: object) -> str:
    if not isinstance(file, str) or not file:
        raise ConfigError(f"attack.knowledge_file is {file!r}; give the name of a text file, or null.")
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"attack.knowledge_file {file} cannot be read: {error}. Give a text file in UTF-8."
        ) from None


def _artefact_of(name: str, file: object) -> Artefact:
    """The artefact, if it is one of this attack: results are named after the attack that found the texts."""
    if not isinstance(file, str) or not file:
        raise ConfigError(f"attack.artefact is {file!r}; give the name of a file of a search, or null.")
    artefact = read_artefact(Path(file))
    if artefact.attack.split("+")[0] != name:
        raise ConfigError(
            f"attack.artefact {file} holds texts of attack {artefact.attack[:60]!a}, not of {name!r}; choose"
            " the attack, attack.mode and attack.knowledge of that search, or give the file to attack=cached."
        )
    return artefact


def _number(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 2.0:
        raise ConfigError(f"{option} is {value!r}; give a number from 0.0 to 2.0.")
    return float(value)
