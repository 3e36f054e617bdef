"""The strings of a structured result, one by one: what filters may rewrite while keys and numbers stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import yaml

ReadUnit = Literal["result", "strings"]
"""What a guard is shown at once: a whole result, or each string in it."""

# Both build plain values only; libyaml's is ten times faster, where PyYAML was built with it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRUCTURED = ("- ", "[", "{")


@dataclass(frozen=True)
class StringLeaves:
    """A result's text as the data it was written from."""

    data: Any
    """A list or an object; the text itself where it is no written data."""
    text: str

    def list_strings(self) -> list[str]:
        """Every string, in order of place; keys are none."""
        return list(_iterate_strings(self.data))

    def replace_strings(self, change: Callable[[str], str]) -> str:
        """The text with strings changed, asked about once each, in order; the very bytes where none is."""
        changed = _replace_strings_in(self.data, change)
        if changed == self.data:
            return self.text
        return changed if isinstance(changed, str) else str(yaml.safe_dump(changed)).strip()


def read_leaves(text: str) -> StringLeaves:
    """Read a result. Only what writes back to the same bytes counts as structured."""
    try:
        data = yaml.load(text, _LOADER) if _may_be_data(text) else text
        same = isinstance(data, list | dict) and str(yaml.safe_dump(data)).strip() == text
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        same = False
    return StringLeaves(data if same else text, text)


def _may_be_data(text: str) -> bool:
    # An anchor could unfold without end; what tools return as data has one only where AgentDojo writes it.
    return "&" not in text and (text.startswith(_STRUCTURED) or ": " in text or ":\n" in text)


def _iterate_strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _iterate_strings(item)


def _replace_strings_in(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {key: _replace_strings_in(item, change) for key, item in data.items()}
    return [_replace_strings_in(item, change) for item in data] if isinstance(data, list) else data
