"""`LeakSearch`: what must not leave this machine with a bundle - keys, which are refused, and its folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from agentsys.bundles.manifest import RECORDS
from agentsys.catalog import list_config_names, load_config
from agentsys.errors import ConfigError
from agentsys.records.schema import OWN_KEY
from agentsys.runs.provenance.recipe import Recipe
from agentsys.storable import to_json_bytes

_MIN_KEY_CHARS = 12
"""Characters; a shorter one is a stand-in for servers that want none."""


class LeakSearch:
    """Looks at everything that is packed: for keys, which are refused, and for this machine's folders."""

    def __init__(self, logdir: Path, recipes: Iterable[Recipe]) -> None:
        several = list(recipes)
        places = {str(Path.home()), str(logdir.absolute()), *(recipe.folder for recipe in several)}
        self._places = sorted((place for place in places if place.count("/") > 1), key=len, reverse=True)
        self._found: dict[str, list[str]] = {}
        used = [m for one in several for m in (one.settings["model"], *one.settings["others"].values())]
        shipped = [load_config("model", name) for name in list_config_names("model")]
        named = {str(model.get("api_key_env")) for model in (*used, *shipped)}
        values = {name: os.environ.get(name, "") for name in named}
        self._keys = {name: value.encode() for name, value in values.items() if len(value) >= _MIN_KEY_CHARS}

    def read_content(self, name: str, path: Path) -> bytes:
        """A member's content, a record's without the places that a traceback names."""
        content = path.read_bytes()
        if name.startswith(f"{RECORDS}/"):
            content = self._strip_places(content)
        self.check_member(name, content)
        return content

    def check_member(self, name: str, content: bytes) -> None:
        """Look at a member before it is packed.

        Raises:
            ConfigError: If it holds a key.
        """
        for variable, key in self._keys.items():
            if key in content:
                raise ConfigError(
                    f"{name} holds the key in {variable}: nothing is packed. Take the key out of the "
                    "settings or texts that put it there, and run again into another logdir."
                )
        for place in self._places:
            if place.encode() in content:
                self._found.setdefault(place, []).append(name)

    def list_notes(self) -> Iterator[str]:
        """What was found of this machine."""
        for place, names in self._found.items():
            several = "one of its files" if len(names) == 1 else f"{len(names)} of its files"
            yield f"{place} stands in {several} ({names[0]}): look before you publish it"

    def _strip_places(self, content: bytes) -> bytes:
        stored = orjson.loads(content)
        block = stored[OWN_KEY]
        if not block.get("traceback"):
            return content
        block["traceback"] = self._shorten_traceback(block["traceback"])
        return to_json_bytes(stored | {"error": self._shorten_traceback(stored.get("error"))}, indent=True)

    def _shorten_traceback(self, text: Any) -> Any:
        """A traceback whose files begin at their packages."""
        if not isinstance(text, str):
            return text
        code_places = sorted((path for path in sys.path if path.count("/") > 1), key=len, reverse=True)
        for place in (*code_places, *self._places):
            text = text.replace(f"{place}/", "")
        return text
