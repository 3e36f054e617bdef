"""Files of ready-made injection texts, ours and others', read and checked. Nothing in them is executed.

`read_texts` reads a file, or a folder with one file per suite, in the forms in which researchers keep them.

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
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.errors import ConfigError

TASKS_KEY = "injection_tasks"
"""The key by which such a file is known."""
_FOLDER_DEPTH = 3
"""Folders above a file of the published tree: suite, victim, defense."""


@dataclass(frozen=True)
class Provenance:
    """Where a file's texts come from."""

    file: str
    suite: str
    optimiser: str
    """The file's field `model`, which never names the victim."""
    victim: str
    """By the folder; `?` where it does not say."""
    defense: str
    iterations: str
    distinct: int
    """Number of distinct texts that can be replayed."""
    unchanged: int
    """Variants that equal the vector's original text: nothing was optimised."""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        made = f"{self.distinct} distinct texts for {self.suite}, optimised by {self.optimiser}"
        against = f"against {self.victim} with {self.defense} ({self.iterations} iterations)"
        return f"{self.file}: {made} {against}; {self.unchanged} more equal the original and are not used"


def is_autodojo(document: object) -> bool:
    """Whether a JSON document has the form of such a cache."""
    return isinstance(document, dict) and TASKS_KEY in document


def autodojo_entries(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    """The optimised texts as entries of a cache file, each with its place in the document.

    Args:
        document: A document for which `is_autodojo` holds.

    Raises:
        ValueError: Naming the place that has another form.
    """
    for where, task, vector, number, text, original in _iterate_variants(document):
        if text != original:
            value = {"injection_task": task, "vector": vector, "variant": number, "text": text}
            yield where, {"suite": document.get("suite"), **value}


def read_provenance(path: Path, document: Mapping[str, Any]) -> Provenance:
    """What a document says of itself, and its folder of it."""
    texts = [(text, text == original) for *_, text, original in _iterate_variants(document)]
    folders = path.absolute().parts[-_FOLDER_DEPTH - 1 : -1]
    keys = ("suite", "model", "defense", "iterations")
    suite, optimiser, defense, iterations = (str(document.get(key, "?"))[:60] for key in keys)
    in_tree = len(folders) == _FOLDER_DEPTH and folders[0] == suite
    victim = folders[1] if in_tree else "?"
    distinct = len({text for text, same in texts if not same})
    unchanged = sum(same for _, same in texts)
    return Provenance(path.name, suite, optimiser, victim, defense, iterations, distinct, unchanged)


def _iterate_variants(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int, object, object]]:
    """Place, injection task, vector, number, text and original of every variant."""
    for task, vectors in _check_mapping(document[TASKS_KEY], TASKS_KEY).items():
        for vector, found in _check_mapping(vectors, f"{TASKS_KEY} > {task[:40]!a}").items():
            where = f"{TASKS_KEY} > {task[:40]!a} > {vector[:40]!a}"
            texts = _check_mapping(found, where).get("variants", ())
            if not isinstance(texts, list | tuple):
                raise ValueError(f"{where}: variants is no list of texts")
            for number, text in enumerate(texts):
                yield f"{where} > variant {number}", task, vector, number, text, found.get("original")


def _check_mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: no object")
    return value


ENTRY_KEYS = ("suite", "user_task", "injection_task", "text", "vector", "variant")
"""What an entry has; `user_task`, `vector` and `variant` may be null or absent."""
KNOWN_FORMATS = (1, 2)
"""The formats of saved searches that are known."""

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
    """Which of several texts for the same place; None: it has no number."""


class _FileEntry(NamedTuple):
    where: str
    """E.g. `line 3` or `entry 7`."""
    value: object


class _DuplicateKey(ValueError):
    """JSON would silently keep the last of them."""


def read_cache_file(path: Path) -> tuple[dict[TextKey, str], Provenance | None]:
    """The texts in a file, and where those of a foreign file come from.

    Args:
        path: A JSON or JSONL file in UTF-8.

    Returns:
        Texts, never empty; tasks are named by their ids (`user_task_3`, also where the file says `3`).

    Raises:
        ConfigError: Naming the file, the line or entry, what is wrong there and the mend.
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
        entries = _parse_lines(content) if document is None else _list_document_entries(document)
        texts = _collect_texts(entries)
    except _EntryFault as fault:
        raise ConfigError(f"attack.file {path}, {fault}.") from None
    if not texts:
        raise ConfigError(f"attack.file {path} holds no text; {_FORMS_HINT}.")
    return texts, read_provenance(path, document) if is_autodojo(document) else None


class _EntryFault(Exception):
    """A fault in one place of the file."""


def _parse_document(path: Path, content: str) -> Any:
    """The file as one JSON value; None where it is one object per line."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return None
    try:
        found = _parse_json(content)
    except _DuplicateKey as error:
        raise _EntryFault(str(error)) from None
    except (ValueError, RecursionError) as error:
        if content.lstrip().startswith("{") and "\n" in content.strip():
            return None  # one object per line, whatever the file is called
        line = getattr(error, "lineno", 1)
        raise _EntryFault(f"line {line}: not valid JSON; {_FORMS_HINT}") from None
    if found is None:
        raise _EntryFault(f"it holds null; {_FORMS_HINT}")
    return found


def _parse_lines(content: str) -> Iterator[_FileEntry]:
    # Not splitlines(): a JSON text may hold other separators, such as U+2028, unescaped.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _FileEntry(f"line {number}", _parse_json(line))
        except _DuplicateKey as error:
            raise _EntryFault(f"line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise _EntryFault(f"line {number}: not valid JSON; {_FORMS_HINT}") from None


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_build_object)


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateKey(f"the key {_shorten_key(twice)} stands twice in one object; remove one")
    return found


def _list_document_entries(document: object) -> Iterator[_FileEntry]:
    if isinstance(document, dict) and is_autodojo(document):
        try:
            yield from (_FileEntry(where, value) for where, value in autodojo_entries(document))
        except ValueError as error:
            raise _EntryFault(f"{error}, as an AutoDojo cache has it; {_FORMS_HINT}") from None
        return
    if isinstance(document, dict) and "entries" in document:
        if document.get("format", 1) not in KNOWN_FORMATS:
            known = " and ".join(map(str, KNOWN_FORMATS))
            raise _EntryFault(
                f"format {_shorten_key(document['format'])}: only formats {known} of a saved search are known"
            )
        document = document["entries"]
    if isinstance(document, dict) and isinstance(document.get("text"), str):
        document = [document]  # JSONL of a single line
    if isinstance(document, list):
        yield from (_FileEntry(f"entry {number}", value) for number, value in enumerate(document, start=1))
    elif isinstance(document, dict):
        yield from _list_mapping_entries(document)
    else:
        raise _EntryFault(f"it holds {_name_json_kind(document)}; {_FORMS_HINT}")


def _list_mapping_entries(document: Mapping[str, Any]) -> Iterator[_FileEntry]:
    for suite, users in document.items():
        for user, injections in _check_level(users, f"{_shorten_key(suite)}", "user tasks").items():
            where = f"{_shorten_key(suite)} > {_shorten_key(user)}"
            for injection, text in _check_level(injections, where, "injection tasks").items():
                value = {"suite": suite, "user_task": user, "injection_task": injection}
                by_vector = text if isinstance(text, dict) and text else {None: text}
                for vector, its in by_vector.items():
                    yield _FileEntry(
                        f"{where} > {_shorten_key(injection)}", {**value, "vector": vector, "text": its}
                    )


def _check_level(value: object, where: str, of: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _EntryFault(
            f"{where}: {_name_json_kind(value)} where a mapping of {of} should be; {_FORMS_HINT}"
        )
    return value


def _collect_texts(entries: Iterator[_FileEntry]) -> dict[TextKey, str]:
    found: dict[TextKey, str] = {}
    for where, value in entries:
        key, text = _check_entry(where, value)
        if found.setdefault(key, text) != text:
            raise _EntryFault(f"{where}: a second, different text for the same tasks; keep one")
    return found


def _check_entry(where: str, value: object) -> tuple[TextKey, str]:
    if not isinstance(value, dict):
        raise _EntryFault(f"{where}: {_name_json_kind(value)} where an object should be; {_FORMS_HINT}")
    for name in value:
        # A misspelled `user_task` would silently mean: all user tasks.
        near = difflib.get_close_matches(name, ENTRY_KEYS, n=1, cutoff=0.75)
        if name not in ENTRY_KEYS and near and near[0] not in value:
            raise _EntryFault(f"{where}: unknown key {_shorten_key(name)}; did you mean {near[0]}?")
    for name in ("suite", "injection_task", "text"):
        if name not in value:
            raise _EntryFault(
                f"{where}: no {name}; an entry has {', '.join(ENTRY_KEYS)} (user_task may be left out)"
            )
    text, suite, user = value["text"], value["suite"], value.get("user_task")
    if not isinstance(text, str) or not text:
        raise _EntryFault(
            f"{where}: text is {_name_json_kind(text)}; give the injection as a text that is not empty"
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _EntryFault(f"{where}: text holds half of a surrogate pair; write the whole character")
    if not isinstance(suite, str):
        raise _EntryFault(f"{where}: suite is {_name_json_kind(suite)}; give its name, e.g. banking")
    injection = _check_task(where, "injection_task", value["injection_task"])
    place = _check_vector(where, value.get("vector")), _check_variant(where, value.get("variant"))
    return TextKey(
        suite, None if user is None else _check_task(where, "user_task", user), injection, *place
    ), text


def _check_vector(where: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise _EntryFault(f"{where}: vector is {_name_json_kind(value)}; give its name, or leave it out")


def _check_variant(where: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise _EntryFault(f"{where}: variant is {_name_json_kind(value)}; give a number from 0, or leave it out")


def _check_task(where: str, kind: str, value: object) -> str:
    """A task's id; a bare number is taken for the number in one."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return f"{kind}_{value}"
    if isinstance(value, str) and value:
        return f"{kind}_{value}" if value.isdecimal() else value
    raise _EntryFault(f"{where}: {kind} is {_name_json_kind(value)}; give its id, e.g. {kind}_0")


def _name_json_kind(value: object) -> str:
    """Name the kind of a JSON value, without showing what a stranger wrote in it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return f"an empty {names[type(value)].split()[-1]}" if value in ("", [], {}) else names[type(value)]


def _shorten_key(name: object) -> str:
    """A key from the file, short and on one line."""
    return ascii(str(name)[:40])


_ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class CacheTexts:
    """Ready-made injection texts."""

    texts: Mapping[TextKey, str]
    sources: Sequence[Provenance]
    """One per foreign file; none for files of our own forms."""

    @property
    def fingerprint(self) -> str:
        """Eight digits of what is written for what; wherever the file lies and whatever else stands in it."""
        listed = sorted((*(str(part) for part in key), text) for key, text in self.texts.items())
        return hashlib.sha256(json.dumps(listed).encode("utf-8", "replace")).hexdigest()[:8]

    def find_text(
        self, suite: str, user_task: str, injection_task: str, vector: str, variant: int
    ) -> str | None:
        """The text for one vector of a pair of tasks; None if there is none.

        A text for this very vector goes before one for any, this user task's before one for all, this
        variant's before one without number.
        """
        keys = (
            TextKey(suite, user, injection_task, where, number)
            for where, user, number in product((vector, None), (user_task, None), (variant, None))
        )
        return next((self.texts[key] for key in keys if key in self.texts), None)

    @property
    def variants(self) -> tuple[int, ...]:
        """The numbers that texts have."""
        return tuple(sorted({key.variant for key in self.texts if key.variant is not None}))


def read_texts(path: Path) -> CacheTexts:
    """Read a file, or every file of a folder and of those in it.

    Raises:
        ConfigError: Naming the file, the place in it, what is wrong there and the mend.
    """
    if not path.is_dir():
        texts, source = read_cache_file(path)
        return CacheTexts(texts, [source] if source else [])
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in _ENDINGS and file.is_file()]
    if not files:
        raise ConfigError(f"attack.file {path}: no JSON file in it; give a folder with a file per suite.")
    texts, sources = {}, []
    for file in files:
        found, source = read_cache_file(file)
        for key, text in found.items():
            if texts.setdefault(key, text) != text:
                raise ConfigError(
                    f"attack.file {path}: two files have texts for {key.suite} {key.injection_task},"
                    f" the second is {file.relative_to(path)}; give a folder with one file per suite."
                )
        sources += [source] if source else []
    return CacheTexts(texts, sources)
