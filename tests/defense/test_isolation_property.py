"""The invariant: what a tool returned reaches the main agent only through the gate, and a validator never."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_for_defense import LABELS, Outcome, ScriptedModel, Tools, call, run

from agentsys.defense.failures import Failure
from agentsys.defense.gate import GateRule, conforms
from agentsys.models.chat import ChatRequest, text_of

RAW, NESTED, ERROR, VERDICT, PROSE = (
    "C4N4RY-RAW",
    "C4N4RY-NESTED",
    "C4N4RY-ERROR",
    "C4N4RY-VERDICT",
    "C4N4RY-PROSE",
)
CANARIES = (RAW, NESTED, ERROR, VERDICT, PROSE)
FIELD = {"field": "string"}

worker_moves = st.sampled_from(
    ["pay", "ping", "read", "explode", "unknown", "no_intent", "bad_args", "answer", "echo"]
)
worker_words = st.sampled_from(
    [
        "",
        PROSE,
        f"{PROSE} {{",
        f'{PROSE} {{"field": "{RAW}"}} {PROSE}',
        f'{{"field": "{NESTED}", "extra": "{RAW}"}}',
        f'{{"field": ["{ERROR}"]}}',
        f"[{PROSE}]",
        '{"field": "clean"}',
        '{"field": null}',
    ]
)
verdicts = st.sampled_from(["True", "False", VERDICT, f"True {VERDICT}", "", f"False: {RAW}"])
cleanings = st.sampled_from(
    ["", PROSE, '{"spans": []}', json.dumps({"spans": [RAW]}), json.dumps({"spans": ["x", NESTED]})]
)

MOVES: dict[str, Any] = {
    "pay": [call("send_money", FIELD, to="eve", amount=1.0)],
    "ping": [call("ping", FIELD)],
    "read": [call("read_note", FIELD, name="n")],
    "explode": [call("explode", FIELD, tags=["t"])],
    "unknown": [call("fly", FIELD)],
    "no_intent": [call("ping")],
    "bad_args": [call("send_money", FIELD, to="eve", amount="much")],
}
MAIN = [MOVES["read"], [*MOVES["explode"], *MOVES["read"]], "answer"]


def drawn_model(data: st.DataObject) -> ScriptedModel:
    """A model whose inner agents do anything, but write no canary into the arguments of their calls."""

    def worker(_: ChatRequest) -> Any:
        move = data.draw(worker_moves)
        return MOVES.get(move) or data.draw(worker_words)

    return _Drawn(
        {
            "worker": worker,
            "validator": lambda _: data.draw(verdicts),
            "sanitizer": lambda _: data.draw(cleanings),
            "privileges": lambda _: LABELS,
        }
    )


class _Drawn(ScriptedModel):
    def __init__(self, by_role: dict[str, Any]) -> None:
        super().__init__({"main": MAIN})
        self.by_role = by_role

    def complete(self, request: ChatRequest) -> Any:
        if request.role in self.by_role:
            self.replies[request.role] = [self.by_role[request.role]]
        return super().complete(request)


options = st.fixed_dictionaries(
    {
        "gate": st.sampled_from([rule.value for rule in GateRule]),
        "validator": st.booleans(),
        "sanitizer": st.booleans(),
        "max_depth": st.integers(1, 3),
        "worker_steps": st.integers(1, 4),
    }
)


def accepted_texts(outcome: Outcome) -> set[str]:
    """What the gate let through, worked out from the workers' own last words."""
    from agentsys.defense.gate import Accepted, admit

    texts = set()
    for span in outcome.spans("worker"):
        for rule in GateRule:
            verdict = admit(text_of(span.messages[-1]), FIELD, rule)
            if isinstance(verdict, Accepted):
                texts.add(verdict.text)
    return texts


@settings(max_examples=120, deadline=None)
@given(st.data(), options)
def test_canaries_reach_the_main_context_only_in_values_the_gate_accepted(
    data: Any, chosen: dict[str, Any]
) -> None:
    tools = Tools(note=f"a {RAW} b", sent=f"{NESTED}", error=ERROR)
    outcome = run(drawn_model(data), tools, **chosen)
    allowed = accepted_texts(outcome) | {failure.text for failure in Failure}
    for message in outcome.messages:
        text = text_of(message)
        if message["role"] == "tool":
            assert text in allowed
        else:
            assert not any(canary in text for canary in CANARIES)
    assert outcome.model.requests[0].role == "main"
    for request in outcome.model.asked("main"):
        held = [text_of(message) for message in request.messages if message["role"] == "tool"]
        assert all(text in allowed for text in held)


@settings(max_examples=120, deadline=None)
@given(st.data(), options)
def test_canaries_never_reach_a_validator_and_raw_outputs_only_their_own_worker(
    data: Any, chosen: dict[str, Any]
) -> None:
    outcome = run(
        drawn_model(data), Tools(note=RAW, sent=NESTED, error=ERROR), **{**chosen, "validator": True}
    )
    for request in outcome.model.asked("validator"):
        assert not any(canary in text_of(message) for message in request.messages for canary in CANARIES)
    for request in outcome.model.asked("worker"):
        assert ERROR not in text_of(request.messages[1])
        assert VERDICT not in "".join(text_of(message) for message in request.messages)


@settings(max_examples=80, deadline=None)
@given(st.data(), options)
def test_under_schema_every_value_in_the_main_context_conforms_to_its_intent(
    data: Any, chosen: dict[str, Any]
) -> None:
    outcome = run(
        drawn_model(data), Tools(note=RAW, sent=NESTED, error=ERROR), **{**chosen, "gate": "schema"}
    )
    for value in outcome.results():
        assert conforms(value, FIELD) or value in [json.loads(failure.text) for failure in Failure]


def test_the_drawn_runs_do_let_a_canary_through_the_gate() -> None:
    # Guards the property above against passing because nothing ever gets through.
    replies = {"main": [MOVES["read"], "ok"], "worker": [json.dumps({"field": RAW})]}
    assert run(replies, Tools(note=RAW)).results() == [{"field": RAW}]
