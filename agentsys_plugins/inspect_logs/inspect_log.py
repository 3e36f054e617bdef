"""`export_logs`: folders of runs as Inspect's logs, one log a cell, one sample a case."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalMetric,
    EvalPlan,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    HeadlineMetric,
    condense_events,
)
from inspect_ai.log._recorders.eval import EvalRecorder
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score

import agentsys
from agentsys.analysis.html_report.case_views import (
    as_text,
    read_own_block,
    read_stored_json,
    take_mapping,
    take_name,
)
from agentsys.analysis.metrics.rates import MeasuredCell
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.row_settings import find_config
from agentsys.records.schema import StoredBlock
from agentsys_plugins.inspect_logs.case_events import CaseEvents
from agentsys_plugins.inspect_logs.log_messages import MessageConverter, convert_role_usage, sum_usage


def make_sample_id(case: CaseRow) -> str:
    """`user_task_0/injection_task_1`; benign: the user task alone."""
    return "/".join(part for part in (case.user_task_id, case.injection_task_id) if part)


def find_start_time(case: CaseRow, stored: Mapping[str, Any]) -> datetime:
    """When the case was run: as recorded (read as UTC), else when its file was written."""
    try:
        return datetime.fromisoformat(take_name(stored.get("evaluation_timestamp"))).replace(tzinfo=UTC)
    except ValueError:
        source = Path(case.source)
        written_ns = source.stat().st_mtime_ns if source.is_file() else 0
        return datetime.fromtimestamp(written_ns / 1e9, UTC)


def build_sample(case: CaseRow, stored: Mapping[str, Any], cell: str) -> EvalSample:
    """One case, with its conversation, its agents, its scores and its tokens."""
    block, told = read_own_block(stored), stored.get("messages") or stored.get("conversations")
    identity = hashlib.sha256(f"{cell}/{make_sample_id(case)}/{case.epoch}".encode()).hexdigest()[:22]
    converter = MessageConverter(identity)
    messages, scores = converter.convert(told), _build_scores(case)
    transcript = CaseEvents(case.table_model, find_start_time(case, stored), identity, converter)
    transcript.add_run(block.spans if block else (), told)
    if scores:
        transcript.add_scores(scores)
    roles = _sum_usage_by_role(case, block)
    answer = next((m for m in reversed(messages) if isinstance(m, ChatMessageAssistant)), None)
    ended = transcript.find_stop_reason_of(answer)
    asked = next((m.text for m in messages if isinstance(m, ChatMessageUser)), "")
    # Pooled here: `condense_sample` looks through all of it twice besides, for what ours cannot hold.
    events, pools = condense_events(transcript.events)
    return EvalSample(
        id=make_sample_id(case),
        epoch=case.epoch + 1,
        input=asked,
        target="",
        messages=messages,
        output=ModelOutput(
            model=case.table_model,
            choices=[ChatCompletionChoice(message=answer, stop_reason=ended)] if answer else [],
        ),
        scores=scores or None,
        metadata=_build_metadata(case, stored, block),
        events=events,
        events_data=pools,
        model_usage={case.table_model: sum_usage(roles.values())} if roles else {},
        role_usage=roles,
        total_time=case.duration_s,
        working_time=case.duration_s,
        uuid=identity,
        error=_build_error(case, stored, block),
    )


def _build_scores(case: CaseRow) -> dict[str, Score]:
    """Errored cases have none: an error is neither a blocked attack nor a successful one."""
    if case.status == "error":
        return {}
    scores = {"utility": Score(value=float(case.utility))}
    if case.injection_success is not None:
        scores["injection_success"] = Score(value=float(case.injection_success))
    return scores


def _sum_usage_by_role(case: CaseRow, block: StoredBlock | None) -> dict[str, ModelUsage]:
    if block is not None:
        return {take_name(role, "agent"): convert_role_usage(used) for role, used in block.usage.items()}
    # Other people's files have a sum at most, prompt and completion together.
    return {role: ModelUsage(total_tokens=tokens) for role, tokens in case.tokens_by_role.items()}


def _build_metadata(case: CaseRow, stored: Mapping[str, Any], block: StoredBlock | None) -> dict[str, Any]:
    injected = (block.written if block else None) or take_mapping(stored.get("injections"))
    facts = {
        "suite": case.suite,
        "user_task": case.user_task_id,
        "injection_task": case.injection_task_id,
        "attack": case.attack,
        "defense": case.defense,
        "simulated": case.simulated,
        "payload_returned": case.exposed_raw,
        "payload_shown": case.exposed_shown,
        "injections": {take_name(vector): as_text(text) for vector, text in injected.items()} or None,
        "notes": list(case.notes) or None,
        "source": case.source,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _build_error(case: CaseRow, stored: Mapping[str, Any], block: StoredBlock | None) -> EvalError | None:
    if case.status != "error":
        return None
    text = as_text(stored.get("error") or "no message was stored")
    trace = as_text(block.traceback) if block is not None and block.traceback else ""
    return EvalError(message=f"{case.error_kind}: {text}", traceback=trace, traceback_ansi=trace)


class _SampleFacts(NamedTuple):
    """What a log's sums need of a sample."""

    error: EvalError | None
    scores: Mapping[str, Score] | None
    role_usage: Mapping[str, ModelUsage]


def write_cell_log(cases: Sequence[CaseRow], config: Mapping[str, Any] | None, folder: Path) -> Path:
    """Write one log, its samples one after the other: a cell may have more of them than memory has room for.

    Raises:
        ConfigError: If two cases would have one id: Inspect would drop the second without a word.
    """
    first, identity = cases[0], _hash_cases(cases)
    _check_ids(cases)
    times = [find_start_time(case, read_stored_json(case.source)) for case in cases]
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
            samples=len(cases),
            sample_ids=[make_sample_id(case) for case in cases],
        ),
        model=first.table_model,
        config=EvalConfig(epochs=max(case.epoch for case in cases) + 1),
        packages={"agentsys": agentsys.__version__},
        metadata={"simulated": first.simulated, **({} if config is None else {"config": config})},
        headline_metric=HeadlineMetric(score=headline, metric="mean"),
    )
    file = folder / f"{min(times):%Y-%m-%dT%H-%M-%S}+00-00_{task}_{identity}.eval"

    async def write() -> None:
        recorder, facts = EvalRecorder(str(folder)), list[_SampleFacts]()
        await recorder.log_init(spec, str(file), clean=True)
        await recorder.log_start(spec, EvalPlan())
        for number, case in enumerate(cases, start=1):
            sample = build_sample(case, read_stored_json(case.source), identity)
            facts.append(_SampleFacts(sample.error, sample.scores, sample.role_usage))
            await recorder.log_sample(spec, sample)
            if number % _SAMPLES_IN_MEMORY == 0:
                await recorder.flush(spec)
        stats = _build_stats(facts, first.table_model, min(times), max(times))
        await recorder.log_finish(spec, "success", stats, _build_results(facts), None, header_only=True)

    anyio.run(write)
    return file


_SAMPLES_IN_MEMORY = 250


def _list_task_arguments(case: CaseRow) -> dict[str, Any]:
    names = ("defense", "attack", "benchmark", "version", "suite")
    return {"model": case.model_label, **{name: getattr(case, name) for name in names}}


def _hash_cases(cases: Sequence[CaseRow]) -> str:
    """A hash of the cell and of how its cases ended: other runs of the same cell are another log."""
    ended = sorted(
        f"{make_sample_id(c)} {c.epoch} {c.status} {c.utility} {c.injection_success} {c.duration_s}"
        for c in cases
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


def _build_results(samples: Sequence[_SampleFacts]) -> EvalResults:
    done = [sample for sample in samples if sample.error is None]
    scores = [_build_score(name, done) for name in ("utility", "injection_success")]
    return EvalResults(
        total_samples=len(samples),
        completed_samples=len(done),
        scores=[score for score in scores if score.scored_samples],
    )


def _build_score(name: str, samples: Sequence[_SampleFacts]) -> EvalScore:
    values = [s.scores[name].as_float() for s in samples if s.scores and name in s.scores]
    mean = sum(values) / len(values) if values else 0.0
    return EvalScore(
        name=name,
        scorer=name,
        scored_samples=len(values),
        unscored_samples=len(samples) - len(values),
        metrics={"mean": EvalMetric(name="mean", value=mean)},
    )


def _build_stats(samples: Sequence[_SampleFacts], model: str, start: datetime, end: datetime) -> EvalStats:
    used = [usage for sample in samples for usage in sample.role_usage.items()]
    by_role = {
        role: sum_usage(of for _, of in found) for role, found in group_by(used, itemgetter(0)).items()
    }
    return EvalStats(
        started_at=start.isoformat(),
        completed_at=end.isoformat(),
        model_usage={model: sum_usage(by_role.values())} if by_role else {},
        role_usage=by_role,
    )


@dataclass(frozen=True)
class WrittenLogs:
    """Result of an export."""

    folder: Path
    logs: int
    cases: int
    left_out: int
    """Injection tasks run as user tasks, and conversations of a served agent: in no rate, and in no log."""


def export_logs(cases: Iterable[CaseRow], folder: Path) -> WrittenLogs:
    """Write a log for each cell; one of the same runs that is there already is written anew.

    Raises:
        ConfigError: If the folder cannot be written, or two cases would have one id in a log.
    """
    listed = list(cases)
    scored = [case for case in listed if case.is_scored]
    cells = group_by(scored, lambda case: (*MeasuredCell.of(case), case.suite))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for members in cells.values():
            write_cell_log(members, _load_config(members[0]), folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}); try another --out.") from None
    return WrittenLogs(folder, len(cells), len(scored), len(listed) - len(scored))


def _load_config(case: CaseRow) -> Mapping[str, Any] | None:
    path = None if case.config_hash is None else find_config(case.source, case.config_hash)
    return None if path is None else read_stored_json(str(path)) or None
