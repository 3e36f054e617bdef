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

from agentsys.attacks.cache_files.autodojo import Provenance, is_autodojo, provenance
from agentsys.attacks.cache_files.autodojo import entries as autodojo_entries
from agentsys.errors import ConfigError

KEYS = ("suite", "user_task", "injection_task", "text", "vector", "variant")
"""What an entry has; `user_task`, `vector` and `variant` may be null or absent."""
FORMATS = (1, 2)
"""The formats of saved searches that are known."""

_FORMS = (
    "give a list of objects {suite, user_task, injection_task, text}, one such object per line (JSONL),"
    " a saved search, or a mapping suite -> user task -> injection task -> text (docs/attacks.md)"
)


class Key(NamedTuple):
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


class _TwiceInOneObject(ValueError):
    """JSON would silently keep the last of them."""


def read_file(path: Path) -> tuple[dict[Key, str], Provenance | None]:
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
        document = _document(path, content)
        found = _collected(_lines(content) if document is None else _in_document(document))
    except _Fault as fault:
        raise ConfigError(f"attack.file {path}, {fault}.") from None
    if not found:
        raise ConfigError(f"attack.file {path} holds no text; {_FORMS}.")
    return found, provenance(path, document) if is_autodojo(document) else None


class _Fault(Exception):
    """A fault in one place of the file."""


def _document(path: Path, content: str) -> Any:
    """The file as one JSON value; None where it is one object per line."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return None
    try:
        found = _parsed(content)
    except _TwiceInOneObject as error:
        raise _Fault(str(error)) from None
    except (ValueError, RecursionError) as error:
        if content.lstrip().startswith("{") and "\n" in content.strip():
            return None  # one object per line, whatever the file is called
        line = getattr(error, "lineno", 1)
        raise _Fault(f"line {line}: not valid JSON; {_FORMS}") from None
    if found is None:
        raise _Fault(f"it holds null; {_FORMS}")
    return found


def _lines(content: str) -> Iterator[_FileEntry]:
    # Not splitlines(): a JSON text may hold other separators, such as U+2028, unescaped.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _FileEntry(f"line {number}", _parsed(line))
        except _TwiceInOneObject as error:
            raise _Fault(f"line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise _Fault(f"line {number}: not valid JSON; {_FORMS}") from None


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceInOneObject(f"the key {_shown(twice)} stands twice in one object; remove one")
    return found


def _in_document(document: object) -> Iterator[_FileEntry]:
    if isinstance(document, dict) and is_autodojo(document):
        try:
            yield from (_FileEntry(where, value) for where, value in autodojo_entries(document))
        except ValueError as error:
            raise _Fault(f"{error}, as an AutoDojo cache has it; {_FORMS}") from None
        return
    if isinstance(document, dict) and "entries" in document:
        if document.get("format", 1) not in FORMATS:
            known = " and ".join(map(str, FORMATS))
            raise _Fault(
                f"format {_shown(document['format'])}: only formats {known} of a saved search are known"
            )
        document = document["entries"]
    if isinstance(document, dict) and isinstance(document.get("text"), str):
        document = [document]  # JSONL of a single line
    if isinstance(document, list):
        yield from (_FileEntry(f"entry {number}", value) for number, value in enumerate(document, start=1))
    elif isinstance(document, dict):
        yield from _in_mapping(document)
    else:
        raise _Fault(f"it holds {_kind(document)}; {_FORMS}")


def _in_mapping(document: Mapping[str, Any]) -> Iterator[_FileEntry]:
    for suite, users in document.items():
        for user, injections in _level(users, f"{_shown(suite)}", "user tasks").items():
            where = f"{_shown(suite)} > {_shown(user)}"
            for injection, text in _level(injections, where, "injection tasks").items():
                value = {"suite": suite, "user_task": user, "injection_task": injection}
                by_vector = text if isinstance(text, dict) and text else {None: text}
                for vector, its in by_vector.items():
                    yield _FileEntry(
                        f"{where} > {_shown(injection)}", {**value, "vector": vector, "text": its}
                    )


def _level(value: object, where: str, of: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Fault(f"{where}: {_kind(value)} where a mapping of {of} should be; {_FORMS}")
    return value


def _collected(entries: Iterator[_FileEntry]) -> dict[Key, str]:
    found: dict[Key, str] = {}
    for where, value in entries:
        key, text = _checked(where, value)
        if found.setdefault(key, text) != text:
            raise _Fault(f"{where}: a second, different text for the same tasks; keep one")
    return found


def _checked(where: str, value: object) -> tuple[Key, str]:
    if not isinstance(value, dict):
        raise _Fault(f"{where}: {_kind(value)} where an object should be; {_FORMS}")
    for name in value:
        # A misspelled `user_task` would silently mean: all user tasks.
        near = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.75)
        if name not in KEYS and near and near[0] not in value:
            raise _Fault(f"{where}: unknown key {_shown(name)}; did you mean {near[0]}?")
    for name in ("suite", "injection_task", "text"):
        if name not in value:
            raise _Fault(f"{where}: no {name}; an entry has {', '.join(KEYS)} (user_task may be left out)")
    text, suite, user = value["text"], value["suite"], value.get("user_task")
    if not isinstance(text, str) or not text:
        raise _Fault(f"{where}: text is {_kind(text)}; give the injection as a text that is not empty")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _Fault(f"{where}: text holds half of a surrogate pair; write the whole character")
    if not isinstance(suite, str):
        raise _Fault(f"{where}: suite is {_kind(suite)}; give its name, e.g. banking")
    injection = _task(where, "injection_task", value["injection_task"])
    place = _vector(where, value.get("vector")), _variant(where, value.get("variant"))
    return Key(suite, None if user is None else _task(where, "user_task", user), injection, *place), text


def _vector(where: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise _Fault(f"{where}: vector is {_kind(value)}; give its name, or leave it out")


def _variant(where: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise _Fault(f"{where}: variant is {_kind(value)}; give a number from 0, or leave it out")


def _task(where: str, kind: str, value: object) -> str:
    """A task's id; a bare number is taken for the number in one."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return f"{kind}_{value}"
    if isinstance(value, str) and value:
        return f"{kind}_{value}" if value.isdecimal() else value
    raise _Fault(f"{where}: {kind} is {_kind(value)}; give its id, e.g. {kind}_0")


def _kind(value: object) -> str:
    """Name the kind of a JSON value, without showing what a stranger wrote in it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return f"an empty {names[type(value)].split()[-1]}" if value in ("", [], {}) else names[type(value)]


def _shown(name: object) -> str:
    """A key from the file, short and on one line."""
    return ascii(str(name)[:40])
