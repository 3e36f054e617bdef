"""`read_trajectory`, `find_records`: what stored files did, whoever wrote them; none is dropped silently.

Reads our own records (inner agents' calls included), AgentDojo's and DRIFT's.

The answer is the whole last message in AgentDojo's form and in DRIFT's, as they were judged: DRIFT on its
thoughts and call section, too (docs/rescore.md). Of our own records it is what was said, without thoughts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock

from agentsys.attacks.injection_vectors import drop_tool_places
from agentsys.benchmarks.scoring import select_scored_calls, take_judged_messages
from agentsys.models.chat import text_of
from agentsys.models.recorded_runs import UnreadableRun, parse_recorded_messages
from agentsys.models.trace import REFUSED_SPAN, Tracer
from agentsys.records.agentdojo_format import (
    AgentDojoRecord,
    DriftRecord,
    find_benchmark_of_suite,
    parse_agentdojo_record,
    parse_drift_record,
)
from agentsys.records.agentsys_format import parse_stored_block
from agentsys.records.case import UnfinishedRecord, UnreadableRecord
from agentsys.records.case_reader import iterate_files, read_files
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.records.folder_index import list_files
from agentsys.records.names_file import RunNames
from agentsys.records.pipeline_names import NO_DEFENSE, split_alone
from agentsys.records.resolve_runs import resolve_runs
from agentsys.records.runs_source import open_runs
from agentsys.records.schema import StoredBlock
from agentsys.records.stored_file import Producer, identify_case
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordedCall,
    RecordFault,
    Trajectory,
    Unusable,
    is_answer_last_assistant_message,
    list_versions,
)


@dataclass(frozen=True)
class ParsedMessages:
    """The messages, taken apart."""

    requested_calls: tuple[RecordedCall, ...]
    """Calls in the assistant's messages: what AgentDojo gives its checks."""
    executed_calls: tuple[RecordedCall, ...]
    """Calls that a tool message answers, less those that a defense refused there. The last message's calls
    may never have run."""
    answer: tuple[MessageContentBlock, ...] | None
    """Content of the message that is judged; None if that is not the assistant's."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of tool messages."""
    has_refusals: bool = False
    """Whether a tool message is a defense's refusal."""


_PROGENT_REFUSAL = re.compile(r"Please try other tools or arguments and continue to finish the user task")
"""Stands in the error of a call that Progent's published code refused: no tool ran."""


def parse_messages(
    stored: object, error: str | None, *, last_assistant: bool = False, with_thoughts: bool = True
) -> ParsedMessages:
    """Take a stored list of messages apart.

    Args:
        stored: The messages as they stand in the file's JSON.
        error: The error that ended the run, if one did. Such a run may have said nothing.
        last_assistant: Whether the answer is the last assistant message, wherever it stands.
        with_thoughts: Whether the model's thoughts in it were judged.

    Raises:
        Unusable: If it is no list of messages; if a run without error has none, or no answer at the end.
    """
    if error is not None and not stored:
        return ParsedMessages((), (), None, None, ())
    if stored == []:
        raise Unusable(RecordFault.HOLLOW, "scores, but an empty list of messages")
    try:
        messages = parse_recorded_messages(stored)
    except UnreadableRun as fault:
        raise Unusable(RecordFault.UNREADABLE, f"messages: {fault}") from None
    answer = _find_answer(take_judged_messages(messages, with_thoughts=with_thoughts), last_assistant)
    if error is None and answer is None:
        raise Unusable(RecordFault.UNFINISHED, "the last message is not the assistant's")
    tools = [message for message in messages if message["role"] == "tool"]
    ran = [message for message in tools if not _PROGENT_REFUSAL.search(message["error"] or "")]
    return ParsedMessages(
        tuple(
            RecordedCall(call.function, call.args)
            for message in messages
            if message["role"] == "assistant"
            for call in message["tool_calls"] or ()
        ),
        tuple(
            RecordedCall(
                call.function, call.args, message["error"] or text_of(message), bool(message["error"])
            )
            for message in ran
            if (call := message["tool_call"])
        ),
        answer,
        next((text_of(message) for message in messages if message["role"] == "user"), None),
        tuple(text for message in tools for text in (text_of(message), message["error"]) if text),
        len(ran) < len(tools),
    )


def _find_answer(
    messages: Sequence[ChatMessage], last_assistant: bool
) -> tuple[MessageContentBlock, ...] | None:
    judged = reversed(messages) if last_assistant else messages[-1:]
    last = next((message for message in judged if message["role"] == "assistant"), None)
    return None if last is None else tuple(last["content"] or ())


def read_own_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what one of our records did.

    The environment saw the calls of every run of the pipeline (AgentDojo makes up to three), checks
    only see those of the last.

    Raises:
        UnreadableRecord: If the file is not of this form.
        Unusable: If the run was not finished, or its spans or messages cannot be used.
    """
    block = parse_stored_block(stored)
    error = None if block.status == "ok" else block.error_kind or "unknown"
    case = block.case
    parsed = parse_messages(
        stored.get("messages"),
        error,
        last_assistant=is_answer_last_assistant_message(case.benchmark),
        with_thoughts=block.judges_thoughts,
    )
    return Trajectory(
        source=source,
        form="agentsys",
        benchmark=case.benchmark,
        version=case.version,
        pipeline=case.pipeline,
        suite=case.suite,
        user_task_id=case.user_task_id,
        injection_task_id=case.injection_task_id,
        attack=case.attack,
        injections=drop_tool_places(block.written),
        executed=_list_executed_calls(block.spans, parsed),
        seen_by_checks=_list_calls_for_checks(block, parsed),
        answer=parsed.answer or (),
        prompt=parsed.prompt,
        tool_texts=parsed.tool_texts,
        utility=block.utility,
        security=block.security if case.injection_task_id is not None else None,
        error=error,
        data_hash=block.versions.get("data"),
        clock=block.clock,
        drawn=block.drawn,
        simulated=block.simulated,
        ran=_list_scored_spans(block),
        exposed_raw=block.exposure.exposed_raw,
    )


def _list_scored_spans(block: StoredBlock) -> tuple[RecordedCall, ...] | None:
    if block.receipts is not None or not block.spans:
        return None
    return tuple(call for call, attempt in _find_call_spans(block.spans) if attempt == block.scored_attempt)


def _list_executed_calls(spans: Sequence[Any], parsed: ParsedMessages) -> tuple[RecordedCall, ...]:
    calls = tuple(call for call, _ in _find_call_spans(spans))
    if not spans or calls == tuple(replace(c, text=None, failed=False) for c in parsed.executed_calls):
        return parsed.executed_calls  # the same calls, and these have texts
    return calls


def _list_calls_for_checks(block: StoredBlock, parsed: ParsedMessages) -> tuple[RecordedCall, ...]:
    """Select them by the rule of a case under way (agentsys.benchmarks.scoring)."""
    ran = _find_call_spans(block.spans)
    tracer = Tracer(
        attempt=block.scored_attempt,
        executed_calls=[(call.function, dict(call.args), None) for call, _ in ran],
        executed_attempts=[attempt for _, attempt in ran],
        refused_attempts=[attempt for _, attempt in _find_call_spans(block.spans, REFUSED_SPAN)],
        receipts=None if block.receipts is None else [receipt.call for receipt in block.receipts],
    )
    asked = [FunctionCall(function=call.function, args=dict(call.args)) for call in parsed.requested_calls]
    return tuple(RecordedCall(call.function, call.args) for call in select_scored_calls(asked, tracer))


def _find_call_spans(spans: Sequence[Any], kind: str = "tool") -> list[tuple[RecordedCall, int]]:
    """Executed (`tool`) or refused calls, each with the run of the pipeline it belongs to."""
    found = []
    for span in spans:
        if span.get("kind") != kind:
            continue
        name, decision, attempt = span.get("name"), span.get("decision"), span.get("attempt")
        args = decision.get("args") if isinstance(decision, dict) else None
        if not isinstance(name, str) or not isinstance(args, dict) or not isinstance(attempt, int):
            raise Unusable(RecordFault.UNREADABLE, f"a span of kind {kind} has no name, arguments or attempt")
        found.append((RecordedCall(name, args), attempt))
    return found


def read_agentdojo_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what a record of AgentDojo's own runner did, from the JSON object of the file `source`.

    Raises:
        UnreadableRecord: If the run was not finished, or the file is not of this form.
        Unusable: If its messages or injections cannot be used.
    """
    record = parse_agentdojo_record(stored)
    texts = {vector: text for vector, text in record.injections.items() if isinstance(text, str)}
    if len(texts) < len(record.injections):
        raise Unusable(RecordFault.UNREADABLE, "injections: not all are texts")
    return _build_trajectory("agentdojo", record, source, texts, record.error)


def read_drift_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what a record of DRIFT's own driver did; it does not say what was injected.

    Raises:
        UnreadableRecord: If the run was not finished, or the file is not of this form.
        Unusable: If its messages cannot be used.
    """
    record = parse_drift_record(stored)
    return _build_trajectory("drift", record, source, None if record.injection_task_id else {}, None)


def _build_trajectory(
    form: Producer,
    record: AgentDojoRecord | DriftRecord,
    source: str,
    injections: Mapping[str, str] | None,
    error: str | None,
) -> Trajectory:
    benchmark = find_benchmark_of_suite(record.suite_name)
    parsed = parse_messages(
        record.messages, error, last_assistant=is_answer_last_assistant_message(benchmark)
    )
    if record.injection_task_id is not None and record.security is None:
        raise Unusable(RecordFault.UNFINISHED, "no scores in it")
    return Trajectory(
        source=source,
        form=form,
        benchmark=benchmark,
        version=record.benchmark_version,
        pipeline=record.pipeline_name,
        suite=record.suite_name,
        user_task_id=record.user_task_id,
        injection_task_id=record.injection_task_id,
        attack=record.attack_type or NO_ATTACK,
        injections=injections,
        executed=parsed.executed_calls,
        seen_by_checks=parsed.requested_calls,
        answer=parsed.answer or (),
        prompt=parsed.prompt,
        tool_texts=parsed.tool_texts,
        utility=record.utility,
        security=record.security if record.injection_task_id is not None else None,
        error=error,
        ran=parsed.executed_calls if parsed.has_refusals else None,
    )


def read_trajectory(path: str) -> Trajectory | None:
    """Read what the case in a file did.

    Returns:
        None for JSON that is no case (a plan, a cache).

    Raises:
        Unusable: If it should hold a finished (or errored) case and does not.
    """
    try:
        found = identify_case(path)
        return None if found is None else _TRAJECTORY_READERS[found.producer](found.content, path)
    except UnfinishedRecord:
        raise Unusable(RecordFault.UNFINISHED, "no scores in it") from None
    except UnreadableRecord as fault:
        raise Unusable(RecordFault.UNREADABLE, str(fault)) from None
    except RecursionError:
        raise Unusable(RecordFault.UNREADABLE, "nested too deeply") from None


_TRAJECTORY_READERS: dict[Producer, Callable[[Mapping[str, Any], str], Trajectory]] = {
    "agentsys": read_own_trajectory,
    "drift": read_drift_trajectory,
    "agentdojo": read_agentdojo_trajectory,
}


@dataclass(frozen=True)
class SkippedRecord:
    """A record that could not be used."""

    source: str
    obstacle: RecordFault
    reason: str


@dataclass(frozen=True)
class RecordFiles:
    """The records under some paths, each read when it is asked for."""

    unlisted: Sequence[SkippedRecord]
    files: Sequence[str]
    facts_by_file: dict[str, CaseRow]
    """File -> whose run it is."""
    counted: dict[str, str]
    """File that is not counted -> the one of the same case that is."""
    notes: tuple[str, ...]
    """What folders' names decided about whose runs these are, one sentence each."""

    def __iter__(self) -> Iterator[Trajectory | SkippedRecord | None]:
        """The record; why it is none; None for a JSON file that is something else.

        Errored records are among the first.
        """
        yield from self.unlisted
        for path in self.files:
            try:
                record = read_trajectory(path)
                if path in self.counted:
                    reason = f"another file of this case is counted: {self.counted[path]}"
                    raise Unusable(RecordFault.REPEATED, reason)
            except Unusable as fault:
                yield SkippedRecord(path, fault.obstacle, str(fault))
                continue
            facts = self.facts_by_file.get(path)
            yield _rename_pipeline(record, facts) if record is not None and facts is not None else record

    def split(self, files: int) -> Iterator[RecordFiles]:
        """Split the records, in order, into parts of so many files."""
        for start in range(0, max(len(self.files), 1), files):
            some = self.files[start : start + files]
            # Of the dictionaries, too, a part each: all of them would go to each process again and again.
            facts = {path: self.facts_by_file[path] for path in some if path in self.facts_by_file}
            counted = {path: self.counted[path] for path in some if path in self.counted}
            yield RecordFiles(() if start else self.unlisted, some, facts, counted, self.notes)


def find_records(paths: Iterable[str | os.PathLike[str]], names: RunNames | None = None) -> RecordFiles:
    """Every record under some paths, named and counted as `agentsys results` does.

    Raises:
        ConfigError: If a path does not exist, or a file of names is not one.
    """
    listings = [list_files(open_runs(Path(path))) for path in paths]
    rows = read_files(listings).rows
    settled = resolve_runs(rows, names or RunNames())
    unlisted = [
        SkippedRecord(entry.path, RecordFault.UNREADABLE, entry.reason)
        for listing in listings
        for entry in listing.skipped_entries
    ]
    tables = chain.from_iterable(chain.from_iterable(one.asb_results.values()) for one in listings)
    unlisted += [SkippedRecord(path, RecordFault.OTHER_FORM, "not one case") for path in tables]
    return RecordFiles(
        unlisted,
        list(iterate_files(listings)),
        dict(zip((row.source for row in rows), settled.cases, strict=True)),
        {file.source: file.counted_source for file in settled.repeated_files},
        settled.notes,
    )


def _rename_pipeline(record: Trajectory, facts: CaseRow) -> Trajectory:
    """A record under the name of its pipeline; of its version only what a version is called."""
    pipeline, version = record.pipeline, record.version
    if facts.foreign and not _is_victim_in_name(record, facts):
        pipeline = facts.model if facts.defense == NO_DEFENSE else f"{facts.model}-{facts.defense}"
    if facts.apart is not None:
        pipeline = f"{pipeline} [{facts.apart}]"
    if version in (None, UNRECORDED) and facts.version in list_versions():
        version = facts.version
    # What only a label tells apart (agentsys.records.row_settings) is no record's own name.
    if not facts.foreign and facts.defense.endswith("]"):
        pipeline = f"{pipeline} [{facts.defense.rpartition(' [')[2]}"
    attack = facts.attack if "]" in facts.attack and not facts.foreign else record.attack
    named = replace(record, pipeline=pipeline, version=version, attack=attack)
    return replace(named, simulated=facts.simulated, exposed_raw=facts.exposed_raw)


def _is_victim_in_name(record: Trajectory, facts: CaseRow) -> bool:
    """True if the pipeline's own name says model and defense; DRIFT's form tells the latter by itself."""
    stored = split_alone(record.pipeline)
    return stored.model == facts.model and (record.form == "drift" or stored.defense == facts.defense)
