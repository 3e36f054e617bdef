"""Checks JSON against the types that a vendor's SDK declares for requests; an unknown field is a fault."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, TypeAdapter, ValidationError

_REQUIRED = {typing.Required, typing_extensions.Required}
_OPTIONAL = {typing.NotRequired, typing_extensions.NotRequired}
_WRAPPERS = {typing.Annotated, typing_extensions.ReadOnly} | _REQUIRED | _OPTIONAL
_LISTS = {list, collections.abc.Iterable, collections.abc.Sequence}
_OBJECTS = {dict, Mapping}


def find_faults(value: object, declared: Any, path: str = "body") -> list[str]:
    """Where a JSON value is none of a declared type: a TypedDict, a pydantic model, or what these are made of."""
    origin, inner = get_origin(declared), get_args(declared)
    if declared in (Any, object):
        return []
    if typing_extensions.is_typeddict(declared):
        return list(_find_object_faults(value, declared, path))
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return _find_model_faults(value, declared, path)
    if origin in _WRAPPERS:
        return find_faults(value, inner[0], path)
    if origin in (Union, types.UnionType):
        tried = [find_faults(value, one, path) for one in inner]
        return min(tried, key=len)
    if origin is Literal:
        return [] if value in inner else [f"{path}: {value!r} is none of {inner}"]
    if origin in _LISTS or declared in _LISTS:
        if not isinstance(value, list):
            return [f"{path}: no list"]
        named = inner[0] if inner else Any
        return [fault for n, one in enumerate(value) for fault in find_faults(one, named, f"{path}[{n}]")]
    if origin in _OBJECTS or declared in _OBJECTS:
        return [] if isinstance(value, dict) else [f"{path}: no object"]
    try:
        TypeAdapter(declared).validate_python(value, strict=declared is not float)
    except ValidationError as error:
        return [f"{path}: {error.errors()[0]['msg']}"]
    return []


def _find_object_faults(value: object, declared: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: no object"
        return
    hints = typing_extensions.get_type_hints(declared, include_extras=True)
    yield from (f"{path}.{name}: unknown" for name in value.keys() - hints.keys())
    # Not `__required_keys__`, which is wrong where annotations are strings.
    required = {name for name, hint in hints.items() if get_origin(hint) in _REQUIRED}
    required |= {
        name for name, hint in hints.items() if declared.__total__ and get_origin(hint) not in _OPTIONAL
    }
    yield from (f"{path}.{name}: missing" for name in sorted(required - value.keys()))
    for name, item in value.items():
        if name in hints:
            yield from find_faults(item, hints[name], f"{path}.{name}")


def _find_model_faults(value: object, declared: type[BaseModel], path: str) -> list[str]:
    try:
        declared.model_validate(value, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        where = error.errors()[0]["loc"]
        return [f"{path}.{'.'.join(map(str, where))}: {error.errors()[0]['msg']}"]
    return []
