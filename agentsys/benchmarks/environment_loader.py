"""`EnvironmentLoader`: fresh environments, several times faster than AgentDojo's and equal to them.

Two ways to put injections in, chosen by `benchmark.injection`:

* `folded`, the default: AgentDojo's own substitution into YAML text, with everything it does to
  line breaks and escapes: the parsed text with its holes filled (see `environment_text`). An injection
  that could leave its quotes goes to AgentDojo's own method.
* `exact`: the literal text stands where the placeholder stood, whatever its characters. Vectors
  that the attack leaves alone keep the value AgentDojo gives them.

`InjectionBreaksEnvironment` is raised for a text with which the environment cannot be loaded; `hash_suite_data`
says which data a result was made with, because AgentDojo's versions pin tasks, not data.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, Literal

import yaml
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite, read_suite_file, validate_injections
from pydantic import BaseModel, EmailStr
from pydantic_core import SchemaValidator
from pydantic_core.core_schema import CoreConfig

from agentsys.benchmarks.environment_text import (
    HoledText,
    find_breaking_character,
    is_plain,
    parse_holed_text,
)
from agentsys.contracts import Suite
from agentsys.errors import ConfigError


class InjectionBreaksEnvironment(Exception):
    """The environment cannot be loaded with an injection. Raised before any model is asked.

    Args:
        suite: The suite whose environment it is.
        vector: The injection vector that holds the text.
        text: The text as the attack wrote it.
        position: Where in the text it breaks, from 0; None if no single character can be blamed.
        reason: What is wrong and the mend, in one line.
    """

    def __init__(self, suite: str, vector: str, text: str, position: int | None, reason: str) -> None:
        where = "" if position is None else f" at character {position} ({text[position]!a})"
        super().__init__(f"suite '{suite}', injection vector '{vector}'{where}: {reason}.")
        self.suite = suite
        self.vector = vector
        self.position = position
        self.character = None if position is None else text[position]


def build_folded_error(suite: str, vector: str, text: str, error: Exception) -> InjectionBreaksEnvironment:
    """The error for a text that broke AgentDojo's substitution with `error`."""
    position, reason = find_breaking_character(text) or (None, _one_line(error))
    mend = "change the attack's text or use benchmark.injection=exact"
    return InjectionBreaksEnvironment(suite, vector, text, position, f"{reason}; {mend}")


def build_exact_error(suite: str, vector: str, text: str, error: Exception) -> InjectionBreaksEnvironment:
    """The error for a text that the environment's types refuse as it is: half a surrogate pair, mostly."""
    position = next((index for index, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
    reason = _one_line(error) if position is None else "half of a surrogate pair is not text"
    return InjectionBreaksEnvironment(suite, vector, text, position, f"{reason}; change the attack's text")


def _one_line(error: Exception) -> str:
    return ascii(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")[1:-1]


def hash_suite_data(suite: Suite) -> str:
    """SHA-256, in hex, of a suite's environment data and injection vectors.

    Includes are resolved first, so a change in any included file shows. A suite that builds its
    environment without data files is hashed by the environment it builds.
    """
    try:
        texts = [read_suite_file(suite.name, file, suite.data_path) for file in _FILES]
    except FileNotFoundError:
        environment = suite.load_and_inject_default_environment({}).model_dump(mode="json")
        vectors = suite.get_injection_vector_defaults()
        texts = [json.dumps(part, sort_keys=True) for part in (environment, vectors)]
    return _hash_of(*texts)


@lru_cache(maxsize=64)
def _hash_of(*texts: str) -> str:
    """The hash of a suite's texts. Each of its cases is labelled with it, and the texts stay the same."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))  # so that text cannot move between the files
        digest.update(encoded)
    return digest.hexdigest()


_FILES = ("environment.yaml", "injection_vectors.yaml")


__all__ = ["EnvironmentLoader", "Injection", "InjectionBreaksEnvironment"]

Injection = Literal["folded", "exact"]
"""How injections get into the environment (see the module's docstring)."""

# What parsing or validating a broken text raises. PyYAML itself lets ValueError and OverflowError
# through for escapes beyond Unicode; pydantic's ValidationError is a ValueError.
_BROKEN = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


class EnvironmentLoader:
    """Loads one suite's environment. Safe to use from many threads.

    Args:
        suite: AgentDojo's suite, or a fork's. One that loads its environment in its own way is
            asked to do so.
        injection: How injections get in.

    Raises:
        ConfigError: If a suite that loads its environment in its own way is to be injected exactly.
    """

    def __init__(self, suite: Suite, injection: Injection = "folded") -> None:
        self._suite = suite
        self._own_way = type(suite).load_and_inject_default_environment is not (
            TaskSuite.load_and_inject_default_environment
        )
        if self._own_way and injection == "exact":
            raise ConfigError(
                f"suite '{suite.name}' loads its environment in its own way, so benchmark.injection=exact"
                " cannot be applied to it; use benchmark.injection=folded."
            )
        self._injection = injection
        self._marked: dict[frozenset[str], bytes] = {}
        self._lock = Lock()

    @cached_property
    def _data(self) -> tuple[dict[str, str], str]:
        """Default texts and the environment's text. Read when it is needed: a finished run does without."""
        suite = self._suite
        text = "" if self._own_way else read_suite_file(suite.name, "environment.yaml", suite.data_path)
        return dict(suite.get_injection_vector_defaults()), text

    @cached_property
    def _holed_text(self) -> HoledText | None:
        defaults, text = self._data
        return None if self._own_way else _holed_once(text, tuple(defaults.items()))

    @cached_property
    def _validator(self) -> Callable[[Any], Any]:
        return build_validator(self._suite.environment_type)

    def __deepcopy__(self, memo: object) -> EnvironmentLoader:
        """Itself: AgentDojo copies suites deeply to make new versions, which have the same data."""
        return self

    def get_defaults(self) -> dict[str, str]:
        """Injection vector -> default text (AgentDojo parses a file for it on every call).

        Raises:
            OSError, ValueError, yaml.YAMLError: If the suite's data are damaged.
        """
        return dict(self._data[0])

    def load(self, injections: Mapping[str, str]) -> TaskEnvironment:
        """A fresh environment; nothing of it is shared with any other.

        Args:
            injections: Injection vector -> text.

        Raises:
            ValueError: If a vector is not one of the suite's.
            InjectionBreaksEnvironment: If the environment cannot be loaded with a text.
        """
        validate_injections(dict(injections), self._data[0])
        try:
            return self._load(dict(injections))
        except _BROKEN as error:
            if not injections:
                raise  # the data itself is broken
            raise self._find_breaking_vector(dict(injections), error) from error

    def _load(self, injections: dict[str, str]) -> TaskEnvironment:
        if self._injection == "exact" and injections:
            return self._validate(self._inject_exactly(injections))
        if self._holed_text is not None and all(is_plain(text) for text in injections.values()):
            values = {**self._data[0], **injections}
            try:
                document = self._holed_text.fill(values, frozenset(injections))
            except _BROKEN:
                return self._load_by_package(injections)
            return self._validate(document)
        return self._load_by_package(injections)

    def _load_by_package(self, injections: dict[str, str]) -> TaskEnvironment:
        cls = type(self._suite)  # the class's method: the instance's may be this loader
        loaded: TaskEnvironment = cls.load_and_inject_default_environment(self._suite, injections)
        return loaded

    def _validate(self, document: Any) -> TaskEnvironment:
        validated: TaskEnvironment = self._validator(document)
        return validated

    def _inject_exactly(self, injections: dict[str, str]) -> Any:
        literal = {_make_mark(vector): text for vector, text in injections.items()}
        "".join(literal.values()).encode()  # half a surrogate pair would fail later, on its way to a model
        return _replace_marks(pickle.loads(self._marked_document(frozenset(injections))), literal)

    def _marked_document(self, vectors: frozenset[str]) -> bytes:
        """The parsed document, pickled, with a mark where each of `vectors` stands and defaults elsewhere."""
        with self._lock:
            if vectors not in self._marked:
                defaults, text = self._data
                values = {**defaults, **{vector: _make_mark(vector) for vector in vectors}}
                document = yaml.safe_load(text.format(**values))
                self._marked[vectors] = pickle.dumps(document, pickle.HIGHEST_PROTOCOL)
            return self._marked[vectors]

    def _find_breaking_vector(
        self, injections: dict[str, str], error: Exception
    ) -> InjectionBreaksEnvironment:
        vector = next((name for name in injections if self._breaks_alone({name: injections[name]})), None)
        if vector is None:  # only together; the first is as good as any
            vector = next(iter(injections))
        broken = build_exact_error if self._injection == "exact" else build_folded_error
        return broken(self._suite.name, vector, injections[vector], error)

    def _breaks_alone(self, injection: dict[str, str]) -> bool:
        try:
            self._load(injection)
        except _BROKEN:
            return True
        return False


@lru_cache(maxsize=32)
def _holed_once(text: str, defaults: tuple[tuple[str, str], ...]) -> HoledText | None:
    """`parse_holed_text`, which takes 0.2 s for a suite: versions that have the same data share it."""
    return parse_holed_text(text, dict(defaults))


def _make_mark(vector: str) -> str:
    """A text that stands for a vector's: YAML neither folds nor escapes it, and no data holds it."""
    return f"\ue0f0{vector}\ue0f1"


def _replace_marks(node: Any, literal: Mapping[str, str]) -> Any:
    """The document with every mark replaced, in keys too. One pass: an injection may hold a mark itself."""
    if isinstance(node, str):
        return _replace_marks_in_text(node, literal) if "\ue0f0" in node else node
    if isinstance(node, dict):
        return {_replace_marks(key, literal): _replace_marks(value, literal) for key, value in node.items()}
    if isinstance(node, list):
        return [_replace_marks(item, literal) for item in node]
    return node


def _replace_marks_in_text(text: str, literal: Mapping[str, str]) -> str:
    first, *rest = text.split("\ue0f0")
    parts = [first]
    for piece in rest:
        vector, _, after = piece.partition("\ue0f1")
        parts += (literal[f"\ue0f0{vector}\ue0f1"], after)
    return "".join(parts)


_REMEMBERED = 4096
"""Addresses, of all suites; the oldest is forgotten first."""


@lru_cache
def build_validator(model: type[BaseModel]) -> Callable[[Any], Any]:
    """Make a validation of a class of environments that checks each address once; the class stays as it is.

    An address is checked by pure Python (`email_validator`). Workspace's 56 addresses stand in its data
    hundreds of times and are the same in every case; checking them takes most of the time of validating it.
    The validator is built from the class's own schema, where a function that remembers stands in place of
    the one that checks an address, so it makes instances of the same classes and raises the same errors.

    Args:
        model: The class. One without addresses validates by itself, and so does one with a `model_config`,
            parts of which are for its own validator alone.
    """
    schema = model.__pydantic_core_schema__
    quicker = _cache_address_checks(schema)
    if quicker != schema and not model.model_config:
        titled = CoreConfig(title=model.__name__)  # how its errors call it
        with suppress(TypeError):  # a pydantic without that option, which is not in its documentation
            # Without the option the nested classes' own validators would be taken.
            return SchemaValidator(quicker, titled, _use_prebuilt=False).validate_python
    return model.model_validate


def _cache_address_checks(node: Any) -> Any:
    if type(node) is dict:
        # `metadata` holds what JSON schemas are made with, which is no part of validating.
        return {k: v if k == "metadata" else _cache_address_checks(v) for k, v in node.items()}
    if type(node) in (list, tuple):
        return type(node)(_cache_address_checks(value) for value in node)
    return _cached_check(node) if getattr(node, "__self__", None) is EmailStr and callable(node) else node


@lru_cache
def _cached_check(check: Callable[[str], str]) -> Callable[[str], str]:
    return lru_cache(_REMEMBERED)(check)
