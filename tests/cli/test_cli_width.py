"""Whatever a command prints fits the columns there are; no number and no name in it is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from rich.cells import cell_len
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.analysis.paper.layout import TABLES
from agentsys.analysis.tables.finding import findings
from agentsys.analysis.tables.output import OutputFormat, written
from agentsys.analysis.tables.report import report
from agentsys.analysis.tables.results_document import results_output
from agentsys.analysis.tables.results_screen import results_screen
from agentsys.cli import app
from agentsys.records.reading import read_cases
from agentsys.records.schema import RoleUsage

ROOT = Path(__file__).parents[2]
WIDTHS = (80, 120, 200)
LONG = "important_instructions_no_model_name"
PRESETS = sorted(path.stem for path in (ROOT / "configs" / "experiment").glob("*.yaml"))


def swept(preset: str, group: str) -> list[str]:
    """What a preset sweeps over, without its options; `none` where it does not."""
    values = yaml.safe_load((ROOT / "configs" / "experiment" / f"{preset}.yaml").read_text(encoding="utf-8"))
    found = (values.get("sweep") or {}).get(group) or ["none"]
    return [str(one) for one in (found if isinstance(found, list) else [found])]


def stored(folder: Path, defenses: list[str], attacks: list[str], model: str = "gpt-4o-mini") -> Path:
    """A few cases under each, some carried out, some errored."""
    for place, defense in enumerate(dict.fromkeys(["none", *defenses])):
        for attack in dict.fromkeys(["none", *attacks]):
            for user in range(2):
                case = case_of(model=model, defense=defense, attack=attack, user_task_id=f"user_task_{user}")
                lost = {"status": "error", "error_kind": "server"} if (place, user) == (1, 1) else {}
                usage = {"agent": RoleUsage(prompt=1234567, completion=89, cost_usd=0.12)}
                store_own(folder, case, simulated=True, security=place == 0, usage=usage, **lost)
    return folder


def lines_of(*words: str, width: int) -> list[str]:
    shown = CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)})
    assert shown.exit_code == 0, shown.output
    return shown.output.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    defenses = ["agentsys", "prompt_sandwiching_in_result", "middleware_no_normalization"]
    return str(stored(tmp_path_factory.mktemp("w"), defenses, [LONG]))


TABLED = [f"table {number} --runs DIR" for number in TABLES]


@pytest.mark.parametrize(
    "command", ["results DIR", "results DIR --full", "measures DIR", "compare DIR", *TABLED]
)
def test_a_command_prints_no_line_wider_than_the_screen(command: str, folder: str) -> None:
    cut = dict.fromkeys(WIDTHS, "")
    for width in WIDTHS:
        # The folder's own name may be wider than the screen: a path is never broken.
        lines = lines_of(*command.replace("DIR", folder).split(), width=width)
        assert [line for line in lines if cell_len(line) > width and folder not in line] == []
        cut[width] = " ".join(lines)
    for width in WIDTHS:
        assert "…" not in cut[width]
        for name in ("prompt_sandwiching_in_result", "middleware_no_normalization"):
            # On 80 columns three long names beside a number are broken, as there is no room for them.
            assert width == 80 or (name in cut[width]) is (name in cut[200])
    numbers = set(re.findall(r"\d+\.\d+", cut[80])) - set(re.findall(r"\d+\.\d+", cut[200]))
    assert numbers == set()


@pytest.mark.parametrize("preset", PRESETS)
def test_the_screen_of_every_preset_fits(preset: str, tmp_path: Path) -> None:
    attacks = [name for name in swept(preset, "attack") if name != "none"]
    stored(tmp_path, swept(preset, "defense"), attacks or ["important_instructions"])
    reading = read_cases([tmp_path])
    found = report(reading, replicates=20)
    said = findings(reading.cases)
    for width in WIDTHS:
        output = results_output(found, screen=results_screen(found, reading.cases, said, width))
        lines = written(output, OutputFormat.TABLE, width).decode().splitlines()
        assert [line for line in lines if cell_len(line) > width] == []
        for name in swept(preset, "defense"):
            assert any(name in line for line in lines)


@pytest.mark.parametrize("kind", ["defenses", "attacks", "models", "benchmarks", "experiments"])
def test_lists_fit_and_begin_each_entry_with_its_whole_name(kind: str) -> None:
    names = {line.split()[0] for line in lines_of("list", kind, width=200) if not line.startswith(" ")}
    for width in WIDTHS:
        lines = lines_of("list", kind, width=width)
        assert [line for line in lines if cell_len(line) > width] == []
        assert names == {line.split()[0] for line in lines if not line.startswith(" ")}
