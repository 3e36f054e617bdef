"""`EnvironmentLoader`: fresh environments, ten times faster than AgentDojo's and equal to them.

Two ways to insert injections, chosen by `benchmark.injection`:

* `folded`, the default: AgentDojo's own substitution into YAML text, which changes line breaks and escapes. The result
  is parsed by libyaml; injections that libyaml may parse differently from PyYAML go to AgentDojo's own method.
* `exact`: the literal text replaces the placeholder. Vectors without an injection keep AgentDojo's value.

`InjectionBreaksEnvironment` is raised for a text with which the environment cannot be loaded.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, cast, get_args

import yaml
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite, read_suite_file, validate_injections
from pydantic import BaseModel

from agentsys.benchmarks.scoring import are_equal
from agentsys.contracts import Suite
from agentsys.errors import ConfigError, require_known_name

# The complement of yaml.reader.Reader.NON_PRINTABLE, which PyYAML refuses everywhere.
_READABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
_BREAKS = "\n\r\x85\u2028\u2029"
_ESCAPE = re.compile(
    rf"\\(?:[0abt\tnvfre \"/\\N_LP{_BREAKS}]|x[0-9A-Fa-f]{{2}}|u[0-9A-Fa-f]{{4}}"
    r"|U(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})"
)
"""A complete escape: YAML 1.1 section 5.6, and the backslash at a line's end."""
_READABLE_CHARACTER = re.compile(f"[{_READABLE}]")
_DOCUMENT_MARK = re.compile(rf"[{_BREAKS}][ \t]*(?:---|\.\.\.)(?=[ \t{_BREAKS}]|$)")


_SAME_IN_C = re.compile(r'(?:[ !#-\[\]-~\n]|\\[0abtnvfre "\\N_LP\n])*+')
"""Printable ASCII without double quotes, line breaks and one-letter escapes: in double quotes libyaml parses these like
PyYAML, in a tenth of the time. For other characters the two differ."""
_PROBE = "it's: # &a *b - [c] {d}\n\n? e\\n"
"""A text that YAML parses as one string only in double quotes."""


class InjectionBreaksEnvironment(Exception):
    """The environment cannot be loaded with an injection. Raised before any model is asked.

    `position` is the index of the breaking character, from 0 (None if there is no single one); `reason` is one line
    with the fault and its correction.
    """

    def __init__(self, suite: str, vector: str, text: str, position: int | None, reason: str) -> None:
        where = "" if position is None else f" at character {position} ({text[position]!a})"
        super().__init__(f"suite '{suite}', injection vector '{vector}'{where}: {reason}.")
        self.suite = suite
        self.vector = vector
        self.position = position


def _format_error_line(error: Exception) -> str:
    return ascii(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")[1:-1]


Injection = Literal["folded", "exact"]
"""The ways to insert injections (see the module's docstring)."""


def parse_injection(name: str) -> Injection:
    """Validate `benchmark.injection`.

    Raises:
        ConfigError: If it is unknown.
    """
    return cast("Injection", require_known_name("benchmark.injection", name, get_args(Injection)))


# Errors of parsing or validating a broken text. For escapes beyond Unicode PyYAML raises ValueError or
# OverflowError; pydantic's ValidationError is a ValueError.
_BROKEN = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


class EnvironmentLoader:
    """Loads one suite's environment, AgentDojo's or a fork's. Thread-safe.

    A suite that overrides the loading is left to load its environment itself.

    Raises:
        ConfigError: If such a suite is to be injected exactly.
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
        self._reading = threading.RLock()
        """Lets one thread read the files while the threads of a run's other first cases wait for it."""
        self._alike = set[tuple[str, str, str]]()
        """Edges (see `_find_edges`) for which the filled template equalled the parsed YAML."""
        self._unlike = set[frozenset[tuple[str, str, str]]]()
        """Sets of edges for which it did not."""

    @cached_property
    def _data(self) -> tuple[dict[str, str], str]:
        """Default texts and the environment's text; read on first use, as a finished run does not need them."""
        suite = self._suite
        text = "" if self._own_way else read_suite_file(suite.name, "environment.yaml", suite.data_path)
        return dict(suite.get_injection_vector_defaults()), text

    @cached_property
    def _is_quick(self) -> bool:
        defaults, text = self._data
        same = all(_SAME_IN_C.fullmatch(default) for default in defaults.values())
        return same and not self._own_way and _reads_alike(text, tuple(defaults))

    def __deepcopy__(self, memo: object) -> EnvironmentLoader:
        """Return itself: AgentDojo copies suites deeply to make new versions, which have the same data."""
        return self

    def get_defaults(self) -> dict[str, str]:
        """Injection vector -> default text (AgentDojo parses a file on every call).

        Raises:
            OSError, ValueError, yaml.YAMLError: If the suite's data are damaged.
        """
        return dict(self._data[0])

    def load(self, injections: Mapping[str, str]) -> TaskEnvironment:
        """Load a fresh environment, which shares nothing with others, with a text in some vectors.

        Raises:
            ValueError: If a vector is not one of the suite's.
            InjectionBreaksEnvironment: If the environment cannot be loaded with a text.
        """
        validate_injections(dict(injections), self._data[0])
        try:
            return self._load(dict(injections))
        except _BROKEN as error:
            if not injections:
                raise  # The data itself is broken.
            raise self._find_breaking_vector(dict(injections), error) from error

    def _load(self, injections: dict[str, str]) -> TaskEnvironment:
        """Load with texts in some vectors: exactly, from the template, or by AgentDojo's own method."""
        if self._injection == "exact" and injections:
            return self._inject_exactly(injections)
        with self._reading:
            is_quick = self._is_quick
        if is_quick and all(
            isinstance(text, str) and _SAME_IN_C.fullmatch(text) for text in injections.values()
        ):
            with suppress(yaml.YAMLError):  # Then AgentDojo's own method raises its error.
                return self._load_quickly(injections)
        cls = type(self._suite)  # The class's method: the instance's may be this loader.
        return cast(TaskEnvironment, cls.load_and_inject_default_environment(self._suite, injections))

    def _load_quickly(self, injections: dict[str, str]) -> TaskEnvironment:
        """Fill texts into a template, if that gives the same as parsing all YAML; else parse it."""
        with self._reading:
            template = self._template
        edges = _find_edges(injections)
        is_foldable = all(text.strip() and not text.endswith("\\") for text in injections.values())
        is_placed = injections.keys() <= self._blanks.keys()
        if template is None or edges in self._unlike or not (is_foldable and is_placed):
            return self._read_environment(injections)
        with self._reading:
            if not edges <= self._alike and not self._is_alike(template, injections):
                self._unlike.add(edges)
                return self._read_environment(injections)
        return self._fill(template, injections)

    def _is_alike(self, template: MarkedEnvironment, injections: dict[str, str]) -> bool:
        """True if the filled template equals the parsed YAML: a type may treat a mark differently from a text.

        All vectors are tried together first, so that cases with other vectors need no second check.
        """
        everywhere = {vector: text for text in injections.values() for vector in self._blanks} | injections
        for texts in (everywhere, injections):
            with suppress(*_BROKEN):
                if are_equal(self._fill(template, texts), self._read_environment(texts)):
                    self._alike |= _find_edges(texts)
                    return True
        return False

    def _fill(self, template: MarkedEnvironment, injections: dict[str, str]) -> TaskEnvironment:
        folded, texts = {}, self._data[0] | injections
        for vector, (before, after) in self._blanks.items():
            folded[_make_mark(vector)] = _fold_between_letters(f"{before}{texts[vector]}{after}")
        return template.fill(folded)

    @cached_property
    def _blanks(self) -> dict[str, tuple[str, str]]:
        """Vector -> blanks before and after its placeholder, if they are the same at all of them."""
        defaults, text = self._data
        surroundings = {vector: set(_split_at_placeholders(text, vector)[1]) for vector in defaults}
        return {vector: next(iter(around)) for vector, around in surroundings.items() if len(around) == 1}

    @cached_property
    def _template(self) -> MarkedEnvironment | None:
        """The environment with marks in place of the placeholders and adjacent blanks, which fold with the text."""
        defaults, text = self._data
        for vector in self._blanks:
            text = _make_mark(vector).join(_split_at_placeholders(text, vector)[0])
        with suppress(*_BROKEN):
            document = yaml.load(text.format(**defaults), yaml.CSafeLoader)
            template = MarkedEnvironment.build(self._suite.environment_type.model_validate(document))
            if template and are_equal(self._fill(template, {}), self._read_environment({})):
                return template
        return None

    def _read_environment(self, injections: dict[str, str]) -> TaskEnvironment:
        read = self._suite.environment_type.model_validate(self._read_document(injections))
        return cast(TaskEnvironment, read)

    def _read_document(self, injections: dict[str, str]) -> Any:
        defaults, text = self._data
        loader = yaml.CSafeLoader if self._is_quick else yaml.SafeLoader
        return yaml.load(text.format(**defaults | injections), Loader=loader)

    def _inject_exactly(self, injections: dict[str, str]) -> TaskEnvironment:
        """Replace marks in the parsed document by literal texts."""
        literal = {_make_mark(vector): text for vector, text in injections.items()}
        "".join(literal.values()).encode()  # Half a surrogate pair would fail later, on its way to a model.
        marked = self._read_document({vector: _make_mark(vector) for vector in injections})
        return cast(
            TaskEnvironment, self._suite.environment_type.model_validate(_replace_marks(marked, literal))
        )

    def _find_breaking_vector(
        self, injections: dict[str, str], error: Exception
    ) -> InjectionBreaksEnvironment:
        """Build the error that names the vector whose text breaks the environment."""
        vector = next((name for name in injections if self._breaks_alone({name: injections[name]})), None)
        if vector is None:  # They break it only together: blame the first.
            vector = next(iter(injections))
        text = injections[vector]
        if self._injection == "exact":  # The environment's types refuse the literal text.
            position = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
            reason = _format_error_line(error) if position is None else "half of a surrogate pair is not text"
            reason += "; change the attack's text"
        else:
            position, reason = find_breaking_character(text) or (None, _format_error_line(error))
            reason += "; change the attack's text or use benchmark.injection=exact"
        return InjectionBreaksEnvironment(self._suite.name, vector, text, position, reason)

    def _breaks_alone(self, injection: dict[str, str]) -> bool:
        try:
            self._load(injection)
        except _BROKEN:
            return True
        return False


@dataclass(frozen=True)
class MarkedEnvironment:
    """An environment with marks in place of vectors' texts; filling it takes a tenth of the time of parsing YAML."""

    pickled: bytes
    marked: tuple[tuple[Any, ...], ...]
    """Path to each text with a mark: names of attributes, keys and indices."""

    @classmethod
    def build(cls, environment: TaskEnvironment) -> MarkedEnvironment | None:
        """Build the template of a marked environment; None if a mark is in a key or cannot be located."""
        try:
            return cls(
                pickle.dumps(environment, pickle.HIGHEST_PROTOCOL), tuple(_find_marks(environment, ()))
            )
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
            return None

    def fill(self, texts: Mapping[str, str]) -> TaskEnvironment:
        """Build a fresh environment with a text in place of each mark."""
        environment = pickle.loads(self.pickled)
        for *way, last in self.marked:
            node = environment
            for step in way:
                node = _get_contents(node)[step]
            text = _replace_marks_in_text(_get_contents(node)[last], texts)
            if isinstance(node, BaseModel):  # Validators update computed fields (a file's size).
                type(node).__pydantic_validator__.validate_assignment(node, last, text)
            else:
                node[last] = text
        return cast(TaskEnvironment, environment)


def _get_contents(node: Any) -> Any:
    return vars(node) if isinstance(node, BaseModel) else node


def _find_marks(node: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each text with a mark; TypeError for a mark in a key."""
    if isinstance(node, str):
        if "\ue0f0" in node:
            yield way
        return
    contents = _get_contents(node)
    if isinstance(contents, dict):
        if any(isinstance(key, str) and "\ue0f0" in key for key in contents):
            raise TypeError("a mark in a key")
        for key, value in contents.items():
            yield from _find_marks(value, (*way, key))
    elif isinstance(contents, list):
        for index, value in enumerate(contents):
            yield from _find_marks(value, (*way, index))


def _find_edges(injections: Mapping[str, str]) -> frozenset[tuple[str, str, str]]:
    """Return (vector, leading blanks, trailing blanks) of each text: their folding depends on the text around it."""
    edges = set()
    for vector, text in injections.items():
        inner = text.strip()
        first = text.index(inner)
        edges.add((vector, text[:first], text[first + len(inner) :]))
    return frozenset(edges)


_BLANKS = re.compile(r"(?:\\?[ \t\n])*")


def _split_at_placeholders(text: str, vector: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Split a text at a vector's placeholders, and cut off the white space around each of them.

    Returns:
        The parts of the text without that white space, and the white space (blanks and line breaks, escaped ones
        too) before and after each placeholder.
    """
    # Not one regular expression for all: it would be tried at every character of a 200 kB file, for every vector.
    first, *others = text.split(f"{{{vector}}}")
    between, around = [first], list[tuple[str, str]]()
    for part in others:
        kept = rest = between[-1]
        while (bare := kept.rstrip(" \t\n")) != kept:
            kept = bare.removesuffix("\\")
        blanks = _BLANKS.match(part)
        assert blanks is not None
        around.append((rest[len(kept) :], blanks[0]))
        between[-1:] = kept, part[blanks.end() :]
    return between, around


@lru_cache(maxsize=1024)
def _fold_between_letters(text: str) -> str:
    """Parse a text as YAML does in the middle of a double-quoted string."""
    return str(yaml.load(f'"x{text}x"', Loader=yaml.CSafeLoader))[1:-1]


@lru_cache(maxsize=32)
def _reads_alike(text: str, vectors: tuple[str, ...]) -> bool:
    """True if all placeholders are in double quotes, and libyaml parses the rest like PyYAML."""
    try:
        written = text.format(**dict.fromkeys(vectors, _PROBE))
        return yaml.__with_libyaml__ and bool(yaml.load(written, yaml.CSafeLoader) == yaml.safe_load(written))
    except (yaml.YAMLError, LookupError, ValueError, AttributeError):
        return False


def _make_mark(vector: str) -> str:
    """Return a vector's mark: YAML neither folds nor escapes it, and no data contain it."""
    return f"\ue0f0{vector}\ue0f1"


def _replace_marks(node: Any, literal: Mapping[str, str]) -> Any:
    """Replace every mark in a document, also in keys, in one pass: an injection may contain a mark itself."""
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


def find_breaking_character(text: str) -> tuple[int, str] | None:
    """Find the first character that a double-quoted YAML text cannot contain.

    Returns:
        Its index, from 0, and the fault; None if there is no such character.
    """
    index = 0
    while index < len(text):
        if text[index] == '"':
            return index, "a double quote ends the environment's quoted text"
        if text[index] == "\\":
            escape = _ESCAPE.match(text, index)
            if escape is None:
                return index, "a backslash that begins no YAML escape"
            index = escape.end()
            continue
        if not _READABLE_CHARACTER.match(text, index):
            return index, "a character that YAML does not allow"
        if mark := _DOCUMENT_MARK.match(text, index):
            return mark.end() - 3, "a document mark (--- or ...) at the start of a line"
        index += 1
    return None


_SPELLED_BREAK = re.compile(r"\\n(?![a-z])|\\[rt](?![A-Za-z])")
_UNREADABLE = re.compile(f"[^{_READABLE}]")


def mend_text(text: str) -> str:
    """Replace everything that would break a double-quoted YAML text.

    A double quote becomes an apostrophe; line breaks and tabs that a model spelled out (a backslash and `n`) a space;
    every other backslash a slash; a character that YAML refuses, or a document mark, spaces.
    """
    plain = _SPELLED_BREAK.sub(" ", text).replace('"', "'").replace("\\", "/")
    plain = _UNREADABLE.sub(" ", plain)
    return _DOCUMENT_MARK.sub(lambda mark: mark[0][0] + " " * (len(mark[0]) - 1), plain)
