"""Reads a file of ready-made injection texts, in the forms in which researchers keep them.

Forms (docs/attacks.md#cached): a list of objects `{suite, user_task, injection_task, text}`, the same
objects one per line (JSONL), an object whose `entries` is such a list (what our searches save), a mapping
suite -> user task -> injection task -> text (or vector -> text), and AutoDojo's caches.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.attacks.cache_files.autodojo import Provenance, is_autodojo, read_provenance
from agentsys.attacks.cache_files.autodojo import autodojo_entries as autodojo_entries
from agentsys.errors import ConfigError

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
        found = _collect_texts(_parse_lines(content) if document is None else _list_document_entries(document))
    except _EntryFault as fault:
        raise ConfigError(f"attack.file {path}, {fault}.") from None
    if not found:
        raise ConfigError(f"attack.file {path} holds no text; {_FORMS_HINT}.")
    return found, read_provenance(path, document) if is_autodojo(document) else None


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
        raise _EntryFault(f"{where}: {_name_json_kind(value)} where a mapping of {of} should be; {_FORMS_HINT}")
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
            raise _EntryFault(f"{where}: no {name}; an entry has {', '.join(ENTRY_KEYS)} (user_task may be left out)")
    text, suite, user = value["text"], value["suite"], value.get("user_task")
    if not isinstance(text, str) or not text:
        raise _EntryFault(f"{where}: text is {_name_json_kind(text)}; give the injection as a text that is not empty")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _EntryFault(f"{where}: text holds half of a surrogate pair; write the whole character")
    if not isinstance(suite, str):
        raise _EntryFault(f"{where}: suite is {_name_json_kind(suite)}; give its name, e.g. banking")
    injection = _check_task(where, "injection_task", value["injection_task"])
    place = _check_vector(where, value.get("vector")), _check_variant(where, value.get("variant"))
    return TextKey(suite, None if user is None else _check_task(where, "user_task", user), injection, *place), text


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
