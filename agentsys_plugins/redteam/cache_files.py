"""Reads and checks files of ready-made injection texts, ours and others'. Nothing in them is executed.

`read_texts` reads a file, or a folder with one file per suite, in the forms that researchers use.

Forms of a file (docs/attacks.md#cached): a list of objects `{suite, user_task, injection_task, text}`, the
same objects one per line (JSONL), an object whose `entries` is such a list (what our searches save), a
mapping suite -> user task -> injection task -> text (or vector -> text), and AutoDojo's caches (arXiv
2606.15057), files `variants/<suite>/<victim>/<defense>/injections.json`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt, ValidationError

from agentsys.errors import ConfigError

TASKS_KEY = "injection_tasks"
"""The key that identifies an AutoDojo cache."""
_FOLDER_DEPTH = 3
"""Number of folders above a file of the published tree: suite, victim, defense."""
KNOWN_FORMATS = (1, 2)
"""The known formats of saved searches."""

_FORMS_HINT = (
    "give a list of objects {suite, user_task, injection_task, text}, one such object per line (JSONL),"
    " a saved search, or a mapping suite -> user task -> injection task -> text (docs/attacks.md)"
)


class TextKey(NamedTuple):
    """The tasks that a text is for."""

    suite: str
    user_task: str | None
    """None: every user task that has no text of its own."""
    injection_task: str
    vector: str | None = None
    """None: every vector that has no text of its own."""
    variant: int | None = None
    """Number among several texts for the same vector; None: it has no number."""


def _complete_task(kind: str, value: Any) -> Any:
    """Complete a task's id from a bare number."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return f"{kind}_{value}" if is_number or (isinstance(value, str) and value.isdecimal()) else value


_Name = Annotated[str, Field(min_length=1)]


Form = TypeVar("Form", bound=BaseModel)


class _Entry(BaseModel):
    """A text and its tasks; further keys are ignored."""

    model_config = ConfigDict(strict=True)

    suite: str
    user_task: Annotated[_Name | None, BeforeValidator(partial(_complete_task, "user_task"))] = None
    injection_task: Annotated[_Name, BeforeValidator(partial(_complete_task, "injection_task"))]
    text: _Name
    vector: _Name | None = None
    variant: NonNegativeInt | None = None


class _Vector(BaseModel):
    """The texts optimised for one vector, and the original."""

    original: Any = None
    variants: list[Any] = []


class _AutoDojoFile(BaseModel):
    """A cache of AutoDojo; the victim's name is not in it."""

    suite: Any = "?"
    model: Any = "?"
    defense: Any = "?"
    iterations: Any = "?"
    injection_tasks: dict[str, dict[str, _Vector]]

    def list_variants(self) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """Yield (location, entry, True if it is the original) of every variant."""
        for task, vectors in self.injection_tasks.items():
            for name, vector in vectors.items():
                for number, text in enumerate(vector.variants):
                    value = {"suite": self.suite, "injection_task": task, "vector": name, "variant": number}
                    where = f"{TASKS_KEY} > {_shorten_key(task)} > {_shorten_key(name)} > variant {number}"
                    yield where, {**value, "text": text}, text == vector.original


def _describe_source(path: Path, document: _AutoDojoFile) -> str:
    """Describe a document's source in one line for a terminal, from its fields and its folder."""
    texts = [(value["text"], same) for _, value, same in document.list_variants()]
    folders = path.absolute().parts[-_FOLDER_DEPTH - 1 : -1]
    fields = (document.suite, document.model, document.defense, document.iterations)
    suite, optimiser, defense, iterations = (str(field)[:60] for field in fields)
    victim = folders[1] if len(folders) == _FOLDER_DEPTH and folders[0] == suite else "?"
    made = f"{len({text for text, same in texts if not same})} distinct texts for {suite}, optimised by {optimiser}"
    unchanged = sum(same for _, same in texts)
    return (
        f"{path.name}: {made} against {victim} with {defense} ({iterations} iterations); {unchanged} more equal the"
        " original and are not used"
    )


class _EntryFault(Exception):
    """A fault in one entry of the file."""


class _DuplicateKey(ValueError):
    """An object has a key twice; JSON would silently keep the last."""


def read_cache_file(path: Path) -> tuple[dict[TextKey, str], str | None]:
    """Read the texts of a JSON or JSONL file by their tasks, and describe the source of a foreign file.

    Raises:
        ConfigError: If the file or an entry is invalid; the message names both, and the correction.
    """
    try:
        content = path.read_bytes().decode("utf-8-sig", "surrogatepass")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"attack.file {path} cannot be read: {reason}. Give a JSON or JSONL file."
        ) from None
    try:
        document = _parse_document(path, content)
        foreign: _AutoDojoFile | None = None
        entries: Iterator[tuple[str, Any]]
        if isinstance(document, dict) and TASKS_KEY in document:
            foreign = _validate(_AutoDojoFile, document, "as an AutoDojo cache")
            entries = ((where, value) for where, value, same in foreign.list_variants() if not same)
        else:
            entries = _parse_lines(content) if document is None else _list_document_entries(document)
        texts = _collect_texts(entries)
    except _EntryFault as fault:
        raise ConfigError(f"attack.file {path}, {fault}.") from None
    if not texts:
        raise ConfigError(f"attack.file {path} holds no text; {_FORMS_HINT}.")
    return texts, None if foreign is None else _describe_source(path, foreign)


def _parse_document(path: Path, content: str) -> Any:
    """Parse the file as one JSON value; None if it has one object per line."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return None
    try:
        document = _parse_json(content)
    except _DuplicateKey as error:
        raise _EntryFault(str(error)) from None
    except (ValueError, RecursionError) as error:
        if content.lstrip().startswith("{") and "\n" in content.strip():
            return None  # One object per line, in spite of the file's ending.
        line = getattr(error, "lineno", 1)
        raise _EntryFault(f"line {line}: not valid JSON; {_FORMS_HINT}") from None
    if document is None:
        raise _EntryFault(f"it holds null; {_FORMS_HINT}")
    return document


def _parse_lines(content: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines(): a JSON text may hold other separators, such as U+2028, unescaped.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", _parse_json(line)
        except _DuplicateKey as error:
            raise _EntryFault(f"line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise _EntryFault(f"line {number}: not valid JSON; {_FORMS_HINT}") from None


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_build_object)


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    merged = dict(pairs)
    if len(merged) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateKey(f"the key {_shorten_key(twice)} stands twice in one object; remove one")
    return merged


def _list_document_entries(document: object) -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict) and "entries" in document:
        if document.get("format", 1) not in KNOWN_FORMATS:
            known = " and ".join(map(str, KNOWN_FORMATS))
            raise _EntryFault(
                f"format {_shorten_key(document['format'])}: only formats {known} of a saved search are known"
            )
        document = document["entries"]
    if isinstance(document, dict) and isinstance(document.get("text"), str):
        document = [document]  # JSONL with a single line.
    if isinstance(document, list):
        yield from ((f"entry {number}", value) for number, value in enumerate(document, start=1))
        return
    for suite, users in _check_mapping(document, "it"):
        for user, injections in _check_mapping(users, suite):
            for injection, text in _check_mapping(injections, f"{suite} > {user}"):
                value = {"suite": suite, "user_task": user, "injection_task": injection}
                by_vector = text if isinstance(text, dict) and text else {None: text}
                for vector, its in by_vector.items():
                    where = f"{_shorten_key(suite)} > {_shorten_key(user)} > {_shorten_key(injection)}"
                    yield where, {**value, "vector": vector, "text": its}


def _check_mapping(value: object, where: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _EntryFault(f"{_shorten_key(where)}: no list and no mapping; {_FORMS_HINT}")
    return iter(value.items())


def _collect_texts(entries: Iterator[tuple[str, Any]]) -> dict[TextKey, str]:
    texts: dict[TextKey, str] = {}
    for where, value in entries:
        for name in value if isinstance(value, dict) else ():
            # A misspelled `user_task` would silently mean: all user tasks.
            near = difflib.get_close_matches(name, _Entry.model_fields, n=1, cutoff=0.75)
            if name not in _Entry.model_fields and near and near[0] not in value:
                raise _EntryFault(f"{where}: unknown key {_shorten_key(name)}; did you mean {near[0]}?")
        entry = _validate(_Entry, value, where)
        key = TextKey(entry.suite, entry.user_task, entry.injection_task, entry.vector, entry.variant)
        if texts.setdefault(key, entry.text) != entry.text:
            raise _EntryFault(f"{where}: a second, different text for the same tasks; keep one")
    return texts


def _validate(form: type[Form], value: object, where: str) -> Form:
    """Validate a value; the error does not quote the value, which a stranger wrote."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        places = [where, *map(_shorten_key, first["loc"]), first["msg"]]
        raise _EntryFault(f"{': '.join(places)}; {_FORMS_HINT}") from None


def _shorten_key(name: object) -> str:
    return ascii(str(name)[:40])


_ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class CacheTexts:
    """Ready-made injection texts."""

    texts: Mapping[TextKey, str]
    sources: Sequence[str]
    """One line on the source of each foreign file; none for files of our own forms."""

    @property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits that depend on the texts and their tasks alone."""
        listed = sorted((*(str(part) for part in key), text) for key, text in self.texts.items())
        return hashlib.sha256(json.dumps(listed).encode("utf-8", "replace")).hexdigest()[:8]

    def find_text(
        self, suite: str, user_task: str, injection_task: str, vector: str, variant: int
    ) -> str | None:
        """Find the text for one vector of a pair of tasks; None if there is none.

        A text for this very vector is preferred to one for any vector, then one for this user task to one for all,
        then one with this variant's number to one without a number.
        """
        keys = (
            TextKey(suite, user, injection_task, where, number)
            for where, user, number in product((vector, None), (user_task, None), (variant, None))
        )
        return next((self.texts[key] for key in keys if key in self.texts), None)

    @property
    def variants(self) -> tuple[int, ...]:
        """The variant numbers of all texts."""
        return tuple(sorted({key.variant for key in self.texts if key.variant is not None}))


def read_texts(path: Path) -> CacheTexts:
    """Read a file, or every file of a folder and its subfolders.

    Raises:
        ConfigError: If a file or an entry is invalid; the message names both, and the correction.
    """
    if not path.is_dir():
        texts, source = read_cache_file(path)
        return CacheTexts(texts, [source] if source else [])
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in _ENDINGS and file.is_file()]
    if not files:
        raise ConfigError(f"attack.file {path}: no JSON file in it; give a folder with a file per suite.")
    texts, sources = {}, []
    for file in files:
        file_texts, source = read_cache_file(file)
        for key, text in file_texts.items():
            if texts.setdefault(key, text) != text:
                raise ConfigError(
                    f"attack.file {path}: two files have texts for {key.suite} {key.injection_task},"
                    f" the second is {file.relative_to(path)}; give a folder with one file per suite."
                )
        sources += [source] if source else []
    return CacheTexts(texts, sources)
