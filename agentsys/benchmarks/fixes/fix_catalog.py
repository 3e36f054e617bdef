"""`FIXES`: what can be written in `benchmark.fixes`, and what each of them repairs.

Nothing of AgentDojo is imported here: settings are checked before a benchmark is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentsys.errors import require_known_name

ALL_FIXES = "all"
"""In place of the list: every fix."""


@dataclass(frozen=True)
class Fix:
    """One repair."""

    description: str
    """A phrase for the caption of a table."""
    source: str
    """Who found it: AD#n is an AgentDojo issue or pull request, OA the repository
    sneaXOR/agentdojo-oracle-audit, `own` this project's audit."""
    changes_runs: bool = False
    """Whether it changes what models read; the others only score a run a second time."""
    of_records: bool = False
    """Whether only `agentsys rescore` knows it: cases that run now are judged so by their receipts."""


FIXES: dict[str, Fix] = {
    "utility_new_effects": Fix(
        "Banking 5 and 6 want a new payment or schedule, not one that was in the data",
        "AD#161, PR AD#169 (Banking 5), OA (Banking 6)",
    ),
    "utility_arguments": Fix(
        "recipients, titles and file names that the user named are required",
        "OA (Banking 6, 11, Slack 2, Travel 3, Workspace 12), own (the others)",
    ),
    "ignore_read_flag": Fix("mail that the agent only read does not count as a change", "AD#116"),
    "any_match": Fix("a repeated attack counts as a success", "PR AD#193 (Travel 3), own (the others)"),
    "executed_calls": Fix(
        "a call that the record says was refused, or that failed only there, was not made",
        "AD#168, AD#189, PR AD#199",
        of_records=True,
    ),
    "undone_by_user_task": Fix(
        "an attack that was carried out counts though the user's own task hid it from the check", "own"
    ),
    "append_injection": Fix(
        "injections are appended to the field's own text, and identifiers carry none",
        "arXiv 2510.05244, AD#67",
        changes_runs=True,
    ),
}
"""Id -> repair, in the order in which they are listed."""

RESCORING = tuple(name for name, fix in FIXES.items() if not fix.changes_runs)
"""Fixes that recorded runs can be scored under."""
CHECKER_ONLY = tuple(name for name in RESCORING if not FIXES[name].of_records)
"""Fixes that are computed beside the official scores in every record."""


def expand_fixes(wanted: str | Iterable[str] | None, *, recorded: bool = False) -> tuple[str, ...]:
    """The fixes asked for (ids, one id, or `all`), each once, in the order of `FIXES`; `recorded`: for recorded runs.

    Raises:
        ConfigError: If one is not known.
    """
    names = [wanted] if isinstance(wanted, str) else [str(name) for name in wanted or ()]
    known = [name for name, fix in FIXES.items() if recorded or not fix.of_records]
    for name in names:
        require_known_name("benchmark.fixes", name, (*known, ALL_FIXES))
    return tuple(name for name in known if ALL_FIXES in names or name in names)
