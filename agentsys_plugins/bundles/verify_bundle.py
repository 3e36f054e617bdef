"""`verify_bundle`: runs each case again and compares its record."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from agentsys.base.grouping import format_count, join_names
from agentsys.base.packed_json import read_json_bytes
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, list_shipped_config_dirs
from agentsys.models.chat import ErrorKind
from agentsys.records.runs_source import RECORDS
from agentsys.records.schema import OWN_KEY, CaseRecord
from agentsys.runs.run_totals import Listener
from agentsys.runs.settings import drop_keys
from agentsys_plugins.bundles.bundle_archive import CODE, REPLIES, BundledCell, BundleReader, Manifest
from agentsys_plugins.bundles.rerun_bundle import (
    UNPACK_FOLDERS,
    RerunPlan,
    compare_machines,
    make_folder_importable,
    prepare_rerun,
    walk_options,
)

_IGNORED_FIELDS = {"duration", "evaluation_timestamp", "agentdojo_package_version", "error"}
"""AgentDojo's fields for times, versions and error texts."""
_IGNORED_OWN_FIELDS = {"schema_version", "config_hash", "versions", "notes", "traceback", "usage"}
"""Our fields for versions and notes on the run, and sums over the spans' calls."""
_IGNORED_SPAN_FIELDS = {"duration_s"}
_IGNORED_CALL_FIELDS = {"latency_s", "from_cache", "attempts", "cost_usd", "notes", "odd"}
_TOKEN_COUNTS = {"prompt", "completion", "cached", "reasoning", "uncounted", "written"}
"""Counts of a call; if it was sent more than once, they include the lost replies."""
_MAX_DIFFERENCES = 3
_MAX_VALUE_CHARS = 60
_REPORT_EVERY = 100


class ComparedRecords(NamedTuple):
    """A record beside the one that its case gives now."""

    differences: list[str]
    """A field and both values, the first few."""
    new_values: frozenset[str]
    """Fields of ours and fixes that only the second one has: what was not stored cannot differ."""


def compare_records(first: Mapping[str, Any], second: Mapping[str, Any]) -> ComparedRecords:
    """Compare what the first record holds with the second one."""
    one, other = _make_comparable(first), _make_comparable(second)
    _level_retried(one, other)
    new = {f"fix {name}" for name in _drop_new_fixes(one, other)}
    found = list(_iterate_differences(one, other, new))
    rest = [f"and {len(found) - _MAX_DIFFERENCES} more"] if len(found) > _MAX_DIFFERENCES else []
    return ComparedRecords([*found[:_MAX_DIFFERENCES], *rest], frozenset(new))


def _drop_new_fixes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Take out of the second record what fixes say that the first was not scored under; the names of these."""
    then, now = (_get_own_block(record).get("measured") for record in (one, other))
    if not (isinstance(then, dict) and isinstance(now, dict) and isinstance(then.get("fixes"), list)):
        return []
    known, turned = then["fixes"], now.get("changed_by") or []
    new = [name for name in now.get("fixes") or [] if name not in known]
    levelled = {**now, "fixes": [name for name in now.get("fixes") or [] if name in known]}
    if not {*new}.isdisjoint(turned):  # the scores without it are not known
        kept = {key: then[key] for key in ("utility_fixed", "security_fixed") if key in then}
        levelled |= {**kept, "changed_by": [name for name in turned if name in known]}
    other[OWN_KEY]["measured"] = levelled
    return new


def _make_comparable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the reproducible parts of a record: outcome, messages and requests."""
    comparable = drop_keys(stored, _IGNORED_FIELDS)
    block = stored.get(OWN_KEY)
    if isinstance(block, dict):
        spans = block.get("spans") or []
        if isinstance(spans, list):
            spans = [_make_comparable_span(span) for span in spans]
        kept = drop_keys(block, _IGNORED_OWN_FIELDS)
        comparable[OWN_KEY] = {**kept, "data": _get_data_hash(stored), "spans": spans}
    return comparable


def _make_comparable_span(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    calls = span.get("calls")
    comparable = [_make_comparable_call(call) for call in calls] if isinstance(calls, list) else calls
    return drop_keys(span, _IGNORED_SPAN_FIELDS) | ({"calls": comparable} if "calls" in span else {})


def _make_comparable_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    resent = call.get("odd") or (isinstance(call.get("attempts"), int) and call["attempts"] > 1)
    return drop_keys(call, _IGNORED_CALL_FIELDS) | (
        dict.fromkeys(_TOKEN_COUNTS & call.keys()) if resent else {}
    )


def _level_retried(then: dict[str, Any], now: dict[str, Any]) -> None:
    """Drop, in both records, the counts of calls that either sent more than once."""
    for first, second in zip(_iterate_calls(then), _iterate_calls(now), strict=False):
        for key in _TOKEN_COUNTS:
            if first.get(key) is None or second.get(key) is None:
                first[key] = second[key] = None


def _iterate_calls(comparable: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spans = _get_own_block(comparable).get("spans")
    for span in spans if isinstance(spans, list) else ():
        calls = span.get("calls") if isinstance(span, dict) else None
        yield from (call for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict))


def _iterate_differences(one: Any, other: Any, new: set[str], place: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            inner = f"{place}.{key}" if place else str(key)
            # Versions before a field came in, and after it went, have none: what was not stored cannot differ.
            if key not in one and place.startswith(OWN_KEY):
                new.add(_INDEX.sub("", inner.removeprefix(f"{OWN_KEY}.")))
                continue
            if key not in other and one[key] in _EMPTY:
                continue
            yield from _iterate_differences(one.get(key), other.get(key), new, inner)
    elif isinstance(one, list) and isinstance(other, list):
        for at, (first, second) in enumerate(zip(one, other, strict=False)):
            yield from _iterate_differences(first, second, new, f"{place}[{at}]")
        if len(one) != len(other):
            yield f"{place.removeprefix(f'{OWN_KEY}.')}: {len(one)} entries then, {len(other)} now"
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        then, now = _cut_values(one, other)
        yield f"{place.removeprefix(f'{OWN_KEY}.')}: {then} then, {now} now"


_EMPTY: tuple[object, ...] = (None, "", [], {})
_INDEX = re.compile(r"\[\d+\]")


def _cut_values(then: Any, now: Any) -> tuple[str, str]:
    first, second = json.dumps(then, ensure_ascii=True), json.dumps(now, ensure_ascii=True)
    pairs = enumerate(zip(first, second, strict=False))
    parted = next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
    begin = max(0, parted - _MAX_VALUE_CHARS // 3)
    return _cut_text(first, begin), _cut_text(second, begin)


def _cut_text(text: str, begin: int) -> str:
    if len(text) <= _MAX_VALUE_CHARS:
        return text
    return f"...{text[begin : begin + _MAX_VALUE_CHARS]}..."


class VerifyOutcome(StrEnum):
    """Outcome of comparing a case."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ERROR_THEN = "error then"
    """It ended in a model error, whose reply cannot be replayed: nothing to compare."""
    NOT_RUN = "not run"


@dataclass(frozen=True)
class VerifiedCase:
    """One record, or one attempt of a search."""

    record: str
    """Path of the record in the log folder."""
    outcome: VerifyOutcome
    details: tuple[str, ...] = ()
    """Field, value then, value now; what became of the record, of replies and of data."""
    new_values: frozenset[str] = frozenset()
    """What the record could not hold yet, so that it was not compared."""


@dataclass(frozen=True)
class Verification:
    """Outcome of verifying a bundle."""

    cases: tuple[VerifiedCase, ...]
    changed: tuple[str, ...]
    """Members that were changed or are missing."""
    here: tuple[str, ...]
    """One line for each kind of difference of this machine."""
    unfinished: int
    """Number of planned cases without a record."""
    ended: str | None = None
    """The reason why the run ended early; None if it did not."""

    @property
    def bad(self) -> list[VerifiedCase]:
        """The cases that did not reproduce their record."""
        return [case for case in self.cases if case.outcome in (VerifyOutcome.DIFFERS, VerifyOutcome.NOT_RUN)]

    def list_findings(self) -> Iterator[CheckFinding]:
        """Yield the findings: on the cases that were run again, on changed members, on missing cases."""
        counts = Counter(case.outcome for case in self.cases)
        records = format_count(len(self.cases), "record")
        text = f"{counts[VerifyOutcome.EQUAL]:,} of {records} equal when run from the bundle's replies"
        if errors := counts[VerifyOutcome.ERROR_THEN]:
            text += f"; {format_count(errors, 'case')} ended in an error then: nothing to compare"
        new = sorted({name for case in self.cases for name in case.new_values})
        if new:
            text += f"; {format_count(len(new), 'value')} that the records do not hold yet"
        details = [f"Stopped early: {self.ended}"] if self.ended else []
        details += [f"{case.outcome.value}: {case.record}: {'; '.join(case.details)}" for case in self.bad]
        details += [f"Other here: {line}" for line in self.here]
        details += [f"Not compared, as it is new: {', '.join(new)}"] if new else []
        yield CheckFinding("Run again", "broken" if self.bad or self.ended else "valid", text, tuple(details))
        if self.changed:
            lines = tuple(f"Changed or missing: {name}" for name in self.changed)
            yield CheckFinding("Members", "broken", "the file is not as it was packed", lines)
        else:
            yield CheckFinding("Members", "valid", "every member is as it was packed")
        if self.unfinished:
            count = format_count(self.unfinished, "planned case")
            yield CheckFinding("Planned", "broken", f"{count} had no record when it was packed")


class _ProgressPrinter(Listener):
    def __init__(self, cases: int) -> None:
        self._done, self._cases = 0, cases
        sys.stderr.write(f"Running {format_count(cases, 'case')} again; no model is asked.\n")

    def on_case_stored(self, record: CaseRecord) -> None:
        """Count a case."""
        self._done += 1
        if self._done % max(_REPORT_EVERY, self._cases // 10) == 0:
            sys.stderr.write(f"{self._done:,} of {self._cases:,}\n")


def verify_bundle(file: Path, *, workers: int, trust_code: bool) -> Verification:
    """Run a bundle's cases again from its own replies, and compare.

    Args:
        file: The bundle.
        workers: Number of cases run at the same time.
        trust_code: True: source files in the bundle may be executed.

    Raises:
        ConfigError: If the file is no bundle, is refused, or this machine lacks something it needs.
    """
    with BundleReader(file) as bundle, tempfile.TemporaryDirectory(prefix="agentsys-verify-") as temporary:
        if not trust_code:
            check_trust(bundle.manifest, file)
        folder = Path(temporary).resolve()
        changed = bundle.unpack(folder, UNPACK_FOLDERS)
        with make_folder_importable(folder):
            rerun = prepare_rerun(bundle, folder)
            here = tuple(compare_machines(bundle.manifest, rerun))
            ended = rerun.run(_ProgressPrinter(len(rerun.jobs)), workers)
        cases = list[VerifiedCase]()
        for name in bundle.list_members(RECORDS):
            content, as_packed = bundle.read_member(name)
            if not as_packed:
                changed.append(name)
            cases.append(_verify_case(name, content, as_packed, rerun, changed))
        return Verification(tuple(cases), tuple(changed), here, bundle.manifest.unfinished, ended)


def _verify_case(
    name: str, content: bytes, as_packed: bool, rerun: RerunPlan, changed: Sequence[str]
) -> VerifiedCase:
    key = name.partition("/")[2]
    path = rerun.store.root / key
    then, now = _parse_json(content), _parse_json(read_json_bytes(path) if path.is_file() else b"")
    details = [] if as_packed else ["the record was changed after it was packed"]
    if then is None or now is None:
        why = rerun.failed.get(name) or ("its case was not run" if then else "it is no JSON")
        return VerifiedCase(key, VerifyOutcome.NOT_RUN, (why, *details))
    lacks_reply = _is_reply_missing_then(then, now)
    differences, newer = ([], frozenset[str]()) if lacks_reply else compare_records(then, now)
    details = [*differences, *details]
    if not details:
        return VerifiedCase(key, VerifyOutcome.ERROR_THEN if lacks_reply else VerifyOutcome.EQUAL, (), newer)
    if _has_missing_reply(now):
        lost = any(member.startswith(REPLIES) for member in changed)
        details.append(
            "a reply that it asked for was changed or taken out" if lost else "it asked what nobody had asked"
        )
    if _get_data_hash(then) != _get_data_hash(now):
        details.append(f"other data: {now[OWN_KEY]['case']['suite']}")
    return VerifiedCase(key, VerifyOutcome.DIFFERS, tuple(details), newer)


def _get_own_block(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return our block of a record, which may be a stranger's; empty if it is no object."""
    block = stored.get(OWN_KEY)
    return block if isinstance(block, dict) else {}


def _get_data_hash(stored: Mapping[str, Any]) -> Any:
    versions = _get_own_block(stored).get("versions")
    return versions.get("data") if isinstance(versions, dict) else None


def _has_missing_reply(stored: Mapping[str, Any]) -> bool:
    miss = ErrorKind.CACHE_MISS.value
    failed = any(call.get("error") == miss for call in _iterate_calls(stored))
    return failed or _get_own_block(stored).get("error_kind") == miss


def _is_reply_missing_then(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if a case ended in a model error when recorded, and now fails for want of that reply."""
    kind = str(_get_own_block(then).get("error_kind"))
    asked = kind in {error.value for error in ErrorKind} and kind != ErrorKind.CACHE_MISS.value
    return _get_own_block(then).get("status") == "error" and asked and _has_missing_reply(now)


def _parse_json(content: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


_MAX_NAMED = 3


def check_trust(manifest: Manifest, file: object) -> None:
    """Refuse a bundle whose own code would be executed.

    Raises:
        ConfigError: If it has source files, or its settings name classes or modules that no shipped config names.
    """
    brought = sorted(
        name.removeprefix(f"{CODE}/") for name in manifest.members if name.startswith(f"{CODE}/")
    )
    named = brought or sorted(
        {name for cell in manifest.cells.values() for name in _find_foreign_targets(cell)}
    )
    if not named:
        return
    listed = join_names([ascii(name)[1:-1] for name in named], _MAX_NAMED)
    raise ConfigError(
        f"{file} runs code of its own ({listed}), which can do what you can: read it (unzip), then give"
        " --trust-code."
    )


def _find_foreign_targets(cell: BundledCell) -> Iterator[str]:
    yield from (name for name in _iterate_targets(cell.settings) if name not in _list_shipped_targets())
    modules = (cell.settings.get("benchmark") or {}).get("modules")
    yield from (str(name) for name in modules or ())


@lru_cache(maxsize=1)
def _list_shipped_targets() -> frozenset[str]:
    configs = [file for folder in list_shipped_config_dirs() for file in folder.rglob("*.yaml")]
    contents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in configs]
    return frozenset(target for content in contents for target in _iterate_targets(content))


def _iterate_targets(value: Any) -> Iterator[str]:
    nodes = (node for _, node in walk_options(value) if isinstance(node, Mapping))
    return (str(node["_target_"]) for node in nodes if "_target_" in node)
