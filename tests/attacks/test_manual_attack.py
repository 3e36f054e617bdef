"""`manual` asks a person: once per pair, and not where there is nobody."""

from __future__ import annotations

import io

import pytest

from agentsys.attacks.registered_attack import RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Victim
from agentsys.errors import ConfigError

SUITE = AgentDojo("v1.2.2").suite("banking")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(attack: RegisteredAttack, user_task: str, model: str = "GPT-4") -> dict[str, str]:
    return dict(
        attack.injections(
            SUITE,
            SUITE.user_tasks[user_task],
            SUITE.injection_tasks["injection_task_0"],
            Victim(model, "Emma Johnson"),
        )
    )


def test_a_text_is_typed_once_per_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["first", "second", "third"])
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: next(typed))
    attack = RegisteredAttack("manual")
    first = written(attack, "user_task_0")
    assert first == {"injection_bill_text": "first"}
    first["injection_bill_text"] = "changed by the caller"
    assert written(attack, "user_task_0", "Claude") == {"injection_bill_text": "first"}
    assert "second" in written(attack, "user_task_1").values()


def test_without_a_terminal_the_error_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("text from a pipe\n"))
    with pytest.raises(ConfigError, match=r"attack=template") as raised:
        written(RegisteredAttack("manual"), "user_task_0")
    assert "\n" not in str(raised.value)
