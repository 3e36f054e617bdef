"""`import_lightly`: AgentDojo without the vendors' SDKs, `scipy.special` without its wrappers, until needed.

Any import from `agentdojo.agent_pipeline` runs that package's `__init__`, which imports the SDKs of four
vendors: two seconds of CPU, in a process that may have to look up what is finished and no more. Here such
modules are put in place unexecuted; each is executed, once and in place, when it is asked for a name that
it does not have yet. And DeepDiff, which AgentDojo's suites import, gets pandas when it looks at an object
of a kind that it does not know, and asyncio never: it needs no locks. A plan sees no e-mail address:
what checks them waits as well. `scipy.special`, whose compiled functions are all that intervals need, wraps
each of them and copies all that NumPy has by name, a compiler of Fortran and tools for tests among it, which
nobody calls. Whoever uses them sees no difference but the moment.

`importlib.util.LazyLoader` will not do: importing a submodule reads its package's `__path__`, which is enough
for that loader to execute the package, and threads may be given a half-made module (Python 3.11).
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock
from types import ModuleType
from typing import Any


def import_lightly() -> None:
    """Have these modules loaded so from now on; those imported before stay as they are."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # Not at the front: finders that others put before Python's own come first as ever.
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, _Finder())


class _Finder:  # not of importlib.abc: that imports what takes longer than all of ours here
    """Finds the modules that are loaded in another way, where Python itself finds them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for any other module, and for one that is reloaded (`target`): that is executed at once."""
        if fullname not in _LOADERS or target is not None:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _LOADERS[fullname](fullname, spec.loader.path)
        return spec


class _LateLoader(SourceFileLoader):
    """Loads one module, and executes it later."""

    def __init__(self, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._lock = RLock()  # one per module: two threads may each be executing one
        self._begun = False

    def exec_module(self, module: ModuleType) -> None:
        """Leave it to the module to have itself executed."""
        module.__class__ = _DeferredModule

    def execute(self, module: ModuleType) -> None:
        """Execute a module in place, unless that is done, or is being done by this very thread.

        Raises:
            Exception: What its code raises. It is then as it was, and the next who asks has it executed anew.
        """
        with self._lock:
            if self._begun:
                return
            self._begun = True
            before = dict(vars(module))
            try:
                super().exec_module(module)
            except BaseException as error:
                self._begun = False
                _restore(module, before)
                if isinstance(error, AttributeError):  # it would read as if the name asked for were not there
                    raise ImportError(f"{module.__name__}: {error}", name=module.__name__) from error
                raise
            # What was set from outside in the meantime holds, as it does in a module executed before.
            vars(module).update({name: value for name, value in before.items() if not name.startswith("__")})
            module.__class__ = ModuleType

    def constants(self) -> dict[str, object]:
        """The names that the module binds once, at its top, to a plain constant."""
        import ast

        tree = ast.parse(self.get_data(self.path))
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        bound = Counter(name.id for name in names if isinstance(name.ctx, ast.Store))
        return {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and bound[target.id] == 1
        }


class _DeferredModule(ModuleType):
    """A module that is executed when it is asked for a name it lacks; it is an ordinary one from then on."""

    def __getattr__(self, name: str) -> object:
        loader = _waiting(self)
        # Every import statement asks for `__path__`; a module that is no package never has one.
        if loader is not None and name != "__path__":
            constants = loader.constants()
            if name in constants:
                return constants[name]
            loader.execute(self)
        return ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        if (loader := _waiting(self)) is not None:
            loader.execute(self)
        return list(ModuleType.__dir__(self))


def _waiting(module: ModuleType) -> _LateLoader | None:
    """What is to execute a module; None if it was reloaded, which executes it too."""
    loader = module.__spec__ and module.__spec__.loader
    return loader if isinstance(loader, _LateLoader) else None


class _OneLater(SourceFileLoader):
    """Loads a module that imports another one, which takes a while, for a use that may never come."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute it with an import statement of its own: `sys.modules` is everybody's."""

        def imported(name: str, *rest: Any) -> object:
            if (
                name == _LATE_WITHIN[module.__name__]
                and name not in sys.modules
                and PathFinder.find_spec(name)
            ):
                return _Absent(name)
            return __import__(name, *rest)

        vars(module)["__builtins__"] = {**vars(builtins), "__import__": imported}
        super().exec_module(module)


class _Absent:
    """Stands for a module, and imports it when a name is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module(self._name), name)


_LATE_WITHIN = {
    # DeepDiff compares an object of a kind that it does not know with a class of pandas'.
    "deepdiff.deephash": "pandas",
    # Its locks may be asyncio's; DeepDiff's caches have none.
    "cachebox.utils": "asyncio",
}
"""Module -> the one that it imports late."""

_LOADERS: dict[str, type[_LateLoader | _OneLater]] = {
    "agentdojo.agent_pipeline": _LateLoader,
    # AgentDojo's tool executor takes a string from it: a plain constant, which is answered from the source.
    "agentdojo.agent_pipeline.llms.google_llm": _LateLoader,
    **dict.fromkeys(_LATE_WITHIN, _OneLater),
    # pydantic imports it with a class that has an address, and asks it when it sees one.
    "email_validator": _LateLoader,
    # Its compiled functions (agentsys.analysis.statistics.special_functions) are taken past it.
    "scipy.special": _LateLoader,
    # SciPy 1.17 (array_api_compat.numpy) asks NumPy for each of its modules, and them for nothing.
    "numpy.f2py": _LateLoader,
    "numpy.testing": _LateLoader,
}


def _restore(module: ModuleType, before: dict[str, object]) -> None:
    """Forget what a module's code bound before it failed, but the submodules that were imported for good."""
    for name, value in list(vars(module).items()):
        if name not in before and not isinstance(value, ModuleType):
            delattr(module, name)
