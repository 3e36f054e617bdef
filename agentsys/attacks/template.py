"""`TemplateAttack`: an attack of one's own from a YAML alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentsys.attacks.vectors import find_injectable_vectors
from agentsys.contracts import AttackKind, InjectionTask, Suite, UserTask, Victim
from agentsys.errors import ConfigError, require_known_name

_PLACEHOLDER = re.compile(r"\{(goal|user|model|task)\}")
_KINDS = {kind.value: kind for kind in (AttackKind.TARGETED, AttackKind.DENIAL_OF_SERVICE)}


class TemplateAttack:
    """Writes one text into every vector that the user task meets.

    Args:
        template: The text. `{goal}` is the injection task's goal, `{user}` and `{model}` are the
            victim's names, `{task}` is the user's request. Other braces stay as they are.
        name: The attack's name.
        kind: `targeted` or `denial_of_service`.

    Raises:
        ConfigError: If the kind is not known, or a targeted template never states the goal.
    """

    def __init__(self, template: str, name: str = "template", kind: str = "targeted") -> None:
        self.template = template
        self.name = name
        self.kind = _KINDS[require_known_name("attack.kind", kind, _KINDS)]
        if self.kind is AttackKind.TARGETED and "{goal}" not in template:
            raise ConfigError(
                f"attack '{name}': its template has no {{goal}}, so no injection task could be meant;"
                " put {goal} into attack.template or set attack.kind=denial_of_service."
            )

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The filled template, in every vector."""
        text = fill_template(self.template, user_task, injection_task, victim)
        return dict.fromkeys(find_injectable_vectors(suite, user_task), text)


def fill_template(template: str, user_task: UserTask, injection_task: InjectionTask, victim: Victim) -> str:
    """The template with the words of a pair of tasks in place of `{goal}`, `{user}`, `{model}`, `{task}`."""
    values = {
        "goal": injection_task.GOAL,
        "user": victim.user_name,
        "model": victim.model_name,
        "task": user_task.PROMPT,
    }
    # One pass, so that braces inside a goal or a request are never taken for placeholders.
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), template)
