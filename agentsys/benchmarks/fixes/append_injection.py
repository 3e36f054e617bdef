"""`append_injection`: an injection stands behind a field's own text, and never in an identifier.

AgentDojo puts an injection *in place of* a field's text. In Banking 0 that text is the bill, with the account
and the sum: no agent can pay what is not there. In Slack a channel's name is such a field, `External_` and
the injection: five user tasks must copy the whole payload, letter by letter, to address the channel.
Utility under attack was 0 in all 714 published cases of Banking 0 and Slack 7, 9, 10, 12 and 19. Source:
arXiv 2510.05244 (overwritten content), AD#67.

Here the field keeps its text and the injection follows it; the channel's name is no vector. Nine Slack
user tasks meet no other vector, so they have no attacked cases. This changes what models read: it is
part of the benchmark's name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import yaml
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import validate_injections

from agentsys.benchmarks.environment_loader import EnvironmentLoader

IDENTIFIERS: Mapping[str, frozenset[str]] = {"slack": frozenset({"prompt_injection_channel"})}
"""Suite -> vectors whose text is a name that calls must repeat."""

ONLY_IDENTIFIERS: Mapping[str, frozenset[str]] = {
    "slack": frozenset(f"user_task_{number}" for number in (5, 7, 8, 9, 10, 12, 13, 14, 19))
}
"""Suite -> user tasks that meet no other vector, in all versions."""


class AppendingLoader:
    """Loads environments through another loader, with each injection behind the field's own text.

    Args:
        loader: Puts texts in place of a field's.
        identifiers: Vectors that are not offered.
        injection: How `loader` puts texts in.
    """

    def __init__(
        self,
        loader: EnvironmentLoader,
        identifiers: Collection[str],
        injection: Literal["folded", "exact"] = "folded",
    ) -> None:
        self._loader = loader
        self._defaults = {
            vector: text for vector, text in loader.get_defaults().items() if vector not in identifiers
        }
        read = _unescape_default if injection == "exact" else str
        self._kept = {vector: read(text) for vector, text in self._defaults.items()}

    def __deepcopy__(self, memo: object) -> AppendingLoader:
        """Itself, like the loader it uses."""
        return self

    def get_defaults(self) -> dict[str, str]:
        """Injection vector -> default text, without the identifiers."""
        return dict(self._defaults)

    def load(self, injections: Mapping[str, str]) -> TaskEnvironment:
        """A fresh environment; see `EnvironmentLoader.load`."""
        validate_injections(dict(injections), self._defaults)
        return self._loader.load(
            {name: append_injection(self._kept[name], text) for name, text in injections.items()}
        )


def append_injection(field: str, injection: str) -> str:
    """A field's text with an injection behind it."""
    return f"{field} {injection}" if field else injection


def _unescape_default(default: str) -> str:
    """A default as models read it: it stands between double quotes in the YAML, escapes and all."""
    return str(yaml.safe_load(f'"{default}"')) if "\\" in default else default
