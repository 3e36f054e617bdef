"""Finds and hashes the user's own source files and installed packages behind a config, without importing any.

A user's files are: the module that a `_target_` (or a list `modules`) names, its whole package, every further module
of the user's that these import, and files beside them that their source names. Installed packages that this code
imports, or that its config names for import, count by version and hash.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from agentsys.base.python_parser import parse_module
from agentsys.errors import DISTRIBUTION
from agentsys.extensions import OUR_PACKAGES, read_requirements

_INSTALLED = {"site-packages", "dist-packages"}
_LONGEST_NAME = 200
"""Most characters of a text that may be a file's name."""
_LARGE = 16_000_000
"""Size in bytes from which only a file's size (of weights, for instance) is hashed."""

_last_digests: dict[Path, str] = {}
"""File -> digest when this process last hashed it."""


def _list_named_modules(value: object, option: object = None) -> Iterator[str]:
    """Yield the modules that a config names: those of foreign `_target_`s, and every item of a list `modules`.

    Args:
        value: A config, or a part of one.
        option: The key that the part stands under; None for an item of a list.
    """
    if isinstance(value, Mapping):
        yield from (name for key, inner in value.items() for name in _list_named_modules(inner, key))
    elif isinstance(value, (list, tuple)):
        yield from (
            map(str, value) if option == "modules" else chain.from_iterable(map(_list_named_modules, value))
        )
    elif option == "_target_" and isinstance(value, str) and value.partition(".")[0] not in OUR_PACKAGES:
        yield value.rpartition(".")[0]


_IMPORT_NAME = re.compile(r"([A-Za-z_]\w*)(\.\w+)*(:\w+(\.\w+)*)?")
"""A text that an adapter may import: `guard`, `guard.scan`, `guard.rules:Guard`."""


def _list_named_imports(value: object, foreign: bool = False) -> Iterator[str]:
    """Yield options of foreign objects that may name a module to import."""
    if isinstance(value, Mapping):
        target = value.get("_target_")
        foreign = foreign if target is None else str(target).partition(".")[0] not in OUR_PACKAGES
        for key, inner in value.items():
            if key != "_target_":
                yield from _list_named_imports(inner, foreign)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _list_named_imports(inner, foreign)
    elif foreign and isinstance(value, str) and _IMPORT_NAME.fullmatch(value):
        yield value.partition(":")[0]


class SourceCollector:
    """Collects the files and packages behind some configs, without importing them.

    A module that cannot be found is left out: building the object reports it.
    """

    def __init__(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        self.packages: dict[str, Path] = {}
        """Top-level module of an installed package -> its file or folder."""
        self.names: dict[Path, str] = {}
        """Source file -> its path relative to the folder that its module is imported from."""
        self._places: dict[str, Path | None] = {}
        self._whole: set[Path] = set()
        self._read: set[Path] = set()
        listed = list(nodes)
        for name in sorted({name for node in listed for name in _list_named_modules(node)}):
            self._add(name)
        for name in sorted({name for node in listed for name in _list_named_imports(node)}):
            self._add_named(name)

    def hash_files(self) -> dict[str, str]:
        """Hash the files: name (see `names`) -> digest.

        If a file changed since this process last hashed it, its modules are removed from `sys.modules`, so that the
        code that runs is the code that was hashed.
        """
        digests = {path: _digest_or_note(path) for path in self.names}
        if any(_last_digests.get(path, digest) != digest for path, digest in digests.items()):
            _forget_modules(digests)
        _last_digests.update(digests)
        return {self.names[path]: digest for path, digest in digests.items()}

    def describe_packages(self) -> dict[str, str]:
        """Installed package -> its version and the first digits of its files' hash.

        Our own requirements are left out: they are the same for every defense.
        """
        return dict(_describe_package(top, location) for top, location in sorted(self.packages.items()))

    def _add(self, module: str) -> None:
        """Add the files of a module that a config names, and of the modules that it imports."""
        waiting = [module]
        while waiting:
            name = waiting.pop()
            location = self._locate(name)
            installed = location is not None and location.parent.name in _INSTALLED
            if location is not None and installed:
                self._note_package(name, location)
            if location is None or (installed and name != module):
                continue
            self._keep_all(location)
            if installed:
                continue
            for path in _list_module_files(name, location):
                if path not in self._read:
                    self._read.add(path)
                    waiting += self._scan_file(path, location)

    def _add_named(self, module: str) -> None:
        """Add the package or user's module that an option's text may name; most name none."""
        location = self._locate(module)
        if location is None:
            return
        if location.parent.name in _INSTALLED:
            self._note_package(module, location)
        # Some standard modules (`test`) are not in sys.stdlib_module_names.
        elif location.is_relative_to(sysconfig.get_path("stdlib")):
            return
        # A mere folder of that name does not count.
        elif location.is_file() or (location / "__init__.py").is_file():
            self._add(module)

    def _note_package(self, module: str, location: Path) -> None:
        top = module.partition(".")[0]
        if top not in _list_own_requirements():
            self.packages[top] = location

    def _locate(self, module: str) -> Path | None:
        top = module.partition(".")[0]
        if top not in self._places:
            self._places[top] = _locate_module(top)
        return self._places[top]

    def _keep_all(self, location: Path) -> None:
        """Add a top-level module's file, or all files of a top-level package."""
        if location in self._whole:
            return
        self._whole.add(location)
        for path in [location] if location.is_file() else sorted(location.rglob("*.py")):
            if not any(part.startswith(".") for part in path.relative_to(location.parent).parts):
                self._keep_file(path, location.parent)

    def _scan_file(self, path: Path, location: Path) -> Iterator[str]:
        tree = _parse_file(path)
        for beside in _list_files_named_in_source(tree, path.parent):
            self._keep_file(beside, location.parent)
        # The dotted parts that a relative import in the file starts from.
        package = [] if location.is_file() else list(path.parent.relative_to(location.parent).parts)
        yield from _list_imported_modules(tree, package)

    def _keep_file(self, path: Path, root: Path) -> None:
        if path not in self.names:
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            self.names[path] = str(path) if name in self.names.values() else name


def _locate_module(top: str) -> Path | None:
    """Find a top-level module's file or a package's folder; None for ours, Python's own and unknown ones."""
    if not top or top in OUR_PACKAGES or top in sys.stdlib_module_names:
        return None
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # `__main__` and modules made by hand have no spec.
        return None
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    location = Path(places[0]) if places else None
    return location.resolve() if location is not None and location.exists() else None


def _list_module_files(module: str, location: Path) -> Iterator[Path]:
    if location.is_file():
        yield location
        return
    here = location
    for part in ["", *module.split(".")[1:]]:
        here = here / part
        yield from (path for path in (here / "__init__.py", here.with_suffix(".py")) if path.is_file())


def _parse_file(path: Path) -> ast.Module:
    try:
        return parse_module(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # Importing it will report the error.
        return ast.Module([], [])


def _list_imported_modules(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """Yield the full names of all imports of a file, also inside functions; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _is_import_call(node.func):
            named = node.args[0]
            yield from [str(named.value)] if isinstance(named, ast.Constant) else []
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _is_import_call(called: ast.expr) -> bool:
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("import_module", "__import__")


def _list_files_named_in_source(tree: ast.Module, folder: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and "." in text and is_file(folder / text):
            yield (folder / text).resolve()


def is_file(path: Path) -> bool:
    """True if the file exists; any text is allowed, also one that cannot be a file's name."""
    text = str(path)
    try:
        return text.isprintable() and len(path.name) <= _LONGEST_NAME and path.is_file()
    except (OSError, ValueError):
        return False


def compute_content_digest(path: Path) -> str:
    """Hash a file's content, or a folder's files with their relative paths: 16 hexadecimal digits.

    Raises:
        OSError: If it cannot be read.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        listed = [f"{file.relative_to(path)} {compute_content_digest(file)}" for file in files]
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]
    size = path.stat().st_size
    content = path.read_bytes() if size < _LARGE else str(size).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _digest_or_note(path: Path) -> str:
    try:
        return compute_content_digest(path)
    except OSError:
        return "unreadable"


def _forget_modules(files: Iterable[Path]) -> None:
    gone = {str(path) for path in files}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and str(Path(file).resolve()) in gone:
            del sys.modules[name]
    importlib.invalidate_caches()


@lru_cache(maxsize=1)
def _list_own_requirements() -> frozenset[str]:
    """Top-level modules of agentsys and of its required dependencies."""
    ours = {_normalize(name) for name in (*read_requirements().get(None, ()), DISTRIBUTION)}
    return frozenset(
        top for top, owners in packages_distributions().items() if ours & {*map(_normalize, owners)}
    )


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_CONTENT_FILES = 500
"""Most Python files of a package whose contents are hashed too: pip's list does not show a file that was edited
after the installation."""


def _describe_package(top: str, location: Path) -> tuple[str, str]:
    """Return an installed package's name, and its version with the digest of its files."""
    owners = packages_distributions().get(top, [])
    name = owners[0] if owners else top
    try:
        installed = distribution(name)
        version, listed = installed.version, installed.read_text("RECORD") or ""
    except PackageNotFoundError:
        version, listed = "no version", ""
    lines = sorted(line for line in listed.splitlines() if _is_packaged(line))
    files = [location] if location.is_file() else sorted(location.rglob("*.py"))
    contents = [_digest_or_note(path) for path in files] if len(files) <= _CONTENT_FILES else []
    digest = hashlib.sha256("\n".join([*lines, *contents]).encode()).hexdigest()[:16]
    return name, f"{version} {digest}"


def _is_packaged(line: str) -> bool:
    """True if a line of pip's list names a file of the package itself; other files depend on the machine."""
    path = line.partition(",")[0]
    return not (path.startswith("..") or path.endswith(".pyc") or ".dist-info/" in path)
