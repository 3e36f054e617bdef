"""Optional abilities of a defense, an attack, a benchmark or a suite; `agentsys.contracts` has the required ones.

Each ability is a small protocol. Nobody has to inherit: an object has an ability if it has the protocol's members, and
the code that uses it checks with `isinstance`. A misspelled member is refused when the object is built
(agentsys.runs.instantiate).
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
    """An attack whose texts some models cannot read."""

    @property
    def reading_test(self) -> ReadingTest:
        """The test that shows, without an attack, if a model can read the texts."""


@runtime_checkable
class PlaysRoles(Protocol):
    """A defense, an attack or a benchmark that calls models under roles of its own."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Role -> handler for the simulated model; a role without a handler is played as a plain agent."""


@runtime_checkable
class DescribesItself(Protocol):
    """A defense that describes itself with its settings: two presets of one class may differ."""

    def description(self) -> str:
        """Describe the defense in 5 to 10 sentences of plain English: isolation, checks and settings.

        An attacker may be shown this text, so it holds no secret.
        """


@runtime_checkable
class NamesPrompts(Protocol):
    """A defense that lists its prompts."""

    def prompts(self) -> Mapping[str, str]:
        """Name -> text of every prompt, with the current settings."""


@runtime_checkable
class ChecksItsNeeds(Protocol):
    """A defense that needs more than a model: packages of an extra, a key, a service."""

    def ready(self) -> None:
        """Check that everything it needs is available. Quick; called before the first case, and in a dry run.

        Raises:
            Unavailable: If something is missing; the message names it.
        """


@runtime_checkable
class KeepsFiles(Protocol):
    """A defense that keeps files from case to case, e.g. labels of tools. A member of the class."""

    keeps: Mapping[str, str]
    """Option that names a folder -> the folder beside the run's records that replaces null. No case depends on
    such an option."""


@runtime_checkable
class HasContents(Protocol):
    """A defense that depends on things its config only names, e.g. packages. A member of the class."""

    @staticmethod
    def contents(config: Mapping[str, Any]) -> Mapping[str, str]:
        """Name -> hash of each further thing that a case depends on; part of every record's identity."""


@runtime_checkable
class ReadsBesideYaml(Protocol):
    """A defense that reads files beside its YAML, e.g. the user's code. A member of the class."""

    @staticmethod
    def folder_option(config: Mapping[str, Any]) -> str | None:
        """Return the option that takes the YAML's folder, on which no case depends; None: it reads no files."""


@runtime_checkable
class NeedsOwnModels(Protocol):
    """A defense with roles that need a model made for them: with the agent's model it is another defense."""

    own_roles: Sequence[str]
    """These roles. The defense cannot run unless each has a model of its own (`+model.roles.ROLE=NAME`); the
    simulated model plays them itself."""

    def unfit(self, role: str, model: ChatModel) -> str | None:
        """Ask the model of one of these roles a question with a known answer, once before the first case.

        Returns:
            The reason why the model cannot be used, a sentence that follows the model's name; None if it can.

        Raises:
            ModelError: If the model gives no reply.
        """


@runtime_checkable
class HoldsDefenses(Protocol):
    """A defense made of others, e.g. a stack. A member of the class."""

    holds: Sequence[str]
    """Options whose value is a defense, or a list of defenses; a config may give their names."""


@runtime_checkable
class Rehearsable(Protocol):
    """A defense that uses a service besides the model."""

    def rehearsed(self) -> Defense:
        """Return the defense with an offline stand-in for the service; used whenever the model is simulated."""


@runtime_checkable
class WholeProgram(Protocol):
    """A defense that may control the whole conversation, from the request to the answer."""

    whole_program: bool
    """True if it does; then it is refused on suites with several user turns."""


@runtime_checkable
class PoisonsTools(Protocol):
    """An attack that owns tools of the suite."""

    def poison_tools(self, tools: Sequence[Function], written: Mapping[str, str]) -> Sequence[Function]:
        """Return the tools of an attacked case, without changing those given.

        Args:
            tools: The suite's tools.
            written: Texts from `injections` for the case, or from its record.
        """


@runtime_checkable
class ChecksSuccess(Protocol):
    """An attack with a check of its own."""

    def has_succeeded(self, suite: Suite, finished: FinishedCase) -> bool | None:
        """True if the attack succeeded; None: the benchmark's check decides."""


@runtime_checkable
class ReadsTools(Protocol):
    """A defense that may read tools before its agents are shown them."""

    reads_tools: bool
    """True if it reads them; set by `defense.read_tools`."""

    def read_tools(self, tools: Sequence[Function], suite: Suite, model: ChatModel) -> Sequence[Function]:
        """Return the tools that its agents are shown, without changing those given.

        Args:
            tools: The tools offered in this case, which an attack may have changed.
            suite: The suite, with the original tools.
            model: Model for questions; calls are booked to the case.
        """


def can_read_tools(defense: object) -> TypeGuard[ReadsTools]:
    """True if a defense can read tools; `read_tools` is None if its options leave it no means to."""
    # From Python 3.12 on `isinstance` ignores the instance's own None if the class has all members.
    return isinstance(defense, ReadsTools) and defense.read_tools is not None


@runtime_checkable
class PicksPairs(Protocol):
    """An attack that applies to some pairs of tasks only."""

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """True if this pair belongs to a plan; other pairs are left out and counted."""


@runtime_checkable
class NamesExclusions(Protocol):
    """An attack with its own words for the pairs that it leaves out."""

    left_out: str
    """Words between the attack's name and the number of pairs, e.g. `has nowhere to write in`."""


@runtime_checkable
class NamesSources(Protocol):
    """An attack that knows the sources of its texts."""

    provenance: Sequence[str]
    """One line per source."""


@runtime_checkable
class NamesFromFile(Protocol):
    """An attack that is named after its option `file`. A member of the class."""

    @staticmethod
    def name_of_file(file: Path) -> str:
        """Return the part of the attack's name that stands for the file; without this ability the file's stem."""


@runtime_checkable
class FollowsModel(Protocol):
    """An attack with options that depend on the attacked model. A member of the class."""

    follows: Mapping[str, Callable[[Mapping[str, Any]], str]]
    """Option -> function of the model's config that replaces the value `auto`."""


@runtime_checkable
class NamesTasks(Protocol):
    """An attack whose config or files name tasks, whose names may be misspelled."""

    def unmatched(self, benchmark: Benchmark) -> Sequence[str]:
        """List named tasks that the benchmark does not have, each formatted for a message."""


@runtime_checkable
class SearchesTexts(Protocol):
    """An attack that may try several texts on a case before one of them counts."""

    searched: bool
    """True if it does."""


@runtime_checkable
class ReplaysTexts(Protocol):
    """An attack that searches for texts, or replays those of an earlier search."""

    replays: bool
    """True if its texts come from an earlier search, so that nothing is searched for."""


@runtime_checkable
class HasInjectionMode(Protocol):
    """A benchmark, or a suite, that declares how injected text is put into its environments."""

    injection: str
    """`exact`: unchanged. Without this ability `folded`, as YAML folds it in AgentDojo."""


@runtime_checkable
class HasClock(Protocol):
    """A benchmark whose tools may read a clock of the case instead of the machine's."""

    clock: datetime | None
    """Start of each case's clock; None: tools read the machine's clock."""


@runtime_checkable
class DeclaresFacts(Protocol):
    """A benchmark that declares how tables show the facts that its suites measure."""

    facts: Mapping[str, DeclaredFact]
    """Name in `measured` -> title, direction and kind. Tables show declared facts only; records hold the
    declarations."""


@runtime_checkable
class StartsFrom(Protocol):
    """A suite with a system message of its own."""

    system_message: str
    """System message of agents on this suite (agentsys.models.pipeline_elements)."""


class UserTurns(Protocol):
    """The simulated user of one case with several user turns; a new one for every run."""

    def next_turn(self, messages: Sequence[ChatMessage]) -> str | None:
        """Return the user's next message.

        Args:
            messages: The conversation so far, as the pipeline returned it.

        Returns:
            The user's words; None ends the conversation, and the case is scored.
        """


@runtime_checkable
class LeadsUsers(Protocol):
    """A suite with several user turns: the pipeline is run once per turn."""

    def user_turns(
        self, model: ChatModel, user_task: UserTask, injection_task: InjectionTask | None
    ) -> UserTurns:
        """Return the user of a case. The first turn is the user task's prompt; this user gives the others.

        Args:
            model: Model for a user that a model plays, under a role of its own; calls are booked to the case.
            user_task: The case's user task.
            injection_task: The case's injection task; None without attack.
        """


@runtime_checkable
class WrapsModels(Protocol):
    """A suite that takes part in the conversation between a defense and its model."""

    def driven(
        self, model: ChatModel, user_task: UserTask, injection_task: InjectionTask | None
    ) -> ChatModel:
        """Return the model that a case's defense gets in place of `model`; called once per case."""


@runtime_checkable
class TakesTurns(Protocol):
    """A suite that may control the conversation turn by turn (see `WholeProgram`)."""

    several_turns: bool
    """True if it does."""


@runtime_checkable
class MeasuresCases(Protocol):
    """A suite that scores finished cases itself, and measures facts about them."""

    def measured(self, finished: FinishedCase) -> CaseScores:
        """Return the final scores and the facts."""


@runtime_checkable
class DrawsAtRandom(Protocol):
    """A suite whose tools draw random numbers, each case from its own generator."""

    draws_at_random: bool
    """True if they do. Then replaying a record uses its recorded numbers."""


@runtime_checkable
class KnowsWays(Protocol):
    """A suite with alternative solutions for tasks with an incomplete ground truth."""

    def way(self, task: UserTask | InjectionTask) -> AlternativeSolution | None:
        """Return a solution that the task's own check accepts; None if none is known.

        Without one the simulated model follows a user task's ground truth, and never obeys an injection task.
        """


@runtime_checkable
class SparesUserTasks(Protocol):
    """A suite with user tasks that cannot be attacked."""

    without_vectors: frozenset[str]
    """Ids of the user tasks that can show no injection."""
