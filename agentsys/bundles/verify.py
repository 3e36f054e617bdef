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

from agentsys.bundles.archive import OpenBundle
from agentsys.bundles.changed_here import ChangedHere, changes, listed_names
from agentsys.bundles.compare import differences
from agentsys.bundles.manifest import CODE, FILES, KEPT, RECORDS, REPLIES, BundledCell, Manifest
from agentsys.bundles.rerun import PLACES, Rerun, importing, prepared
from agentsys.config_dir import shipped_config_dirs
from agentsys.errors import ConfigError
from agentsys.models.errors import ErrorKind
from agentsys.records.schema import OWN_KEY
from agentsys.runs.executors.outcome import Listener
from agentsys.runs.plan import Job


class Outcome(StrEnum):
    """What came of a case."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ERROR_THEN = "error_then"
    """It ended in an error, for want of a reply that nobody has: there is nothing to compare."""
    NOT_RUN = "not_run"


class Why(StrEnum):
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
    outcome: Outcome
    differences: tuple[str, ...] = ()
    """Field, value then, value now."""
    why: tuple[Why, ...] = ()
    details: tuple[str, ...] = ()
    """Of `why`, what exactly."""


@dataclass(frozen=True)
class Verification:
    """What came of a bundle."""

    cases: tuple[VerifiedCase, ...]
    changed: tuple[str, ...]
    """Members that are not as they were packed, each with what it is."""
    here: ChangedHere
    """What differs on this machine."""
    unfinished: int
    """Cases that were planned and had no record."""
    ended: str | None = None
    """Why not all of it was run."""

    @property
    def counts(self) -> Counter[Outcome]:
        """Outcome -> records."""
        return Counter(case.outcome for case in self.cases)

    @property
    def holds(self) -> bool:
        """Whether every record is what it says, and every member as it was packed."""
        bad = self.counts[Outcome.DIFFERS] + self.counts[Outcome.NOT_RUN]
        return not bad and not self.changed and self.ended is None


def verify(
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
    with OpenBundle(file) as bundle, tempfile.TemporaryDirectory(prefix="agentsys-verify-") as place:
        if not trust_code:
            check_trust(bundle.manifest, file)
        folder = Path(place).resolve()
        changed = bundle.unpack(folder, PLACES)
        with importing(folder):
            rerun = prepared(bundle, folder)
            here = changes(bundle.manifest, rerun)
            ended = rerun.run(listener(rerun.jobs), workers)
        records = bundle.changed_records()
        compared = _Compared(bundle, rerun, here, frozenset(records), tuple(changed))
        cases = tuple(compared.case(name) for name in bundle.names(RECORDS))
        return Verification(
            cases,
            tuple(f"{_kind(name)} {name.partition('/')[2]}" for name in [*records, *changed]),
            here,
            bundle.manifest.unfinished,
            ended,
        )


_KINDS = {RECORDS: "record", REPLIES: "reply", KEPT: "kept answer", FILES: "dataset file", CODE: "code"}
_WHY = {REPLIES: Why.REPLY, KEPT: Why.REPLY, FILES: Why.DATASET, CODE: Why.CODE}


def _kind(name: str) -> str:
    return _KINDS[name.partition("/")[0]]


@dataclass(frozen=True)
class _Compared:
    """Compares the records of a bundle with the new ones."""

    bundle: OpenBundle
    rerun: Rerun
    here: ChangedHere
    changed_records: frozenset[str]
    changed: tuple[str, ...]
    """Further members that are not as they were packed."""

    def case(self, name: str) -> VerifiedCase:
        key = name.partition("/")[2]
        tampered = name in self.changed_records
        then, now = _json(self.bundle.read(name)[0]), _json(_content(self.rerun.store.root / key))
        if then is None or now is None:
            said = self.rerun.failed.get(name) or ("its case was not run" if then else "it is no JSON")
            why = list(self._why(then or {}, {}, tampered=tampered))
            return VerifiedCase(key, Outcome.NOT_RUN, (said,), *self._told(why))
        found = [] if _lacks_reply_then(then, now) else differences(then, now)
        if not found and not tampered:
            outcome = Outcome.ERROR_THEN if _lacks_reply_then(then, now) else Outcome.EQUAL
            return VerifiedCase(key, outcome)
        shown = found or ["its bytes are not those that were packed, in what is not compared"]
        why = list(self._why(then, now, tampered=tampered))
        return VerifiedCase(key, Outcome.DIFFERS, tuple(shown), *self._told(why))

    def _told(self, why: list[tuple[Why, str]]) -> tuple[tuple[Why, ...], tuple[str, ...]]:
        kinds = tuple(dict.fromkeys(kind for kind, _ in why))
        return kinds, tuple(dict.fromkeys(detail for _, detail in why if detail))

    def _why(
        self, then: Mapping[str, Any], now: Mapping[str, Any], *, tampered: bool
    ) -> Iterator[tuple[Why, str]]:
        if tampered:
            yield Why.RECORD, "the record was changed after it was packed"
            return
        found = [*self._missed(now), *self._surroundings(then, now)]
        yield from found
        if not found:
            yield Why.UNKNOWN, "nothing that was looked at differs"

    def _missed(self, now: Mapping[str, Any]) -> Iterator[tuple[Why, str]]:
        """The replies that its case asked for and did not get."""
        if not _misses(now):
            return
        error = str(now.get("error"))
        named = [one for one in self.changed if one.startswith(REPLIES) and _key(one)[:12] in error]
        if named:
            yield Why.REPLY, f"{', '.join(named)} was changed after it was packed"
        elif any(one.startswith(REPLIES) for one in self.changed):
            yield Why.REPLY, "a reply that it asked for is not there; some were changed"
        else:
            yield Why.REPLY, "it asked what nobody had asked then"

    def _surroundings(self, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[Why, str]]:
        for name in self.changed:
            kind = _WHY[name.partition("/")[0]]
            if kind is not Why.REPLY or name.startswith(KEPT):
                yield kind, f"{name} was changed after it was packed"
        suite = str(_block(then).get("case", {}).get("suite"))
        if _data(then) != _data(now) and now:
            yield Why.DATASET, ", ".join(self.here.data_of(suite)) or f"the data of {suite}"
        config = str(_block(then).get("config_hash"))
        several = {
            Why.DATASET: self.here.files.get(config, ()),
            Why.SETTINGS: self.here.settings.get(config, ()),
            Why.CODE: self.here.code,
            Why.VERSION: self.here.versions,
        }
        yield from ((kind, listed_names(names)) for kind, names in several.items() if names)
        cell = self.rerun.cells.get(config)
        if cell is not None and cell.settings.benchmark.get("clock") == "real":
            yield Why.CLOCK, "the case's tools read the machine's clock (benchmark.clock=real)"


def _block(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    block = stored.get(OWN_KEY)
    return block if isinstance(block, dict) else {}


def _data(stored: Mapping[str, Any]) -> Any:
    return (_block(stored).get("versions") or {}).get("data")


def _misses(stored: Mapping[str, Any]) -> bool:
    """Whether a reply was not there when it was asked for."""
    miss = ErrorKind.CACHE_MISS.value
    block = _block(stored)
    calls = (call for span in block.get("spans") or [] for call in span.get("calls") or [])
    return block.get("error_kind") == miss or any(call.get("error") == miss for call in calls)


def _lacks_reply_then(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a case ended in an error of its model's then, and now for want of that very reply."""
    kind = str(_block(then).get("error_kind"))
    asked = kind in {one.value for one in ErrorKind} and kind != ErrorKind.CACHE_MISS.value
    return _block(then).get("status") == "error" and asked and _misses(now)


def _key(member: str) -> str:
    return member.removeprefix(f"{REPLIES}/").removesuffix(".json").replace("/", "")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _json(content: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


_NAMED = 3


def check_trust(manifest: Manifest, file: object) -> None:
    """See that nothing of a bundle's own would be executed.

    Raises:
        ConfigError: If it brings source files, or its settings name classes or modules that no shipped config
            names.
    """
    brought = sorted(name for name in manifest.members if name.startswith(f"{CODE}/"))
    foreign = sorted({name for cell in manifest.cells.values() for name in _foreign(cell)})
    named = [name.removeprefix(f"{CODE}/") for name in brought] or foreign
    if not named:
        return
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    raise ConfigError(
        f"{file} runs code of its own ({', '.join(ascii(one)[1:-1] for one in named[:_NAMED])}{more}), which "
        "can do what you can: read it (unzip), then give --trust-code."
    )


def _foreign(cell: BundledCell) -> Iterator[str]:
    for target in _targets(cell.settings):
        if target not in _shipped():
            yield target
    modules = (cell.settings.get("benchmark") or {}).get("modules")
    yield from (str(name) for name in modules or ())


@lru_cache(maxsize=1)
def _shipped() -> frozenset[str]:
    """Every `_target_` of the shipped configs."""
    files = [file for folder in shipped_config_dirs() for file in folder.rglob("*.yaml")]
    return frozenset(
        target for file in files for target in _targets(yaml.safe_load(file.read_text(encoding="utf-8")))
    )


def _targets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "_target_":
                yield str(inner)
            else:
                yield from _targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _targets(inner)
