"""`ReplayModel`: answers with the assistant messages of a recorded run; no key, no network, no cost.

Environment, tools and scoring are real; only the model's words come from the disk. That is sound only
while the conversation is the recorded one, so each request is checked against the record first: roles and
tool calls must be the same, texts may differ and are noted.
"""

from __future__ import annotations

import bisect
import copy
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from glob import escape
from pathlib import Path

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, text_content_block_from_string

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, RecordedResult, Scene, text_of
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys.models.recorded_runs import (
    RecordedRun,
    UnreadableRun,
    find_pipeline_folder,
    read_run,
    rename_former_tools,
)
from agentsys.models.trace import ACTING_ROLES

DIFFERS_NOTE = "differs from the record"
"""Stands in every note about a text."""

_OPENING_ROLES = ("system", "user")
"""Whose first messages open a conversation."""
_ANOTHER_DEFENSE = (
    "these runs were recorded under another defense, and replay fits only the one they were recorded with"
)
_QUOTED_CHARS = 80
"""Characters of a tool call that an error message quotes."""


def check_replayed_conversation(
    recorded: Sequence[ChatMessage], request: ChatRequest, *, strict: bool = False
) -> list[str]:
    """Compare the conversation so far with the record's beginning; one note per message whose text differs.

    Texts may differ for honest reasons (the benchmark's data changed, a tool's result holds the time), and
    then the recorded answers still answer something very like it. Other roles or calls are another run, and so
    is, if `strict`, a text that differs.

    Raises:
        ModelError: REPLAY_DIVERGED, naming the first message that differs and how; also where a tool result
            was a value in the record and is a defense's refusal now.
    """
    if request.role not in ACTING_ROLES:
        _check_same_opening(recorded, request)
    notes: list[str] = []
    results = 0
    for index, message in enumerate(request.messages):
        if index >= len(recorded):
            raise _make_divergence_error(f"the record ends after {len(recorded)} messages", index)
        _check_shape(index, recorded[index], message)
        results += message["role"] == "tool"
        _check_not_refused(index, results, recorded[index], message)
        note = _write_difference_note(index, results, recorded[index], message)
        if note is not None and strict:
            raise _make_divergence_error(note, index)
        if note is not None:
            notes.append(note)
    return notes


def check_required_parameters(recorded: Sequence[ChatMessage], request: ChatRequest) -> None:
    """Check that the recorded calls have every parameter that the offered tools require.

    A successful call that lacks one was made to another tool: a defense has changed the tools (AgentSys adds
    `intent`), and the recorded replies do not fit them.

    Args:
        recorded: Messages of this case, or of its pipeline and suite.
        request: The request to answer, with the tools on offer.

    Raises:
        ModelError: REPLAY_DIVERGED, naming the first such call and the parameter it lacks.
    """
    required = {tool.name: frozenset(tool.required) for tool in request.tools}
    for call in list_successful_calls(recorded):
        lacking = sorted(required.get(call.function, frozenset()) - call.args.keys())
        if lacking:
            raise _make_divergence_error(
                f"the recorded call {_format_call(call)} has no `{lacking[0]}`, which this defense's tools"
                f" demand; {_ANOTHER_DEFENSE}"
            )


def list_successful_calls(recorded: Sequence[ChatMessage]) -> list[FunctionCall]:
    """The recorded calls that did not end in an error."""
    return [m["tool_call"] for m in recorded if m["role"] == "tool" and m["error"] is None]


def _check_same_opening(recorded: Sequence[ChatMessage], request: ChatRequest) -> None:
    """A record holds the acting agent's conversation alone.

    A helper role (a validator, a worker) with a conversation of its own would pass the other checks on its
    first question and be given the agent's first answer; it is told from a step of the recorded agent (as in
    AgentDojo's tool filter) by its opening. One of two texts is enough: Travel's published tool filter runs
    were made with requests in other words than any version of the benchmark has now.
    """
    openings = {
        role: (_find_first_text(recorded, role), _find_first_text(request.messages, role))
        for role in _OPENING_ROLES
    }
    if not any(before is not None and before == now for before, now in openings.values()):
        raise _make_divergence_error(
            f"the record has no conversation of the role '{request.role}'; replay fits defenses that ask what"
            " the recorded one asked"
        )


def _find_first_text(messages: Sequence[ChatMessage], role: str) -> str | None:
    return next((text_of(message) for message in messages if message["role"] == role), None)


def _check_shape(index: int, recorded: ChatMessage, message: ChatMessage) -> None:
    if recorded["role"] != message["role"]:
        raise _make_divergence_error(
            f"its role is {message['role']}, in the record {recorded['role']}", index
        )
    before, now = _list_message_calls(recorded), _list_message_calls(message)
    if len(before) != len(now):
        raise _make_divergence_error(f"it makes {len(now)} tool calls, in the record {len(before)}", index)
    for old, new in zip(before, now, strict=True):
        same_args = old.args == new.args or normalize_arguments(old.args) == normalize_arguments(new.args)
        if old.function != new.function or not same_args:
            raise _make_divergence_error(
                f"its tool call is {_format_call(new)}, in the record {_format_call(old)}", index
            )


def _list_message_calls(message: ChatMessage) -> Sequence[FunctionCall]:
    """The calls an assistant message makes, or the call a tool message answers."""
    if message["role"] == "assistant":
        return message["tool_calls"] or []
    return [message["tool_call"]] if message["role"] == "tool" else []


def _check_not_refused(index: int, results: int, recorded: ChatMessage, message: ChatMessage) -> None:
    """A refusal in a value's place is no other text: whatever was read then cannot be read now."""
    was_value = recorded["role"] == "tool" and recorded["error"] is None and not _is_failure_object(recorded)
    if was_value and _is_failure_object(message):
        refusal = text_of(message)[:_QUOTED_CHARS]
        how = f"tool result {results} is a value in the record and {refusal} here; {_ANOTHER_DEFENSE}"
        raise _make_divergence_error(how, index)


def _is_failure_object(message: ChatMessage) -> bool:
    """True if a tool result is an object with an error's name alone: what defenses put in a value's place."""
    text = text_of(message).strip()
    if message["role"] != "tool" or not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == {"error"} and isinstance(value["error"], str)


def _write_difference_note(
    index: int, results: int, recorded: ChatMessage, message: ChatMessage
) -> str | None:
    before, now = _read_model_text(recorded), _read_model_text(message)
    if before == now:
        return None
    what = f"tool result {results}" if message["role"] == "tool" else f"{message['role']} message {index + 1}"
    return f"{what} {DIFFERS_NOTE} (first difference at character {_compute_common_prefix_length(before, now) + 1})"


def _read_model_text(message: ChatMessage) -> str:
    """The text that a model reads of a message: the error of a failed tool call, else the content."""
    error = message["error"] if message["role"] == "tool" else None
    return str(error) if error else text_of(message)


def _compute_common_prefix_length(a: str, b: str) -> int:
    """Length of the common beginning. Bisection over slices: a loop over characters is slow on long texts."""
    return bisect.bisect_left(range(min(len(a), len(b))), True, key=lambda i: a[: i + 1] != b[: i + 1])


def _format_call(call: FunctionCall) -> str:
    text = f"{call.function}({', '.join(f'{k}={v!r}' for k, v in call.args.items())})"
    return text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}..."


def _make_divergence_error(how: str, index: int | None = None) -> ModelError:
    """The error for a conversation that is not the recorded one, from the message at `index` on."""
    return ModelError(ErrorKind.REPLAY_DIVERGED, how if index is None else f"message {index + 1}: {how}")


EMPTY_FINAL_NOTE = "the record ends with a message without content; answered with an empty text"


class ReplayModel:
    """Replays recorded runs, case by case.

    Args:
        name: The model's name in records and tables.
        traces: The folder of one pipeline's recorded runs, or one above it.
        pipeline: Name of the pipeline's folder, where `traces` holds several.
        strict: Whether a text that differs from the record is an error, and not only a note.
    """

    def __init__(
        self, name: str, traces: str | Path | None, pipeline: str | None = None, *, strict: bool = False
    ) -> None:
        self.name = name
        self.strict = strict
        self.folder = find_pipeline_folder(name, traces, pipeline)
        self._typical_run = lru_cache(maxsize=None)(self._find_run_with_calls)

    def for_scene(self, scene: Scene) -> ReplayedCaseModel:
        """The model that replays one case.

        Raises:
            ModelError: REPLAY_DIVERGED, if there is no (readable) record of this case.
        """
        run = self._read_case(scene)
        return ReplayedCaseModel(self.name, run, lambda: self._typical_run(scene.suite), strict=self.strict)

    def read_recorded_injections(self, scene: Scene) -> dict[str, str]:
        """Injection vector -> text, exactly as the recorded run had it; raises as `for_scene`."""
        return dict(self._read_case(scene).injections)

    def read_recorded_results(self, scene: Scene) -> list[RecordedResult]:
        """Return the result of each tool call of the recorded run, in order; raises as `for_scene`."""
        messages = [message for message in self._read_case(scene).messages if message["role"] == "tool"]
        calls = [(message["tool_call"], message["error"] or text_of(message)) for message in messages]
        return [RecordedResult(call.function, dict(call.args), text) for call, text in calls]

    def judges_thoughts(self, scene: Scene) -> bool:
        """True if the recorded run was scored with the model's thoughts; raises as `for_scene`."""
        return self._read_case(scene).judges_thoughts

    def complete(self, request: ChatRequest) -> ChatReply:
        """Never answers: which record to read is known only inside a case.

        Raises:
            ModelError: BAD_REQUEST, always.
        """
        raise ModelError(
            ErrorKind.BAD_REQUEST, f"model '{self.name}' replays cases: ask for_scene(scene) first"
        )

    def _find_run_with_calls(self, suite: str) -> RecordedRun | None:
        """The first record of a suite in which a tool call brought a value: it shows what calls were."""
        for path in sorted(self.folder.glob(f"{escape(suite)}/*/*/*.json")):
            try:
                run = read_run(path)
            except (UnreadableRun, OSError):
                continue
            if list_successful_calls(run.messages):
                return run
        return None

    def _read_case(self, scene: Scene) -> RecordedRun:
        injection = scene.injection_task_id or "none"
        path = self.folder / scene.suite / scene.user_task_id / scene.attack / f"{injection}.json"
        try:
            return read_run(path)
        except FileNotFoundError:
            raise _make_divergence_error(f"no record of this case: {path} is missing") from None
        except (UnreadableRun, OSError) as error:
            raise _make_divergence_error(f"record {path} cannot be read: {error}") from None


class ReplayedCaseModel:
    """Replays one recorded case: the k-th question gets the k-th recorded assistant message.

    Which one is k-th is read off the request (its assistant messages so far), so the case may be run
    several times over, as AgentDojo does after an empty answer.
    """

    def __init__(
        self, name: str, run: RecordedRun, typical: Callable[[], RecordedRun | None], *, strict: bool = False
    ) -> None:
        self.name = name
        self.run = run
        self._typical = typical
        self.strict = strict
        self._answers = [i for i, message in enumerate(run.messages) if message["role"] == "assistant"]
        self._noted: set[str] = set()

    def complete(self, request: ChatRequest) -> ChatReply:
        """The next recorded assistant message, as a fresh copy (executors change arguments in place).

        Raises:
            ModelError: REPLAY_DIVERGED, if the conversation is not the recorded one or the record has ended.
        """
        answered = sum(message["role"] == "assistant" for message in request.messages)
        shows = self.run if list_successful_calls(self.run.messages) else self._typical()
        if shows is not None:
            check_required_parameters(shows.messages, request)
        messages = rename_former_tools(self.run.messages, {tool.name for tool in request.tools})
        differences = check_replayed_conversation(messages, request, strict=self.strict)
        if answered >= len(self._answers):
            raise _make_divergence_error(
                f"the record has {len(self._answers)} assistant messages; number {answered + 1} was asked"
            )
        index = self._answers[answered]
        if index != len(request.messages):
            expected = self.run.messages[len(request.messages)]["role"]
            raise _make_divergence_error(
                f"after message {len(request.messages)} the record goes on with a {expected} message"
            )
        message, notes = _copy_answer(messages, index)
        # Each request repeats the whole conversation, differences included.
        fresh = tuple(note for note in [*differences, *notes] if note not in self._noted)
        self._noted.update(fresh)
        return ChatReply(message, cost_usd=0.0, model_id=self.run.model_id, notes=fresh)


def _copy_answer(messages: Sequence[ChatMessage], index: int) -> tuple[ChatAssistantMessage, list[str]]:
    """A copy of the recorded assistant message at `index`, and what was changed about it."""
    message = messages[index]
    assert message["role"] == "assistant"
    content, calls = copy.deepcopy(message["content"]), copy.deepcopy(message["tool_calls"])
    notes: list[str] = []
    if content is None and not calls and index == len(messages) - 1:
        # AgentDojo takes None for "no answer yet" and would run the whole pipeline again.
        content, notes = [text_content_block_from_string("")], [EMPTY_FINAL_NOTE]
    return {"role": "assistant", "content": content, "tool_calls": calls}, notes
