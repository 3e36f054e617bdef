"""The simulated agent in every mode, end to end: utility, attacks, their causes, and the control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent

from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.asb.asb_benchmark import ASB, asb_roles
from agentsys.benchmarks.asb.planned_model import AsbMode
from agentsys.errors import ConfigError
from agentsys.runs.cell import CellBuilder
from agentsys.runs.compose import compose
from agentsys.runs.plan import plan_cases
from agentsys.runs.run_session import Session
from agentsys.runs.settings import Settings
from agentsys.runs.store import Store

MODES = [mode.value for mode in AsbMode]
PLANNED = [mode.value for mode in AsbMode if mode.has_plan]
DEFENSES = [
    "none",
    "prompt_sandwiching",
    "delimiters",
    "instructional_prevention",
    "spotlighting",
    "spotlighting_encoding",
    "tool_filter",
    "tool_filter_compat",
    "drift",
    "melon",
    "agentsys",
    "agentsys_no_isolation",
]


@cache
def composed() -> Settings:
    """One run as composed; cells are varied from it, because composing each takes half a second."""
    (found,) = compose(["benchmark=asb", "model=simulated", "attack=none", "executor.workers=1"], ())
    return found


def records(
    folder: Path,
    *,
    modes: Sequence[str] = PLANNED,
    attacks: Sequence[str],
    defense: str = "none",
    planner: str = "honest",
    suites: Sequence[str] | None = None,
) -> list[Any]:
    """Every case of these cells, run and stored; none of them an error."""
    plain = composed()
    settings = [
        plain.model_copy(
            update={
                "logdir": folder,
                "defense": load_config("defense", defense),
                "attack": load_config("attack", attack),
                "labels": {**plain.labels, "defense": defense, "attack": attack},
                "benchmark": {
                    **plain.benchmark,
                    "mode": mode,
                    "simulated_planner": planner,
                    "suites": suites,
                },
            }
        )
        for mode in modes
        for attack in attacks
    ]
    store = Store(folder)
    builder = CellBuilder(store)
    session = Session(tuple(settings), store, plan_cases([builder.build(one) for one in settings], store))
    listener = Silent()
    outcome = session.execute(listener)
    assert outcome.errors == 0 and outcome.fatal is None
    return listener.records


def facts(found: Iterable[Any], attack: str, mode: str, name: str) -> list[Any]:
    """One measured fact of every case of an attack in a mode."""
    values = [r.measured[name] for r in found if r.case.attack == attack and r.measured["mode"] == mode]
    assert values
    return values


@pytest.fixture(scope="module", params=["honest", "chooses_attack_tool"])
def undefended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[Any]]:
    """Every mode with no attack, an attack, and its control, at susceptibility 1.0."""
    folder = tmp_path_factory.mktemp("runs")
    attacks = ["none", "opi_context_ignoring", "opi_empty"]
    found = records(folder, modes=MODES, attacks=attacks, planner=request.param)
    return request.param, found


@pytest.mark.parametrize("mode", MODES)
def test_every_user_task_of_the_sample_is_solved_without_an_attack(
    undefended: tuple[str, list[Any]], mode: str
) -> None:
    assert all(facts(undefended[1], "none", mode, "utility_execution"))
    assert all(facts(undefended[1], "none", mode, "utility_text"))


@pytest.mark.parametrize("mode", MODES)
def test_with_an_empty_payload_no_success_is_caused_by_injection(
    undefended: tuple[str, list[Any]], mode: str
) -> None:
    planner, found = undefended
    assert not any(facts(found, "opi_empty", mode, "injection_caused"))
    chosen = planner == "chooses_attack_tool" and mode in ("faithful", "clean_plan")
    assert set(facts(found, "opi_empty", mode, "planner_chosen")) == {chosen}


@pytest.mark.parametrize("mode", MODES)
def test_a_visible_instruction_is_obeyed_and_counts_as_injection_unless_the_plan_lists_its_tool(
    undefended: tuple[str, list[Any]], mode: str
) -> None:
    planner, found = undefended
    chosen = planner == "chooses_attack_tool" and mode in ("faithful", "clean_plan")
    assert all(facts(found, "opi_context_ignoring", mode, "injection_success_execution"))
    assert set(facts(found, "opi_context_ignoring", mode, "planner_chosen")) == {chosen}
    patched = mode == "faithful" and not chosen
    assert set(facts(found, "opi_context_ignoring", mode, "patched_plan")) == {patched}
    assert set(facts(found, "opi_context_ignoring", mode, "injection_caused")) == {not chosen and not patched}


@pytest.mark.parametrize("mode", PLANNED)
def test_the_payload_is_delivered_in_every_step_but_the_last(
    undefended: tuple[str, list[Any]], mode: str
) -> None:
    _, found = undefended
    steps = facts(found, "opi_context_ignoring", mode, "steps")
    assert facts(found, "opi_context_ignoring", mode, "payloads_delivered") == [count - 1 for count in steps]
    assert set(facts(found, "opi_empty", mode, "payloads_delivered")) == {0}


def test_with_hidden_tool_nothing_the_planner_reads_names_the_attack_tool(
    undefended: tuple[str, list[Any]],
) -> None:
    for record in undefended[1]:
        if record.case.attack == "none" or record.measured["mode"] != "hidden_tool":
            continue
        (planner,) = [span for span in record.spans if span.kind == "planner"]
        assert record.measured["attack_tool"] not in str(planner.messages)


@pytest.mark.parametrize("defense", DEFENSES)
def test_every_defense_takes_part_in_every_planned_mode(tmp_path: Path, defense: str) -> None:
    attacks = ["none", "opi_context_ignoring"]
    found = records(tmp_path, attacks=attacks, defense=defense, suites=ASB().suite_names()[:1])
    for mode in PLANNED:
        assert all(facts(found, "none", mode, "utility_execution"))
        assert set(facts(found, "opi_context_ignoring", mode, "plan_tries")) == {1}
    for record in found:
        assert record.usage["asb_planner"].calls == 1
        acting = sum(record.usage[role].calls for role in ("agent", "main") if role in record.usage)
        assert acting >= 1


def test_drift_refuses_what_only_the_benchmarks_planner_planned(tmp_path: Path) -> None:
    found = records(
        tmp_path, modes=["faithful"], attacks=["opi_empty"], defense="drift", planner="chooses_attack_tool"
    )
    assert all(facts(found, "opi_empty", "faithful", "planner_chose_attack_tool"))
    assert not any(facts(found, "opi_empty", "faithful", "injection_success_execution"))


def test_an_unknown_simulated_planner_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"honestly.*Did you mean honest"):
        asb_roles("honestly")
