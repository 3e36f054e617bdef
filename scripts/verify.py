"""Check what README and docs claim in figures, offline, and write down what was seen.

Usage: python scripts/verify.py [--only WORDS] [--workers 2]

`scripts/claims.yaml` has each claim: the page, the words that stand there, and one check. `A ... B` are all
words of the page from A to B, `A ...` those to the end of the section. A check is one of

- `tests`: tests that hold the figures, with `reduced: true` their direction, level or bound on fewer cases.
  Where published traces are absent they skip, and nothing was checked.
- `cells`: numbers of `agentsys results` of one of the `runs`, which are made first: its columns and what they
  are, a list for those in which the claim's figures differ. The claim's first numbers have to be these.
- `prints`: a command that prints the claim's words; or, with a `pattern`, whose groups are the claim's first
  numbers or keep to `at_least` or `at_most`. Commands with a bound run alone: they measure.

docs/claims.md gets a row for each claim. With `--only`, the other rows stay as they stand.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentsys.analysis.tables.escaping import markdown_cell

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
LONGEST_S = 1500
"""A single command that takes longer has failed."""
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


class Said(BaseModel):
    """Words of a page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    page: str
    says: str

    def span(self, text: str) -> tuple[int, int] | None:
        """Where the words stand in the page's text; white space counts once."""
        first, *more = [r"\s+".join(re.escape(word) for word in part.split()) for part in self._parts()]
        pattern = first + "".join(f".*?{part}" if part else r".*?(?=\n#|\Z)" for part in more)
        found = re.search(pattern, text, re.S)
        return found.span() if found else None

    def _parts(self) -> list[str]:
        return re.split(r"\s\.\.\.(?:\s|$)", self.says)

    @property
    def stands(self) -> bool:
        """Whether the page says so."""
        return self.span((ROOT / self.page).read_text("utf-8")) is not None


class Claim(Said):
    """A claim and its check."""

    tests: list[str] = []
    reduced: bool = False
    """Whether the tests hold the figures' direction, level or bound on fewer cases."""
    cells: dict[str, str | list[str]] = {}
    prints: str = ""
    pattern: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _one_check(self) -> Claim:
        if sum(map(bool, (self.tests, self.cells, self.prints))) != 1:
            raise ValueError(f"{self.page}: {self.says!r} needs one of tests, cells, prints")
        return self

    @property
    def measures(self) -> bool:
        """Whether its command has a bound to keep to."""
        return self.at_least is not None or self.at_most is not None

    @property
    def how(self) -> str:
        """The command that checks it."""
        if self.tests:
            return f"python -m pytest {' '.join(self.tests)}"
        return self.prints or f"agentsys results {self.cells['run']} --format json"

    def row(self) -> str:
        """The beginning of its row on the page: what, where, how."""
        words = markdown_cell(" … ".join(" ".join(part.split()).strip("| ") for part in self._parts()))
        inside = os.path.relpath(ROOT / self.page, PAGE.parent)
        where = self.page if inside.startswith("..") else f"[{self.page}]({inside})"
        how = self.how.replace("|", "\\|")
        return f"| {words} | {where} | `{how}` |"


class Claims(BaseModel):
    """The file of claims."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, str]
    """Folder -> the command that fills it."""
    claims: list[Claim]
    no_claims: dict[str, list[Said]] = Field(default_factory=dict)
    """Reason -> words with figures that are not ours to check; `page` may be a pattern of pages."""


@dataclass(frozen=True)
class Seen:
    """What came of a check."""

    fails: bool
    figure: str


def claims() -> Claims:
    """The claims of this checkout."""
    return Claims.model_validate(yaml.safe_load((ROOT / "scripts" / "claims.yaml").read_text("utf-8")))


def said_by(command: str, folder: Path) -> str | RuntimeError:
    """What a command prints, or its last line if it fails; how long it took is told."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    places = {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}
    words = [str(ROOT / word) if word.endswith(".py") else word for word in shlex.split(command)]
    start = time.monotonic()
    try:
        done = subprocess.run(
            words, cwd=folder, env=os.environ | places, capture_output=True, text=True, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return RuntimeError(f"took more than {LONGEST_S} s")
    print(f"{time.monotonic() - start:5.0f} s  {command}", flush=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it failed").splitlines()[-1]
        print(f"         failed: {last}", flush=True)
        return RuntimeError(last)
    return done.stdout


def cells_seen(claim: Claim, said: str) -> Seen:
    """The numbers that a run gives beside the claim's first ones."""
    lists = {name: value for name, value in claim.cells.items() if isinstance(value, list)}
    fixed = {name: value for name, value in claim.cells.items() if name not in {*lists, "run"}}
    each = list(zip(*lists.values(), strict=True))
    seen, figures = [], NUMBER.findall(claim.says)[: len(each)]
    rows: list[dict[str, Any]] = json.loads(said)
    for values, figure in zip(each, figures, strict=True):
        wanted = fixed | dict(zip(lists, values, strict=True))
        found = [row["value"] for row in rows if all(str(row[key]) == value for key, value in wanted.items())]
        places = len(figure.partition(".")[2])
        seen.append(f"{found[0]:,.{places}f}" if len(found) == 1 else f"{len(found)} rows")
    return Seen(seen != figures, ", ".join(seen))


def printed_seen(claim: Claim, said: str) -> Seen:
    """The claim's words or figures in what a command printed."""
    if not claim.pattern:
        printed = claim.span(said) is not None
        return Seen(not printed, "as stated" if printed else "other words are printed")
    found = re.search(claim.pattern, said, re.M)
    if found is None:
        return Seen(True, "no such line is printed")
    seen = list(found.groups())
    figure = ", ".join(seen)
    if not claim.measures:
        return Seen(seen != NUMBER.findall(claim.says)[: len(seen)], figure)
    bounds = {"at least": claim.at_least, "at most": claim.at_most}
    wanted = " and ".join(f"{word} {bound:,g}" for word, bound in bounds.items() if bound is not None)
    low, high = claim.at_least or 0, claim.at_most or math.inf
    kept = all(low <= float(text.replace(",", "")) <= high for text in seen)
    return Seen(not kept, f"{figure} ({wanted} wanted)")


def test_cases(wanted: Iterable[str], workers: int, folder: Path) -> list[ElementTree.Element]:
    """Run tests, each once, and give the report's cases."""
    ids, report = sorted(set(wanted)), folder / "junit.xml"
    if ids:
        options = ["-n", str(workers), "--dist", "loadfile", "-m", "not live", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *ids], cwd=ROOT, check=False)
    return list(ElementTree.parse(report).iter("testcase")) if report.exists() else []


def tests_seen(claim: Claim, cases: Sequence[ElementTree.Element]) -> Seen:
    """What came of a claim's tests, all parameters of each."""
    mine: list[ElementTree.Element] = []
    for test in claim.tests:
        path, _, name = test.partition("::")
        module = path.removesuffix(".py").replace("/", ".")
        found = [case for case in cases if case.get("classname") == module]
        found = [case for case in found if name in ("", str(case.get("name")).partition("[")[0])]
        if not found:
            return Seen(True, f"{name or path} did not run")
        mine += found
    for kind in ("failure", "error"):
        if (bad := [case for case in mine if case.find(kind) is not None]) != []:
            return Seen(True, f"{bad[0].get('name')} fails")
    reasons = [skip.get("message") or "" for case in mine if (skip := case.find("skipped")) is not None]
    if any("not here" not in reason for reason in reasons):
        return Seen(True, f"skipped: {next(one for one in reasons if 'not here' not in one)}")
    if reasons:
        return Seen(False, "not checked here: needs traces")
    return Seen(False, "holds in reduced form" if claim.reduced else "as stated")


def check(wanted: Sequence[Claim], runs: Mapping[str, str], workers: int) -> list[Seen]:
    """Check claims: runs, then commands, so many at a time; then what measures, alone; then all tests."""
    printed = {claim.how for claim in wanted if not claim.tests}
    measured = {claim.how for claim in wanted if claim.measures}
    made = [command for name, command in runs.items() if any(name in how.split() for how in printed)]
    said: dict[str, str | RuntimeError] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for commands, at_a_time in ((made, workers), (printed - measured, workers), (measured, 1)):
            with ThreadPoolExecutor(at_a_time) as pool:
                said |= zip(commands, pool.map(lambda one: said_by(one, folder), commands), strict=True)
        cases = test_cases((test for claim in wanted for test in claim.tests), workers, folder)
    return [_seen(claim, said, cases) for claim in wanted]


def _seen(claim: Claim, said: Mapping[str, str | RuntimeError], cases: Sequence[ElementTree.Element]) -> Seen:
    if not claim.stands:
        return Seen(True, "the page no longer says so")
    if claim.tests:
        return tests_seen(claim, cases)
    output = said[claim.how]
    if isinstance(output, RuntimeError):
        return Seen(True, str(output))
    return cells_seen(claim, output) if claim.cells else printed_seen(claim, output)


def page(known: Claims, seen: Mapping[str, Seen], before: str) -> str:
    """docs/claims.md: rows of what was checked now, by their beginning; the rest as they stood before."""
    stood = {f"{line.rsplit(' | ', 2)[0]} |": line for line in before.splitlines() if line.startswith("| ")}
    day, python = datetime.now(UTC).date().isoformat(), f"Python {platform.python_version()}"
    when = f"{day}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, {python}"
    lines = [
        "# Claims, and how each is checked",
        "",
        "Written by `make verify`, which checks every row offline. *Needs traces*: the check compares with",
        "published runs, which were not there. Commands with a run's name read one of these, made first:",
        "",
        "```",
        *known.runs.values(),
        "```",
        "",
        "| Claim | Where it stands | How it is checked | Seen | When, on what |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in (claim.row() for claim in known.claims):
        if (found := seen.get(row)) is not None:
            verdict = "**fails**: " if found.fails else ""
            lines.append(f"{row} {verdict}{markdown_cell(found.figure)} | {when} |")
        else:
            lines.append(stood.get(row, f"{row} not checked yet | |"))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="words of a claim, its page or its check")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    known, words = claims(), options.only.lower()
    wanted = [one for one in known.claims if words in f"{one.page} {one.says} {one.how}".lower()]
    start = time.monotonic()
    seen = dict(zip((one.row() for one in wanted), check(wanted, known.runs, options.workers), strict=True))
    PAGE.write_text(page(known, seen, PAGE.read_text("utf-8") if PAGE.exists() else ""), "utf-8")
    failed = [f"fails: {row}\n    {found.figure}" for row, found in seen.items() if found.fails]
    absent = sum("needs traces" in found.figure for found in seen.values())
    print("\n".join(failed))
    print(f"{len(seen)} claims, {len(failed)} fail, {absent} need traces; {time.monotonic() - start:.0f} s")
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    raise SystemExit(main())
