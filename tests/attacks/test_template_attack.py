"""A user's own attack from a YAML alone; and every shipped attack YAML builds its attack."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from agentdojo.attacks.attack_registry import ATTACKS

from agentsys.attacks.text_attacks import TemplateAttack
from agentsys.base.config_catalog import find_config_file, list_config_names
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import AttackKind, Victim
from agentsys.errors import ConfigError

SUITE = AgentDojo("v1.2.2").suite("slack")
YAMLS = [find_config_file("attack", name) for name in list_config_names("attack")]
OPEN = (": ???", "\nbase: ", "family: auto")
COMPLETE = [path for path in YAMLS if not any(sign in path.read_text() for sign in OPEN)]
"""Those that need no further setting, nor one from another YAML."""


def filled(template: str, goal: str = "Do it.", **options: str) -> str:
    task = SUITE.user_tasks["user_task_1"]
    written = TemplateAttack(template, **options).injections(
        SUITE, task, SimpleNamespace(GOAL=goal, ID="injection_task_0"), Victim("GPT-{user}", "Ada {goal}")
    )
    assert len(set(written.values())) == 1
    return next(iter(written.values()))


def test_placeholders_are_filled_in_one_pass_and_other_braces_stay() -> None:
    assert filled("{goal}|{user}|{model}", "Send {user} {0} {x.__class__}") == (
        "Send {user} {0} {x.__class__}|Ada {goal}|GPT-{user}"
    )
    assert filled('{ "k": {goal}, {other} {0} {{user}} }') == '{ "k": Do it., {other} {0} {Ada {goal}} }'
    assert filled("{task} / {goal}").startswith(SUITE.user_tasks["user_task_1"].PROMPT)


def test_a_template_that_states_no_goal_is_refused_unless_it_denies_service() -> None:
    with pytest.raises(ConfigError, match=r"has no \{goal\}"):
        TemplateAttack("Stop!")
    assert TemplateAttack("Stop!", kind="denial_of_service").kind is AttackKind.DENIAL_OF_SERVICE
    with pytest.raises(ConfigError, match="Did you mean targeted"):
        TemplateAttack("{goal}", kind="target")


def test_every_registered_attack_has_its_yaml() -> None:
    assert set(ATTACKS) <= {path.stem for path in YAMLS}
