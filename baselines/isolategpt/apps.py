"""`AppBook`: which tools make up an app, and what each offers to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

import yaml

from agentsys.models.chat import ToolSpec
from baselines.isolategpt.settings import IsolateGPTSettings

ONE_APP_NAME = "assistant"
"""Name of the app that has every tool, where nothing is kept apart."""

_APPS = yaml.safe_load((files("baselines.isolategpt") / "apps.yaml").read_text(encoding="utf-8"))
APP_OF: Mapping[str, str] = MappingProxyType({tool: app for app, tools in _APPS.items() for tool in tools})
"""AgentDojo's tools -> the app they belong to."""


@dataclass(frozen=True)
class SpokeApp:
    """One app: what runs in one spoke."""

    name: str
    tools: tuple[ToolSpec, ...]

    def find_tool(self, name: str) -> ToolSpec | None:
        """Its tool of this name."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True)
class InstalledApps:
    """The apps that are installed."""

    apps: tuple[SpokeApp, ...]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All their tools, app by app."""
        return tuple(tool for app in self.apps for tool in app.tools)

    def find_owner(self, tool: str) -> SpokeApp | None:
        """The app that has a tool of this name."""
        return next((app for app in self.apps if app.find_tool(tool) is not None), None)


def group_into_apps(tools: Sequence[ToolSpec], settings: IsolateGPTSettings) -> InstalledApps:
    """The apps that some tools make up, in the order of their first tools."""
    members: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        members.setdefault(_app_name(tool.name, settings), []).append(tool)
    return InstalledApps(tuple(SpokeApp(name, tuple(found)) for name, found in members.items()))


def _app_name(tool: str, settings: IsolateGPTSettings) -> str:
    match settings.apps:
        case "per_tool":
            return tool
        case "per_app":
            return settings.app_of.get(tool, tool)
        case "one_app":
            return ONE_APP_NAME
