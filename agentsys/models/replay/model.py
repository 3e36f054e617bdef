"""`ReplayModel`: answers with the assistant messages of a recorded run. No key, no network, no cost.

The environment, the tools and the scoring are real; only the model's words come from the disk. That
is sound only while the conversation is the recorded one, so each request is checked against the
record first (`agentsys.models.replay.check`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from glob import escape
from pathlib import Path

from agentdojo.types import ChatAssistantMessage, ChatMessage, text_content_block_from_string

from agentsys.models.chat import ChatReply, ChatRequest, RecordedResult, Scene, text_of
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.replay.check import successful_calls, check_replayed_conversation, check_required_parameters
from agentsys.models.replay.recorded_folder import find_pipeline_folder
from agentsys.models.replay.recorded_run import RecordedRun, UnreadableRun, rename_former_tools, read_run

EMPTY_FINAL_NOTE = "the record ends with a message without content; answered with an empty text"


class ReplayModel:
    """Replays recorded runs, case by case.

    Args:
        name: The model's name in records and tables.
        traces: The folder of one pipeline's recorded runs, or one above it.
        pipeline: Name of the pipeline's folder, where `traces` holds several.
        strict: Whether a text that differs from the record is an error, and not only a note.

    Raises:
        ConfigError: If the folder is missing, holds no recorded runs, or holds several pipelines' and none
            is named.
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

    def recorded_injections(self, scene: Scene) -> dict[str, str]:
        """Injection vector -> text, exactly as the recorded run had it; raises as `for_scene`."""
        return dict(self._read_case(scene).injections)

    def recorded_results(self, scene: Scene) -> list[RecordedResult]:
        """What each tool call of the recorded run returned, in order; raises as `for_scene`."""
        messages = [message for message in self._read_case(scene).messages if message["role"] == "tool"]
        calls = [(message["tool_call"], message["error"] or text_of(message)) for message in messages]
        return [RecordedResult(call.function, dict(call.args), text) for call, text in calls]

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
            if successful_calls(run.messages):
                return run
        return None

    def _read_case(self, scene: Scene) -> RecordedRun:
        injection = scene.injection_task_id or "none"
        path = self.folder / scene.suite / scene.user_task_id / scene.attack / f"{injection}.json"
        try:
            return read_run(path)
        except FileNotFoundError:
            raise ModelError(
                ErrorKind.REPLAY_DIVERGED, f"no record of this case: {path} is missing"
            ) from None
        except (UnreadableRun, OSError) as error:
            raise ModelError(ErrorKind.REPLAY_DIVERGED, f"record {path} cannot be read: {error}") from None


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
        shows = self.run if successful_calls(self.run.messages) else self._typical()
        if shows is not None:
            check_required_parameters(shows.messages, request)
        messages = rename_former_tools(self.run.messages, {tool.name for tool in request.tools})
        differences = check_replayed_conversation(messages, request, strict=self.strict)
        if answered >= len(self._answers):
            raise ModelError(
                ErrorKind.REPLAY_DIVERGED,
                f"the record has {len(self._answers)} assistant messages; number {answered + 1} was asked",
            )
        place = self._answers[answered]
        if place != len(request.messages):
            expected = self.run.messages[len(request.messages)]["role"]
            raise ModelError(
                ErrorKind.REPLAY_DIVERGED,
                f"after message {len(request.messages)} the record goes on with a {expected} message",
            )
        message, notes = _copy_answer(messages, place)
        return ChatReply(
            message, cost_usd=0.0, model_id=self.run.model_id, notes=self._new_notes([*differences, *notes])
        )

    def _new_notes(self, notes: list[str]) -> tuple[str, ...]:
        """Notes not given before: each request repeats the whole conversation, differences included."""
        fresh = tuple(note for note in notes if note not in self._noted)
        self._noted.update(fresh)
        return fresh


def _copy_answer(messages: Sequence[ChatMessage], place: int) -> tuple[ChatAssistantMessage, list[str]]:
    """A copy of the recorded assistant message at `place`, and what was changed about it."""
    message = messages[place]
    assert message["role"] == "assistant"
    content, calls = copy.deepcopy(message["content"]), copy.deepcopy(message["tool_calls"])
    notes: list[str] = []
    if content is None and not calls and place == len(messages) - 1:
        # AgentDojo takes None for "no answer yet" and would run the whole pipeline again.
        content, notes = [text_content_block_from_string("")], [EMPTY_FINAL_NOTE]
    return {"role": "assistant", "content": content, "tool_calls": calls}, notes
