"""`instantiate`: builds the object that a config node describes, adopts it, and refuses misspelled abilities."""

from __future__ import annotations

import difflib
import inspect
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any

from agentsys.base.object_import import build_object, load_target
from agentsys.contracts import Attack, Benchmark, Defense, Suite
from agentsys.errors import ConfigError
from agentsys.extensions import OUR_PACKAGES

_BASES: Mapping[str, type] = {"defense": Defense, "attack": Attack, "benchmark": Benchmark, "suite": Suite}
"""Kind of object -> its base class."""

READ_TOOLS = "read_tools"
"""Option of every defense that can read tools (`Defense.read_tools`)."""
_SIMILARITY_CUTOFF = 0.8
"""Similarity, in [0, 1], from which one name counts as a misspelling of another."""


def instantiate(group: str, config: Mapping[str, Any]) -> Any:
    """Build the object of a config node: call `_target_` with the node's other keys.

    Options that are such nodes themselves (an attack's `base`), or lists of them, are built first.

    Raises:
        ConfigError: If the target cannot be imported or refuses its options, or an ability is misspelled.
    """
    options = {key: _build_option(group, value) for key, value in config.items()}
    reads = options.pop(READ_TOOLS, False) if group == "defense" else False
    built = build_object(group, options)
    check_abilities(group, built, f"{group} {config['_target_']}")
    made = adopt(group, built)
    if reads:
        if made.reads_tools is not None:
            made.reads_tools = True
        if not made.reads_tools:
            raise ConfigError(
                "defense.read_tools=true: this defense reads no descriptions of tools; leave it out, or use one"
                " that filters results (phrase_detector, firewall_sanitizer, promptarmor, ...)."
            )
    return made


def _build_option(group: str, option: Any) -> Any:
    if isinstance(option, list):
        return [_build_option(group, item) for item in option]
    return instantiate(group, option) if isinstance(option, dict) and "_target_" in option else option


def load_class(kind: str, config: Mapping[str, Any]) -> Any:
    """Import the class of a config, and adopt it; the bare base class if it cannot be imported."""
    try:
        return adopt(kind, load_target(kind, config))
    except ConfigError:
        return _BASES[kind]


class _Adopted:
    """A user's object, with the defaults of its kind's base class for the abilities that it lacks.

    The object is wrapped and not changed, because it may be anything: a frozen dataclass, a class, a function.
    """

    def __init__(self, own: Any, base: type) -> None:
        self.__dict__.update(_own=own, _base=base, _suites={})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Asked of a copy that is not filled yet.
            raise AttributeError(name)
        value = getattr(self._own, name, None)
        # None in place of a method: the object lacks an ability that its class has.
        if value is not None or not hasattr(self._base, name):
            return getattr(self._own, name)
        default = inspect.getattr_static(self._base, name)
        return default.__get__(self, self._base) if hasattr(default, "__get__") else default

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own, name, value)


class _AdoptedBenchmark(_Adopted):
    def suite(self, name: str) -> Any:
        """Return a suite, adopted; the same object on every call."""
        if name not in self._suites:
            self._suites.setdefault(name, adopt("suite", self._own.suite(name)))
        return self._suites[name]


def adopt(kind: str, made: Any) -> Any:
    """Give an object (or a class) the defaults of its kind's base class, unless it derives from it.

    A benchmark from outside is wrapped in any case, because its suites may derive from nothing of ours.
    """
    base = _BASES.get(kind)
    derives = base is None or isinstance(made, base) or (isinstance(made, type) and issubclass(made, base))
    made_of: Any = made if isinstance(made, type) else type(made)
    if derives and (kind != "benchmark" or made_of.suite.__module__.partition(".")[0] in OUR_PACKAGES):
        return made
    wrapper = _AdoptedBenchmark if kind == "benchmark" else _Adopted
    # Its own name and docstring stand for it in messages and descriptions.
    named = type(type(made).__name__, (wrapper,), {"__doc__": inspect.getdoc(type(made))})
    if isinstance(base, ABCMeta):
        base.register(named)
    return named(made, base)


def check_abilities(kind: str, made: object, called: str) -> None:
    """Check the spelling and the kind of an object's optional abilities.

    Without this check, an ability with a misspelled name would silently never be used.

    Raises:
        ConfigError: If a public name resembles an ability that the object lacks, or an ability is a method
            instead of a value, or the reverse.
    """
    base = _BASES.get(kind)
    if base is None:
        return
    required: frozenset[str] = getattr(base, "__abstractmethods__", frozenset())
    known = {name for name in vars(base) if not name.startswith("_")} - required
    classes = [each for each in type(made).__mro__ if each not in base.__mro__]
    own = {name for each in classes for name in vars(each)} | getattr(made, "__dict__", {}).keys()
    for name in sorted(own & known):
        # A method in place of a value would always be truthy. None in place of a method is allowed: the object lacks
        # an ability that its class has.
        is_method = callable(getattr(base, name))
        if callable(getattr(made, name)) != is_method and not (is_method and getattr(made, name) is None):
            wanted = "a method" if is_method else "a value or a property"
            raise ConfigError(
                f"`{name}` of {called} has to be {wanted} (agentsys.contracts.{base.__name__}.{name})."
            )
    for name in sorted(own - known - set(dir(base))):
        near = difflib.get_close_matches(name, known - own, n=1, cutoff=_SIMILARITY_CUTOFF)
        if near and near[0][0] == name[0]:
            raise ConfigError(
                f"{called} has `{name}`; did you mean `{near[0]}`? (If not, call it something else, or"
                f" `_{name}`.)"
            )
