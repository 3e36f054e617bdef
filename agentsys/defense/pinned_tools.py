"""`ToolPins`: tools as they were first seen and trusted, even if their descriptions change later (`pin_tools`).

A suite's own tools are seen with the suite. A tool that a client or a server runs is seen when it is first
offered; it is kept in a file, for later conversations and later processes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from agentdojo.functions_runtime import Function, FunctionsRuntime

from agentsys.base.atomic_file import write_atomically
from agentsys.errors import ConfigError
from agentsys.models.chat import ToolSpec
from agentsys.models.pipeline_elements import describe_tool, tool_specs
from agentsys.models.untrusted import ForeignFunction, group_by_server

_log = logging.getLogger(__name__)

Look = Sequence[ToolSpec]
"""Tools that were first seen together."""


@dataclass(frozen=True)
class PinnedTools:
    """The tools of one conversation."""

    runtime: FunctionsRuntime
    """Runs the tools as they are now, with the descriptions and argument schemas first seen."""
    looks: Sequence[Look]
    """The looks that hold these tools. Labels are asked for by look, so that later tools cannot influence them."""
    changed: Look
    """The tools whose descriptions or parameters have changed, as they are now."""


class ToolPins:
    """First looks at the tools of a suite, or of clients and servers.

    Looks at foreign tools are kept in `folder`; None: in this process's memory.
    """

    def __init__(self, own: Sequence[Function], folder: Path | None) -> None:
        self._own = {tool.name: tool for tool in own if not isinstance(tool, ForeignFunction)}
        self._foreign = _get_foreign_looks(folder)

    def pin_tools(self, runtime: FunctionsRuntime) -> PinnedTools:
        """Return the runtime's tools as they were first seen.

        Raises:
            ConfigError: If the file of looks can be neither read nor written.
        """
        pinned: dict[str, Function] = {}
        looks: list[Look] = []
        for functions in group_by_server(runtime.functions.values()):
            offered = tool_specs(functions)
            if isinstance(functions[0], ForeignFunction):
                first_looks = self._foreign.recall(functions[0].server, offered)
            else:
                added = [spec for spec in offered if spec.name not in self._own]
                first_looks = [look for look in (tool_specs(self._own.values()), added) if look]
            first = {spec.name: spec for spec in chain(*first_looks)}
            pinned |= {tool.name: self._pin_tool(tool, first[tool.name]) for tool in functions}
            looks += first_looks
        offered = tool_specs(runtime.functions.values())
        pinned_runtime = copy(runtime)
        pinned_runtime.functions = {spec.name: pinned[spec.name] for spec in offered}
        return PinnedTools(
            pinned_runtime, looks, [spec for spec in offered if spec != describe_tool(pinned[spec.name])]
        )

    def _pin_tool(self, function: Function, first: ToolSpec) -> Function:
        # Arguments are checked by the first look's schema, too: an error names what a schema requires.
        if isinstance(function, ForeignFunction) and function.build_parameters is not None:
            parameters = function.build_parameters(first.parameters)
        else:
            parameters = self._own.get(function.name, function).parameters
        texts = {"description": first.description, "full_docstring": first.description}
        # Always a copy: the description may change during the conversation.
        return function.model_copy(update={"parameters": parameters, **texts})


class _ForeignLooks:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._looks: dict[str, list[Look]] = {}
        self._reported: set[tuple[str, str]] = set()

    def recall(self, server: str, offered: Look) -> list[Look]:
        """Return the looks that hold a server's tools; tools not seen before are added as a new look."""
        with self._lock:
            if server not in self._looks:
                self._looks[server] = self._load(server)
            looks = self._looks[server]
            first = {spec.name: spec for spec in chain(*looks)}
            if added := [spec for spec in offered if spec.name not in first]:
                self._save(server, [*looks, added])
                looks.append(added)
            changed = {(server, spec.name) for spec in offered if first.get(spec.name, spec) != spec}
            if news := sorted(name for _, name in changed - self._reported):
                self._reported |= changed
                where = self._find_server_file(server) or "this process has them"
                _log.warning(
                    "Tools have changed and are offered as at first (%s): %s.", where, ", ".join(news)
                )
            names = {spec.name for spec in offered}
            return [look for look in looks if any(spec.name in names for spec in look)]

    def _find_server_file(self, server: str) -> Path | None:
        mark = hashlib.sha256(server.encode()).hexdigest()[:16]
        return None if self._folder is None else self._folder / f"tools-{mark}.json"

    def _load(self, server: str) -> list[Look]:
        path = self._find_server_file(server)
        if path is None or not path.exists():
            return []
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))["looks"]
            return [[ToolSpec(**spec) for spec in look] for look in stored]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} cannot be read ({error}); delete it to look at the tools anew."
            ) from None

    def _save(self, server: str, looks: Sequence[Look]) -> None:
        path = self._find_server_file(server)
        if path is None:
            return
        data = {"server": server, "looks": [[asdict(spec) for spec in look] for look in looks]}
        try:
            write_atomically(path, json.dumps(data, indent=2).encode())
        except OSError as error:
            raise ConfigError(
                f"Cannot write {path} ({error.strerror}); set defense.privileges_dir to a folder that can be written."
            ) from error


@cache
def _get_foreign_looks(folder: Path | None) -> _ForeignLooks:
    return _ForeignLooks(folder)
