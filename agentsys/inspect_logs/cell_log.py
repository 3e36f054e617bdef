"""`cell_log`: the cases of one cell as one of Inspect's logs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    HeadlineMetric,
)

import agentsys
from agentsys.analysis.html_report.trajectory import stored_json
from agentsys.errors import ConfigError
from agentsys.grouping import group_by
from agentsys.inspect_logs.sample import find_start_time, build_sample, make_sample_id
from agentsys.inspect_logs.usage import sum_usage
from agentsys.records.case_row import NO_ATTACK, CaseRow


@dataclass(frozen=True)
class CellLog:
    """A log and the name of its file."""

    log: EvalLog
    file_name: str


def build_cell_log(cases: Sequence[CaseRow], config: Mapping[str, Any] | None) -> CellLog:
    """One log.

    Args:
        cases: All of one model, defense, attack, benchmark, version and suite.
        config: The resolved config they ran with, where it is known.

    Raises:
        ConfigError: If two cases would have one id: Inspect would drop the second without a word.
    """
    first, identity = cases[0], _hash_cases(cases)
    _check_ids(cases)
    stored = [stored_json(case.source) for case in cases]
    times = [find_start_time(case, held) for case, held in zip(cases, stored, strict=True)]
    samples = [build_sample(case, held, identity) for case, held in zip(cases, stored, strict=True)]
    # As listings parse it out of a file's name: without `/` and `_`.
    named = f"{first.suite}-{first.defense}-{first.attack}"
    task = "".join(char if char.isalnum() and char.isascii() else "-" for char in named)
    headline = "utility" if first.attack == NO_ATTACK else "injection_success"
    spec = EvalSpec(
        eval_id=f"eval{identity}",
        run_id=f"run{identity}",
        created=min(times).isoformat(),
        task=task,
        task_id=f"task{identity}",
        task_version=first.version,
        task_display_name=f"{first.suite}: {first.defense} under {first.attack}",
        task_args=_list_task_arguments(first),
        task_args_passed=_list_task_arguments(first),
        tags=["simulated"] if first.simulated else None,
        dataset=EvalDataset(
            name=f"{first.benchmark} {first.version} {first.suite}",
            samples=len(samples),
            sample_ids=[make_sample_id(case) for case in cases],
        ),
        model=first.table_model,
        config=EvalConfig(epochs=max(case.epoch for case in cases) + 1),
        packages={"agentsys": agentsys.__version__},
        metadata={"simulated": first.simulated, **({} if config is None else {"config": config})},
        headline_metric=HeadlineMetric(score=headline, metric="mean"),
    )
    log = EvalLog(
        status="success",
        eval=spec,
        results=_build_results(samples),
        stats=_build_stats(samples, first.table_model, min(times), max(times)),
        samples=samples,
    )
    return CellLog(log, f"{min(times):%Y-%m-%dT%H-%M-%S}+00-00_{task}_{identity}.eval")


def _list_task_arguments(case: CaseRow) -> dict[str, Any]:
    return {
        "model": case.model_label,
        "defense": case.defense,
        "attack": case.attack,
        "benchmark": case.benchmark,
        "version": case.version,
        "suite": case.suite,
    }


def _hash_cases(cases: Sequence[CaseRow]) -> str:
    """A hash of the cell and of how its cases ended: other runs of the same cell are another log."""
    ended = sorted(
        f"{make_sample_id(c)} {c.epoch} {c.status} {c.utility} {c.injection_success} {c.duration_s}" for c in cases
    )
    text = "\n".join([*map(str, _list_task_arguments(cases[0]).values()), *ended])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_ids(cases: Sequence[CaseRow]) -> None:
    (name, epoch), times = Counter((make_sample_id(case), case.epoch) for case in cases).most_common(1)[0]
    if times > 1:
        raise ConfigError(
            f"{times} cases are {name} of epoch {epoch} under {cases[0].defense}: export one folder of runs"
            " at a time."
        )


def _build_results(samples: Sequence[EvalSample]) -> EvalResults:
    done = [sample for sample in samples if sample.error is None]
    scores = [_build_score(name, done) for name in ("utility", "injection_success")]
    return EvalResults(
        total_samples=len(samples),
        completed_samples=len(done),
        scores=[score for score in scores if score.scored_samples],
    )


def _build_score(name: str, samples: Sequence[EvalSample]) -> EvalScore:
    values = [s.scores[name].as_float() for s in samples if s.scores and name in s.scores]
    mean = sum(values) / len(values) if values else 0.0
    return EvalScore(
        name=name,
        scorer=name,
        scored_samples=len(values),
        unscored_samples=len(samples) - len(values),
        metrics={"mean": EvalMetric(name="mean", value=mean)},
    )


def _build_stats(samples: Sequence[EvalSample], model: str, start: datetime, end: datetime) -> EvalStats:
    used = [usage for sample in samples for usage in sample.role_usage.items()]
    by_role = {role: sum_usage(of for _, of in found) for role, found in group_by(used, itemgetter(0)).items()}
    return EvalStats(
        started_at=start.isoformat(),
        completed_at=end.isoformat(),
        model_usage={model: sum_usage(by_role.values())} if by_role else {},
        role_usage=by_role,
    )
