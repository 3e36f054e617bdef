"""What a defense, an attack, a benchmark or a suite may offer besides what it must (agentsys.contracts).

Each ability is a small protocol. Nobody has to inherit: an object has an ability if it has the protocol's
names, and whoever makes use of it asks with `isinstance`. A name that is nearly one of these is refused when
the object is made (agentsys.runs.instantiate).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from agentdojo.functions_runtime import Function
from agentdojo.types import ChatMessage

from agentsys.base.declared_facts import DeclaredFact
from agentsys.contracts import Benchmark, CaseScores, Defense, FinishedCase, InjectionTask, Suite, UserTask
from agentsys.models.chat import ChatModel
from agentsys.models.reply_checks import ReadingTest
from agentsys.simulated.playbook_index import AlternativeSolution
from agentsys.simulated.simulated_role import SimulatedRole


@runtime_checkable
class NeedsReadingTest(Protocol):
    """An attack whose texts not every model can read."""

    @property
    def reading_test(self) -> ReadingTest:
        """Tell whether a model can, without the attack."""


@runtime_checkable
class PlaysRoles(Protocol):
    """A defense, an attack or a benchmark that asks models under roles of its own."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Role -> how the simulated model plays it; a role without one is a plain agent there."""


@runtime_checkable
class DescribesItself(Protocol):
    """A defense that says what it does, as it is set: two presets of one class may differ here."""

    def description(self) -> str:
        """Say in 5 to 10 sentences of plain English what the defense does.

        What is kept apart from what, what crosses, which checks there are, with which settings. An
        attacker may be told this, so it holds no secret.
        """


@runtime_checkable
class NamesPrompts(Protocol):
    """A defense whose prompts can be read."""

    def prompts(self) -> Mapping[str, str]:
        """Name -> text of every prompt, as it is set."""


@runtime_checkable
class ChecksItsNeeds(Protocol):
    """A defense that needs more than a model: packages of an extra, a key, a service."""

    def ready(self) -> None:
        """Look whether all of it is here. Quick; called before the first case, and in a dry run.

        Raises:
            Unavailable: Naming what is missing.
        """


@runtime_checkable
class KeepsFiles(Protocol):
    """A defense that keeps something from case to case, e.g. what it worked out about the tools.

    Asked of the class, before there is an object.
    """

    keeps: Mapping[str, str]
    """Option that names a folder -> the folder beside the run's records that it stands for where it is
    null. Such an option says where something lies: no case depends on it."""


@runtime_checkable
class HasContents(Protocol):
    """A defense that depends on what its config only names, e.g. packages. Asked of the class."""

    @staticmethod
    def contents(config: Mapping[str, Any]) -> Mapping[str, str]:
        """Name -> hash of what a case of this config depends on besides: part of every record's identity."""


@runtime_checkable
class ReadsBesideYaml(Protocol):
    """A defense that reads files beside its YAML, code of the user's for one. Asked of the class."""

    @staticmethod
    def folder_option(config: Mapping[str, Any]) -> str | None:
        """The option that takes the YAML's folder; no case depends on where that lies. None: it reads none."""


@runtime_checkable
class NeedsOwnModels(Protocol):
    """A defense some of whose roles take a model made for them: with the agent's it is another defense."""

    own_roles: Sequence[str]
    """These roles. Where one has no model of its own (`+model.roles.ROLE=NAME`) the defense cannot run; the
    simulated model plays them itself."""

    def unfit(self, role: str, model: ChatModel) -> str | None:
        """Ask the model of one of these roles a question with a known answer, once before the first case.

        Returns:
            Why it cannot be used, in one sentence that begins behind the model's name; None: it can.

        Raises:
            ModelError: If it gives no reply.
        """


@runtime_checkable
class HoldsDefenses(Protocol):
    """A defense made of others, e.g. a stack. Asked of the class, before there is an object."""

    holds: Sequence[str]
    """Options that other defenses stand in, each alone or in a list. A config may give their names there."""


@runtime_checkable
class Rehearsable(Protocol):
    """A defense that uses a service besides the model."""

    def rehearsed(self) -> Defense:
        """The same defense with an offline stand-in; it takes its place wherever the model is simulated."""


@runtime_checkable
class WholeProgram(Protocol):
    """A defense that may run a program of its own from the request to the answer."""

    whole_program: bool
    """Whether it does; then it is refused on suites whose conversation has several turns."""


@runtime_checkable
class PoisonsTools(Protocol):
    """An attack that owns tools of the suite."""

    def poison_tools(self, tools: Sequence[Function], written: Mapping[str, str]) -> Sequence[Function]:
        """Give the tools as they are in attacked cases; those given stay as they are.

        Args:
            tools: The suite's.
            written: What `injections` gave for the case, or what a recorded case says of it.
        """


@runtime_checkable
class ChecksSuccess(Protocol):
    """An attack with a check of its own."""

    def has_succeeded(self, suite: Suite, finished: FinishedCase) -> bool | None:
        """Whether it did; None: the benchmark's check decides."""


@runtime_checkable
class ReadsTools(Protocol):
    """A defense that may read tools before its agents are shown them."""

    reads_tools: bool
    """Whether it does; `defense.read_tools` sets it."""

    def read_tools(self, tools: Sequence[Function], suite: Suite, model: ChatModel) -> Sequence[Function]:
        """Give the tools that its agents are shown; those given stay as they are.

        Args:
            tools: The tools as they are offered in this case.
            suite: The suite, whose own tools are as its authors describe them.
            model: For questions; calls are booked to the case.
        """


def can_read_tools(defense: object) -> TypeGuard[ReadsTools]:
    """Whether a defense may read tools; one whose options leave it nothing to read with has None for `read_tools`."""
    # From Python 3.12 on `isinstance` looks at the class alone where that has all members.
    return isinstance(defense, ReadsTools) and defense.read_tools is not None


@runtime_checkable
class PicksPairs(Protocol):
    """An attack that can be run on some pairs of tasks only."""

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Whether this pair is part of a plan; the others are left out of it and counted."""


@runtime_checkable
class NamesExclusions(Protocol):
    """An attack with words of its own for the pairs that it leaves out."""

    left_out: str
    """Stands between the attack's name and the number of pairs, e.g. `has nowhere to write in`."""


@runtime_checkable
class NamesSources(Protocol):
    """An attack whose texts come from elsewhere, and that knows from where."""

    provenance: Sequence[str]
    """One line per source."""


@runtime_checkable
class NamesFromFile(Protocol):
    """An attack that is named after its option `file`. Asked of the class, before there is an object."""

    @staticmethod
    def name_of_file(file: Path) -> str:
        """What stands for the file in the name of an attack; without this ability the file's own name."""


@runtime_checkable
class FollowsModel(Protocol):
    """An attack with options that depend on the model it attacks. Asked of the class, likewise."""

    follows: Mapping[str, Callable[[Mapping[str, Any]], str]]
    """Option -> what makes its value of the model's config, where a config has `auto` for it."""


@runtime_checkable
class NamesTasks(Protocol):
    """An attack that was told tasks by name, e.g. in a file of texts: a name may be misspelled."""

    def unmatched(self, benchmark: Benchmark) -> Sequence[str]:
        """Names of tasks that the benchmark does not have, each as one line would show it."""


@runtime_checkable
class SearchesTexts(Protocol):
    """An attack that may try several texts on a case before one of them counts."""

    searched: bool
    """Whether it does."""


@runtime_checkable
class ReplaysTexts(Protocol):
    """An attack that searches, or writes what an earlier search found."""

    replays: bool
    """Whether its texts are those of an earlier search, so that nothing is searched for."""


@runtime_checkable
class HasInjectionMode(Protocol):
    """A benchmark, or a suite, that says how injected text gets into its environments."""

    injection: str
    """`exact`: as it is. Without this ability `folded`, as YAML folds it in AgentDojo."""


@runtime_checkable
class HasClock(Protocol):
    """A benchmark whose tools read a clock of the case's own."""

    clock: datetime | None
    """Where each case's clock starts; None: tools read the machine's."""


@runtime_checkable
class DeclaresFacts(Protocol):
    """A benchmark that says how the facts its suites measure are to be shown."""

    facts: Mapping[str, DeclaredFact]
    """Name in `measured` -> its title, direction and kind. Every table shows facts that are declared, and
    no other; records carry the declarations."""


@runtime_checkable
class StartsFrom(Protocol):
    """A suite with a system message of its own."""

    system_message: str
    """The text that agents of this suite start from (agentsys.models.pipeline_elements)."""


class UserTurns(Protocol):
    """The user of one case, whose conversation has more turns than one. Made afresh for every run of it."""

    def next_turn(self, messages: Sequence[ChatMessage]) -> str | None:
        """What the user says next.

        Args:
            messages: The conversation so far, as the pipeline returned it.

        Returns:
            The user's words; None: the user has nothing more to say, and the case is scored.
        """


@runtime_checkable
class LeadsUsers(Protocol):
    """A suite whose user says more than the task: the pipeline is run once for every turn of the user."""

    def user_turns(
        self, model: ChatModel, user_task: UserTask, injection_task: InjectionTask | None
    ) -> UserTurns:
        """The user of a case. The first turn is the user task's prompt; this one is asked for the others.

        Args:
            model: For a user that a model plays, under a role of its own; calls are booked to the case.
            user_task: The case's.
            injection_task: The case's; None without attack.
        """


@runtime_checkable
class WrapsModels(Protocol):
    """A suite that takes part in the conversation between a defense and its model."""

    def driven(
        self, model: ChatModel, user_task: UserTask, injection_task: InjectionTask | None
    ) -> ChatModel:
        """The model that the defense of a case gets in place of `model`; asked for once per case."""


@runtime_checkable
class TakesTurns(Protocol):
    """A suite that may lead the agent turn by turn, whichever way (see `WholeProgram`)."""

    several_turns: bool
    """Whether it does."""


@runtime_checkable
class MeasuresCases(Protocol):
    """A suite that scores finished cases itself, and knows facts about them."""

    def measured(self, finished: FinishedCase) -> CaseScores:
        """The final scores, and the facts."""


@runtime_checkable
class DrawsAtRandom(Protocol):
    """A suite whose tools draw at random, each case from a generator of its own."""

    draws_at_random: bool
    """Whether they do. Then a record is done again with the numbers that it tells of."""


@runtime_checkable
class KnowsWays(Protocol):
    """A suite with ways of its own to tasks whose ground truth leaves something out."""

    def way(self, task: UserTask | InjectionTask) -> AlternativeSolution | None:
        """A way that the task's own check accepts; None where none is known.

        Then a user task is done as its ground truth has it, and an injection task is never obeyed by the
        simulated model.
        """


@runtime_checkable
class SparesUserTasks(Protocol):
    """A suite some of whose user tasks cannot be attacked."""

    without_vectors: frozenset[str]
    """Ids of the user tasks that can show no injection."""
