"""`HoledText`: a suite's environment text, parsed once, with the quoted texts that hold a placeholder.

AgentDojo substitutes injections into YAML text with `str.format` and parses everything anew for
every case; 85% of the time goes into scanning text that never changes. Here the text is parsed
once, and of each later load only the double-quoted texts that hold a replaced placeholder are
parsed again, alone.

Why that is equal. The scanner reads a double-quoted text character by character up to the first
unescaped double quote, with no state from outside but the possibility that the text is a mapping
key (keys with placeholders are not taken, see `parse_holed_text`). A plain injection (`is_plain`) cannot
move that quote, nor change what an escape of the data means. So each such text begins and ends
where it did, means what it means alone, and nothing else changes. Any other injection is left to
AgentDojo's own way of loading.
"""

from __future__ import annotations

import pickle
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

# What PyYAML refuses to read anywhere is yaml.reader.Reader.NON_PRINTABLE; this is the rest.
_READABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
_BREAKS = "\n\r\x85\u2028\u2029"
_ESCAPE = re.compile(
    rf"\\(?:[0abt\tnvfre \"/\\N_LP{_BREAKS}]|x[0-9A-Fa-f]{{2}}|u[0-9A-Fa-f]{{4}}"
    r"|U(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})"
)
"""A whole escape: YAML 1.1 section 5.6, and the backslash before a line's end."""
# The byte order mark is left out because it means something at a document's start only.
_PLAIN = re.compile(rf"(?:(?![\"\\\ufeff])[{_READABLE}]|{_ESCAPE.pattern})*+")
_READABLE_CHARACTER = re.compile(f"[{_READABLE}]")
_DOCUMENT_MARK = re.compile(rf"[{_BREAKS}][ \t]*(?:---|\.\.\.)(?=[ \t{_BREAKS}]|$)")


def is_plain(text: object) -> bool:
    """Say whether a text, put inside double quotes, provably stays there.

    It does if it has no double quote of its own and each backslash begins an escape that is
    complete within the text: the scanner then meets the closing quote where it met it before.
    """
    return isinstance(text, str) and _PLAIN.fullmatch(text) is not None


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


NodePath = tuple[Any, ...]
"""Keys and list indices from the root of a parsed document to one of its texts."""

_FORMATTER = string.Formatter()


@dataclass(frozen=True)
class Hole:
    """One double-quoted text that holds at least one placeholder."""

    path: NodePath
    source: str
    """As it stands in the environment text, quotes included, for `str.format`."""
    vectors: frozenset[str]
    """The injection vectors that stand in it."""


@dataclass(frozen=True)
class HoledText:
    """A parsed environment text whose placeholders hold the suite's defaults."""

    holes: tuple[Hole, ...]
    pickled_document: bytes
    """The parsed document with every default in place; unpickling is the fastest deep copy."""

    def fill(self, values: Mapping[str, str], replaced: frozenset[str]) -> Any:
        """The parsed document with `values` in place; a fresh object on every call.

        Args:
            values: A plain text (see `is_plain`) for every vector of the suite.
            replaced: The vectors whose value is not the default.

        Raises:
            yaml.YAMLError: If a text cannot be parsed with its values.
        """
        document = pickle.loads(self.pickled_document)
        for hole in self.holes:
            if hole.vectors & replaced:
                _put(document, hole.path, _parse_quoted(hole.source.format(**values)))
        return document


@lru_cache(maxsize=1024)
def _parse_quoted(quoted: str) -> str:
    """The value of a quoted text; cases with one injection task read the same one in many environments."""
    quick = yaml.__with_libyaml__ and _SAME_IN_C.fullmatch(quoted)
    return str(yaml.load(quoted, Loader=yaml.CSafeLoader if quick else yaml.SafeLoader))


_SAME_IN_C = re.compile(r'"(?:[ !#-\[\]-~\n]|\\[0abtnvfre "\\N_LP\n])*+"')
"""Printable ASCII, line breaks and escapes of one letter: libyaml reads these by the rules of PyYAML's own
scanner, in a tenth of the time. The two differ in what other characters they take."""


def parse_holed_text(text: str, defaults: Mapping[str, str]) -> HoledText | None:
    """Find the holes of an environment text.

    Args:
        text: YAML with `{vector}` placeholders, as `read_suite_file` returns it.
        defaults: Injection vector -> default text.

    Returns:
        None where the shortcut could not be proven: a placeholder that is not a plain `{name}` inside
        a double-quoted value, a default that is not plain, an anchor, or a key given twice.
    """
    if not all(is_plain(default) for default in defaults.values()):
        return None
    try:
        holes = tuple(_find_holes(text, yaml.compose(text, Loader=yaml.SafeLoader)))
        document = yaml.safe_load(text.format(**defaults))
    except (_NotProvable, yaml.YAMLError, LookupError, ValueError):
        return None
    if sum(len(_placeholder_names(hole.source)) for hole in holes) != len(_placeholder_names(text)):
        return None
    return HoledText(holes, pickle.dumps(document, pickle.HIGHEST_PROTOCOL))


class _NotProvable(Exception):
    """The text holds something for which the argument at the top does not hold."""


def _find_holes(text: str, root: yaml.Node | None) -> Iterator[Hole]:
    seen: set[int] = set()
    for path, node in _walk_scalars(root, (), seen):
        source = text[node.start_mark.index : node.end_mark.index]
        fields = _placeholder_names(source)
        if fields:
            if node.style != '"' or node.tag != "tag:yaml.org,2002:str":
                raise _NotProvable(source)
            yield Hole(path, source, frozenset(fields))


def _walk_scalars(
    node: yaml.Node | None, path: NodePath, seen: set[int]
) -> Iterator[tuple[NodePath, yaml.ScalarNode]]:
    if id(node) in seen:  # an alias: two places share one node
        raise _NotProvable(path)
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = [_key(key) for key, _ in node.value]
        if len(set(keys)) != len(keys):
            raise _NotProvable(path)
        for key, (_, value) in zip(keys, node.value, strict=True):
            yield from _walk_scalars(value, (*path, key), seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk_scalars(item, (*path, index), seen)
    elif isinstance(node, yaml.ScalarNode):
        yield path, node


def _key(node: yaml.Node) -> str:
    # AgentDojo writes every text in double quotes; a plain key could be a merge (`<<`) or a number.
    if not isinstance(node, yaml.ScalarNode) or node.style != '"':
        raise _NotProvable(node)
    return str(node.value)


def _placeholder_names(text: str) -> list[str]:
    """The names of the placeholders in a format string.

    Raises:
        _NotProvable: If one has an index, an attribute, a conversion or a format specification.
    """
    found = []
    for _, field, specification, conversion in _FORMATTER.parse(text):
        if field is None:
            continue
        if not field.isidentifier() or specification or conversion:
            raise _NotProvable(field)
        found.append(field)
    return found


def _put(document: Any, path: NodePath, value: str) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value
