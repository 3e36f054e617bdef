"""`agentsys compare` of folders, models, attacks and settings, against numbers counted from `load_runs`."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_output import command_output
from stored_cases import case_of, store_own

import agentsys
from agentsys.errors import ConfigError

TASK = ["suite", "user_task_id", "injection_task_id", "epoch"]
METRICS = {
    "benign_utility": ("utility", True),
    "utility_under_attack": ("utility", False),
    "targeted_asr": ("injection_success", False),
}


def store_grid(
    logdir: Path,
    seed: int,
    *,
    models: tuple[str, ...] = ("gpt-4o",),
    defenses: tuple[str, ...] = ("none", "agentsys"),
    attacks: tuple[str, ...] = ("direct",),
    **record: Any,
) -> Path:
    """Two suites of three user tasks and two injection tasks, with outcomes drawn at random."""
    draw = random.Random(seed)
    for model in models:
        for defense in defenses:
            for suite in ("banking", "slack"):
                for user in range(3):
                    told = {
                        "model": model,
                        "defense": defense,
                        "suite": suite,
                        "user_task_id": f"user_task_{user}",
                    }
                    store_own(logdir, case_of(attack="none", **told), utility=draw.random() < 0.7, **record)
                    for attack in attacks:
                        for goal in range(2):
                            case = case_of(attack=attack, injection_task_id=f"injection_task_{goal}", **told)
                            outcome = {"utility": draw.random() < 0.5, "security": draw.random() < 0.5}
                            store_own(logdir, case, **outcome, **record)
    return logdir


def counted(baseline: pd.DataFrame, compared: pd.DataFrame, metric: str) -> dict[str, Any]:
    """The overall numbers of a comparison, by nothing but pandas."""
    column, benign = METRICS[metric]
    sides = []
    for side in (baseline, compared):
        chosen = side[(side["attack"] == "none") == benign]
        sides.append(chosen[[*TASK, column]].astype({column: float}).fillna({"injection_task_id": "-"}))
    both = sides[0].merge(sides[1], on=TASK, suffixes=("_before", "_after"))
    rates = both.groupby("suite")[[f"{column}_before", f"{column}_after"]].mean().mean()
    turned = both[f"{column}_after"] - both[f"{column}_before"]
    return {
        "baseline_fraction": rates.iloc[0],
        "compared_fraction": rates.iloc[1],
        "difference_fraction": rates.iloc[1] - rates.iloc[0],
        "n": len(both),
        "gained": int((turned > 0).sum()),
        "lost": int((turned < 0).sum()),
        "only_baseline": len(sides[0]) - len(both),
        "only_compared": len(sides[1]) - len(both),
    }


def overall(frame: pd.DataFrame, metric: str, **chosen: str) -> dict[str, Any]:
    rows = frame[(frame["suite"] == "overall") & (frame["cases"] == "all") & (frame["metric"] == metric)]
    for name, value in chosen.items():
        rows = rows[rows[name] == value]
    (row,) = rows.to_dict(orient="records")
    return {str(name): value for name, value in row.items()}


def as_printed(*arguments: object) -> pd.DataFrame:
    return pd.read_csv(
        io.StringIO(command_output("compare", *arguments, "--format", "csv")), keep_default_na=False
    )


def assert_agree(frame: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame, **chosen: str) -> None:
    for metric in METRICS:
        found, wanted = overall(frame, metric, **chosen), counted(before, after, metric)
        assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted), metric


def of(frame: pd.DataFrame, **chosen: str) -> pd.DataFrame:
    for name, value in chosen.items():
        frame = frame[(frame[name] == value) | ((name == "attack") & (frame["attack"] == "none"))]
    return frame


def test_two_folders_with_the_same_cases_are_compared_and_not_merged(tmp_path: Path) -> None:
    before, after = store_grid(tmp_path / "before", 1), store_grid(tmp_path / "after", 2)
    store_own(before, case_of(attack="direct", defense="none", user_task_id="user_task_9"), utility=True)
    frames = [agentsys.load_runs(folder) for folder in (before, after)]
    for shown in (as_printed(before, after), agentsys.compare([before, after]).frame):
        assert set(shown["by"]) == {"run"}
        assert (set(shown["baseline"]), set(shown["compared"])) == ({"before"}, {"after"})
        for defense in ("none", "agentsys"):
            assert_agree(shown, *(of(frame, defense=defense) for frame in frames), defense=defense)
    assert len(agentsys.compare({"old": frames[0], "new": after}).flips) == len(
        agentsys.compare([before, after], by="run").flips
    )


def test_two_models_in_one_folder_and_in_two(tmp_path: Path) -> None:
    store_grid(tmp_path / "one", 3, models=("gpt-4o",))
    store_grid(tmp_path / "two", 4, models=("gpt-5.1",))
    cases = agentsys.load_runs(tmp_path)
    for shown in (
        as_printed(tmp_path, "--by", "model"),
        as_printed(tmp_path / "one", tmp_path / "two"),
        as_printed(tmp_path, "--baseline", "gpt-4o"),
        agentsys.compare(cases, by="model").frame,
    ):
        assert set(shown["by"]) == {"model"}
        for defense in ("none", "agentsys"):
            sides = [of(cases, model=model, defense=defense) for model in ("gpt-4o", "gpt-5.1")]
            assert_agree(shown, *sides, defense=defense, model="gpt-5.1")


def test_one_defense_at_two_settings_in_one_folder_and_in_two(tmp_path: Path) -> None:
    settings = ("agentsys", "agentsys+validator=off")
    store_grid(tmp_path / "on", 5, defenses=settings[:1])
    store_grid(tmp_path / "off", 6, defenses=settings[1:])
    cases = agentsys.load_runs(tmp_path)
    sides = [of(cases, defense=defense) for defense in settings]
    for shown in (as_printed(tmp_path), as_printed(tmp_path / "on", tmp_path / "off")):
        assert set(shown["by"]) == {"defense"}
        assert_agree(shown, *sides, baseline="agentsys", compared="agentsys+validator=off")


def test_two_attacks_on_the_same_tasks(tmp_path: Path) -> None:
    store_grid(tmp_path, 7, attacks=("direct", "important_instructions"), defenses=("agentsys",))
    cases = agentsys.load_runs(tmp_path)
    attacked = cases[cases["attack"] != "none"]
    before, after = (
        attacked[attacked["attack"] == attack] for attack in ("direct", "important_instructions")
    )
    for shown in (as_printed(tmp_path, "--by", "attack"), agentsys.compare(tmp_path).frame):
        assert set(shown["by"]) == {"attack"}
        for metric in ("utility_under_attack", "targeted_asr"):
            found, wanted = overall(shown, metric), counted(before, after, metric)
            assert {name: float(found[name]) for name in wanted} == pytest.approx(wanted)
    assert "6 benign cases are left out" in " ".join(
        command_output("compare", tmp_path, "--by", "attack").split()
    )


def test_runs_of_another_model_and_defense_each_are_compared_whole(tmp_path: Path) -> None:
    store_grid(tmp_path / "a", 8, models=("gpt-4o",), defenses=("none",))
    store_grid(tmp_path / "b", 9, models=("gpt-5.1",), defenses=("agentsys",))
    shown = as_printed(tmp_path / "a", tmp_path / "b")
    assert set(shown["by"]) == {"run"}
    assert_agree(shown, *(agentsys.load_runs(tmp_path / name) for name in "ab"))


def test_folders_of_one_end_are_told_apart_and_the_first_is_the_baseline(tmp_path: Path) -> None:
    for seed, name in enumerate(("new", "old")):
        store_grid(tmp_path / name / "runs", seed)
    shown = as_printed(tmp_path / "old" / "runs", tmp_path / "new" / "runs")
    assert (set(shown["baseline"]), set(shown["compared"])) == ({"old/runs"}, {"new/runs"})


def test_runs_of_other_settings_under_one_name_are_compared_by_run_too(tmp_path: Path) -> None:
    for number in (1, 2):
        store_grid(tmp_path / str(number), number, config_hash=f"{number}")
    assert set(as_printed(tmp_path / "1", tmp_path / "2")["by"]) == {"run"}


def test_defenses_are_not_compared_where_a_file_would_be_left_out(tmp_path: Path) -> None:
    for number in (1, 2):
        store_grid(tmp_path / str(number), number)
    with pytest.raises(ConfigError, match=r"36 cases stand in more than one .* --by run"):
        command_output("compare", tmp_path / "1", tmp_path / "2", "--by", "defense")
    with pytest.raises(ConfigError, match=r"--by run"):
        command_output("compare", tmp_path / "1", tmp_path / "2", "--baseline", "agentsys")


@pytest.mark.parametrize("second", ["", "runs", "."])
def test_runs_that_share_files_are_refused(tmp_path: Path, second: str) -> None:
    store_grid(tmp_path / "runs", 1)
    with pytest.raises(ConfigError, match=r"lies in|give two folders"):
        command_output("compare", tmp_path / "runs", *([tmp_path / second] if second else []), "--by", "run")


def test_a_name_that_is_no_side_is_one_line(tmp_path: Path) -> None:
    store_grid(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"Unknown baseline, by model, 'gpt-4'\. Did you mean gpt-4o"):
        command_output("compare", tmp_path, "--by", "model", "--baseline", "gpt-4")
    with pytest.raises(ConfigError, match=r"Unknown axis 'modle'\. Did you mean model"):
        agentsys.compare(tmp_path, by="modle")
    with pytest.raises(ConfigError, match="by run, not by model"):
        agentsys.compare({"a": tmp_path}, by="model")
    with pytest.raises(ConfigError, match="give two folders"):
        agentsys.compare(agentsys.load_runs(tmp_path), by="run")


def test_a_table_names_the_sides_and_where_they_were_compared(tmp_path: Path) -> None:
    before, after = store_grid(tmp_path / "before", 1), store_grid(tmp_path / "after", 2)
    shown = command_output("compare", before, after)
    assert "against before" in shown
    assert "36 cases stand in more than one folder" in shown
    assert "gpt-4o / agentsys / direct" in shown
    assert "Run Metric +/- Case Id, before Id, run" in " ".join(shown.split())
    stored = json.loads(command_output("compare", before, after, "--format", "json"))
    assert stored["by"] == "run"
    assert all(flip["baseline_case"] == flip["compared_case"] for flip in stored["flips"])
    written = list(csv.DictReader(io.StringIO(command_output("compare", before, after, "--format", "csv"))))
    assert len(written) == len(stored["differences"])
