"""`audit_cache_files`: which files of ready-made texts hold the same texts, and what is wrong with them.

Texts that were optimised against one defense are adaptive there. Files for several defenses that hold the
same texts are not: replayed on another defense they are a transfer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentsys.analysis.metrics.rates import Percent
from agentsys.analysis.tables.table_document import Document, Grid, cells
from agentsys.analysis.tables.table_writers import Output, records_of
from agentsys.attacks.attack_search import find_lost_data
from agentsys.attacks.red_team.cache_files import CacheTexts, TextKey, read_cache_file
from agentsys.audit.text_transfer import (
    OptimisedFor,
    TextOrigins,
    TransferRow,
    build_transfer_grids,
    measure_transfers,
    write_transfer_notes,
)
from agentsys.contracts import Benchmark
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow

_ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class CacheFileRow:
    """One file."""

    file: str
    """Its path below the folder."""
    suite: str
    """Suites of its texts, joined by commas."""
    victim: str
    """The attacked model, as the folder says; `?` where it does not."""
    defense: str
    """The defense it was optimised against, as the file says; `?` where it does not."""
    optimiser: str
    texts: int
    """Distinct texts that can be replayed."""
    unchanged: Percent | None
    """Share of its variants that equal the benchmark's original text; None where the file does not tell."""
    without_data: Percent
    """Share of its texts that lack data of their goal (an address, an IBAN, a link); a text in a code counts
    as lacking them."""
    fingerprint: str
    """Of its texts, as the label of an attack with them ends."""
    same: int = 1
    """Files with exactly these texts, this one included."""
    same_as: str = ""
    """The first of these, by name; empty where it is alone."""
    other_defenses: int = 0
    """Defenses other than its own that these files are for."""


@dataclass(frozen=True)
class CacheAudit:
    """The files of a folder."""

    rows: Sequence[CacheFileRow]
    sets: int
    """Distinct sets of texts."""
    skipped: Mapping[str, str]
    """File -> why it could not be read."""
    origins: TextOrigins
    """What the texts of a fingerprint were optimised against: those of a file, and those of all suites of
    one victim and defense together."""

    @property
    def shared(self) -> int:
        """Files whose texts stand in a file for another defense, too."""
        return sum(row.other_defenses > 0 for row in self.rows)


def audit_cache_files(folder: Path, benchmark: Benchmark) -> CacheAudit:
    """Compare the files of a folder, and of those in it; the benchmark names the goals.

    Raises:
        ConfigError: If there is no file of texts.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _ENDINGS and path.is_file()]
    rows: dict[str, CacheFileRow] = {}
    sets: defaultdict[frozenset[tuple[str, ...]], list[str]] = defaultdict(list)
    skipped: dict[str, str] = {}
    suites: defaultdict[OptimisedFor, dict[TextKey, str]] = defaultdict(dict)
    for path in files:
        name = path.relative_to(folder).as_posix()
        try:
            row, read, texts = _build_row(path, name, benchmark)
        except ConfigError as error:
            skipped[name] = str(error)
            continue
        rows[name] = row
        sets[texts].append(name)
        suites[OptimisedFor(row.victim, row.defense)] |= read
    if not rows:
        why = f" {next(iter(skipped.values()))}" if skipped else ""
        raise ConfigError(f"caches={folder}: no file of injection texts in it.{why}")
    return CacheAudit(
        [_mark_same_texts(rows, names, name) for names in sets.values() for name in names],
        len(sets),
        skipped,
        _map_origins([[rows[name] for name in names] for names in sets.values()], suites),
    )


def _map_origins(
    sets: Iterable[Sequence[CacheFileRow]], suites: Mapping[OptimisedFor, Mapping[TextKey, str]]
) -> TextOrigins:
    found: defaultdict[str, list[OptimisedFor]] = defaultdict(list)
    for alike in sets:
        # One number or another: whoever holds the same texts is named with them.
        for row in alike:
            found[row.fingerprint] += [OptimisedFor(other.victim, other.defense) for other in alike]
    for origin, texts in suites.items():
        found[CacheTexts(texts, ()).fingerprint].append(origin)
    return {fingerprint: sorted(set(named)) for fingerprint, named in found.items()}


def _build_row(
    path: Path, name: str, benchmark: Benchmark
) -> tuple[CacheFileRow, dict[TextKey, str], frozenset[tuple[str, ...]]]:
    texts, source = read_cache_file(path)
    distinct = {(key.suite, key.injection_task, text) for key, text in texts.items()}
    lacking = sum(
        bool(find_lost_data(_get_goal(benchmark, suite, task), text)) for suite, task, text in distinct
    )
    variants = len(texts) + (source.unchanged if source else 0)
    row = CacheFileRow(
        file=name,
        suite=", ".join(sorted({key.suite for key in texts})),
        victim=source.victim if source else "?",
        defense=source.defense if source else "?",
        optimiser=source.optimiser if source else "?",
        texts=len({text for *_, text in distinct}),
        unchanged=100 * source.unchanged / variants if source else None,
        without_data=100 * lacking / len(distinct),
        fingerprint=CacheTexts(texts, ()).fingerprint,
    )
    # What each text is for, whatever its number is.
    identities = (
        (key.suite, key.user_task or "", key.injection_task, key.vector or "", text)
        for key, text in texts.items()
    )
    return row, texts, frozenset(identities)


def _get_goal(benchmark: Benchmark, suite: str, task: str) -> str:
    """The goal; empty where the benchmark does not have the task, so that nothing can be lacking."""
    try:
        return str(benchmark.suite(suite).injection_tasks[task].GOAL)
    except (ConfigError, KeyError):
        return ""


def _mark_same_texts(rows: Mapping[str, CacheFileRow], names: Sequence[str], name: str) -> CacheFileRow:
    defenses = {rows[other].defense for other in names} - {rows[name].defense, "?"}
    first = names[0] if len(names) > 1 else ""
    return replace(rows[name], same=len(names), same_as=first, other_defenses=len(defenses))


def build_transfer_output(found: CacheAudit, cases: Iterable[CaseRow]) -> Output:
    """Say what the files' texts did in stored cases, ready to be written in any form.

    Raises:
        ConfigError: If no case has texts of these files.
    """
    matrix = measure_transfers(cases, found.origins)
    if not matrix.rows:
        known = ", ".join(matrix.unknown) or "none with attack=cached"
        raise ConfigError(
            f"These runs have no case with texts of the files in caches=; its attacks: {known}. A label that"
            " ends in the texts' fingerprint is needed: leave out attack.name."
        )
    document = Document(
        [("Transfer", list(build_transfer_grids(matrix)))],
        list(write_transfer_notes(matrix)),
        title="Transfer of cached texts",
        quotable=list(_write_sentences(found)),
    )
    records = records_of(TransferRow, matrix.rows)
    return Output(document.title, document, records, {"rows": records.rows, "unknown": list(matrix.unknown)})


def build_cache_output(found: CacheAudit) -> Output:
    """Make it ready to be written in any form."""
    rows = sorted(found.rows, key=lambda row: row.file)
    texts = ("file", "suite", "victim", "defense", "same texts as")
    grid = Grid(
        caption="Files of injection texts",
        header=(*texts, "texts", "original %", "no data %", "files"),
        rows=[
            cells(
                *(row.file, row.suite, row.victim, row.defense, row.same_as or "-", str(row.texts)),
                "n/a" if row.unchanged is None else f"{row.unchanged:.1f}",
                *(f"{row.without_data:.1f}", str(row.same)),
            )
            for row in rows
        ],
        names=len(texts),
        wraps=frozenset(range(len(texts))),
    )
    notes = [f"{name}: {why}" for name, why in found.skipped.items()]
    document = Document(
        [("Files", [grid])], notes, title="Audit of cached texts", quotable=list(_write_sentences(found))
    )
    records = records_of(CacheFileRow, rows)
    data = {
        "sets": found.sets,
        "files": len(rows),
        "for_several_defenses": found.shared,
        "rows": records.rows,
        "skipped": dict(found.skipped),
    }
    return Output(document.title, document, records, data)


def _write_sentences(found: CacheAudit) -> Iterator[str]:
    yield f"{len(found.rows)} files hold {found.sets} distinct sets of texts."
    if found.shared:
        yield (
            f"{found.shared} files have the very texts of a file for another defense: against each of these"
            " defenses they are a transfer, not adaptive."
        )
