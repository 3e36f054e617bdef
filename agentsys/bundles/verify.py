"""`verify`: a bundle -> of each of its cases whether running it again gives the same, and why not."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import yaml

from agentsys.bundles.archive import BundleReader
from agentsys.bundles.changed_here import MachineChanges, compare_machines, format_names
from agentsys.bundles.compare import compare_records
from agentsys.bundles.manifest import CODE, FILES, KEPT, RECORDS, REPLIES, BundledCell, Manifest
from agentsys.bundles.rerun import UNPACK_FOLDERS, RerunPlan, importable_folder, prepare_rerun
from agentsys.config_dir import shipped_config_dirs
from agentsys.errors import ConfigError
from agentsys.models.errors import ErrorKind
from agentsys.records.schema import OWN_KEY
from agentsys.runs.executors.outcome import Listener
from agentsys.runs.plan import Job


class VerifyOutcome(StrEnum):
    """What came of a case."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ERROR_THEN = "error_then"
    """It ended in an error, for want of a reply that nobody has: there is nothing to compare."""
    NOT_RUN = "not_run"


class DifferenceCause(StrEnum):
    """What differs here from what the bundle was made of."""

    RECORD = "record"
    REPLY = "reply"
    DATASET = "dataset"
    CODE = "code"
    VERSION = "version"
    SETTINGS = "settings"
    CLOCK = "clock"
    """The case's tools read the machine's clock."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class VerifiedCase:
    """One record, or one attempt of a search."""

    record: str
    """Its path in the log folder."""
    outcome: VerifyOutcome
    differences: tuple[str, ...] = ()
    """Field, value then, value now."""
    why: tuple[DifferenceCause, ...] = ()
    details: tuple[str, ...] = ()
    """Of `why`, what exactly."""


@dataclass(frozen=True)
class Verification:
    """What came of a bundle."""

    cases: tuple[VerifiedCase, ...]
    changed: tuple[str, ...]
    """Members that are not as they were packed, each with what it is."""
    here: MachineChanges
    """What differs on this machine."""
    unfinished: int
    """Cases that were planned and had no record."""
    ended: str | None = None
    """Why not all of it was run."""

    @property
    def counts(self) -> Counter[VerifyOutcome]:
        """Outcome -> records."""
        return Counter(case.outcome for case in self.cases)

    @property
    def is_verified(self) -> bool:
        """Whether every record is what it says, and every member as it was packed."""
        bad = self.counts[VerifyOutcome.DIFFERS] + self.counts[VerifyOutcome.NOT_RUN]
        return not bad and not self.changed and self.ended is None


def verify_bundle(
    file: Path,
    *,
    listener: Callable[[tuple[Job, ...]], Listener],
    workers: int = 4,
    trust_code: bool = False,
) -> Verification:
    """Run a bundle's cases again from its own replies, and compare.

    Args:
        file: The bundle.
        listener: Given the cases, makes who is told how it goes.
        workers: Cases under way at once.
        trust_code: Whether source files in the bundle may be executed.

    Raises:
        ConfigError: If the file is no bundle, is refused, or this machine lacks something it needs.
    """
    with BundleReader(file) as bundle, tempfile.TemporaryDirectory(prefix="agentsys-verify-") as place:
        if not trust_code:
            check_trust(bundle.manifest, file)
        folder = Path(place).resolve()
        changed = bundle.unpack(folder, UNPACK_FOLDERS)
        with importable_folder(folder):
            rerun = prepare_rerun(bundle, folder)
            here = compare_machines(bundle.manifest, rerun)
            ended = rerun.run(listener(rerun.jobs), workers)
        records = bundle.find_changed_records()
        compared = _RecordComparer(bundle, rerun, here, frozenset(records), tuple(changed))
        cases = tuple(compared.compare_case(name) for name in bundle.list_members(RECORDS))
        return Verification(
            cases,
            tuple(f"{_name_member_kind(name)} {name.partition('/')[2]}" for name in [*records, *changed]),
            here,
            bundle.manifest.unfinished,
            ended,
        )


_MEMBER_KINDS = {RECORDS: "record", REPLIES: "reply", KEPT: "kept answer", FILES: "dataset file", CODE: "code"}
_MEMBER_CAUSES = {REPLIES: DifferenceCause.REPLY, KEPT: DifferenceCause.REPLY, FILES: DifferenceCause.DATASET, CODE: DifferenceCause.CODE}


def _name_member_kind(name: str) -> str:
    return _MEMBER_KINDS[name.partition("/")[0]]


@dataclass(frozen=True)
class _RecordComparer:
    """Compares the records of a bundle with the new ones."""

    bundle: BundleReader
    rerun: RerunPlan
    here: MachineChanges
    changed_records: frozenset[str]
    changed: tuple[str, ...]
    """Further members that are not as they were packed."""

    def compare_case(self, name: str) -> VerifiedCase:
        key = name.partition("/")[2]
        tampered = name in self.changed_records
        then, now = _parse_json(self.bundle.read_member(name)[0]), _parse_json(_read_content(self.rerun.store.root / key))
        if then is None or now is None:
            said = self.rerun.failed.get(name) or ("its case was not run" if then else "it is no JSON")
            why = list(self._find_causes(then or {}, {}, tampered=tampered))
            return VerifiedCase(key, VerifyOutcome.NOT_RUN, (said,), *self._split_causes(why))
        found = [] if _lacks_reply_then(then, now) else compare_records(then, now)
        if not found and not tampered:
            outcome = VerifyOutcome.ERROR_THEN if _lacks_reply_then(then, now) else VerifyOutcome.EQUAL
            return VerifiedCase(key, outcome)
        shown = found or ["its bytes are not those that were packed, in what is not compared"]
        why = list(self._find_causes(then, now, tampered=tampered))
        return VerifiedCase(key, VerifyOutcome.DIFFERS, tuple(shown), *self._split_causes(why))

    def _split_causes(self, why: list[tuple[DifferenceCause, str]]) -> tuple[tuple[DifferenceCause, ...], tuple[str, ...]]:
        kinds = tuple(dict.fromkeys(kind for kind, _ in why))
        return kinds, tuple(dict.fromkeys(detail for _, detail in why if detail))

    def _find_causes(
        self, then: Mapping[str, Any], now: Mapping[str, Any], *, tampered: bool
    ) -> Iterator[tuple[DifferenceCause, str]]:
        if tampered:
            yield DifferenceCause.RECORD, "the record was changed after it was packed"
            return
        found = [*self._find_missing_replies(now), *self._find_machine_causes(then, now)]
        yield from found
        if not found:
            yield DifferenceCause.UNKNOWN, "nothing that was looked at differs"

    def _find_missing_replies(self, now: Mapping[str, Any]) -> Iterator[tuple[DifferenceCause, str]]:
        """The replies that its case asked for and did not get."""
        if not _has_missing_reply(now):
            return
        error = str(now.get("error"))
        named = [one for one in self.changed if one.startswith(REPLIES) and _reply_key(one)[:12] in error]
        if named:
            yield DifferenceCause.REPLY, f"{', '.join(named)} was changed after it was packed"
        elif any(one.startswith(REPLIES) for one in self.changed):
            yield DifferenceCause.REPLY, "a reply that it asked for is not there; some were changed"
        else:
            yield DifferenceCause.REPLY, "it asked what nobody had asked then"

    def _find_machine_causes(self, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[DifferenceCause, str]]:
        for name in self.changed:
            kind = _MEMBER_CAUSES[name.partition("/")[0]]
            if kind is not DifferenceCause.REPLY or name.startswith(KEPT):
                yield kind, f"{name} was changed after it was packed"
        suite = str(_get_own_block(then).get("case", {}).get("suite"))
        if _get_data_hash(then) != _get_data_hash(now) and now:
            yield DifferenceCause.DATASET, ", ".join(self.here.list_changed_data(suite)) or f"the data of {suite}"
        config = str(_get_own_block(then).get("config_hash"))
        several = {
            DifferenceCause.DATASET: self.here.files.get(config, ()),
            DifferenceCause.SETTINGS: self.here.settings.get(config, ()),
            DifferenceCause.CODE: self.here.code,
            DifferenceCause.VERSION: self.here.versions,
        }
        yield from ((kind, format_names(names)) for kind, names in several.items() if names)
        cell = self.rerun.cells.get(config)
        if cell is not None and cell.settings.benchmark.get("clock") == "real":
            yield DifferenceCause.CLOCK, "the case's tools read the machine's clock (benchmark.clock=real)"


def _get_own_block(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    block = stored.get(OWN_KEY)
    return block if isinstance(block, dict) else {}


def _get_data_hash(stored: Mapping[str, Any]) -> Any:
    return (_get_own_block(stored).get("versions") or {}).get("data")


def _has_missing_reply(stored: Mapping[str, Any]) -> bool:
    """Whether a reply was not there when it was asked for."""
    miss = ErrorKind.CACHE_MISS.value
    block = _get_own_block(stored)
    calls = (call for span in block.get("spans") or [] for call in span.get("calls") or [])
    return block.get("error_kind") == miss or any(call.get("error") == miss for call in calls)


def _lacks_reply_then(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a case ended in an error of its model's then, and now for want of that very reply."""
    kind = str(_get_own_block(then).get("error_kind"))
    asked = kind in {one.value for one in ErrorKind} and kind != ErrorKind.CACHE_MISS.value
    return _get_own_block(then).get("status") == "error" and asked and _has_missing_reply(now)


def _reply_key(member: str) -> str:
    return member.removeprefix(f"{REPLIES}/").removesuffix(".json").replace("/", "")


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _parse_json(content: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


_MAX_NAMED = 3


def check_trust(manifest: Manifest, file: object) -> None:
    """See that nothing of a bundle's own would be executed.

    Raises:
        ConfigError: If it brings source files, or its settings name classes or modules that no shipped config
            names.
    """
    brought = sorted(name for name in manifest.members if name.startswith(f"{CODE}/"))
    foreign = sorted({name for cell in manifest.cells.values() for name in _find_foreign_targets(cell)})
    named = [name.removeprefix(f"{CODE}/") for name in brought] or foreign
    if not named:
        return
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    raise ConfigError(
        f"{file} runs code of its own ({', '.join(ascii(one)[1:-1] for one in named[:_MAX_NAMED])}{more}), which "
        "can do what you can: read it (unzip), then give --trust-code."
    )


def _find_foreign_targets(cell: BundledCell) -> Iterator[str]:
    for target in _iterate_targets(cell.settings):
        if target not in _list_shipped_targets():
            yield target
    modules = (cell.settings.get("benchmark") or {}).get("modules")
    yield from (str(name) for name in modules or ())


@lru_cache(maxsize=1)
def _list_shipped_targets() -> frozenset[str]:
    """Every `_target_` of the shipped configs."""
    files = [file for folder in shipped_config_dirs() for file in folder.rglob("*.yaml")]
    return frozenset(
        target for file in files for target in _iterate_targets(yaml.safe_load(file.read_text(encoding="utf-8")))
    )


def _iterate_targets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "_target_":
                yield str(inner)
            else:
                yield from _iterate_targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iterate_targets(inner)
