"""Arguments that repeat what was read, found in a tool's YAML output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import yaml

from agentsys.models.simulated.playbook import Quote, ScriptedCall
from agentsys.models.simulated.text_matching import decode_base64_parts

_LONGEST_OUTPUT = 500_000
"""Characters that are parsed at most; the text is the environment's, and so the attacker's."""
_DEFENSE_MARKS = "<>«»[]"
"""What a defense may have put around an output."""


def insert_quotes(args: dict[str, Any], call: ScriptedCall, outputs: Mapping[int, str]) -> None:
    """Put what earlier calls returned in its places; a place whose output is not to be had stays as it is.

    Args:
        args: Fresh arguments of `call`; changed in place.
        call: The call that is about to be made.
        outputs: Results read so far, by index in the script.
    """
    for quote in call.quotes:
        value = _quoted_value(quote, parse_yaml_items(outputs.get(quote.source, "")))
        if value is not None:
            _set_value(args, (quote.arg, *quote.inside), value)


@lru_cache(maxsize=32)
def parse_yaml_items(output: str) -> tuple[Mapping[str, Any], ...]:
    """The objects that a tool's YAML output lists; empty where it is no such list. Not to be changed."""
    if not output or len(output) > _LONGEST_OUTPUT:
        return ()
    for text in (output, output.strip(_DEFENSE_MARKS), *decode_base64_parts(output)):
        items = _parse_yaml(text)
        if isinstance(items, list):
            return tuple(item for item in items if isinstance(item, dict))
    return ()


def _quoted_value(quote: Quote, items: Sequence[Mapping[str, Any]]) -> str | None:
    if quote.by is None:
        return "\n".join(_string_values(quote.key, items)) or None
    sized = [item for item in items if isinstance(item.get(quote.by), int | float)]
    ordered = sorted(sized, key=lambda item: float(item[str(quote.by)]), reverse=True)
    texts = _string_values(quote.key, ordered[quote.rank : quote.rank + 1])
    return texts[0] if texts else None


def _string_values(key: str, items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item[key] for item in items if isinstance(item.get(key), str)]


def _set_value(args: dict[str, Any], at: Sequence[str | int], value: str) -> None:
    place: Any = args
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = value


def _parse_yaml(output: str) -> Any:
    try:
        return yaml.load(output, _YAML_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


# Both build plain values only; libyaml's is ten times faster, where PyYAML was built with it.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
