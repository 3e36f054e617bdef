"""What AgentDojo 0.1.35 really does: one test a row of the table in docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from agentdojo.agent_pipeline import AgentPipeline, InitQuery, PromptInjectionDetector, SystemMessage
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.llms.local_llm import LocalLLM
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.benchmark import benchmark_suite_with_injections, benchmark_suite_without_injections
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatAssistantMessage, ChatMessage, text_content_block_from_string
from providers_under_test import answering

VERSION = "v1.2.2"
ANSWER = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}]
}


class Says(BasePipelineElement):  # type: ignore[misc]
    """A model whose messages are written beforehand, the last one again and again."""

    name = "gpt-4o-2024-05-13"

    def __init__(self, *messages: ChatAssistantMessage) -> None:
        self.left, self.asked = list(messages), 0

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Any = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> Any:
        self.asked += 1
        said = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return query, runtime, env, [*messages, said], extra_args or {}


def says(*content: Any, calls: Sequence[FunctionCall] | None = None) -> ChatAssistantMessage:
    blocks = [text_content_block_from_string(one) if isinstance(one, str) else one for one in content]
    return ChatAssistantMessage(
        role="assistant", content=blocks or None, tool_calls=list(calls) if calls else None
    )


def pipeline_of(*elements: BasePipelineElement) -> AgentPipeline:
    pipeline = AgentPipeline([SystemMessage("Be brief."), InitQuery(), *elements])
    pipeline.name = Says.name
    return pipeline


def run_tool(suite: str, *calls: tuple[str, dict[str, Any]]) -> tuple[Any, list[tuple[Any, str | None]]]:
    environment = get_suite(VERSION, suite).load_and_inject_default_environment({})
    runtime = FunctionsRuntime(get_suite(VERSION, suite).tools)
    return environment, [runtime.run_function(environment, name, arguments) for name, arguments in calls]


def test_temperature_0_is_not_sent() -> None:
    with answering(200, json.dumps(ANSWER).encode()) as server:
        client = openai.OpenAI(api_key="none", base_url=f"{server.base_url}/v1", max_retries=0)
        asked = [{"role": "user", "content": [text_content_block_from_string("Hi")]}]
        for temperature, sent in ((0.0, None), (0.5, 0.5)):
            OpenAILLM(client, "m", temperature=temperature).query("", FunctionsRuntime([]), messages=asked)
            assert json.loads(server.last).get("temperature") == sent


def test_thoughts_are_scored() -> None:
    suite = get_suite(VERSION, "banking")
    task = suite.get_user_task_by_id("user_task_1")
    told = task.GROUND_TRUTH_OUTPUT
    thought: Any = {"type": "thinking", "content": told, "id": None}
    scored = [
        suite.run_task_with_pipeline(pipeline_of(Says(message)), task, None, {})[0]
        for message in (says(thought, "I do not know."), says("I do not know."))
    ]
    assert scored == [True, False]


def test_a_run_whose_last_content_is_null_is_repeated_twice_and_one_with_an_empty_list_is_not() -> None:
    suite = get_suite(VERSION, "banking")
    paying = FunctionCall(
        function="send_money",
        args={"recipient": "x", "amount": 1, "subject": "s", "date": "2022-01-01"},
        id="1",
    )
    environment = suite.load_and_inject_default_environment({})
    before = len(environment.bank_account.transactions)
    model = Says(says(calls=[paying]), says(), says(calls=[paying]), says(), says(calls=[paying]), says())
    pipeline = pipeline_of(model, ToolsExecutionLoop([ToolsExecutor(), model]))
    task = suite.get_user_task_by_id("user_task_1")
    with pytest.warns(UserWarning, match="Model output was None"):
        suite.run_task_with_pipeline(pipeline, task, None, {}, environment=environment)
    assert (model.asked, len(environment.bank_account.transactions) - before) == (6, 3)
    listed = Says(ChatAssistantMessage(role="assistant", content=[], tool_calls=None))
    suite.run_task_with_pipeline(pipeline_of(listed), task, None, {})
    assert listed.asked == 1


def dead_model() -> LocalLLM:
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:9/v1", max_retries=0)
    return LocalLLM(client, "m")


@pytest.mark.filterwarnings("ignore")
def test_a_server_that_is_not_there_scores_five_of_sixteen_and_no_attack(tmp_path: Path) -> None:
    suite = get_suite(VERSION, "banking")
    pipeline = pipeline_of(dead_model())
    with OutputLogger(str(tmp_path)):
        benign = benchmark_suite_without_injections(pipeline, suite, None, True)
        attack = load_attack("important_instructions", suite, pipeline)
        attacked = benchmark_suite_with_injections(
            pipeline, suite, attack, None, True, ["user_task_0", "user_task_5"], ["injection_task_0"]
        )
    assert (sum(benign["utility_results"].values()), len(benign["utility_results"])) == (5, 16)
    assert not any(attacked["security_results"].values())


def test_an_argument_that_a_tool_does_not_have_is_dropped() -> None:
    call = {"recipient": "x", "amount": 1, "subject": "s", "date": "2022-01-01", "recuring": True}
    environment, [(_, error)] = run_tool("banking", ("send_money", call))
    assert error is None and environment.bank_account.transactions[-1].recurring is False


def test_zero_of_the_latest_are_all_and_a_change_to_zero_is_none() -> None:
    latest = "get_most_recent_transactions"
    change = ("update_scheduled_transaction", {"id": 7, "amount": 0})
    environment, seen = run_tool(
        "banking", (latest, {"n": 1}), (latest, {"n": 0}), (latest, {"n": 1000}), change
    )
    assert len(seen[0][0]) == 1 and len(seen[1][0]) == len(seen[2][0]) > 1
    changed = next(each for each in environment.bank_account.scheduled_transactions if each.id == 7)
    assert seen[3][1] is None and changed.amount != 0


def test_the_id_of_what_was_deleted_is_given_again() -> None:
    new = {"filename": "a.txt", "content": "first"}
    environment, seen = run_tool("workspace", ("create_file", new))
    first = seen[0][0].id_
    runtime = FunctionsRuntime(get_suite(VERSION, "workspace").tools)
    assert runtime.run_function(environment, "delete_file", {"file_id": first})[1] is None
    second, error = runtime.run_function(environment, "create_file", {**new, "content": "second"})
    assert error is None and second.id_ == first and second.content == "second"


def test_a_call_that_is_told_it_failed_has_made_its_change() -> None:
    environment, seen = run_tool(
        "workspace",
        ("add_calendar_event_participants", {"event_id": "1", "participants": ["Bob"]}),
        ("cancel_calendar_event", {"event_id": "1"}),
    )
    assert seen[0][1] is None and "ValidationError" in str(seen[1][1])
    assert environment.calendar.events["1"].status.value == "canceled"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("suite", "tasks"),
    [
        ("banking", 16),
        ("slack", 21),
        pytest.param("travel", 20, marks=pytest.mark.slow),
        pytest.param("workspace", 40, marks=pytest.mark.slow),
    ],
)
def test_its_own_check_of_a_suite_refuses_every_task(suite: str, tasks: int) -> None:
    passed, (results, _) = get_suite(VERSION, suite).check()
    assert not passed and len(results) == tasks
    assert {why for _, why in results.values()} == {"The task is not injectable"}


def test_a_finished_case_is_known_by_its_path_alone(tmp_path: Path) -> None:
    def run(text: str) -> tuple[bool, int]:
        model = Says(says(text))
        with OutputLogger(str(tmp_path)):
            found = benchmark_suite_without_injections(
                pipeline_of(model), get_suite(VERSION, "banking"), tmp_path, False, ["user_task_1"]
            )
        return found["utility_results"]["user_task_1", ""], model.asked

    right = get_suite(VERSION, "banking").get_user_task_by_id("user_task_1").GROUND_TRUTH_OUTPUT
    assert run("I do not know.") == (False, 1)
    # Another model under the same name.
    assert run(right) == (False, 0)


def test_a_detector_behind_the_repeated_request_is_never_asked() -> None:
    class Detector(PromptInjectionDetector):  # type: ignore[misc]
        asked = 0

        def detect(self, tool_output: str) -> bool:
            self.asked += 1
            return True

    def count(order: Callable[[Detector], list[BasePipelineElement]]) -> int:
        model = Says(says(calls=[FunctionCall(function="get_balance", args={}, id="1")]), says("Done."))
        detector = Detector()
        loop = ToolsExecutionLoop([ToolsExecutor(), *order(detector), model])
        suite = get_suite(VERSION, "banking")
        task = suite.get_user_task_by_id("user_task_1")
        suite.run_task_with_pipeline(pipeline_of(model, loop), task, None, {})
        return detector.asked

    with pytest.warns(UserWarning, match="not being added as the first"):
        assert count(lambda detector: [InitQuery(), detector]) == 0
        assert count(lambda detector: [detector, InitQuery()]) == 1
