"""DRIFT's published runs, played again: a model that says what was recorded, and what is to be compared.

Of the model's replies only the acting model's are recorded. The others are deduced: the plan from
`initial_trajectory` and `initial_checklist`, verdicts and formatted checklists from the refusals that quote
them, detections from what is missing in recorded results.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentdojo.types import ChatMessage
from json_repair import repair_json

from agentsys.attacks.text_attacks import RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Victim
from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.prompted_tools import find_text_between_tags
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from baselines.drift.defense import Drift
from baselines.drift.drift_agent import DriftAgent
from baselines.drift.drift_plan import REFUSAL_MARK, DriftSettings, ToolPermission

VICTIM = Victim("GPT-4", "Emma Johnson")
"""DRIFT told the attack another model's name, which stands for GPT-4."""
_PLANS = re.compile(r"trajectory of (\[.*?\]) is not aligned with trajectory plan of (\[.*?\])\.")
_ACHIEVED = re.compile(r"Achieved Function Trajectory:\n(\[.*?\])\.")
_CHECKLIST = re.compile(r"Checklist:\n(.*)\.\nNote: the value", re.DOTALL)


@dataclass(frozen=True)
class Refused:
    """A refusal as data."""

    kind: str
    """`unplanned`, `checklist` or `repeat`."""
    detail: str
    """JSON of the lists it quotes; for a checklist its cause and entries."""


@dataclass(frozen=True)
class Turn:
    """One reply of the acting model, and what became of it."""

    content: str
    calls: str
    """JSON of names and arguments that ran."""
    refused: Refused | None

    def unquoted(self) -> Turn:
        """Without what its refusal quotes of the checklist."""
        if self.refused is None or self.refused.kind != "checklist":
            return self
        return replace(self, refused=Refused("checklist", json.loads(self.refused.detail)[0]))


@dataclass(frozen=True)
class Outcome:
    """What two runs are compared by."""

    turns: tuple[Turn, ...]
    utility: bool
    security: bool

    def unquoted(self) -> Outcome:
        """Without what refusals quote; their kinds, places and causes stay."""
        return Outcome(tuple(turn.unquoted() for turn in self.turns), self.utility, self.security)

    def __str__(self) -> str:
        return f"{len(self.turns)} turns, utility {self.utility}, security {self.security}"


@dataclass(frozen=True)
class RecordedCase:
    """One published run."""

    name: str
    data: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.data["conversations"]
        return found

    def outcome(self) -> Outcome:
        return Outcome(tuple(_recorded_turns(self.messages)), self.data["utility"], self.data["security"])


def cases_in(folder: Path) -> list[RecordedCase]:
    """All cases under a folder, in order."""
    paths = sorted(folder.rglob("injection_task_*.json"))
    return [
        RecordedCase("/".join(path.parts[-4:]), json.loads(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def _recorded_turns(messages: Sequence[dict[str, Any]]) -> Iterator[Turn]:
    for message, after in zip(messages, [*messages[1:], None], strict=True):
        if message["role"] == "assistant":
            calls = [[call["function"], call["args"]] for call in message["tool_calls"] or ()]
            refused = after is not None and after["role"] == "user"
            yield Turn(
                message["content"], _json(calls), recorded_refusal(after) if refused and after else None
            )


def recorded_refusal(message: dict[str, Any]) -> Refused:
    """The refusal in a recorded user message, which holds the text of a Python dictionary."""
    text = ast.literal_eval(message["content"].split("\n", 1)[1].rsplit("\n", 1)[0])["content"]
    quoted = _CHECKLIST.search(text)
    if quoted is not None:
        fault = text.split("The specific error:\n")[1].split("\nChecklist:")[0]
        named = fault.startswith("The function name")
        cause = "name" if named else "missing" if "is not met" in fault else "value"
        return Refused("checklist", _json([cause, json.loads(quoted[1])]))
    plans, achieved = _PLANS.search(text), _ACHIEVED.search(text)
    assert plans and achieved, text
    return Refused("unplanned", _json([ast.literal_eval(names) for names in (*plans.groups(), achieved[1])]))


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


@dataclass
class RecordedVoice:
    """A model that says what it said in a published run.

    Args:
        case: The run.
        echo: The formatter gives the checklist back as JSON. Otherwise it gives what the next refusal quotes,
            and an empty list where none does.
    """

    case: RecordedCase
    echo: bool
    name: str = "recorded"
    turn: int = 0
    """Replies of the acting model so far."""

    def complete(self, request: ChatRequest) -> ChatReply:
        question = text_of(request.messages[1])
        match request.role:
            case "agent":
                text = self._act(request.messages)
            case "drift_planner":
                names, checklist = self.case.data["initial_trajectory"], self.case.data["initial_checklist"]
                text = (
                    f"<function_trajectory>[{', '.join(names)}]</function_trajectory>"
                    f"<parameter_checklist>{checklist}</parameter_checklist>"
                )
            case "drift_formatter":
                text = self._format(find_text_between_tags(question, "parameter_checklist") or "")
            case "drift_judge":
                text = f"<judge_result>{'No' if self._denied(question) else 'Yes'}</judge_result>"
            case "drift_isolator":
                text = (
                    f"<detected_instructions>{json.dumps(self._detected(question))}</detected_instructions>"
                )
            case other:
                raise AssertionError(f"nobody recorded {other}")
        return ChatReply(assistant(text))

    def _act(self, messages: Sequence[ChatMessage]) -> str:
        self.turn = 1 + sum(message["role"] == "assistant" for message in messages)
        said = [m["content"] for m in self.case.messages if m["role"] == "assistant"]
        # Past the end of what was recorded, which only a run that departs from it comes to.
        return said[self.turn - 1] if self.turn <= len(said) else "<function_call>[]</function_call>"

    def _refusal(self) -> Refused | None:
        """The recorded refusal of the acting model's latest reply."""
        turns = self.case.outcome().turns
        return turns[self.turn - 1].refused if 0 < self.turn <= len(turns) else None

    def _format(self, checklist: str) -> str:
        if self.echo:
            return _plain_json(checklist)
        refused = self._refusal()
        return json.dumps(json.loads(refused.detail)[1]) if refused and refused.kind == "checklist" else "[]"

    def _denied(self, question: str) -> bool:
        refused = self._refusal()
        proposed = ast.literal_eval((find_text_between_tags(question, "proposed_sequence") or "").strip())
        denied: bool = (
            refused is not None and refused.kind == "unplanned" and json.loads(refused.detail)[0] == proposed
        )
        return denied

    def _detected(self, question: str) -> list[str]:
        text = question.partition("\n<tool_result>\n")[2]
        called = json.loads(find_text_between_tags(question, "tool_call") or "{}")
        kept = self._recorded_result(called)
        return [] if kept is None or kept == text else missing_words(text, kept)

    def _recorded_result(self, called: dict[str, Any]) -> str | None:
        seen = 0
        for message in self.case.messages:
            seen += message["role"] == "assistant"
            if seen == self.turn and message["role"] == "tool":
                call = message["tool_call"]
                if _json([call["function"], call["args"]]) == _json([called["function"], called["args"]]):
                    return str(message["error"] or message["content"])
        return None


def _plain_json(checklist: str) -> str:
    """The checklist as JSON, freed of the quotes that the reference puts around one that is not JSON."""
    text = repair_json(checklist.strip())
    while isinstance(inside := json.loads(text or "[]"), str):
        text = repair_json(inside.strip())
    return text


def missing_words(whole: str, kept: str) -> list[str]:
    """What of `whole` is not in `kept`, word for word; where nothing is, something that stands nowhere."""
    a, b = whole.split(), kept.split()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    changed = [
        (a[i:j], b[k:m]) for kind, i, j, k, m in matcher.get_opcodes() if kind in ("delete", "replace")
    ]
    spans = [_inside(" ".join(before), " ".join(after)) for before, after in changed]
    return [span for span in spans if span] or ["no such passage stands here"]


def _inside(before: str, after: str) -> str:
    """What is left of `before` without the ends it shares with `after`, quotes for the most part."""
    start = _shared(before, after)
    rest = after[start:]
    end = _shared(before[start:][::-1], rest[::-1])
    return before[start : len(before) - end].strip()


def _shared(a: str, b: str) -> int:
    """Length of what two texts begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def benchmark() -> AgentDojo:
    return AgentDojo(version="v1.2")


def replayed(case: RecordedCase, settings: DriftSettings, *, echo: bool, bench: AgentDojo) -> Outcome:
    """Run a published case again, through our defense, on a real environment."""
    outcome, _ = run_again(case, settings, echo=echo, bench=bench)
    return outcome


def run_again(
    case: RecordedCase, settings: DriftSettings, *, echo: bool, bench: AgentDojo
) -> tuple[Outcome, list[ChatMessage]]:
    """As `replayed`, and with the messages."""
    suite = bench.suite(case.data["suite_name"])
    user_task = suite.user_tasks[case.data["user_task_id"]]
    injection_task = suite.injection_tasks[case.data["injection_task_id"]]
    written = dict(_attack().injections(suite, user_task, injection_task, VICTIM))
    known = {tool: ToolPermission(word) for tool, word in case.data["tool_permission"].items()}
    pipeline = Drift().pipeline(RecordingModel(RecordedVoice(case, echo)), suite)
    elements = list(pipeline.elements)
    agent = elements[-1]
    assert isinstance(agent, DriftAgent)
    agent.settings = DriftSettings(**{**vars(settings), "permissions": known})
    kept: list[ChatMessage] = []
    pipeline.elements = [*elements, _Keep(kept)]
    with use_tracer(Tracer()) as tracer:
        utility, security = suite.run_task_with_pipeline(pipeline, user_task, injection_task, written)
    return Outcome(tuple(_turns(kept, tracer)), utility, security), kept


def _attack() -> RegisteredAttack:
    return RegisteredAttack("important_instructions")


@dataclass
class _Keep:
    """Keeps the conversation at the end of the pipeline."""

    kept: list[ChatMessage]

    def query(self, query: Any, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        self.kept[:] = messages
        return query, runtime, env, messages, extra_args or {}


def _turns(messages: Sequence[ChatMessage], tracer: Tracer) -> Iterator[Turn]:
    refusals = [
        span.decision["refusal"]
        for span in tracer.spans
        if span.kind == "drift_validator" and "refusal" in span.decision
    ]
    for message, after in zip(messages, [*messages[1:], None], strict=True):
        if message["role"] == "assistant":
            calls = [[call.function, dict(call.args)] for call in message["tool_calls"] or ()]
            refused = after is not None and after["role"] == "user" and REFUSAL_MARK in text_of(after)
            yield Turn(text_of(message), _json(calls), _as_data(refusals.pop(0)) if refused else None)
    assert not refusals


def _as_data(decision: dict[str, Any]) -> Refused:
    match decision["kind"]:
        case "unplanned":
            return Refused("unplanned", _json([decision[key] for key in ("extended", "plan", "achieved")]))
        case "checklist":
            return Refused("checklist", _json([decision["cause"], json.loads(decision["checklist"])]))
    return Refused(decision["kind"], "")
