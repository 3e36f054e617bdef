"""Modules that take long to import and are seldom used are executed late, and nobody notices."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentsys import light_imports
from agentsys.light_imports import import_lightly

HEAVY = """
import late_log
late_log.lines.append(__name__)
from late_package.part import Part
late_log.wait()
__all__ = ["Part", "SETTING"]
SETTING = {"a": 1}
def late(): return SETTING
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is deferred, with a submodule, and the module in which it says that it was executed."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(HEAVY)
    (folder / "part.py").write_text("class Part: pass\n")
    (tmp_path / "late_log.py").write_text("lines = []\ndef wait(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaders = dict.fromkeys(("late_package", "late_package.words"), light_imports._LateLoader)
    monkeypatch.setattr(light_imports, "_LOADERS", {**loaders, "late_pandas": light_imports._OneLater})
    monkeypatch.setattr(light_imports, "_LATE_WITHIN", {"late_pandas": "pandas"})
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def executed() -> list[str]:
    lines: list[str] = importlib.import_module("late_log").lines
    return lines


def imported() -> Any:
    return importlib.import_module("late_package")


def test_a_submodule_is_imported_without_the_package_being_executed(package: Path) -> None:
    part = importlib.import_module("late_package.part")
    assert executed() == []
    assert imported().Part is part.Part
    assert executed() == ["late_package"]


@pytest.mark.parametrize(
    "statement",
    [
        "from late_package import SETTING",
        "from late_package import *; SETTING",
        "import late_package; assert 'late' in dir(late_package)",
        "import late_package; assert late_package.late() == {'a': 1}",
        "import inspect, late_package; assert 'late' in dict(inspect.getmembers(late_package))",
    ],
)
def test_whoever_asks_for_a_name_has_it_executed_once(package: Path, statement: str) -> None:
    exec(statement, {})
    exec(statement, {})
    module = imported()
    assert executed() == ["late_package"]
    assert type(module) is ModuleType
    assert (module.__file__, list(module.__path__)) == (str(package / "__init__.py"), [str(package)])
    assert "SETTING" in inspect.getsource(module)


def test_a_name_that_is_nowhere_is_an_attribute_error_as_ever(package: Path) -> None:
    for _ in range(2):
        with pytest.raises(AttributeError, match="module 'late_package' has no attribute 'nowhere'"):
            imported().nowhere  # noqa: B018
    assert not hasattr(imported(), "__path_of_nothing__")


def test_a_constant_is_answered_from_the_source(package: Path) -> None:
    text = "import late_log\nlate_log.lines.append(__name__)\nEMPTY = '<none>'\nTWICE = 1\nTWICE = 2\n"
    (package / "words.py").write_text(text)
    from late_package.words import EMPTY  # type: ignore[import-not-found]

    assert (EMPTY, executed()) == ("<none>", [])
    from late_package.words import TWICE

    assert (TWICE, executed()) == (2, ["late_package.words"])


def test_a_package_that_reads_itself_while_it_is_executed_does_not_hang(package: Path) -> None:
    (package / "part.py").write_text(
        "import late_package\nclass Part: pass\nseen = getattr(late_package, 'SETTING', 'not yet')\n"
    )
    assert imported().SETTING == {"a": 1}
    assert importlib.import_module("late_package.part").seen == "not yet"


def test_an_error_in_it_is_raised_to_each_who_asks_until_it_is_mended(package: Path) -> None:
    (package / "part.py").write_text("class Part: pass\nimport module_that_is_nowhere\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="module_that_is_nowhere"):
            exec("from late_package import Part", {})
    assert executed() == ["late_package"] * 2
    (package / "part.py").write_text("class Part: pass\n")
    importlib.invalidate_caches()
    assert imported().SETTING == {"a": 1}


def test_a_wrong_attribute_in_its_code_does_not_read_as_if_the_name_were_not_there(package: Path) -> None:
    (package / "__init__.py").write_text("import sys\nPart = 1\nsys.no_such_function()\nSETTING = []\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="late_package: module 'sys' has no attribute"):
            exec("from late_package import SETTING", {})
    assert "Part" not in vars(imported())


def test_what_was_set_from_outside_stays(package: Path) -> None:
    imported().SETTING = "mine"
    assert imported().late() == "mine"


@pytest.mark.parametrize("before", [True, False])
def test_it_can_be_reloaded(package: Path, before: bool) -> None:
    module = imported()
    if before:
        assert module.SETTING
    assert importlib.reload(module) is module
    assert executed() == ["late_package"] * (1 + before)
    assert module.SETTING == {"a": 1}
    assert not hasattr(module, "nowhere")
    assert "late" in dir(module)
    assert executed() == ["late_package"] * (1 + before)


def test_threads_at_once_get_one_whole_module(package: Path) -> None:
    begun = threading.Event()
    goes_on = threading.Event()

    def wait() -> None:
        begun.set()
        goes_on.wait(60)

    vars(importlib.import_module("late_log"))["wait"] = wait
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(imported().late()["a"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    assert found == []
    goes_on.set()
    for thread in threads:
        thread.join(60)
    assert (found, executed()) == ([1] * 4, ["late_package"])


def test_asked_for_twice_it_is_set_up_once() -> None:
    before = list(sys.meta_path)
    import_lightly()
    assert sys.meta_path == before


def test_pandas_is_imported_for_a_module_when_it_is_looked_at(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "try:\n    import pandas\nexcept ImportError:\n    pandas = None\nimport json\n"
    (package.parent / "late_pandas.py").write_text(text)
    (package.parent / "pandas.py").write_text("class DataFrame: pass\n")
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    module = importlib.import_module("late_pandas")
    assert "pandas" not in sys.modules and module.pandas and module.json is json
    assert isinstance(module.pandas.DataFrame(), sys.modules["pandas"].DataFrame)
    with pytest.raises(AttributeError):
        module.pandas.Nowhere  # noqa: B018
    assert importlib.reload(module).pandas is sys.modules["pandas"]


def test_a_module_that_can_do_without_pandas_is_told_that_there_is_none(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package.parent / "late_pandas.py").write_text(
        "try:\n    import pandas\nexcept ImportError:\n    pandas = 0\n"
    )
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    assert importlib.import_module("late_pandas").pandas == 0


AGENTDOJO = """
import json, pickle, sys, threading
from agentsys.models.loop import tool_loop
import agentdojo.task_suite.load_suites, agentdojo.attacks
from agentdojo.agent_pipeline.tool_execution import EMPTY_FUNCTION_NAME
sdks = {"openai", "anthropic", "google.genai", "cohere"}
early = sorted((sdks | {"pandas"}) & set(sys.modules))
import deepdiff.deephash, pandas
frames = [pandas.DataFrame({"a": [n]}) for n in (1, 1, 2)]
one, same, other = (deepdiff.deephash.DeepHash(frame)[frame] for frame in frames)
assert one == same != other
found = []
def look():
    from agentdojo.agent_pipeline import AgentPipeline, OpenAILLM
    found.append((AgentPipeline, OpenAILLM))
threads = [threading.Thread(target=look) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import agentdojo.agent_pipeline as package
from agentdojo.agent_pipeline import *
from agentdojo.agent_pipeline.llms import google_llm
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline as same
assert found == [(AgentPipeline, OpenAILLM)] * 2 and same is AgentPipeline
assert google_llm.GoogleLLM is GoogleLLM and google_llm.EMPTY_FUNCTION_NAME == EMPTY_FUNCTION_NAME
assert pickle.loads(pickle.dumps(GoogleLLM)) is GoogleLLM
assert set(package.__all__) <= set(dir(package)) and type(google_llm) is type(sys)
assert isinstance(AgentPipeline([]), package.BasePipelineElement)
print(json.dumps([early, sorted(sdks & set(sys.modules))]))
"""


@pytest.mark.slow
def test_agentdojo_itself_is_whole_when_its_models_are_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGENTDOJO], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], ["anthropic", "cohere", "google.genai", "openai"]]


SCIPY = """
import sys, agentsys
import numpy, scipy
from agentsys.analysis.statistics import special_functions as compiled
assert float(compiled.expit(0.0)) == 0.5 and "scipy.special._basic" not in sys.modules
assert all(getattr(scipy.special, name) is getattr(compiled, name) for name in compiled.NAMES)
assert scipy.special.expit(0.0) == 0.5 and abs(scipy.special.stdtrit(3.0, 0.975) - 3.1824463) < 1e-7
early = {"numpy.f2py.crackfortran", "unittest", "charset_normalizer"} & set(sys.modules)
assert not early, early
from numpy.testing import assert_allclose
import numpy.f2py, unittest
assert_allclose(1.0, 1.0)
assert callable(numpy.f2py.run_main) and issubclass(numpy.testing.TestCase, unittest.TestCase)
assert type(numpy.f2py) is type(numpy.testing) is type(scipy.special) is type(sys)
"""


def test_scipys_compiled_functions_come_alone_and_its_package_without_numpys_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCIPY], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


ADDRESSES = """
import sys, agentsys, pydantic
from agentdojo.default_suites.v1.tools.types import Email
import deepdiff, cachebox
assert "asyncio" not in sys.modules
assert cachebox.Cache(2) is not None and "asyncio" not in sys.modules
class Person(pydantic.BaseModel):
    address: pydantic.EmailStr
assert "email_validator" in sys.modules and "email_validator.syntax" not in sys.modules
assert Person(address="a@example.com").address == "a@example.com"
try:
    Person(address="nobody")
except pydantic.ValidationError as error:
    assert "not a valid email address" in str(error)
else:
    raise AssertionError
assert type(sys.modules["email_validator"]) is type(sys) and "email_validator.syntax" in sys.modules
"""


def test_suites_come_without_asyncio_and_what_checks_addresses_is_executed_for_the_first_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ADDRESSES], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
