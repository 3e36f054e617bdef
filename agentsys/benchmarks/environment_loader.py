"""`EnvironmentLoader`: fresh environments, ten times faster than AgentDojo's and equal to them.

Two ways to put injections in, chosen by `benchmark.injection`:

* `folded`, the default: AgentDojo's own substitution into YAML text, with everything it does to
  line breaks and escapes. What that gives is read by libyaml; an injection with anything that libyaml may read
  otherwise than PyYAML's own scanner does goes to AgentDojo's own method.
* `exact`: the literal text stands where the placeholder stood, whatever its characters. Vectors
  that the attack leaves alone keep the value AgentDojo gives them.

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

# What PyYAML refuses to read anywhere is yaml.reader.Reader.NON_PRINTABLE; this is the rest.
_READABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
_BREAKS = "\n\r\x85\u2028\u2029"
_ESCAPE = re.compile(
    rf"\\(?:[0abt\tnvfre \"/\\N_LP{_BREAKS}]|x[0-9A-Fa-f]{{2}}|u[0-9A-Fa-f]{{4}}"
    r"|U(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})"
)
"""A whole escape: YAML 1.1 section 5.6, and the backslash before a line's end."""
_READABLE_CHARACTER = re.compile(f"[{_READABLE}]")
_DOCUMENT_MARK = re.compile(rf"[{_BREAKS}][ \t]*(?:---|\.\.\.)(?=[ \t{_BREAKS}]|$)")


_SAME_IN_C = re.compile(r'(?:[ !#-\[\]-~\n]|\\[0abtnvfre "\\N_LP\n])*+')
"""Printable ASCII but a double quote, line breaks and escapes of one letter: in double quotes libyaml reads these by
the rules of PyYAML's own scanner, in a tenth of the time. The two differ in what other characters they take."""
_PROBE = "it's: # &a *b - [c] {d}\n\n? e\\n"
"""A text that is read as one text in double quotes alone."""


class InjectionBreaksEnvironment(Exception):
    """The environment cannot be loaded with an injection. Raised before any model is asked.

    `position` is where in the text it breaks, from 0 (None if no single character can be blamed), and `reason` what
    is wrong and the mend, in one line.
    """

    def __init__(self, suite: str, vector: str, text: str, position: int | None, reason: str) -> None:
        where = "" if position is None else f" at character {position} ({text[position]!a})"
        super().__init__(f"suite '{suite}', injection vector '{vector}'{where}: {reason}.")
        self.suite = suite
        self.vector = vector
        self.position = position


def _write_error_line(error: Exception) -> str:
    return ascii(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")[1:-1]


Injection = Literal["folded", "exact"]
"""How injections get into the environment (see the module's docstring)."""


def parse_injection(name: str) -> Injection:
    """`benchmark.injection` as it is meant.

    Raises:
        ConfigError: If there is no such way of injecting.
    """
    return cast("Injection", require_known_name("benchmark.injection", name, get_args(Injection)))


# What parsing or validating a broken text raises. PyYAML itself lets ValueError and OverflowError
# through for escapes beyond Unicode; pydantic's ValidationError is a ValueError.
_BROKEN = (yaml.YAMLError, ValueError, OverflowError, RecursionError)


class EnvironmentLoader:
    """Loads one suite's environment, AgentDojo's or a fork's. Safe to use from many threads.

    A suite that loads its environment in its own way is asked to do so.

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
        self._reading = threading.RLock()
        """A run's first cases begin together: one thread reads the files, the others take what it made of them."""
        self._alike = set[tuple[str, str, str]]()
        """Vectors, and blank ends of texts, with which the filled template was what YAML gives."""
        self._unlike = set[frozenset[tuple[str, str, str]]]()
        """Those that together gave something else."""

    @cached_property
    def _data(self) -> tuple[dict[str, str], str]:
        """Default texts and the environment's text. Read when it is needed: a finished run does without."""
        suite = self._suite
        text = "" if self._own_way else read_suite_file(suite.name, "environment.yaml", suite.data_path)
        return dict(suite.get_injection_vector_defaults()), text

    @cached_property
    def _is_quick(self) -> bool:
        defaults, text = self._data
        same = all(_SAME_IN_C.fullmatch(default) for default in defaults.values())
        return same and not self._own_way and _reads_alike(text, tuple(defaults))

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
        """A fresh environment with a text in some vectors; nothing of it is shared with any other.

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
            return self._inject_exactly(injections)
        with self._reading:
            is_quick = self._is_quick
        if is_quick and all(
            isinstance(text, str) and _SAME_IN_C.fullmatch(text) for text in injections.values()
        ):
            with suppress(yaml.YAMLError):  # the package raises its own
                return self._load_quickly(injections)
        cls = type(self._suite)  # the class's method: the instance's may be this loader
        return cast(TaskEnvironment, cls.load_and_inject_default_environment(self._suite, injections))

    def _load_quickly(self, injections: dict[str, str]) -> TaskEnvironment:
        """Put texts where marks stand in an environment loaded before, if that gives what reading all YAML gives."""
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
        """Whether the filled template is what YAML gives: a type may make something else of a mark than of a text.

        Tried at all vectors at once first, so that cases with other vectors need not ask again.
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
        """Vector -> blanks before and behind its placeholder, unless they differ from one place to another."""
        defaults, text = self._data
        found = {vector: set(_split_at_placeholders(text, vector)[1]) for vector in defaults}
        return {vector: next(iter(around)) for vector, around in found.items() if len(around) == 1}

    @cached_property
    def _template(self) -> MarkedEnvironment | None:
        """The environment with marks where placeholders and the blanks beside them stand, which fold with the text."""
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
        """Put texts, whatever their characters, where marks stand in the document."""
        literal = {_make_mark(vector): text for vector, text in injections.items()}
        "".join(literal.values()).encode()  # half a surrogate pair would fail later, on its way to a model
        marked = self._read_document({vector: _make_mark(vector) for vector in injections})
        return cast(
            TaskEnvironment, self._suite.environment_type.model_validate(_replace_marks(marked, literal))
        )

    def _find_breaking_vector(
        self, injections: dict[str, str], error: Exception
    ) -> InjectionBreaksEnvironment:
        vector = next((name for name in injections if self._breaks_alone({name: injections[name]})), None)
        if vector is None:  # only together; the first is as good as any
            vector = next(iter(injections))
        text = injections[vector]
        if self._injection == "exact":  # the environment's types refuse it as it is
            position = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
            reason = _write_error_line(error) if position is None else "half of a surrogate pair is not text"
            reason += "; change the attack's text"
        else:
            position, reason = find_breaking_character(text) or (None, _write_error_line(error))
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
    """An environment with marks where the texts of vectors will stand: filling it takes a tenth of reading YAML."""

    pickled: bytes
    marked: tuple[tuple[Any, ...], ...]
    """The way to each text with a mark: names of attributes, keys and positions."""

    @classmethod
    def build(cls, environment: TaskEnvironment) -> MarkedEnvironment | None:
        """The template of a marked environment; None where a mark stands in a key or in something unknown."""
        try:
            return cls(
                pickle.dumps(environment, pickle.HIGHEST_PROTOCOL), tuple(_find_marks(environment, ()))
            )
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
            return None

    def fill(self, texts: Mapping[str, str]) -> TaskEnvironment:
        """A fresh environment with the text of each mark."""
        environment = pickle.loads(self.pickled)
        for *way, last in self.marked:
            node = environment
            for step in way:
                node = _get_contents(node)[step]
            held = _get_contents(node)
            held[last] = _replace_marks_in_text(held[last], texts)
            if held is not node:  # what its type computes, the size of a file, is computed again
                held.update(vars(type(node).model_validate(held)))
        return cast(TaskEnvironment, environment)


def _get_contents(node: Any) -> Any:
    return vars(node) if isinstance(node, BaseModel) else node


def _find_marks(node: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, str):
        if "\ue0f0" in node:
            yield way
        return
    held = _get_contents(node)
    if isinstance(held, dict):
        if any(isinstance(key, str) and "\ue0f0" in key for key in held):
            raise TypeError("a mark in a key")
        for key, value in held.items():
            yield from _find_marks(value, (*way, key))
    elif isinstance(held, list):
        for index, value in enumerate(held):
            yield from _find_marks(value, (*way, index))


def _find_blank_ends(text: str) -> tuple[str, str]:
    """The blanks and line breaks that a text begins and ends with: folding them depends on what stands beside it."""
    inner = text.strip()
    first = text.index(inner)
    return text[:first], text[first + len(inner) :]


def _find_edges(injections: Mapping[str, str]) -> frozenset[tuple[str, str, str]]:
    """Vectors with the blank ends of their texts."""
    return frozenset((vector, *_find_blank_ends(text)) for vector, text in injections.items())


_BLANKS = re.compile(r"(?:\\?[ \t\n])*")


def _split_at_placeholders(text: str, vector: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The texts between a vector's placeholders, and the blanks and line breaks beside each, escaped ones too.

    One pattern for all three would be tried at every character of a file of 200 kB, for every vector.
    """
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
    """What YAML reads for a text between letters."""
    return str(yaml.load(f'"x{text}x"', Loader=yaml.CSafeLoader))[1:-1]


@lru_cache(maxsize=32)
def _reads_alike(text: str, vectors: tuple[str, ...]) -> bool:
    """Say whether an environment's text has its placeholders in double quotes, and libyaml reads the rest as PyYAML."""
    try:
        written = text.format(**dict.fromkeys(vectors, _PROBE))
        return yaml.__with_libyaml__ and bool(yaml.load(written, yaml.CSafeLoader) == yaml.safe_load(written))
    except (yaml.YAMLError, LookupError, ValueError, AttributeError):
        return False


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


def find_breaking_character(text: str) -> tuple[int, str] | None:
    """The first character that cannot stand inside a double-quoted YAML text.

    Returns:
        Its position, from 0, and what is wrong with it; None if no character of the text is to blame.
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
    """The text with what would break a double-quoted YAML text replaced by the nearest thing that does not.

    A double quote becomes an apostrophe; line breaks and tabs that a model spelled out (a backslash and `n`)
    a space; every other backslash a slash; a character that YAML refuses, or a document mark, spaces.
    """
    plain = _SPELLED_BREAK.sub(" ", text).replace('"', "'").replace("\\", "/")
    plain = _UNREADABLE.sub(" ", plain)
    return _DOCUMENT_MARK.sub(lambda mark: mark[0][0] + " " * (len(mark[0]) - 1), plain)
