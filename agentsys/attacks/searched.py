"""`Searched`: what attacks that search share: the start text, the artefact, asking the attacker, judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentsys.attacks import attacker as attackers
from agentsys.attacks.attacker.prompt import UNUSABLE, Attacker
from agentsys.attacks.attacker.reply import FAULTS, proposal_in
from agentsys.attacks.attacker.simulated import play_attacker
from agentsys.attacks.attacker.topic import off_topic, play_judge, rating
from agentsys.attacks.judge import Feedback, judged, what_it_did
from agentsys.attacks.knowledge import Knowledge
from agentsys.attacks.literal import escaped
from agentsys.attacks.opi import ObservationInjection, attack_tool
from agentsys.attacks.registered import RegisteredAttack
from agentsys.attacks.search import (
    Attempt,
    Judgement,
    Place,
    Proposal,
    QueryFacts,
    Quest,
    Target,
    ranked,
)
from agentsys.attacks.search_options import TRANSFER, SearchOptions
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import Attack, AttackKind, InjectionTask, Suite, UserTask, Victim
from agentsys.errors import ConfigError, member_named
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of, user
from agentsys.models.simulated.role import SimulatedRole

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
        options: The options that all such attacks share.

    Raises:
        ConfigError: If the artefact holds texts of another attack.
    """

    kind = AttackKind.TARGETED
    searched = True
    left_out = "has no text in its artefact for"
    budget = 0
    literal = False
    """Whether candidates are read letter by letter, with quotes and line breaks; False: those are mended."""

    def __init__(self, name: str, options: SearchOptions) -> None:
        self.name = name
        self.mode = options.mode
        self.knowledge = member_named("attack.knowledge", options.knowledge, Knowledge)
        self.attacker = options.attacker
        self.search_on = options.search_on if options.mode == TRANSFER else 1
        self.seed = options.seed or 0
        self._options = options
        self._feedback = member_named("attack.feedback", options.feedback, Feedback)
        self._told = options.told()
        self._artefact = options.artefact_of(name)
        self._variant = options.variant or 0

    @property
    def replays(self) -> bool:
        """Whether texts come from an artefact."""
        return self._artefact is not None

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Say yes, except where the artefact has no text."""
        ids = (suite.name, user_task.ID, injection_task.ID)
        return self._artefact is None or self._artefact.entry(*ids, self._variant) is not None

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The artefact's text in every vector; without an artefact the text that a search starts from.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If the artefact has no text for these tasks.
        """
        if self._artefact is None:
            return plain_attack(injection_task).injections(suite, user_task, injection_task, victim)
        entry = self._artefact.entry(suite.name, user_task.ID, injection_task.ID, self._variant)
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

    def settled_on(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """The attempts whose texts the artefact keeps, best first; empty if none was tried."""
        found = ranked(attempts)
        return found if self._options.save_all else found[:1]

    def judged(self, quest: Quest, facts: QueryFacts, text: str, model: ChatModel) -> Judgement:
        """The score of a query and what its attacker hears of it."""
        asks = self._options.judge == "model" and not facts.success
        rated = rating(model, quest.goal, what_it_did(facts)) if asks else None
        return judged(quest, facts, self._feedback, text, rated)

    def opened(self, quest: Quest, target: Target) -> Attempt:
        """The first attempt: the start text, which is tried once the attacker has shown that it proposes.

        Asking first keeps what a search is from depending on whether its start text succeeded. Where the
        attacker gives nothing, the attempt is refused with its fault, and nothing was run.
        """

        def propose(model: ChatModel) -> Proposal:
            first = self.first(model, quest)
            if first.fault is not None:
                return first
            return Proposal(quest.start, "the text that the search starts from", ahead=first)

        return target.attempt(Place(0, 0, None), propose)

    def first(self, model: ChatModel, quest: Quest) -> Proposal:
        """The attacker's first proposal, asked for in fresh conversations until it gives one."""
        for variation in range(1, OPENINGS + 1):
            found = self.asked(model, quest, self._first_request(quest, variation))
            if found.fault is None:
                break
        return found

    def _first_request(self, quest: Quest, variation: int) -> ChatRequest:
        return self.attacker_of(quest).request(Place(1, 1, None), (), variation)

    @staticmethod
    def ends(first: Attempt) -> bool:
        """Whether nothing follows the first attempt: it succeeded, or there is no attacker."""
        return first.success or first.proposal.fault in FAULTS

    def proposing(
        self, quest: Quest, place: Place, path: Sequence[Attempt], *, start: Attempt, variation: int = 1
    ) -> Callable[[ChatModel], Proposal]:
        """Give the function that asks for the candidate at `place` and checks it.

        Args:
            quest: The search that asks.
            place: The candidate's place in the search.
            path: The attempts it refines, the first one's first.
            start: The first attempt; the proposal it was made with is taken where it belongs.
            variation: Number of the candidate for this place, from 1.
        """
        ahead = start.proposal.ahead
        if ahead is not None and (place.stream, place.depth, variation) == (1, 1, 1):
            return lambda model: ahead
        return self.asking(quest, self.attacker_of(quest).request(place, tuple(path), variation, start))

    def asking(self, quest: Quest, request: ChatRequest) -> Callable[[ChatModel], Proposal]:
        """Give the function that asks a question and checks what comes of it."""
        return lambda model: self.asked(model, quest, request)

    def asked(self, model: ChatModel, quest: Quest, request: ChatRequest) -> Proposal:
        """A proposal; where a reply gives none, its attacker is told why and asked again, free of budget."""
        messages = list(request.messages)
        for _ in range(1 + REASKS):
            said = text_of(model.complete(replace(request, messages=tuple(messages))).message)
            proposal = proposal_in(said)
            if proposal.fault is None:
                proposal = self.checked(model, quest, proposal)
            if proposal.fault is None:
                return proposal
            messages += [
                assistant(said[:_ASKED_CHARS] or "(nothing)"),
                user(UNUSABLE.format(why=proposal.refused)),
            ]
        return proposal

    def checked(self, model: ChatModel, quest: Quest, proposal: Proposal) -> Proposal:
        """The proposal in characters that can be injected, refused where the judge finds it off topic."""
        fit = escaped if self.literal else quest.mend
        text = proposal.text if quest.mend is None or fit is None else fit(proposal.text)
        kept = proposal if text == proposal.text else replace(proposal, text=text, proposed=proposal.text)
        prunes = self._options.on_topic == "model"
        return replace(kept, refused=off_topic(model, quest.goal, text)) if prunes else kept

    def attacker_of(self, quest: Quest) -> Attacker:
        """The attacker of one search, with what it is told."""
        aware = self._feedback is Feedback.DEFENSE_AWARE
        told = quest.defense if aware else ""
        told = told if self._told is None else self._told
        told_of = replace(quest, mend=None) if self.literal else quest
        return Attacker(told_of, float(self._options.temperature), self.seed, self.knowledge, told)


def plain_attack(injection_task: InjectionTask) -> Attack:
    """The attack whose text a search starts from; its name is the label of that attack's own cases.

    AgentDojo's standard attack; where the injection task names a tool, ASB's strongest, which names it.
    """
    if attack_tool(injection_task) is not None:
        return ObservationInjection("combined_attack")
    return RegisteredAttack("important_instructions")
