"""The notebooks: kept without outputs, short, and run top to bottom on runs they make themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output

nbformat = pytest.importorskip("nbformat", reason="the notebooks extra is not installed")
nbclient = pytest.importorskip("nbclient", reason="the notebooks extra is not installed")

ROOT = Path(__file__).parents[1]
NAMES = ("reproduce_paper", "compare_a_defense", "explore_trajectories")


def source_of(name: str) -> Any:
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def outputs_of(notebook: Any, kind: str) -> list[str]:
    """Everything shown under one MIME type."""
    data = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return ["".join(shown[kind]) for shown in data if kind in shown]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_valid_short_and_kept_without_outputs(name: str) -> None:
    notebook = source_of(name)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    assert len(notebook.cells) <= 20
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert all(not cell.metadata for cell in notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_uses_the_public_functions_alone(name: str) -> None:
    code = "\n".join(cell.source for cell in source_of(name).cells if cell.cell_type == "code")
    assert "import agentsys\n" in code
    assert "agentsys." in code
    assert not re.search(r"(?:from|import) +agentsys\.", code)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place where nothing has been run yet; the notebooks share what the first of them runs."""
    folder = tmp_path_factory.mktemp("clone") / "notebooks"
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_top_to_bottom_from_a_clean_clone(
    name: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTSYS_RUNS", raising=False)
    notebook = source_of(name)
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(clone)}}
    )
    client.execute()
    assert (clone.parent / "results" / "runs" / "notebooks" / ".agentsys").is_dir()
    errors = [out for cell in notebook.cells for out in cell.get("outputs", []) if out.output_type == "error"]
    assert errors == []
    tables = outputs_of(notebook, "text/html")
    assert any("simulated+susceptibility=" in shown for shown in tables)
    assert not any("(simulated)" in shown for shown in tables), "a simulated model is marked once"
    if name == "reproduce_paper":
        assert len(outputs_of(notebook, "image/png")) == 2
        assert any("Table 2" in shown for shown in outputs_of(notebook, "text/html"))


@pytest.mark.slow
def test_a_notebook_reads_the_runs_it_is_pointed_at_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "mine"
    sweep = ["defense=none,agentsys", "attack=none,important_instructions", "limit_per_suite=2"]
    command_output("run", "model=simulated", *sweep, f"logdir={runs}")
    folder = tmp_path / "clone" / "notebooks"
    folder.mkdir(parents=True)
    monkeypatch.setenv("AGENTSYS_RUNS", str(runs))
    nbclient.NotebookClient(
        source_of("explore_trajectories"),
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    assert [path.name for path in folder.parent.rglob("*") if path.is_file()] == ["report.html"]
