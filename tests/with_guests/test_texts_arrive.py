"""Every attack's texts arrive in every vector of every suite as they are meant, and are found again there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionsRuntime
from tiny_agentdyn import tiny_checkout

from agentsys.attacks.injection_vectors import unescape_for_suite
from agentsys.base.config_catalog import list_config_names
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.asb.asb_benchmark import ASB
from agentsys.contracts import Attack, AttackKind, NotInjectable, Victim
from agentsys.runs.case_outcome import ExposureWatch
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate
from agentsys_plugins.agentdyn.agentdyn_benchmark import AgentDyn
from agentsys_plugins.redteam.chat_injection import FAMILIES, ChatInject
from agentsys_plugins.redteam.encoded_attack import TEXT_CODES, EncodedAttack

VICTIM = Victim("GPT-4", 'Emma "EJ" \\ Johnson')
"""A name that would end the environment's quotes."""
FULL = ("workspace", "travel", "banking", "slack")
REDUCED = ("slack",)
SUITES = FULL if os.environ.get("AGENTSYS_EVERY_SUITE") else REDUCED
"""Suites that every shipped attack is looked at in."""
PLAIN_VICTIM = Victim("GPT-4", "Emma Johnson")
ATTACKS: dict[str, Attack] = {
    **{f"chatinject-{family}": ChatInject(family) for family in FAMILIES},
    **{
        f"encoded-{code}": EncodedAttack(ChatInject("generic"), code, hint=code != "zero_width")
        for code in TEXT_CODES
    },
}


@lru_cache
def suite_of(injection: str, name: str) -> Any:
    return AgentDojo("v1.2.2", injection=injection).suite(name)


def pairs(suite: Any, attack: Attack, victim: Victim = VICTIM) -> Iterator[tuple[Any, dict[str, str]]]:
    """Every injection task, with texts in every vector of the suite."""
    for task in suite.injection_tasks.values():
        written: dict[str, str] = {}
        for user in suite.user_tasks.values():
            if set(written) == set(suite.get_injection_vector_defaults()):
                break
            try:
                written |= attack.injections(suite, user, task, victim)
            except NotInjectable:
                continue
        yield task, written


def arrives(attack: Attack, folded: Any, exact: Any) -> int:
    """Look whether each injection task's texts arrive; how many there were."""
    count = 0
    for (task, written), (_, literal) in zip(pairs(folded, attack), pairs(exact, attack), strict=True):
        # The very text stands in the environment, and nothing else of it has changed.
        assert {vector: unescape_for_suite(folded, text) for vector, text in written.items()} == literal
        environment = folded.load_and_inject_default_environment(written)
        loaded = environment.model_dump()
        assert loaded == exact.load_and_inject_default_environment(literal).model_dump()
        watch = ExposureWatch(written, goal=task.GOAL)
        plain = ExposureWatch(literal, goal=task.GOAL)
        shown = environment.model_dump_json()
        for one in (watch, plain):
            one.note_tool_result(shown, None)
            assert one.summarize().exposed_raw
        count += 1
    return count


FAST = ("chatinject-qwen3", "chatinject-glm-4.5", "encoded-zero_width", "encoded-leet")
WHOLE = [pytest.param(name, FULL, 35, marks=pytest.mark.slow) for name in ATTACKS]


@pytest.mark.parametrize(("name", "suites", "count"), [*((name, REDUCED, 5) for name in FAST), *WHOLE])
def test_texts_arrive(name: str, suites: tuple[str, ...], count: int) -> None:
    assert sum(arrives(ATTACKS[name], suite_of("folded", s), suite_of("exact", s)) for s in suites) == count


ELSEWHERE = {
    "none": "injects nothing",
    "manual": "asks a person",
    "injection_round": "writes what its base writes",
}
"""Attack -> why it is not among the shipped ones that are looked at here; ASB's own stand below."""
SETTINGS = {
    "chatinject": ["attack.family=qwen3"],
    "chatinject_dialogue": ["attack.family=qwen3"],
    "template": ['attack.template="Do {goal} for {user}"'],
}
SHIPPED = sorted(
    name
    for name in list_config_names("attack")
    if name not in ELSEWHERE and not name.startswith(("opi_", "mcp_"))
)


def shipped(name: str, folder: Path, tasks: Mapping[str, Sequence[str]] | None = None) -> Attack:
    """A shipped attack as it is set; one that searches writes what its search starts from."""
    overrides = SETTINGS.get(name, [])
    if name == "cached":
        overrides = [f"attack.file={cached_texts(folder, tasks)}", "attack.escape=true"]
    (settings,) = compose([f"attack={name}", *overrides])
    built: Attack = instantiate("attack", settings.attack)
    return built


def cached_texts(folder: Path, tasks: Mapping[str, Sequence[str]] | None = None) -> Path:
    """A text per injection task with everything that YAML minds; default: AgentDojo's tasks."""
    tasks = tasks or {name: list(suite_of("folded", name).injection_tasks) for name in FULL}
    wild = 'It says "now".\nThen: C:\\new {goal} \u00e9 \u6f22\u5b57 \u200b'
    entries = [
        {"suite": name, "injection_task": task, "text": f"{wild} {task}"}
        for name, ids in tasks.items()
        for task in ids
    ]
    (folder / "texts.json").write_text(json.dumps(entries))
    return folder / "texts.json"


def spaced(environment: Any) -> str:
    """An environment with single spaces, and without sizes of files, which count them.

    YAML folds the spaces away that a text's first line break stands behind.
    """
    shown = json.dumps(environment.model_dump(mode="json"), ensure_ascii=False)
    return re.sub(r"(?:\\n|\s)+", " ", re.sub(r'"size": \d+', '"size": 0', shown))


def stands(attack: Attack, folded: Any, exact: Any) -> int:
    """Look whether each injection task's texts stand in the environments as meant; how many tasks."""
    count = 0
    both = (pairs(suite, attack, PLAIN_VICTIM) for suite in (folded, exact))
    for (task, written), (_, literal) in zip(*both, strict=True):
        assert written, "it wrote nothing"
        # YAML reads between the quotes what `read_of` says, and nothing else of the environment changes.
        read = {vector: unescape_for_suite(folded, text) for vector, text in written.items()}
        environment = folded.load_and_inject_default_environment(written)
        assert spaced(environment) == spaced(exact.load_and_inject_default_environment(read))
        whole = exact.load_and_inject_default_environment(literal)
        # A text can stand in a list, in a mapping or as part of a longer one; bytes are compared.
        for loaded, texts in ((environment, read), (whole, literal)):
            shown = json.dumps(loaded.model_dump(mode="json"), ensure_ascii=False)
            for text in texts.values():
                assert json.dumps(text.strip(), ensure_ascii=False)[1:-1] in shown
            watch = ExposureWatch(texts, goal=task.GOAL)
            watch.note_tool_result(loaded.model_dump_json(), None)
            assert watch.summarize().exposed_raw or attack.kind is AttackKind.DENIAL_OF_SERVICE
        count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_attack_stands_in_its_suites_as_it_is_meant(name: str, tmp_path: Path) -> None:
    attack = shipped(name, tmp_path)
    found = sum(stands(attack, suite_of("folded", s), suite_of("exact", s)) for s in SUITES)
    assert found == (35 if SUITES == FULL else 5)


@pytest.mark.parametrize("name", ["chatinject-qwen3", "encoded-leet"])
def test_texts_arrive_in_a_checkout_of_agentdyns_shape(name: str, tmp_path: Path) -> None:
    checkout = str(tiny_checkout(tmp_path / "AgentDyn"))
    folded, exact = (AgentDyn(checkout, injection=way).suite("github") for way in ("folded", "exact"))
    assert arrives(ATTACKS[name], folded, exact) == 1


def returned(attack: Attack, suite: Any) -> int:
    """Look whether ASB's tools return each injection task's text as it was written; how many tasks."""
    plain, tool = suite.load_and_inject_default_environment({}), suite.agent.normal_tools[0]
    tasks = list(pairs(suite, attack, PLAIN_VICTIM))
    for task, written in tasks:
        (text,) = written.values()
        environment = suite.load_and_inject_default_environment(written)
        assert environment.model_copy(update={"injection": ""}) == plain
        result, error = FunctionsRuntime(suite.tools).run_function(environment, tool.name, {})
        assert result == f"{tool.output}; {text}"
        watch = ExposureWatch(written, goal=task.GOAL)
        watch.note_tool_result(result, error)
        assert watch.summarize().exposed_raw or attack.kind is AttackKind.DENIAL_OF_SERVICE
    return len(tasks)


@pytest.mark.parametrize("name", ["chatinject", "cached", "opi_combined_attack"])
def test_texts_arrive_in_asbs_tool_results(name: str, tmp_path: Path) -> None:
    bench = ASB()
    suites = [bench.suite(one) for one in bench.suite_names()]
    attack = shipped(name, tmp_path, {suite.name: list(suite.injection_tasks) for suite in suites})
    assert sum(returned(attack, suite) for suite in suites) == 16
