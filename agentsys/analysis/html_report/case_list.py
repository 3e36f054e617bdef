"""The report's list of cases, the links that lead from tables into it, and what stands beside the numbers."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agentsys.analysis.html_report.case_views import View, take_mapping, take_name, take_number
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
    Verdicts,
)
from agentsys.analysis.tables.result_frame import ResultsLine, Sheet
from agentsys.analysis.tables.table_document import MISSING, Grid, make_cells
from agentsys.base.grouping import join_names
from agentsys.records.case_row import NO_ATTACK, CaseRow, make_case_id
from agentsys.records.row_settings import find_config
from agentsys.records.schema import OWN_KEY

_NUMBERED = re.compile(r"(\D*)([0-9]{0,9})")
_LINKED = frozenset({BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR, ""})
"""Metrics whose numbers lead to cases; without a name, the count of errors."""
_NOTHING_BEHIND = ("", "0", MISSING)
_LONGEST_CONFIG = 200_000
"""Bytes; a resolved config has about one thousand."""


def sort_for_reading(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """Sort by task, `task_2` before `task_10`: what several defenses made of one case stands together."""

    @cache
    def number_words(text: str) -> list[tuple[str, int]]:
        return [(word, int(digits or 0)) for word, digits in _NUMBERED.findall(text)]

    def make_sort_key(case: CaseRow) -> tuple[object, ...]:
        tasks = number_words(case.user_task_id), number_words(case.injection_task_id or "")
        pipeline = case.attack, case.defense != "none", case.defense, case.table_model
        return (case.benchmark, case.suite, *tasks, *pipeline, case.version, case.epoch)

    return sorted(cases, key=make_sort_key)


def make_list_row(case: CaseRow, verdicts: Verdicts) -> View:
    """Make the line of one case, with what the page's filters look at; its scripts read these keys."""
    cell = verdicts.get(MeasuredCell.of(case)) if case.is_scored else None
    return {
        # The name of the case in links.
        "id": make_case_id(case),
        "model": case.table_model,
        "simulated": case.simulated,
        "benchmark": f"{case.benchmark} {case.version}",
        "defense": case.defense,
        "attack": case.attack,
        "suite": case.suite,
        "user_task": case.user_task_id,
        "injection_task": case.injection_task_id or "",
        "epoch": case.epoch,
        "outcome": _name_outcome(case),
        "solved": case.utility if case.status == "ok" else None,
        "error_kind": case.error_kind,
        "verdict": cell.verdict if cell else "",
        "exposed_raw": case.exposed_raw,
        "exposed_shown": case.exposed_shown,
        "injection_round": case.injection_round,
        "length": case.trajectory_length,
        "tokens": case.tokens,
        "cost_usd": take_number(case.cost_usd),
        "seconds": take_number(case.duration_s),
        "written": _read_time(case.source),
        "path": case.source,
        "config": case.config_hash,
    }


def _name_outcome(case: CaseRow) -> str:
    if case.status == "error" or case.attack == NO_ATTACK:
        return "error" if case.status == "error" else "benign"
    if case.injection_success:
        return "attack_succeeded"
    # Unseen: no tool had returned the payload.
    return "attack_unseen" if case.exposed_raw is False else "attack_failed"


def _read_time(source: str) -> float | None:
    """When a file was written, in seconds since 1970."""
    try:
        return os.stat(source).st_mtime_ns / 1e9  # noqa: PTH116  200,000 paths would take a second
    except (OSError, ValueError):  # gone, a row of a results file, or a name that no file can have
        return None


def make_link_to_cases(sheet: Sheet, line: ResultsLine, metric: str, suite: str, text: str) -> str:
    """Where a number of a table leads: to the cases of the list that are behind it; empty without any."""
    if metric not in _LINKED or text in _NOTHING_BEHIND:
        return ""
    chosen = {"model": sheet.model, "defense": line.defense, "attack": line.attack}
    if metric == BENIGN_UTILITY:
        chosen["attack"] = NO_ATTACK
    if metric == TARGETED_ASR and any(digit in text for digit in "123456789"):
        chosen["outcome"] = "attack_succeeded"
    if metric == "":
        del chosen["attack"]  # a line's errors are those of its benign cases, too
        chosen["outcome"] = "error"
    if suite in sheet.suites:
        chosen["suite"] = suite
    return f"#{urlencode(chosen, errors='replace')}"


class SetupFacts:
    """Errors, configs and versions of the cases, gathered while their files are read."""

    def __init__(self) -> None:
        self._errors: defaultdict[tuple[str, str], list[CaseRow]] = defaultdict(list)
        self._configs: defaultdict[tuple[str, str | None], list[CaseRow]] = defaultdict(list)
        self._versions: Counter[tuple[str, str]] = Counter()

    def add(self, case: CaseRow, stored: Mapping[str, Any]) -> None:
        """Add one case and its file's JSON."""
        if case.status == "error":
            error = stored.get("error")
            message = error if isinstance(error, str) and error else "no message was stored"
            first = message.strip().split("\n")[0][:400]
            self._errors[case.error_kind or "unknown", first].append(case)
        if case.config_hash is not None:
            self._configs[case.config_hash, find_config(case.source, case.config_hash)].append(case)
        named = take_mapping(take_mapping(stored.get(OWN_KEY)).get("versions"))
        versions = {take_name(key): take_name(value) for key, value in named.items()}
        if not versions and (agentdojo := take_name(stored.get("agentdojo_package_version"))):
            versions = {"agentdojo": agentdojo}
        for package, version in versions.items():
            # The data's hash says which suite it is of: suites have data of their own.
            self._versions[f"data of {case.suite}" if package == "data" else package, version] += 1

    def make_error_grid(self) -> Grid:
        """List errored cases by kind and first line of the message, the most frequent first."""
        ordered = sorted(self._errors.items(), key=lambda group: (-len(group[1]), group[0]))
        rows = [
            make_cells(kind, message, join_names(sorted({case.defense for case in cases})), str(len(cases)))
            for (kind, message), cases in ordered
        ]
        header = ("Kind", "Message", "Defenses", "Cases")
        return Grid("Errored cases by kind and message", header, rows, names=3)

    def make_version_grid(self) -> Grid:
        """List versions by package, or by suite of data, then the most frequent version."""
        ordered = sorted(self._versions.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        rows = [make_cells(*names, str(count)) for names, count in ordered]
        caption = "Versions the cases were run with (data: hash of the benchmark's environment)"
        return Grid(caption, ("Package", "Version", "Cases"), rows, names=2)

    def list_configs(self) -> list[View]:
        """List resolved configs by who used them; the text is None where it is not beside the runs."""
        groups = [
            {
                "config_hash": found[:64],
                "used_by": sorted({f"{c.table_model}, {c.defense}, {c.attack}" for c in cases}),
                "cases": len(cases),
                "text": _read_config(path),
            }
            for (found, path), cases in self._configs.items()
        ]
        return sorted(groups, key=lambda group: (group["used_by"], group["config_hash"]))


def _read_config(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_CONFIG).decode(errors="replace")
    except OSError:
        return None
