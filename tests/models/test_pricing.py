"""Tokens estimated from characters: close to a real tokenizer's where that matters, and never an error."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import Silent

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, Usage, assistant, user
from agentsys.models.pricing import estimate_usage, pick_usage
from agentsys.models.providers.openai_wire import build_openai_messages, build_openai_tools
from agentsys.models.wrappers.accounting import RecordingModel

WEATHER = {
    "title": "Weather",
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where.", "title": "City"},
        "days": {"anyOf": [{"items": {"type": "integer"}, "type": "array"}, {"type": "null"}]},
        "unit": {"enum": ["C", "F"]},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["city"],
    "$defs": {"Place": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Place"}}}},
}


def test_a_tool_is_counted_as_models_are_shown_it_without_titles() -> None:
    shown = ToolSpec("weather", "Tells the weather.", WEATHER).signature
    assert shown.startswith("// Tells the weather.\ntype weather = (_: {\n// Where.\ncity: string,\n")
    assert "days?: integer[] | null," in shown
    assert 'unit?: "C" | "F",' in shown
    assert "City" not in shown and "title" not in shown


def test_what_a_model_reports_goes_before_the_estimate() -> None:
    request = ChatRequest([user("How are you?")])
    said = ChatReply(assistant("Fine."), Usage(prompt=7, completion=2))
    assert pick_usage(request, said) == Usage(7, 2)
    assert pick_usage(request, ChatReply(assistant("Fine."))) == estimate_usage(request, said.message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["type", "enum", "anyOf", "items", "properties", "$ref", "required", "description", "$defs"]
)


@given(st.dictionaries(KEYS, JSON, max_size=5))
@settings(max_examples=50, deadline=None)
def test_no_schema_is_an_error(schema: dict[str, Any]) -> None:
    assert ToolSpec("tool", "Does.", schema).signature


@pytest.mark.slow
@pytest.mark.parametrize("defense", ["none", "agentsys"])
def test_benign_cases_cost_within_a_tenth_of_what_a_real_tokenizer_counts(
    defense: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = _tokenizer(monkeypatch)
    counted, estimated = [], []
    ask = RecordingModel.complete

    def complete(self: RecordingModel, request: ChatRequest) -> ChatReply:
        reply = ask(self, request)
        counted.append(count(request, reply))
        estimated.append(reply.usage.prompt + reply.usage.completion)
        return reply

    monkeypatch.setattr(RecordingModel, "complete", complete)
    from agentsys.runs.run_session import prepare_session

    chosen = ["model=simulated", f"defense={defense}", "attack=none", "executor.workers=1"]
    outcome = prepare_session([*chosen, f"logdir={tmp_path}"]).execute(Silent())
    assert (outcome.finished, outcome.errors) == (97, 0)
    assert sum(estimated) == pytest.approx(sum(counted), rel=0.1)


def _tokenizer(monkeypatch: pytest.MonkeyPatch) -> Callable[[ChatRequest, ChatReply], int]:
    """litellm's count for gpt-4o: OpenAI's own tokenizer, which comes with it, and its rendering of tools."""
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("needs the litellm extra")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    known: dict[tuple[int, ...], tuple[int, Any]] = {}

    def count(request: ChatRequest, reply: ChatReply) -> int:
        key = tuple(id(tool.parameters) for tool in request.tools)
        if request.tools and key not in known:
            one = [{"role": "user", "content": "x"}]
            tools: Any = build_openai_tools(request.tools)
            with_tools = litellm.token_counter("gpt-4o", messages=one, tools=tools)
            known[key] = with_tools - litellm.token_counter("gpt-4o", messages=one), request.tools
        messages = build_openai_messages([*request.messages, reply.message], "system")
        in_messages = int(litellm.token_counter("gpt-4o", messages=messages))
        return in_messages + (known[key][0] if request.tools else 0)

    return count
