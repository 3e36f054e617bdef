"""The user's own source files: which of them a config depends on, and what a changed one does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsys.runs.source_files import SourceCollector


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
    return SourceCollector([{"_target_": target}]).hash_files()


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


GUARD = """
import importlib
class Guard:
    def __init__(self, make, scan=None):
        self.check = importlib.import_module(make.partition(":")[0])
"""


def install(site: Path, version: str, text: str) -> None:
    """A distribution as pip leaves it."""
    (site / "ad_wall").mkdir(parents=True, exist_ok=True)
    (site / "ad_wall/__init__.py").write_text(text)
    info = site / "ad_wall-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ad-wall\nVersion: {version}\n")
    (info / "top_level.txt").write_text("ad_wall\n")
    (info / "RECORD").write_text("ad_wall/__init__.py,sha256=x,1\nad_wall-1.dist-info/METADATA,sha256=y,2\n")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (GUARD, {"guards": [{"make": "ad_wall.scan"}]}),
        ("import importlib\nwall = importlib.import_module('ad_wall')\n", {}),
    ],
)
def test_an_installed_package_that_an_adapter_imports_is_known_by_version_and_files(
    plug: Path, monkeypatch: pytest.MonkeyPatch, source: str, options: dict[str, object]
) -> None:
    site = plug / "site-packages"
    # Without the packages of this environment, which would all be looked at each time.
    monkeypatch.setattr(sys, "path", [str(site), *(one for one in sys.path if "site-packages" not in one)])
    write(plug, ad_adapter=source)
    node = {"_target_": "ad_adapter.Guard", **options, "mode": "test", "folder": "runs"}

    def known() -> str:
        importlib.invalidate_caches()
        assert set(SourceCollector([node]).hash_files()) == {"ad_adapter.py"}
        (told,) = SourceCollector([node]).describe_packages().items()
        assert told[0] == "ad-wall"
        return told[1]

    install(site, "0.4.0", "")
    first = known()
    assert first.startswith("0.4.0 ") and known() == first
    install(site, "0.4.0", "safe = False")
    patched = known()
    install(site, "0.5.0", "safe = False")
    assert known().startswith("0.5.0 ") and len({first, patched, known()}) == 3
    assert SourceCollector([{**node, "_target_": "baselines.none.NoDefense"}]).describe_packages() == {}


def test_a_package_beside_the_adapter_that_an_option_names_counts_by_its_files(plug: Path) -> None:
    write(plug, ae_adapter=GUARD, ae_wall__deep="")
    (plug / "ae_wall/__init__.py").touch()
    found = SourceCollector([{"_target_": "ae_adapter.Guard", "make": "ae_wall.deep:Guard"}]).hash_files()
    assert set(found) == {"ae_adapter.py", "ae_wall/__init__.py", "ae_wall/deep.py"}
