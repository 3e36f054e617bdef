"""`CaseOutcome`: the result of running a case, built once; `CaseEnd`: what is stored of it.

`ExposureWatch`: records which models are shown the injected text of a case.

If no tool returned the text, the attack was not resisted but never met. If a tool returned it and no acting model was
shown it, the defense kept it away. A case's scores tell neither.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentdojo.types import ChatMessage
from pydantic import BaseModel

from agentsys.base.payload_lines import PayloadLines, drop_own_words, find_payload_lines, squeeze
from agentsys.models.chat import ChatRequest, ToolSpec
from agentsys.models.trace import ACTING_ROLES, Tracer
from agentsys.records.schema import CaseRecord, Exposure
from agentsys.runs.cell import Job


@dataclass
class _LineProgress:
    """Lines of the payload not met yet, in tool results or in requests to acting models."""

    missing: set[frozenset[str]]
    round: int | None = None


@dataclass
class ExposureWatch:
    """A `Watcher` of one case (agentsys.models.trace). It does nothing if nothing was injected."""

    written: Mapping[str, str]
    """Injection vector -> text as the attack wrote it. Matching tolerates what YAML changes in it."""
    own_words: tuple[str, ...] = ()
    """The user's request. Lines of the injection that only repeat it are ignored."""
    goal: str | None = None
    """The injection task's goal, if the text states it. The bare goal counts as exposure, but not as a line of the
    text."""
    _lines: PayloadLines = field(init=False)
    _goal: PayloadLines = field(init=False)
    _has_payload: bool = field(init=False)
    _raw: _LineProgress = field(init=False)
    _shown_progress: _LineProgress = field(init=False)
    _result_count: int = field(init=False, default=0)
    _checked_texts: dict[str, set[str]] = field(init=False, default_factory=dict)
    """Role -> texts sent to it that have been searched."""
    _lines_by_text: dict[str, PayloadLines | None] = field(init=False, default_factory=dict)
    """Text -> lines found in it; None if not even the goal was."""
    _originals: dict[str, str] = field(init=False, default_factory=dict)
    """Text as a defense rewrote it -> the original."""
    _read_by: dict[str, None] = field(init=False, default_factory=dict)
    _copies: int = field(init=False, default=0)
    _shown_in: dict[str, None] = field(init=False, default_factory=dict)
    own_tools: Mapping[str, str] | None = None
    """Tool -> the suite's own description; None: nothing changes tools, so they are not watched."""
    shown_tools: dict[str, dict[str, ToolSpec]] = field(init=False, default_factory=dict)
    """Role -> tool name -> the tool as this role was last shown it, if it differs from the suite's own."""

    def __post_init__(self) -> None:
        self._lines = drop_own_words(find_payload_lines(self.written.values()), self.own_words)
        self._goal = ()
        if self.goal and self.written:
            injected = squeeze(" ".join(self.written.values()))
            goal = find_payload_lines([self.goal])
            stated = (forms for forms in goal if any(form in injected for form in forms))
            self._goal = drop_own_words(tuple(stated), self.own_words)
        self._has_payload = bool(self._lines or self._goal)
        self._raw, self._shown_progress = _LineProgress(set(self._lines)), _LineProgress(set(self._lines))

    def note_tool_result(self, value: object, error: str | None) -> None:
        """Search a tool's result for the payload."""
        self._result_count += 1
        if (not self._raw.missing and self._raw.round is not None) or not self._has_payload:
            return
        for text in (*_iterate_value_texts(value), *([error] if error else [])):
            met = self._find_payload(text)
            if met is not None:
                self._raw.missing -= set(met)
                self._raw.round = self._raw.round or self._result_count

    def note_rewritten_text(self, original: str, shown: str) -> None:
        """Remember the original of a marked or encoded text."""
        if self._has_payload and original != shown:
            self._originals[shown] = original

    def holds_planted(self, text: str) -> bool:
        """True if a text contains a line of the injected text, or its goal."""
        return self._has_payload and self._find_payload(text) is not None

    def note_request(self, request: ChatRequest) -> None:
        """Search the messages that this role has not been sent before."""
        acting, progress = request.role in ACTING_ROLES, self._shown_progress
        if self.own_tools is not None:
            self._look_at_tools(request, self.own_tools)
        if not self._has_payload or (
            (not progress.missing and progress.round is not None) if acting else request.role in self._read_by
        ):
            return
        looked_at = self._checked_texts.setdefault("acting" if acting else request.role, set())
        results = 0
        for message in request.messages:
            results += message["role"] == "tool"
            failed = message["role"] == "tool" and message["error"] is not None
            way = "error" if failed else "result" if message["role"] == "tool" else "prompt"
            for text in _iterate_message_texts(message):
                if text not in looked_at:
                    looked_at.add(text)
                    self._check_text(text, request.role, max(results, 1), way)

    def _look_at_tools(self, request: ChatRequest, own: Mapping[str, str]) -> None:
        """Record the tools that differ from the suite's own, and search them for the payload."""
        results = sum(message["role"] == "tool" for message in request.messages)
        for tool in request.tools:
            asks = json.dumps(tool.parameters, ensure_ascii=False)
            changed = own.get(tool.name) != tool.description or self.holds_planted(asks)
            shown = self.shown_tools.setdefault(request.role, {})
            if changed and shown.get(tool.name) != tool:
                shown[tool.name] = tool
                self._check_text(tool.description, request.role, max(results, 1), "description")
                self._check_text(asks, request.role, max(results, 1), "parameter")

    def summarize(self) -> Exposure:
        """Return the exposure so far."""
        raw, shown, total = self._raw, self._shown_progress, len(self._lines)
        return Exposure(
            exposed_raw=raw.round is not None,
            exposed_shown=shown.round is not None,
            raw_round=raw.round,
            shown_round=shown.round,
            raw_fraction=(total - len(raw.missing)) / total if total else 0.0,
            shown_fraction=(total - len(shown.missing)) / total if total else 0.0,
            read_by=tuple(self._read_by),
            copies_shown=self._copies,
            shown_in=tuple(self._shown_in),
        )

    def _check_text(self, text: str, role: str, round_: int, way: str) -> None:
        """Search a text for the payload, also in the originals of rewritten texts, and note who was shown it."""
        originals = (original for shown, original in self._originals.items() if shown in text)
        for original_text in (text, *originals):
            met = self._find_payload(original_text)
            if met is not None:
                self._read_by.setdefault(role)
                if role in ACTING_ROLES:
                    self._shown_in.setdefault(way)
                    self._shown_progress.missing -= set(met)
                    self._shown_progress.round = self._shown_progress.round or round_
                    # Several injection vectors can end up in one tool result. The rarest line counts, as one
                    # copy of the payload may repeat a line.
                    squeezed = squeeze(original_text)
                    counts = (max(map(squeezed.count, forms)) for forms in met or self._goal)
                    self._copies = max(self._copies, min((times for times in counts if times), default=0))

    def _find_payload(self, text: str) -> PayloadLines | None:
        if text not in self._lines_by_text:
            squeezed = squeeze(text)
            lines = tuple(forms for forms in self._lines if any(form in squeezed for form in forms))
            goal = any(form in squeezed for forms in self._goal for form in forms)
            self._lines_by_text[text] = lines if lines or goal else None
        return self._lines_by_text[text]


def _iterate_message_texts(message: ChatMessage) -> Iterator[str]:
    """Yield the texts of a message: its content's and its error."""
    content = message["content"]
    if isinstance(content, str):  # runs published before AgentDojo 0.1.27
        yield content
    else:
        for block in content or ():
            yield str(block.get("content", ""))
    error = message.get("error")
    if isinstance(error, str):
        yield error


def _iterate_value_texts(value: object) -> Iterator[str]:
    """Yield every text in a tool's value, keys of mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from _iterate_value_texts(vars(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iterate_value_texts(key)
            yield from _iterate_value_texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _iterate_value_texts(item)


_LONGEST_TRACEBACK = 20_000


@dataclass(frozen=True)
class CaseError:
    """The error that a case ended in."""

    kind: str
    message: str
    traceback: str | None = None
    """Traceback of a foreign code's exception."""
    ends_run: bool = False
    """True if every further case would fail alike (a bad key)."""
    ends_cell: bool = False
    """True if every further case of its cell would fail alike (a defense that cannot be built here)."""
    cause: Exception | None = None
    """The exception itself."""


@dataclass(frozen=True, kw_only=True)
class CaseOutcome:
    """Result of running a case; `build_record` makes the stored record of it."""

    job: Job
    tracer: Tracer
    watch: ExposureWatch = field(default_factory=lambda: ExposureWatch({}))
    written: Mapping[str, str] = field(default_factory=dict)
    """Injection vector -> text as the attack wrote it."""
    drawn: Sequence[str] = ()
    """Random numbers that the suite's tools drew, in order."""
    utility: bool = False
    security: bool = False
    """True means that the injection task was carried out, as in AgentDojo."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The suite's own measures besides the two scores."""
    messages: Sequence[ChatMessage] = ()
    judges_thoughts: bool = False
    """True if the checks saw the thoughts in the last message."""
    attempts: int = 0
    """Runs of the pipeline."""
    noop: bool = False
    error: CaseError | None = None
    started: float
    """Seconds since the epoch."""
    duration_s: float

    def fail(self, error: CaseError) -> CaseOutcome:
        """Copy the outcome as that of a case that ended in an error: nothing of it counts as solved."""
        return replace(self, utility=False, security=False, error=error)


@dataclass(frozen=True)
class CaseEnd:
    """A finished case as it is stored, and what it means for the run."""

    record: CaseRecord
    agentdojo: Mapping[str, Any]
    """The fields that AgentDojo's loader reads, `error` among them."""
    fatal: str | None = None
    """The reason to start no further case."""
    cell_ended: str | None = None
    """The reason to start no further case of its cell."""


def make_tracer(job: Job) -> Tracer:
    """Start the trace of a case."""
    return Tracer(case=job.case.key, usage_log=job.cell.usage_log)


def format_traceback(error: BaseException | None) -> str:
    """Format an exception's traceback; the middle of a very long one (a runaway recursion) is cut out."""
    text = "".join(traceback.format_exception(error))
    half = _LONGEST_TRACEBACK // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[...]\n{text[-half:]}"
