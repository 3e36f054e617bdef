"""AgentDyn beside the installed agentdojo, from checkouts that the tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionsRuntime
from tiny_agentdyn import MAILS, tiny_checkout

from agentsys.benchmarks.agentdyn.agentdyn_benchmark import AgentDyn
from agentsys.benchmarks.agentdyn.checkout import COMMIT, KNOWN, agentdyn_folder
from agentsys.benchmarks.repeatable_tools import (
    DEFAULT_CLOCK,
    CaseRandom,
    parse_clock,
    use_case_clock,
    use_case_random,
)
from agentsys.errors import ConfigError


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
    tiny_checkout(agentdyn_folder() / "AgentDyn-5353cf7")
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
