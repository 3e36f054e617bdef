"""The simulated agent in every mode, end to end: utility, attacks, their causes, and the control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from small_runs import Silent

from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.asb import asb_plan
from agentsys.benchmarks.asb.asb_benchmark import ASB, VECTOR, ASBSuite, make_asb_roles
from agentsys.benchmarks.asb.asb_environment import ASBEnvironment, ToolUse
from agentsys.benchmarks.asb.planned_model import AsbMode, AttackCause
from agentsys.contracts import CaseScores, FinishedCase
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of, user
from agentsys.models.trace import Tracer
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
        make_asb_roles("honestly")


GARDEN = "garden_advisor_agent"
ATTACK = "SeedLedger"
"""Tool of injection_task_2."""


@dataclass
class Judge:
    """Answers as told and keeps what it was asked."""

    says: str = "1"
    asked: list[ChatRequest] = field(default_factory=list)
    name: str = "judge"

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return ChatReply(assistant(self.says))


def a_suite(**options: Any) -> ASBSuite:
    return ASB(**options).suite(GARDEN)


def use(tool: str, reply: int, payload: bool = True, step: int | None = None) -> ToolUse:
    return ToolUse(tool=tool, reply=reply, step=step, payload=payload)


def results(suite: ASBSuite, uses: Sequence[ToolUse]) -> list[ChatMessage]:
    """The conversation of a pipeline that shows results as they are."""
    outputs = {tool.name: tool.run(ASBEnvironment(agent="", data="")) for tool in suite.tools}
    return [user("The task."), *(user(str(outputs[one.tool])) for one in uses), assistant("Done.")]


def measured(
    suite: ASBSuite,
    uses: Sequence[ToolUse] = (),
    *,
    messages: Sequence[ChatMessage] | None = None,
    attacked: bool = True,
    payload: str = "do X",
    plan: Sequence[asb_plan.AsbStep] | None = None,
    followed: Sequence[asb_plan.AsbStep] | None = None,
    judge: Judge | None = None,
    last_seen: Sequence[ChatMessage] = (),
) -> CaseScores:
    """What the suite says of a case in which these tools ran."""
    goal = suite.injection_tasks["injection_task_2"] if attacked else None
    task = suite.user_tasks["user_task_0"]
    before = suite.load_and_inject_default_environment({VECTOR: payload})
    after = before.model_copy(update={"uses": list(uses)})
    tracer = Tracer(last_main_messages=last_seen)
    if plan is not None:
        with tracer.span(asb_plan.PLANNER_SPAN, asb_plan.PLANNER_SPAN_NAME) as span:
            span.decision = asb_plan.PlanningOutcome(
                tuple(plan), tuple(plan if followed is None else followed), 1
            ).to_decision()
    return suite.measured(
        FinishedCase(
            task,
            goal,
            before,
            after,
            results(suite, uses) if messages is None else messages,
            tracer,
            judge or Judge(),
            utility=task.utility("", before, after),
            security=goal is not None and goal.security("", before, after),
        )
    )


BOTH = [use("soil_probe", 1), use("planting_calendar", 2)]


def test_a_case_that_obeyed_the_injection_is_caused_by_it() -> None:
    found = measured(a_suite(), [*BOTH, use(ATTACK, 3)])
    assert (found.utility, found.security) == (True, True)
    facts = found.facts
    assert facts["injection_caused"] and not facts["planner_chosen"]
    assert facts["injection_success_execution"] and facts["injection_success_text"]
    assert facts["utility_execution"] and facts["utility_text"]
    assert (facts["payloads_delivered"], facts["attack_tool_calls"], facts["first_attack_step"]) == (3, 1, 3)
    assert (facts["aggressive"], facts["style"], facts["control"]) == (False, "stealthy", False)
    assert facts["planner_chose_attack_tool"] is None
    assert facts["refused"] is None


def test_a_tool_that_was_called_beside_the_first_payload_was_not_asked_for_by_it() -> None:
    facts = measured(a_suite(), [use("soil_probe", 1), use(ATTACK, 1), use("planting_calendar", 2)]).facts
    assert facts["planner_chosen"] and not facts["injection_caused"]


def test_a_longer_name_in_the_plan_is_not_the_attack_tool() -> None:
    plan = [asb_plan.AsbStep("Look.", ("soil_probe", f"{ATTACK}Review"))]
    facts = measured(a_suite(mode="clean_plan"), [use("soil_probe", 1), use(ATTACK, 2)], plan=plan).facts
    assert not facts["planner_chose_attack_tool"] and facts["injection_caused"]


@pytest.mark.parametrize("payload", [True, False])
def test_following_a_patched_plan_is_a_cause_of_its_own_with_a_payload_and_without(payload: bool) -> None:
    plan = [asb_plan.AsbStep("Look.", ("soil_probe",)), asb_plan.AsbStep("Go on.", ("planting_calendar",))]
    uses = [use("soil_probe", 1, payload=payload, step=1), use(ATTACK, 2, payload=False, step=2)]
    suite = a_suite(mode="faithful")
    text = "do X" if payload else ""
    facts = measured(suite, uses, plan=plan, followed=asb_plan.patch_plan(plan, ATTACK), payload=text).facts
    assert facts["control"] is not payload
    causes = [
        facts[cause.value] for cause in (AttackCause.PLANNER, AttackCause.PATCHED_PLAN, AttackCause.INJECTION)
    ]
    assert causes == [False, True, False]


def test_results_rewritten_after_the_tools_ran_make_the_criteria_differ() -> None:
    uses = [*BOTH, use(ATTACK, 3)]
    shown = [user("The task."), *(user("[removed]") for _ in uses), assistant("Done.")]
    by_execution = measured(a_suite(), uses, messages=shown)
    assert (by_execution.utility, by_execution.security) == (True, True)
    by_text = measured(a_suite(criterion="text"), uses, messages=shown)
    assert (by_text.utility, by_text.security) == (False, False)
    for found in (by_execution, by_text):
        assert found.facts["injection_success_execution"] and not found.facts["injection_success_text"]
        assert found.facts["utility_execution"] and not found.facts["utility_text"]
    assert not by_text.facts["injection_caused"] and by_execution.facts["injection_caused"]


def test_an_agent_that_only_planned_has_not_refused_and_nobody_is_asked() -> None:
    judge = Judge("0")
    plan = (asb_plan.AsbStep("Look.", ("soil_probe",)),)
    told = assistant("[Action]:I call the tool soil_probe.;[Observation]:From the tool soil_probe I have: no")
    seen = [user("Task"), assistant(asb_plan.format_followed_plan(plan)), user("Step"), told]
    calls = assistant("Calling.", [FunctionCall(function="soil_probe", args={})])
    suite = a_suite(mode="faithful", refusal_judge=True)
    found = measured(
        suite, messages=[calls, assistant(asb_plan.CLOSING)], last_seen=seen, plan=plan, judge=judge
    )
    assert found.facts["refused"] is False
    assert judge.asked == []
    words = [*seen, assistant(f"{asb_plan.THINKING}I cannot help.")]
    again = measured(suite, messages=[assistant(asb_plan.CLOSING)], last_seen=words, plan=plan, judge=judge)
    assert again.facts["refused"] is True
    assert "From the tool" not in text_of(judge.asked[0].messages[1])
