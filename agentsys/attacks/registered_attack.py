"""`RegisteredAttack`: any attack in AgentDojo's registry, with victims that AgentDojo does not know."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from threading import Lock

from agentdojo import attacks as _register_all  # noqa: F401 - importing it fills the registry
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.attacks.baseline_attacks import ManualAttack
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack, ToolKnowledgeAttack
from agentdojo.models import MODEL_NAMES

from agentsys.attacks.injection_vectors import find_injectable_vectors
from agentsys.base.object_import import import_module_of_setting
from agentsys.contracts import AttackKind, InjectionTask, Suite, UserTask, Victim
from agentsys.errors import ConfigError, require_known_name

_FALLBACK_MODEL = "local"
"""A model AgentDojo knows, for victims whose prose name it has never heard."""

TaskPair = tuple[str, str, str]
"""Suite, user task, injection task."""


class RegisteredAttack:
    """An attack that AgentDojo, or one of `modules`, registers.

    Args:
        name: Its registered name, e.g. `important_instructions`.
        modules: Python modules imported first, so that a fork can register attacks of its own.

    Raises:
        ConfigError: If there is no such attack or module.
    """

    left_out = "cannot spell out the calls of"

    def __init__(self, name: str, modules: Sequence[str] = ()) -> None:
        for module in modules:
            import_module_of_setting(module, "attack.modules")
        self.name = require_known_name("attack of agentdojo", name, ATTACKS)
        denies = ATTACKS[name].is_dos_attack
        self.kind = AttackKind.DENIAL_OF_SERVICE if denies else AttackKind.TARGETED
        self._typed: dict[TaskPair, dict[str, str]] = {}
        """What a person typed for a pair of tasks, so that every defense and epoch meets the same text."""
        self._typing_lock = Lock()  # One question at a time, whatever the number of workers.
        self._addressed: dict[tuple[int, Victim], BaseAttack] = {}
        self._tellable: dict[tuple[Suite, str], bool] = {}
        self._lock = Lock()

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Whether the package can write its text: `tool_knowledge` names the arguments of every call to make.

        Some injection tasks of other benchmarks do not say how their calls look to a reader.
        """
        if not issubclass(ATTACKS[self.name], ToolKnowledgeAttack):
            return True
        key = (suite, injection_task.ID)
        if key not in self._tellable:
            calls = injection_task.ground_truth(suite.load_and_inject_default_environment({}))
            self._tellable[key] = all(call.placeholder_args is not None for call in calls)
        return self._tellable[key]

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """Exactly what the package's attack writes for a victim of these names.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If a person has to type the text and there is no terminal.
        """
        attack = self._get_attack(suite, victim)
        if not isinstance(attack, ManualAttack):
            return dict(attack.attack(user_task, injection_task))
        pair = (suite.name, user_task.ID, injection_task.ID)
        with self._typing_lock:
            if pair not in self._typed:
                if not sys.stdin.isatty():
                    raise ConfigError(
                        "attack=manual asks for each injection at the terminal, but stdin is not one;"
                        " run it in a terminal, or use attack=template with the text in attack.template."
                    )
                self._typed[pair] = dict(attack.attack(user_task, injection_task))
            return dict(self._typed[pair])

    def _get_attack(self, suite: Suite, victim: Victim) -> BaseAttack:
        """One object per suite object and victim; it holds the suite, so the id is not given away."""
        key = (id(suite), victim)
        with self._lock:
            if key not in self._addressed:
                self._addressed[key] = _build_addressed_attack(self.name, suite, victim)
            return self._addressed[key]


def _build_addressed_attack(name: str, suite: Suite, victim: Victim) -> BaseAttack:
    """A registered attack, built as AgentDojo builds it, that addresses `victim`.

    AgentDojo guesses the victim's prose name from its pipeline's name and raises where it cannot.
    So the attack is built for a pipeline named after a model it knows - one with the victim's own
    prose name if there is one, which makes it pick the same wrong name where it wants a wrong one.
    Then the names it took for right are replaced; names that are left out or wrong on purpose stay.
    """
    pipeline = GroundTruthPipeline(None)  # any element: only its name is read
    known = (model for model, prose in MODEL_NAMES.items() if prose == victim.model_name)
    pipeline.name = next(known, _FALLBACK_MODEL)
    attack = ATTACKS[name](suite, pipeline)
    if getattr(attack, "model_name", None) == MODEL_NAMES[pipeline.name]:
        attack.model_name = victim.model_name
    # The name that AgentDojo's attacks take for the user's stands in their code only.
    if getattr(attack, "user_name", None) == ImportantInstructionsAttack(suite, pipeline).user_name:
        attack.user_name = victim.user_name
    # On this object only: AgentDojo's own method has one small cache for everything (see vectors).
    vars(attack)["get_injection_candidates"] = lambda user_task: find_injectable_vectors(suite, user_task)
    return attack
