"""`rescore_records`: scores stored records again and compares with the stored scores, flip by flip."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from agentsys.errors import ConfigError
from agentsys.extensions import FETCHED
from agentsys.records.names_file import RunNames
from agentsys.records.published_facts import list_known_versions
from agentsys_plugins.audit.process_pool import map_in_processes
from agentsys_plugins.audit.rescoring.read_trajectories import RecordFiles, SkippedRecord, find_records
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordFault,
    Trajectory,
    Unusable,
    get_checkout_version,
    is_agentdyn,
    list_versions,
    load_agentdojo,
)
from agentsys_plugins.audit.rescoring.reexecution import CheckScores, score_final_answer, score_with_execution
from agentsys_plugins.audit.rescoring.score_flips import (
    FixedVerdict,
    FlipReason,
    ScoreFlip,
    ScoreName,
    explain_flip,
    resolve_fixes,
    score_with_fixes,
)
from agentsys_plugins.audit.rescoring.score_memory import ScoreMemory, find_score_memory


@dataclass(frozen=True)
class RescoredCase:
    """One record and its new scores."""

    trajectory: Trajectory
    version: str
    scores: CheckScores
    flips: tuple[ScoreFlip, ...]
    fixed: FixedVerdict | None = None
    """The same execution under repaired checks; None for injection tasks run alone."""
    utility_of_answer: bool | None = None
    """The utility had only the answer section of the last message been judged; None where it has none."""


@dataclass
class RescoringResult:
    """The outcome of a re-scoring. Cases, skipped and other files add up to the files seen."""

    cases: list[RescoredCase] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)
    other_files: int = 0
    """JSON files that hold no case."""
    fixes: tuple[str, ...] = ()
    """Fixes of checks that every case was scored under as well."""
    notes: tuple[str, ...] = ()
    """What folders' names decided about whose runs these are, one sentence each."""
    known: int = 0
    """Cases whose scores an earlier check came to."""
    remembered: dict[str, Any] = field(default_factory=dict, compare=False)
    """Key of a record -> what `_write_scores` gives of it; only with a memory."""
    explained: dict[str, Counter[str]] = field(default_factory=dict)
    """Pipeline whose records name no version -> version -> how many of them it explains; where it was inferred."""


PartT = TypeVar("PartT")


def rescore_records(
    paths: Iterable[str | os.PathLike[str]],
    version: str | None = None,
    fixes: Sequence[str] = (),
    names: RunNames | None = None,
    checkout: str = FETCHED,
    processes: int = 1,
    *,
    unnamed: Literal["refused", "inferred"] | str = "refused",
    remember: bool = False,
) -> RescoringResult:
    """Score stored records again.

    Args:
        paths: Log, pipeline or suite folders or single files, in any mixture.
        version: The benchmark's version; None takes the one that each record names.
        fixes: Fixes to score under beside the official checks; empty means every fix of a check.
        names: The user's word on other people's folders.
        checkout: Folder of AgentDyn's checkout, for records of its suites; `version` is not for these.
        processes: Processes that share the records; with one it is done in this process.
        unnamed: What becomes of records that name no version: `refused`; `inferred`: each pipeline's are scored under
            the version that explains most of them; or the version for them. One that a record names stays.
        remember: Whether scores are taken from an earlier call's on the first path, and kept for the next.

    Raises:
        ConfigError: If a path, the version or a fix does not exist, there is no record, or one names no
            version and none was given.
    """
    if version is not None:
        load_agentdojo(version)
    roots = list(paths)
    chosen = resolve_fixes(fixes)
    stored = find_records(roots, names)
    found = RescoringResult(fixes=chosen, notes=stored.notes)

    share_out = partial(_share_out, [*stored.split(_FILES_PER_PORTION)], processes)
    if unnamed == "inferred":
        for counts in share_out(_count_explained, _is_all_ours):
            for pipeline, counted in counts.items():
                found.explained.setdefault(pipeline, Counter()).update(counted)
        # Of versions that explain as many, the oldest: records that name none are old.
        assumed = {name: max(counted, key=counted.__getitem__) for name, counted in found.explained.items()}
    else:
        assumed = {} if unnamed == "refused" else {"": load_agentdojo(unnamed).version}
    memory = find_score_memory(Path(roots[0]), version, chosen, checkout, assumed) if remember else None
    work = partial(
        _rescore_files, version=version, fixes=chosen, checkout=checkout, assumed=assumed, memory=memory
    )
    for part in share_out(work, lambda portion: memory is not None and memory.has_all(portion)):
        found.cases += part.cases
        found.known += part.known
        found.remembered |= part.remembered
        found.skipped += part.skipped
        found.other_files += part.other_files
    if memory is not None:
        memory.keep(found.remembered)
    if not found.cases and not found.skipped:
        where = ", ".join(f"'{root}'" for root in roots)
        raise ConfigError(f"No stored cases in {where}. Give a folder of runs: agentsys rescore RUNS")
    return found


def _share_out(
    portions: Sequence[RecordFiles],
    processes: int,
    work: Callable[[RecordFiles], PartT],
    is_quick: Callable[[RecordFiles], bool],
) -> Iterator[PartT]:
    """Do the work on all portions, in order; quick ones in this process, as others take seconds to start."""
    here = [processes == 1 or is_quick(portion) for portion in portions]
    rest = [portion for portion, quick in zip(portions, here, strict=True) if not quick]
    at_once = min(processes, len(rest))
    shared = map_in_processes(work, rest, at_once) if at_once > 1 else map(work, rest)
    for portion, quick in zip(portions, here, strict=True):
        yield work(portion) if quick else next(shared)


_FILES_PER_PORTION = 50
"""Files that a process is given at a time: some seconds of work."""


def _is_all_ours(stored: RecordFiles) -> bool:
    """True if all records are ours, which name their version."""
    return not any(facts.foreign for facts in stored.facts_by_file.values())


def _count_explained(stored: RecordFiles) -> dict[str, Counter[str]]:
    """Pipeline -> version -> its records whose scores come out as stored, of those that name no version."""
    found: dict[str, Counter[str]] = {}
    if _is_all_ours(stored):
        return found
    with redirect_stdout(io.StringIO()):
        for record in stored:
            if (
                isinstance(record, Trajectory)
                and record.version is None
                and not is_agentdyn(record.benchmark)
            ):
                counted = found.setdefault(record.pipeline, Counter(dict.fromkeys(list_known_versions(), 0)))
                if not record.is_injection_task_alone:
                    counted.update(name for name in counted if _is_explained(record, name))
    return found


def _is_explained(record: Trajectory, version: str) -> bool:
    try:
        scores = score_with_execution(record, version).scores
    except Unusable:
        return False
    return scores.utility == record.utility and record.security in (None, scores.security)


def _rescore_files(
    stored: RecordFiles,
    version: str | None,
    fixes: tuple[str, ...],
    checkout: str,
    assumed: Mapping[str, str],
    memory: ScoreMemory | None,
) -> RescoringResult:
    """Score one portion of the records again, in this process or in a worker process."""
    found = RescoringResult(fixes=fixes)
    # Some of AgentDojo's checks print what they compare.
    with redirect_stdout(io.StringIO()):
        for record in stored:
            if not isinstance(record, Trajectory):
                _add_record(found, record, version, assumed)
                continue
            key = None
            if memory and not is_agentdyn(record.benchmark):  # A checkout may change between two checks.
                key = memory.make_key(record.source, stored.facts_by_file.get(record.source))
            kept = memory and memory.find(key)
            case = kept and _read_scores(kept, record)
            if case:
                found.cases.append(case)
                found.known += 1
            else:
                before = len(found.cases)
                _add_record(found, replace(record, checkout=checkout), version, assumed)
                kept = _write_scores(found.cases[-1]) if len(found.cases) > before else None
            if key and kept:
                found.remembered[key] = kept
    return found


def _write_scores(case: RescoredCase) -> dict[str, Any]:
    """What was found of a case, without the record itself."""
    return {
        "version": case.version,
        "scores": [*case.scores],
        "flips": [(one.score, one.recorded, one.rescored, one.reason, one.detail) for one in case.flips],
        "fixed": case.fixed and vars(case.fixed),
        "utility_of_answer": case.utility_of_answer,
    }


def _read_scores(kept: Any, record: Trajectory) -> RescoredCase | None:
    """A case from what `_write_scores` gave; None if it is nothing of the kind."""
    try:
        version, scores = kept["version"], CheckScores(*kept["scores"])
        flips = tuple(
            ScoreFlip(record, version, score, recorded, rescored, FlipReason(reason), detail)
            for score, recorded, rescored, reason, detail in kept["flips"]
        )
        fixed: dict[str, Any] | None = kept["fixed"] and {
            name: tuple(one) if isinstance(one, list) else one for name, one in kept["fixed"].items()
        }
        verdict = FixedVerdict(**fixed) if fixed else None
        return RescoredCase(record, version, scores, flips, verdict, kept["utility_of_answer"])
    except (KeyError, TypeError, ValueError):
        return None


def _add_record(
    found: RescoringResult,
    record: Trajectory | SkippedRecord | None,
    version: str | None,
    assumed: Mapping[str, str],
) -> None:
    if record is None:
        found.other_files += 1
    elif isinstance(record, SkippedRecord):
        found.skipped.append(record)
    else:
        try:
            dyn = is_agentdyn(record.benchmark)
            found_out = assumed.get(record.pipeline, assumed.get("")) if record.version is None else None
            guess = version or found_out
            now = get_checkout_version(record) if dyn else guess or get_recorded_version(record)
            found.cases.append(rescore_case(record, now, found.fixes))
        except Unusable as fault:
            found.skipped.append(SkippedRecord(record.source, fault.obstacle, str(fault)))


def rescore_case(trajectory: Trajectory, version: str, fixes: tuple[str, ...]) -> RescoredCase:
    """One record's new scores, official and under these fixes, each flip explained.

    Raises:
        Unusable: If it cannot be scored under this version.
    """
    scored = score_with_execution(trajectory, version)
    flips = tuple(_find_flips(trajectory, version, scored.scores))
    fixed = score_with_fixes(trajectory, scored, fixes)
    return RescoredCase(
        trajectory,
        version,
        scored.scores,
        flips,
        fixed and fixed.keep_recorded(flips),
        score_final_answer(trajectory, scored),
    )


def _find_flips(trajectory: Trajectory, version: str, scores: CheckScores) -> Iterator[ScoreFlip]:
    pairs: tuple[tuple[ScoreName, bool | None, bool | None], ...] = (
        ("utility", trajectory.utility, scores.utility),
        ("security", trajectory.security, scores.security),
    )
    for which, recorded, now in pairs:
        if recorded is not None and now is not None and recorded != now:
            reason, detail = explain_flip(trajectory, version, which)
            yield ScoreFlip(trajectory, version, which, recorded, now, reason, detail)


def get_recorded_version(trajectory: Trajectory) -> str:
    """The version that a record names.

    Raises:
        ConfigError: If it names none.
        Unusable: If it names one that is not installed, or one of another benchmark.
    """
    if trajectory.version is None:
        raise ConfigError(
            f"{trajectory.source} names no benchmark version, as AgentDojo's older runs do not: say which one"
            f" to score with, e.g. --version v1.1. Known: {', '.join(list_versions())}."
        )
    if trajectory.version not in list_versions():
        if trajectory.benchmark.partition("+")[0] != "agentdojo":
            reason = f"benchmark {trajectory.benchmark[:80]} is not re-scored"
            raise Unusable(RecordFault.OTHER_BENCHMARK, reason)
        raise Unusable(RecordFault.NOT_HERE, f"no version {trajectory.version} of agentdojo is installed")
    return trajectory.version
