"""Checks a user's options against a dataclass's annotations, and a host for loopback."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from agentsys.errors import ConfigError, unknown_name

_Options = TypeVar("_Options")

AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]


def check_options(shape: type[_Options], who: str, options: Mapping[str, Any], **own: Any) -> _Options:
    """Check options and build their dataclass.

    Args:
        shape: The dataclass. A field's annotation defines the allowed values: the words of a `Literal`, the values
            of an enumeration, true or false, a number within bounds.
        who: Name of the owner of the options, for messages.
        options: Option -> value; missing options have the dataclass's defaults.
        own: Further fields that are not options; they are not checked.

    Raises:
        ConfigError: For the first unknown option or invalid value.
    """
    hints = get_type_hints(shape, include_extras=True)
    for name in options:
        if name not in hints or name in own:
            raise ConfigError(unknown_name(f"{who} option", name, hints.keys() - own.keys()))
    return shape(
        **{name: _check_value(who, name, hints[name], value) for name, value in options.items()}, **own
    )


def _check_value(who: str, option: str, hint: Any, value: object) -> Any:
    kind: TypeAdapter[Any] = TypeAdapter(hint)
    outer = get_origin(hint) or hint
    is_brought_in = isinstance(outer, type) and issubclass(outer, Enum | Mapping)
    try:
        # Strict: "5" is no number and 1 no boolean. Enumerations and mappings are converted from plain YAML values.
        return kind.validate_python(value, strict=not is_brought_in)
    except ValidationError:
        schema = kind.json_schema()
        words = [str(word) for word in schema.get("enum", ())]
        if words:
            raise ConfigError(unknown_name(f"{who} {option}", str(value), words)) from None
        raise ConfigError(f"{who}: {option} is {value!r}; give {_describe_schema(schema)}.") from None


def _describe_schema(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"anyOf": [one, {"type": "null"}]}:
            return f"{_describe_schema(one)}, or null"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"a whole number from {least} to {most}"
        case {"type": "integer", "minimum": least}:
            return f"a whole number of at least {least}"
        case {"type": "number", "minimum": least, "maximum": most}:
            return f"a number from {least:g} to {most:g}"
    return f"a value of the type {schema.get('type', 'that it is described with')}"


def require_loopback(host: str) -> str:
    """Return the host as an address if only this machine can reach it.

    Raises:
        ConfigError: If other machines could reach it.
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        inside = ipaddress.ip_address(address).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigError(
            f"Host '{host}' is not loopback; a model is served on 127.0.0.1, ::1 or localhost only."
        )
    return address
