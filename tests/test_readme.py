"""The README begins with what a newcomer gets: a picture, and the very screen of the quickstart."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from agentsys.models.simulated.victim.predict import asr_range
from agentsys.models.simulated.victim.profile import load_profile
from agentsys.records.load import load_runs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TIME = re.compile(r"\d+:\d\d:\d\d")
_SO_FAR = re.compile(r"^\d+/\d+ cases, .*?cost \S+\n", re.MULTILINE | re.DOTALL)
"""A line of progress, once a minute: a slow machine prints some."""


def test_it_is_short_and_begins_with_the_picture_of_a_result() -> None:
    assert len(README.splitlines()) <= 120
    picture = re.search(r"!\[[^\]]*simulated[^\]]*\]\(([^)]+)\)", README)
    assert picture and (ROOT / picture[1]).is_file()
    first = README[: README.index("## Two commands")]
    assert "simulated, fitted to gpt-4o-mini (629 cases, " in first and "factor" in first


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pandas.DataFrame]:
    """What the quickstart prints at 100 columns, and its cases."""
    folder = tmp_path_factory.mktemp("quickstart")
    done = subprocess.run(
        [sys.executable, "-m", "agentsys", "run", "experiment=quickstart"],
        cwd=folder,
        env=os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return _SO_FAR.sub("", done.stdout), load_runs(folder / "results" / "runs" / "quickstart")


@pytest.mark.slow
def test_its_screen_is_what_the_quickstart_prints(quickstart: tuple[str, pandas.DataFrame]) -> None:
    shown = next(block for block in re.findall(r"^```\n(.*?)^```", README, re.M | re.S) if "ASR" in block)
    assert _TIME.sub("0:00:00", shown) == _TIME.sub("0:00:00", quickstart[0])


@pytest.mark.slow
def test_its_rows_differ_for_the_reasons_that_the_page_on_victims_names(
    quickstart: tuple[str, pandas.DataFrame],
) -> None:
    screen, cases = quickstart
    page = (ROOT / "docs" / "victims.md").read_text(encoding="utf-8")
    reasons = page.split("## The quickstart")[1].split("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", reasons, re.M)) == 10

    def those(defense: str, attacked: bool, column: str) -> set[tuple[str, str, str]]:
        rows = cases[(cases["defense"] == defense) & ((cases["attack"] != "none") == attacked)]
        held = rows[rows[column].astype(bool)]
        return {(str(r.suite), str(r.user_task_id), str(r.injection_task_id)) for r in held.itertuples()}

    met, obeyed = (those("none", True, column) for column in ("exposed_raw", "injection_success"))
    assert f"payload in {len(met)} of them, {len(obeyed)} obey" in reasons
    assert f"and {100 * len(obeyed) / 48:.1f}% do" in reasons
    attacked = cases[cases["attack"] != "none"]
    pairs = {(str(r.suite), str(r.user_task_id), str(r.injection_task_id)) for r in attacked.itertuples()}
    expected, _ = asr_range(load_profile("gpt-4o-mini"), (0.0, 0.0), pairs)
    assert f"profile expects {expected:.1f}% of these" in reasons

    benign = {
        name: those(name, False, "utility") for name in ("none", "agentsys", "phrase_detector", "progent")
    }
    assert benign["none"] == benign["agentsys"] == benign["phrase_detector"]
    assert benign["progent"] - benign["none"] == {("banking", "user_task_10", "nan")}
    solved = {name: those(name, True, "utility") for name in ("none", "agentsys", "phrase_detector")}
    lost = solved["none"] - solved["phrase_detector"]
    assert f"the {len(lost)} tasks lost" in reasons and lost <= met
    assert len((solved["agentsys"] - solved["none"]) & obeyed) == 1

    shown = {name: those(name, True, "exposed_shown") for name in ("none", "agentsys", "camel", "progent")}
    assert shown["progent"] == shown["none"] and not shown["agentsys"] and not shown["camel"]
    for defense in ("agentsys", "camel", "phrase_detector", "progent"):
        assert not those(defense, True, "injection_success")
    camel = those("camel", False, "utility")
    assert camel - benign["none"] and benign["none"] - camel
    (interval,) = re.findall(r"^prompt_sandwiching .* (\d+)-(\d+) .* factor$", screen, re.M)
    assert "an ASR of {} to {}%".format(*interval) in reasons
    assert "prompt_sandwiching" not in set(cases["defense"])


def path_of_commands() -> list[tuple[str, str]]:
    """Each command of the path, and what it prints among other things."""
    block = README.split("## A path of twelve commands")[1].split("```\n")[1]
    found = []
    for line in block.splitlines():
        command, said = line.split("  # ", maxsplit=1)
        found.append((command.strip(), said.strip()))
    return found


@pytest.mark.slow
def test_the_path_of_twelve_commands_prints_what_stands_behind_each(tmp_path: Path) -> None:
    commands = path_of_commands()
    assert len(commands) == 12
    for command, said in commands:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert said in " ".join(done.stdout.split()), f"{command}: {done.stdout}"
