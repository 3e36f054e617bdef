"""Attack objects of AgentDojo's registry, addressed to a victim that AgentDojo need not know."""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack
from agentdojo.models import MODEL_NAMES
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import Victim

_STAND_IN = "local"
"""A model AgentDojo knows, for victims whose prose name it has never heard."""


def addressed(name: str, suite: TaskSuite[Any], victim: Victim) -> BaseAttack:
    """A registered attack, built as AgentDojo builds it, that addresses `victim`.

    AgentDojo guesses the victim's prose name from its pipeline's name and raises where it cannot.
    So the attack is built for a pipeline named after a model it knows - one with the victim's own
    prose name if there is one, which makes it pick the same wrong name where it wants a wrong one.
    Then the names it took for right are replaced; names that are left out or wrong on purpose stay.
    """
    pipeline = GroundTruthPipeline(None)  # any element: only its name is read
    pipeline.name = _known_model(victim.model_name)
    attack = ATTACKS[name](suite, pipeline)
    if getattr(attack, "model_name", None) == MODEL_NAMES[pipeline.name]:
        attack.model_name = victim.model_name
    if getattr(attack, "user_name", None) == _packages_user_name(suite, pipeline):
        attack.user_name = victim.user_name
    # On this object only: AgentDojo's own method has one small cache for everything (see vectors).
    vars(attack)["get_injection_candidates"] = lambda user_task: injectable_vectors(suite, user_task)
    return attack


def _known_model(prose: str) -> str:
    return next((model for model, known in MODEL_NAMES.items() if known == prose), _STAND_IN)


def _packages_user_name(suite: TaskSuite[Any], pipeline: BasePipelineElement) -> str:
    """The name that AgentDojo's attacks take for the user's; it stands in their code only."""
    return str(ImportantInstructionsAttack(suite, pipeline).user_name)
