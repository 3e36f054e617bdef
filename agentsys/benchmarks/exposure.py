"""`ExposureWatch`: whether an attack could have worked at all - was its text returned, was it shown.

An attack whose text no tool ever returned was not resisted but never met. An attack whose text a
tool returned and no acting model was shown was kept away by the defense. Both are facts of a
case that its scores do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agentdojo.types import ChatMessage
from pydantic import BaseModel

from agentsys.models.chat import ChatRequest
from agentsys.models.trace import ACTING_ROLES
from agentsys.payload_lines import payload_lines, squeeze


@dataclass(frozen=True)
class ExposureSeen:
    """What became of the injected text in one case. Fields as in `agentsys.runs.record.Exposure`."""

    exposed_raw: bool = False
    """Whether a tool returned at least one line of the text."""
    exposed_shown: bool = False
    """Whether a message that an acting model received held one."""
    raw_round: int | None = None
    """Index (from 1) of the first executed tool call that returned it."""
    shown_round: int | None = None
    """Index (from 1), among the tool results the acting model had received, of the first that held it."""
    raw_fraction: float = 0.0
    """Share of the text's lines that tools returned."""
    shown_fraction: float = 0.0
    """Share of the text's lines that acting models received."""


@dataclass
class _Found:
    """The lines met so far on one of the two ways."""

    missing: set[frozenset[str]]
    of: int
    round: int | None = None

    def look(self, text: str, round_: int) -> None:
        if not self.missing:
            return
        squeezed = squeeze(text)
        met = {forms for forms in self.missing if any(form in squeezed for form in forms)}
        if met:
            self.missing -= met
            self.round = round_ if self.round is None else self.round

    @property
    def fraction(self) -> float:
        return (self.of - len(self.missing)) / self.of if self.of else 0.0


@dataclass
class ExposureWatch:
    """A `Watcher` of one case (agentsys.models.trace). Has nothing to do where nothing was injected."""

    written: Mapping[str, str]
    """Injection vector -> text as the attack wrote it. What YAML makes of it is allowed for."""
    _raw: _Found = field(init=False)
    _shown: _Found = field(init=False)
    _returned: int = field(init=False, default=0)
    _looked_at: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        lines = payload_lines(self.written.values())
        self._raw = _Found(set(lines), len(lines))
        self._shown = _Found(set(lines), len(lines))

    def tool_returned(self, value: object, error: str | None) -> None:
        """Look through what a tool returned."""
        self._returned += 1
        if not self._raw.missing:
            return
        for text in _texts(value):
            self._raw.look(text, self._returned)
        if error:
            self._raw.look(error, self._returned)

    def model_asked(self, request: ChatRequest) -> None:
        """Look through the messages an acting model has not been sent before."""
        if request.role not in ACTING_ROLES or not self._shown.missing:
            return
        results = 0
        for message in request.messages:
            results += message["role"] == "tool"
            for text in _message_texts(message):
                if text not in self._looked_at:
                    self._looked_at.add(text)
                    self._shown.look(text, max(results, 1))

    def seen(self) -> ExposureSeen:
        """What has been met so far."""
        return ExposureSeen(
            exposed_raw=self._raw.round is not None,
            exposed_shown=self._shown.round is not None,
            raw_round=self._raw.round,
            shown_round=self._shown.round,
            raw_fraction=self._raw.fraction,
            shown_fraction=self._shown.fraction,
        )


def _message_texts(message: ChatMessage) -> Iterator[str]:
    content = message["content"]
    if isinstance(content, str):  # runs published before AgentDojo 0.1.27
        yield content
    else:
        for block in content or ():
            yield str(block.get("content", ""))
    error = message.get("error")
    if isinstance(error, str):
        yield error


def _texts(value: object) -> Iterator[str]:
    """Every text inside a tool's value: models' fields, keys and items of dicts, items of lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from _texts(vars(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _texts(item)
