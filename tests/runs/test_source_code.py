"""The user's own source files: which of them a config depends on, and what a changed one does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsys.runs.references import hash_source_files


@pytest.fixture
def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def code(target: str) -> dict[str, str]:
    return hash_source_files([{"_target_": target}])


def test_a_module_brings_what_it_imports_and_nothing_else_of_its_folder(plug: Path) -> None:
    write(plug, aa_wall="def f():\n    from aa_inner import WORD\n", aa_inner="import aa_deep", aa_deep="")
    write(plug, aa_other="")
    assert set(code("aa_wall.Wall")) == {"aa_wall.py", "aa_inner.py", "aa_deep.py"}


def test_a_module_in_a_package_brings_the_whole_package_and_what_that_module_imports(plug: Path) -> None:
    write(plug, ab_pkg__wall="from . import words\nfrom .sub.deep import X\n", ab_pkg__words="")
    write(plug, ab_pkg__sub__deep="import ab_beside", ab_pkg__unused="import ab_far", ab_beside="", ab_far="")
    (plug / "ab_pkg/.hidden").mkdir()
    write(plug / "ab_pkg/.hidden", x="")
    names = {"ab_pkg/wall.py", "ab_pkg/words.py", "ab_pkg/sub/deep.py", "ab_pkg/unused.py", "ab_beside.py"}
    assert set(code("ab_pkg.wall.Wall")) == names


def test_files_that_the_source_names_count_as_well(plug: Path) -> None:
    write(
        plug, ac_wall="from pathlib import Path\nTEXT = Path(__file__).with_name('rules.txt').read_text()\n"
    )
    (plug / "rules.txt").write_text("one")
    (plug / "notes.txt").write_text("one")
    before = code("ac_wall.Wall")
    assert set(before) == {"ac_wall.py", "rules.txt"}
    (plug / "rules.txt").write_text("two")
    assert code("ac_wall.Wall")["rules.txt"] != before["rules.txt"]


@pytest.mark.parametrize(
    "target",
    [
        "agentsys.models.providers.openai.OpenAIModel",
        "baselines.none.NoDefense",
        "json.JSONDecoder",
        "nowhere.X",
        "",
    ],
)
def test_ours_pythons_own_and_unknown_modules_have_no_entry(target: str) -> None:
    assert code(target) == {}


def test_an_installed_package_is_covered_without_what_it_imports() -> None:
    found = code("pluggy.PluginManager")
    assert "pluggy/__init__.py" in found
    assert all(name.startswith("pluggy/") for name in found)


def test_after_an_edit_the_code_that_is_hashed_is_the_code_that_runs(plug: Path) -> None:
    write(plug, ag_wall="from ag_word import WORD\n", ag_word="WORD = 'old'\n")
    code("ag_wall.Wall")
    assert importlib.import_module("ag_wall").WORD == "old"
    write(plug, ag_word="WORD = 'newer'\n")
    assert importlib.import_module("ag_wall").WORD == "old"
    code("ag_wall.Wall")
    assert importlib.import_module("ag_wall").WORD == "newer"
