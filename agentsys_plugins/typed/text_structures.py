"""`read_structure`, `read_notes`: the objects and lists that a text is, or holds, in other forms than JSON."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import yaml

from agentsys.base.json_values import is_deeper_than, read_json_data
from agentsys.models.loose_json import find_outer_objects

MAX_CHARS = 20_000
"""Longest text that is looked through; a longer one is no form that an agent fills in."""
_FENCE = re.compile(r"\s*```[^\n`]{0,40}\n(.*?)\n?\s*```\s*", re.DOTALL)
_FORM = re.compile(r"[\w.\[\]-]{1,60}=[^&\s]*(?:&[\w.\[\]-]{1,60}=[^&\s]*)*")
_FLAG = re.compile(r"(?:^|\s)--?[A-Za-z][\w-]*(?=[\s=])")
_COLUMN = re.compile(r"[A-Za-z][\w.-]*(?: [\w.-]+){0,2}")
_SEPARATORS = ",;\t|"


def read_structure(text: str) -> Any:
    """Parse a text that as a whole is XML, a filled-in form, a table with a header or a command line; else None."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        return None
    if (fenced := _FENCE.fullmatch(text)) is not None:
        return read_json_data(fenced[1]) or read_structure(fenced[1]) or _read_yaml(fenced[1])
    if text.startswith("<"):
        return _read_xml(text)
    if _FORM.fullmatch(text):
        return _group(parse_qsl(text, keep_blank_values=True))
    if _FLAG.search(text):
        return _read_command(text)
    return _read_table(text)


def read_notes(text: str, *, as_people_write: bool) -> Iterator[Any]:
    """The JSON objects in a text; also what it says as YAML, or as a list of addresses, if asked for.

    People write `Name: value` and bullets in any text: where a name says that it is content, that is no structure.
    """
    if len(text) > MAX_CHARS:
        return
    yield from find_outer_objects(text)
    if as_people_write:
        yield _read_yaml(text)
        parts = [part.strip() for part in re.split(r"[,;]", text)]
        yield parts if len(parts) > 1 and max(map(len, parts)) <= _MAX_PART else None


_MAX_PART = 100


def _read_xml(text: str) -> Any:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        # Pieces without a root are read as well.
        root = ElementTree.fromstring(f"<all>{re.sub(r'^<[?][^>]*>', '', text)}</all>")
        return _bound(_convert_element(root), text)
    except RecursionError:
        return {"": text}
    except (
        ElementTree.ParseError,
        ValueError,
    ):  # a value in angle brackets, say: the tags that close are read
        return _group(_CLOSED_TAG.findall(text[:_MAX_LOOSE])) or None


def _bound(data: Any, text: str) -> Any:
    """What a text holds; too much to look through counts as a target, being under a name that nobody knows."""
    return {"": text} if is_deeper_than(data) else data


_MAX_LOOSE = 4000
_CLOSED_TAG = re.compile(r"(?=<([A-Za-z][\w.-]*)>(.*?)</\1>)", re.DOTALL)


def _convert_element(element: ElementTree.Element) -> Any:
    parts = (element.text, *(child.tail for child in element))
    words = [word for part in parts if part and (word := part.strip())]
    pairs = [*element.attrib.items(), *((child.tag, _convert_element(child)) for child in element)]
    if not pairs:
        return " ".join(words)
    return _group(
        [(name.rpartition("}")[2], value) for name, value in [*pairs, *(("text", w) for w in words)]]
    )


def _group(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for name, _ in pairs)
    grouped = {name: [value for other, value in pairs if other == name] for name in names}
    return {name: values[0] if len(values) == 1 else values for name, values in grouped.items()}


def _read_command(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation without an end
        return text.split()


def _read_table(text: str) -> list[dict[str, str]] | None:
    """The records of a text with a line of names and as many cells in each line below."""
    head, _, rest = text.partition("\n")
    counts = {sign: head.strip("| ").count(sign) for sign in _SEPARATORS}
    sign = max(counts, key=lambda one: counts[one])
    if not counts[sign] or not rest:
        return None
    lines = [line.strip("| ") if sign == "|" else line for line in text.splitlines() if line.strip()]
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=sign)]
    except csv.Error:
        return None
    names, *records = rows
    records = [row for row in records if set("".join(row)) - set("-: ")]
    if any(len(row) != len(names) for row in records) or not all(map(_COLUMN.fullmatch, names)):
        return None
    return [dict(zip(names, row, strict=True)) for row in records]


def _read_yaml(text: str) -> Any:
    try:
        # A few aliases of aliases stand for more values than anybody can look through.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            return {"": text}
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return _bound(data, text) if isinstance(data, dict | list) else None
