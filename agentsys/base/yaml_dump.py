"""`dump_yaml`: data as PyYAML's `safe_dump` writes it, in a fifth of the time."""

from __future__ import annotations

import re
from typing import Any

import yaml

_WRITTEN_OTHERWISE = re.compile(r"""(?m)(?:^ *|[-:?] )"|^ *(?:- )*\? |'':|^.{100,}:(?: |$)""")
"""The beginning of a text in double quotes, which libyaml folds at other words; a long key; the empty key."""


class _LibyamlDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Packages teach `SafeDumper` their own types.
        self.yaml_representers = yaml.SafeDumper.yaml_representers
        self.yaml_multi_representers = yaml.SafeDumper.yaml_multi_representers

    def represent_scalar(self, tag: str, value: str, style: str | None = None) -> Any:
        """Represent a text; libyaml refuses enum members that are texts."""
        return super().represent_scalar(tag, str.__str__(value), style)


def dump_yaml(data: Any) -> str:
    """Write data as `yaml.safe_dump` does, to the letter.

    Raises:
        yaml.YAMLError: If the data hold something else than YAML's own types.
    """
    if isinstance(data, dict | list):  # libyaml ends a lone text differently.
        text = str(yaml.dump(data, Dumper=_LibyamlDumper))
        if _WRITTEN_OTHERWISE.search(text) is None:
            return text
        if isinstance(data, list) and len(data) > 1 and "&id" not in text:  # Nothing stands twice.
            return "".join(dump_yaml([item]) for item in data)
    return str(yaml.safe_dump(data))
