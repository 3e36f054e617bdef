"""`load_suites`: the fork's modules, executed under a private name from what was read of a checkout.

The fork calls itself `agentdojo`, and so do the import statements in it. Those of `agentdojo.default_suites`
are read as the private package's; everything else of agentdojo is the installed one's. So nothing that is
installed is altered, and two checkouts in one process know nothing of each other.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from threading import Lock
from types import CodeType, ModuleType
from typing import Any

from agentdojo.task_suite.task_suite import read_suite_file

from agentsys.benchmarks.agentdyn.checkout import AGENTDYN_SUITES, Checkout
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.python_parser import parse_module

_PACKAGE = "agentdojo.default_suites"
_CODE = "default_suites"
_LOCK = Lock()
_LOADED: dict[str, Mapping[str, Suite]] = {}
"""Private package -> its suites."""


def load_fork_suites(checkout: Checkout) -> Mapping[str, Suite]:
    """The suites of a checkout, by name; the same objects for the same files.

    This executes the checkout's Python code, as installing and importing it would.

    Raises:
        ConfigError: If a module fails, or a suite is not there.
    """
    private = private_package_name(checkout)
    with _LOCK:
        if private not in _LOADED:
            _LOADED[private] = _import_suites(checkout, private)
        return _LOADED[private]


def private_package_name(checkout: Checkout) -> str:
    """The name under which a checkout's modules stand in `sys.modules`."""
    return f"agentsys_agentdyn_{checkout.digest[:16]}"


def find_fork_tool_modules(checkout: Checkout) -> list[ModuleType]:
    """The loaded modules of its tools, with those that only other tools use."""
    start = f"{private_package_name(checkout)}.v1."
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(f"{start}tools.") or (name.startswith(start) and name.endswith(".task_suite"))
    ]


def _import_suites(checkout: Checkout, private: str) -> Mapping[str, Suite]:
    # The package keeps texts by path, and this folder may have held other files before.
    read_suite_file.cache_clear()
    finder = _Finder(checkout, private)
    sys.meta_path.append(finder)  # for as long as the suites are imported: all of their modules are, then
    try:
        return {name: _import_suite(checkout, private, name) for name in AGENTDYN_SUITES}
    except Exception as error:
        for name in [name for name in sys.modules if name.partition(".")[0] == private]:
            del sys.modules[name]
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(
            f"AgentDyn in {checkout.package} cannot be loaded ({said}); take the commit of"
            " `agentsys fetch agentdyn`, or mend the checkout."
        ) from error
    finally:
        sys.meta_path.remove(finder)


def _import_suite(checkout: Checkout, private: str, name: str) -> Suite:
    suite: Suite = getattr(importlib.import_module(f"{private}.v1.{name}"), f"{name}_task_suite")
    suite.data_path = checkout.data_path(name)
    return suite


class _Finder(MetaPathFinder):
    """Finds the modules of one checkout."""

    def __init__(self, checkout: Checkout, private: str) -> None:
        self.checkout, self.private = checkout, private

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != self.private:
            return None
        place = "/".join([_CODE, *rest.split(".")]) if rest else _CODE
        if f"{place}.py" in self.checkout.files:
            return self._spec(fullname, f"{place}.py", package=False)
        if f"{place}/__init__.py" in self.checkout.files or place == _CODE:
            return self._spec(fullname, f"{place}/__init__.py", package=True)
        return None

    def _spec(self, fullname: str, file: str, *, package: bool) -> ModuleSpec:
        origin = str(self.checkout.package / file)
        loader = _RewritingLoader(self.checkout.files.get(file, b""), origin, self.private)
        spec = ModuleSpec(fullname, loader, origin=origin, is_package=package)
        spec.has_location = True
        return spec


class _RewritingLoader(SourceLoader):
    """Loads one module. Writes nothing beside it: byte code of ours is not what Python expects there."""

    def __init__(self, source: bytes, origin: str, private: str) -> None:
        self._source, self._origin, self._private = source, origin, private

    def get_filename(self, fullname: str) -> str:
        return self._origin

    def get_data(self, path: str) -> bytes:
        if path != self._origin:
            raise OSError(f"no data but the source of {self._origin}")
        return self._source

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = _ImportRenamer(self._private).visit(parse_module(data, self._origin))
        # Not inherited: this module's own __future__ would turn the tools' annotations into text.
        return compile(tree, self._origin, "exec", dont_inherit=True)


class _ImportRenamer(ast.NodeTransformer):
    """Lets import statements of the fork's own part of the package name the private one."""

    def __init__(self, private: str) -> None:
        self._private = private

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = node.module and self._rename_module(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            alias.name = self._rename_module(alias.name)
        return node

    def _rename_module(self, module: str) -> str:
        own = module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
        return self._private + module[len(_PACKAGE) :] if own else module
