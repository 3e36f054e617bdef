"""The optional parts of the installation: under which name they are installed, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from agentsys.errors import Unavailable

DISTRIBUTION = "agentsys-bench"
"""The name to install by. On the package index `agentsys`, our import name, is another project."""


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def find_missing_packages(packages: Sequence[str]) -> list[str]:
    """The packages among these that cannot be imported here; imports none of them."""
    return [package for package in packages if find_spec(package) is None]


def not_installed_error(who: str, packages: Sequence[str], extra: str) -> Unavailable:
    """What to raise where an extra's packages are missing.

    Args:
        who: What needs them, e.g. `Model 'litellm'`.
        packages: The missing ones.
        extra: The extra that brings them.
    """
    text = f"{who} needs {' and '.join(packages)}, not installed here: {install_command(extra)}"
    return Unavailable(text, needs=f"{DISTRIBUTION}[{extra}]")
