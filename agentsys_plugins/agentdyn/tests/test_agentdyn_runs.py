"""AgentDyn run, scored again and replayed, on a checkout that the test writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import text_content_block_from_string
from small_runs import Silent, records_in
from stored_cases import case_of, store_own
from tiny_agentdyn import MAILS, tiny_checkout

from agentsys.benchmarks.repeatable_tools import (
    DEFAULT_CLOCK,
    CaseRandom,
    parse_clock,
    use_case_clock,
    use_case_random,
)
from agentsys.errors import ConfigError
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.agentdyn.agentdyn_benchmark import AgentDyn
from agentsys_plugins.agentdyn.checkout import COMMIT, KNOWN, find_agentdyn_folder
from agentsys_plugins.audit.rescoring.rescore import rescore_records

ATTACKED = ["attack=none,important_instructions"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return tiny_checkout(tmp_path / "AgentDyn")


def test_a_record_of_a_suite_that_is_none_is_skipped_and_ends_nothing(checkout: Path, tmp_path: Path) -> None:
    version = AgentDyn(str(checkout)).version
    store_own(
        tmp_path / "runs", case_of(benchmark="agentdyn", version=version, suite="nowhere", attack="none")
    )
    (skipped,) = rescore_records([tmp_path / "runs"], checkout=str(checkout)).skipped
    assert skipped.reason == f"{version} has no suite nowhere"


def run(checkout: Path, logdir: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    outcome = prepare_session(
        [
            "benchmark=agentdyn",
            f"benchmark.source={checkout}",
            "model=simulated",
            f"logdir={logdir}",
            *overrides,
        ]
    ).execute(Silent())
    assert outcome.errors == 0, outcome.troubles
    return records_in(logdir)


def codes(records: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    return {path.split("/", 1)[1]: record["agentsys"]["drawn"] for path, record in records.items()}


def conversations(records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {path: record["messages"] for path, record in records.items()}


@pytest.mark.parametrize("defense", ["none", "agentsys", "fides", "camel_no_policies"])
def test_the_simulated_agent_reads_the_code_of_the_case_from_the_mail(
    checkout: Path, tmp_path: Path, defense: str
) -> None:
    records = run(checkout, tmp_path / "runs", f"defense={defense}", *ATTACKED)
    assert len(records) == 6
    benign = [record for path, record in records.items() if "/none/" in path]
    assert all(record["utility"] for record in benign)
    assert all(re.fullmatch(r"\d{6}", code) for record in benign for code in record["agentsys"]["drawn"])
    assert {record["agentsys"]["case"]["version"] for record in benign} == {AgentDyn(str(checkout)).version}


@pytest.mark.slow
def test_a_case_has_the_same_codes_whatever_defends_it_and_however_many_threads_there_are(
    checkout: Path, tmp_path: Path
) -> None:
    alone = run(checkout, tmp_path / "one", *ATTACKED, "executor.workers=1")
    beside = run(checkout, tmp_path / "four", *ATTACKED, "executor.workers=4")
    assert conversations(alone) == conversations(beside)
    defended = run(checkout, tmp_path / "defended", *ATTACKED, "defense=prompt_sandwiching")
    assert codes(defended) == codes(alone)
    other = run(checkout, tmp_path / "seed", *ATTACKED, "seed=1")
    assert all(codes(other)[path] != drawn for path, drawn in codes(alone).items())
    again = run(checkout, tmp_path / "epochs", "attack=none", "epochs=2", "benchmark.suites=[github]")
    assert len({tuple(record["agentsys"]["drawn"]) for record in again.values()}) == 2


@pytest.mark.slow
def test_agentdojo_and_agentdyn_in_one_process_give_what_each_gives_alone(
    checkout: Path, tmp_path: Path
) -> None:
    def banking(logdir: Path) -> dict[str, Any]:
        chosen = ["benchmark.suites=[banking]", "user_tasks=[0,4]", *ATTACKED, "limit_per_suite=6"]
        assert prepare_session([*chosen, f"logdir={logdir}"]).execute(Silent()).errors == 0
        return conversations(records_in(logdir))

    first = banking(tmp_path / "before")
    dynamic = conversations(run(checkout, tmp_path / "dynamic", *ATTACKED))
    assert banking(tmp_path / "after") == first
    assert conversations(run(checkout, tmp_path / "dynamic again", *ATTACKED)) == dynamic


@pytest.mark.slow
def test_the_same_files_elsewhere_finish_no_case_anew_and_changed_ones_do(
    checkout: Path, tmp_path: Path
) -> None:
    run(checkout, tmp_path / "runs", "attack=none")

    def left(folder: Path) -> int:
        chosen = ["benchmark=agentdyn", f"benchmark.source={folder}", "model=simulated", "attack=none"]
        return len(prepare_session([*chosen, f"logdir={tmp_path / 'runs'}"]).plan.open_jobs)

    assert left(tiny_checkout(tmp_path / "copy")) == 0
    assert left(tiny_checkout(tmp_path / "changed", maker="another")) == 3


class EndsOnTool(BasePipelineElement):  # type: ignore[misc]
    """Says something, then calls a tool and never comes back to it."""

    name = "ends on a tool"

    def query(self, query: Any, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        call = FunctionCall(function="poke", args={})
        runtime.run_function(env, "poke", {})
        words = [text_content_block_from_string("I poke.")]
        said = [
            {"role": "assistant", "content": words, "tool_calls": [call]},
            {"role": "tool", "content": words, "tool_call": call, "tool_call_id": None, "error": None},
        ]
        return query, runtime, env, said, {}


def test_a_conversation_that_ends_on_a_tool_is_scored_unless_agentdojos_rule_is_asked_for(
    checkout: Path,
) -> None:
    for answer in ("last_assistant", "last_message"):
        bench = AgentDyn(str(checkout), answer=answer)
        suite = bench.suite("github")
        tasks = suite.user_tasks["user_task_0"], suite.injection_tasks["injection_task_0"]
        if answer == "last_assistant":
            assert suite.run_task_with_pipeline(EndsOnTool(), *tasks, {}) == (False, True)
        else:
            assert bench.name == "agentdyn+last_message"
            with pytest.raises(ValueError, match="not an assistant message"):
                suite.run_task_with_pipeline(EndsOnTool(), *tasks, {})


def as_published(records: Mapping[str, dict[str, Any]], folder: Path) -> Path:
    """The records as AgentDyn's own runner would have written them."""
    for path, record in records.items():
        _, *rest = path.split("/")
        place = folder / "gpt-4o-mini" / "/".join(rest)
        place.parent.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in record.items() if key != "agentsys"}
        place.write_bytes(
            orjson.dumps({**kept, "pipeline_name": "gpt-4o-mini", "benchmark_version": "v1.2.2"})
        )
    return folder


def test_records_are_scored_again_with_the_codes_that_they_tell_of(checkout: Path, tmp_path: Path) -> None:
    own = run(checkout, tmp_path / "own", *ATTACKED, "model.susceptibility=0.0")
    published = as_published(own, tmp_path / "published")
    for folder in (tmp_path / "own", published):
        found = rescore_records([folder], checkout=str(checkout))
        assert [case.scores.utility for case in found.cases] == [True] * 6
        assert not [flip for case in found.cases for flip in case.flips]
        assert {case.version for case in found.cases} == {AgentDyn(str(checkout)).version}
    for path in published.rglob("*.json"):  # what nobody can know is not made up
        path.write_text(re.sub(r"Your OTP is: \d{6}", "Your OTP is kept back", path.read_text()))
    flips = [
        flip for case in rescore_records([published], checkout=str(checkout)).cases for flip in case.flips
    ]
    assert {(flip.score, flip.rescored, flip.reason.value) for flip in flips} == {
        ("utility", False, "numbers drawn anew")
    }


def test_records_are_not_scored_with_another_checkout_or_none(checkout: Path, tmp_path: Path) -> None:
    run(checkout, tmp_path / "own", "attack=none")
    other = tiny_checkout(tmp_path / "other", maker="another")
    for source, said in ((str(other), "made with agentdyn"), ("/no/such", "there is no folder /no/such")):
        found = rescore_records([tmp_path / "own"], checkout=source)
        assert not found.cases
        assert all(said in skipped.reason for skipped in found.skipped)
        assert len(found.skipped) == 3


def test_scores_are_not_remembered_because_a_checkout_may_change_in_its_place(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run(checkout, tmp_path / "own", "attack=none")
    for _ in range(2):
        found = rescore_records([tmp_path / "own"], checkout=str(checkout), remember=True)
        assert (len(found.cases), found.known, found.remembered) == (3, 0, {})


def test_published_runs_are_replayed_with_the_codes_that_they_tell_of(checkout: Path, tmp_path: Path) -> None:
    own = run(checkout, tmp_path / "own", *ATTACKED, "model.susceptibility=0.0", "seed=7")
    published = as_published(own, tmp_path / "published")
    replayed = run(checkout, tmp_path / "replayed", *ATTACKED, "model=replay", f"model.traces={published}")
    assert codes(replayed) == codes(own)
    assert all(record["utility"] for record in replayed.values())


def test_a_call_that_a_published_defense_refused_did_not_run() -> None:
    from agentsys_plugins.audit.rescoring.read_trajectories import parse_messages

    words = (
        "ValidationError: Tool 'poke' is not allowed.. Please try other tools or arguments and continue to"
    )
    asked = [FunctionCall(function=name, args={}).model_dump() for name in ("poke", "look")]
    told = parse_messages(
        [
            {"role": "user", "content": "Poke."},
            {"role": "assistant", "content": None, "tool_calls": asked},
            {
                "role": "tool",
                "content": "",
                "tool_call": asked[0],
                "error": f"{words} finish the user task: Poke.",
            },
            {"role": "tool", "content": "", "tool_call": asked[1], "error": "ValueError: nothing to see"},
            {"role": "assistant", "content": "I may not."},
        ],
        None,
    )
    assert [call.function for call in told.executed_calls] == ["look"]
    assert [call.function for call in told.requested_calls] == ["poke", "look"]


def notes(bench: AgentDyn, key: str) -> str:
    suite = bench.suite("github")
    runtime, environment = FunctionsRuntime(suite.tools), suite.load_and_inject_default_environment({})
    with use_case_clock(parse_clock(DEFAULT_CLOCK)), use_case_random(CaseRandom((key,))):
        runtime.run_function(environment, "ask_code", {})
        value, error = runtime.run_function(environment, MAILS["github"], {})
    assert error is None
    return str(value)


@pytest.mark.parametrize("inside", [".", "src", "src/agentdojo", ".."])
def test_a_checkout_is_found_from_the_repository_its_src_its_package_and_the_folder_it_lies_in(
    tmp_path: Path, inside: str
) -> None:
    folder = tiny_checkout(tmp_path / "above" / "AgentDyn")
    bench = AgentDyn(str(folder / inside))
    assert (bench.name, list(bench.suite_names())) == ("agentdyn", ["shopping", "github", "dailylife"])
    assert vars(bench.suite("shopping"))["system_message"] == "Do everything without asking."


def test_the_same_files_elsewhere_are_the_same_version_and_changed_ones_are_not(tmp_path: Path) -> None:
    folder = tiny_checkout(tmp_path / "one")
    same = AgentDyn(str(tiny_checkout(tmp_path / "copy")))
    assert AgentDyn(str(folder)).version == same.version
    data = folder / "src/agentdojo/data/suites/github/environment.yaml"
    data.write_text(data.read_text().replace("notes:", "notes:\n  - text: Added later."))
    changed = AgentDyn(str(folder))
    assert changed.version != same.version
    assert "Added later." in notes(changed, "case")
    assert "Added later." not in notes(same, "case")


def test_the_version_names_the_commit_that_is_checked_out_and_the_files(tmp_path: Path) -> None:
    folder = tiny_checkout(tmp_path)
    own = AgentDyn(str(folder)).version
    assert own.startswith("own-")
    assert set(KNOWN.values()) == {COMMIT[:7]}


def broken(folder: Path, path: str, text: str | None) -> Path:
    place = folder / "src" / "agentdojo" / path
    if text is None:
        place.unlink()
    else:
        place.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"source": "/no/such/folder"}, "there is no folder /no/such/folder; give the folder of a checkout"),
        ({"suites": ["githb"]}, "Did you mean github?"),
        ({"suites": []}, "leaves no suite"),
        ({"injection": "exactly"}, "Did you mean exact?"),
        ({"answer": "first"}, "Unknown benchmark.answer 'first'"),
        ({"clock": "noon"}, "benchmark.clock=noon"),
    ],
)
def test_a_slip_is_told_in_one_line_with_the_mend(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        AgentDyn(**{"source": str(tiny_checkout(tmp_path)), **options})
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_nothing_fetched_is_told_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="run `agentsys fetch agentdyn`"):
        AgentDyn()
    tiny_checkout(find_agentdyn_folder() / "AgentDyn-5353cf7")
    assert AgentDyn().version.startswith("own-")


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("default_suites/v1/shopping/task_suite.py", None, "no AgentDyn in"),
        ("default_suites/v1/tools/client.py", "1 +", "SyntaxError"),
        ("default_suites/v1/github/tasks.py", "import no_such_module", "ModuleNotFoundError"),
        ("data/system_messages.yaml", "other: x", "no message named default"),
        ("data/suites/github/environment.yaml", None, "No such file"),
    ],
)
def test_a_checkout_that_is_not_whole_is_told_in_one_line(
    tmp_path: Path, path: str, text: str | None, said: str
) -> None:
    folder = broken(tiny_checkout(tmp_path, maker=path), path, text)
    with pytest.raises(ConfigError) as told:
        AgentDyn(str(folder)).suite("github")
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    tiny_checkout(tmp_path, maker=path)  # mended, in the same process
    assert AgentDyn(str(folder)).suite("github").user_tasks
