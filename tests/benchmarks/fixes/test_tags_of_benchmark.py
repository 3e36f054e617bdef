"""Tags and phrases kept as data say what the benchmark, and the catalog of fixes, say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime
from fixed_on_paper import VERSIONS, benchmark, scored

from agentsys.analysis.metrics.task_tags import load_fixes, load_tag
from agentsys.benchmarks.fixes.fix_catalog import FIXES

ENDS = [pytest.param(VERSIONS[0], marks=pytest.mark.slow), VERSIONS[-1]]


def listed(tag: str, version: str) -> set[tuple[str, str]]:
    """What the data lists, of what this version has."""
    tasks = load_tag(tag).tasks["agentdojo"]
    return {
        (suite, task)
        for suite, names in tasks.items()
        for task in names
        if task in benchmark(version).suite(suite).injection_tasks
        or task in benchmark(version).suite(suite).user_tasks
    }


def injections(version: str) -> list[tuple[str, str]]:
    return [
        (suite, task)
        for suite in benchmark(version).suite_names()
        for task in benchmark(version).suite(suite).injection_tasks
    ]


def test_the_phrases_of_captions_are_the_catalogs() -> None:
    assert load_fixes() == {name: fix.description for name, fix in FIXES.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_injection_tasks_without_ground_truth_are_those_listed(version: str) -> None:
    empty = set()
    for suite, task in injections(version):
        found = benchmark(version).suite(suite)
        calls = found.injection_tasks[task].ground_truth(found.load_and_inject_default_environment({}))
        if not calls:
            empty.add((suite, task))
    assert empty == listed("no_ground_truth", version)


@pytest.mark.parametrize("version", ENDS)
def test_text_only_injection_tasks_are_those_that_words_alone_carry_out(version: str) -> None:
    by_words = set()
    for suite, task in injections(version):
        words = benchmark(version).suite(suite).injection_tasks[task].GOAL
        found = scored(suite, "user_task_0", [], version=version, injection_task=task, answer=words)
        if found.security:
            by_words.add((suite, task))
    assert by_words == listed("text_only", version)


def words(text: object) -> list[str]:
    return re.findall(r"\w+", str(text).casefold())


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def repeats(text: str, seen: str, prompt: str) -> bool:
    """Whether six words in a row were seen before and are not the user's own."""
    said = words(text)
    rows = (" ".join(said[place : place + 6]) for place in range(len(said) - 5))
    return any(f" {row} " in seen and row not in prompt for row in rows)


def is_verbatim(suite: Any, task: Any) -> bool:
    environment = task.init_environment(suite.load_and_inject_default_environment({}))
    runtime, seen, prompt = FunctionsRuntime(suite.tools), " ", " ".join(words(task.PROMPT))
    for call in task.ground_truth(environment):
        if any(repeats(text, seen, prompt) for text in texts(dict(call.args))):
            return True
        value, error = runtime.run_function(environment, call.function, dict(call.args))
        seen += " ".join(words(error or tool_result_to_str(value))) + "  "
    return repeats(task.GROUND_TRUTH_OUTPUT or "", seen, prompt)


@pytest.mark.slow
def test_verbatim_tasks_are_those_whose_ground_truth_repeats_what_a_tool_returned() -> None:
    found = {
        (name, task)
        for name in benchmark("v1.2.2").suite_names()
        for task, one in benchmark("v1.2.2").suite(name).user_tasks.items()
        if is_verbatim(benchmark("v1.2.2").suite(name), one)
    }
    assert found == listed("verbatim", "v1.2.2")
