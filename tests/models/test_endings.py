"""The tables of endings know every word that the vendors' SDKs name, and each ending has its consequence."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models import endings
from agentsys.models.endings import (
    ANTHROPIC_ENDINGS,
    CHAT_ENDINGS,
    GEMINI_ENDINGS,
    RESPONSES_ENDINGS,
    TABLES,
    Ending,
    EndingConsequence,
    EndingTable,
    find_consequence,
    find_ending,
    keep_reason,
    normalize_reason,
)

SOURCE = Path(endings.__file__)


def unknown(table: EndingTable, reasons: Iterable[str]) -> list[str]:
    return [reason for reason in reasons if normalize_reason(reason) not in table]


def test_every_reason_of_openais_sdk_stands_in_its_table() -> None:
    from openai.types.chat.chat_completion import Choice
    from openai.types.responses.response import IncompleteDetails
    from openai.types.responses.response_status import ResponseStatus

    (incomplete,) = (
        one for one in get_args(IncompleteDetails.model_fields["reason"].annotation) if get_args(one)
    )
    assert unknown(CHAT_ENDINGS, get_args(Choice.model_fields["finish_reason"].annotation)) == []
    assert unknown(RESPONSES_ENDINGS, [*get_args(ResponseStatus), *get_args(incomplete)]) == []


def test_every_reason_of_anthropics_sdk_stands_in_its_table() -> None:
    from anthropic.types.beta.beta_stop_reason import BetaStopReason
    from anthropic.types.stop_reason import StopReason

    assert unknown(ANTHROPIC_ENDINGS, [*get_args(StopReason), *get_args(BetaStopReason)]) == []


def test_every_reason_of_googles_sdk_stands_in_its_table() -> None:
    from google.genai.types import BlockedReason, FinishReason

    assert unknown(GEMINI_ENDINGS, [reason.value for reason in FinishReason]) == []
    blocked = {reason.value for reason in BlockedReason} - {"BLOCKED_REASON_UNSPECIFIED"}
    assert unknown(GEMINI_ENDINGS, blocked) == []


def test_every_reason_that_litellm_knows_stands_in_the_table_of_chat_completions() -> None:
    # Read and not imported, which takes seconds.
    core = find_spec("litellm")
    if core is None:
        pytest.skip("litellm is not installed")
    folder = Path(str(core.origin)).parent
    mapped = (folder / "litellm_core_utils" / "core_helpers.py").read_text(encoding="utf-8")
    listed = re.search(r"_FINISH_REASON_MAP[^=]*= \{(.*?)\n\}", mapped, re.DOTALL)
    types = (folder / "types" / "llms" / "openai.py").read_text(encoding="utf-8")
    literal = re.search(r"OpenAIChatCompletionFinishReason = Literal\[(.*?)\n\]", types, re.DOTALL)
    assert listed and literal
    reasons = {*re.findall(r'^\s*"(\w+)":', listed[1], re.MULTILINE), *re.findall(r'"(\w+)"', literal[1])}
    assert len(reasons) > 30 and unknown(CHAT_ENDINGS, reasons) == []


# Named by servers' documentation: who says it, and how the reply ended.
DOCUMENTED = [
    ("Z.ai", "sensitive", Ending.FILTERED),
    ("Z.ai", "network_error", Ending.BROKEN_OFF),
    ("Z.ai", "model_context_window_exceeded", Ending.CUT),
    ("DeepSeek", "insufficient_system_resource", Ending.BROKEN_OFF),
    ("SGLang", "abort", Ending.BROKEN_OFF),
    ("vLLM", "error", Ending.BROKEN_OFF),
    ("vLLM", "repetition", Ending.BROKEN_OFF),
    ("Mistral", "model_length", Ending.CUT),
    ("Cohere", "STOP_SEQUENCE", Ending.COMPLETE),
    ("Cohere", "ERROR_TOXIC", Ending.FILTERED),
    ("Cohere", "ERROR_LIMIT", Ending.CUT),
    ("Cohere", "USER_CANCEL", Ending.BROKEN_OFF),
    ("Together", "eos", Ending.COMPLETE),
    ("Bedrock", "guardrail_intervened", Ending.FILTERED),
    ("Bedrock", "content_filtered", Ending.FILTERED),
    ("Bedrock", "malformed_tool_use", Ending.MALFORMED_CALL),
    ("Bedrock", "malformed_model_output", Ending.BROKEN_OFF),
    ("Ollama", "load", Ending.BROKEN_OFF),
    ("LM Studio", "eosFound", Ending.COMPLETE),
    ("LM Studio", "contextLengthReached", Ending.CUT),
    ("LM Studio", "userStopped", Ending.BROKEN_OFF),
    ("Hugging Face", "eos_token", Ending.COMPLETE),
    ("xAI", "REASON_MAX_CONTEXT", Ending.CUT),
    ("xAI", "REASON_TIME_LIMIT", Ending.BROKEN_OFF),
    ("a Python gateway", "FinishReason.STOP", Ending.COMPLETE),
    ("a Python gateway", "FinishReason.FINISH_REASON_MAX_TOKENS", Ending.CUT),
    ("watsonx", "not_finished", Ending.BROKEN_OFF),
    ("watsonx", "token_limit", Ending.CUT),
    ("Vercel's gateway", "content-filter", Ending.FILTERED),
    ("Gemini's compatible endpoint", "content_filter: PROHIBITED_CONTENT", Ending.FILTERED),
    ("Gemini's compatible endpoint", "function_call_filter: UNEXPECTED_TOOL_CALL", Ending.MALFORMED_CALL),
    ("Gemini's compatible endpoint", "function_call_filter: NEW_WORD", Ending.MALFORMED_CALL),
]


@pytest.mark.parametrize(("server", "reason", "ending"), DOCUMENTED)
@pytest.mark.parametrize("calls", [False, True])
def test_reasons_of_servers_documentation_are_known(
    server: str, reason: str, ending: Ending, calls: bool
) -> None:
    plain = ending is Ending.COMPLETE
    assert find_ending(reason, calls=calls) is (Ending.CALLS if plain and calls else ending)


def test_a_word_means_the_same_on_every_wire() -> None:
    words = [item for table in TABLES.values() for item in table.items()]
    assert all(CHAT_ENDINGS[word] is ending for word, ending in words)


@given(reason=st.text(max_size=30), calls=st.booleans())
def test_a_word_that_stands_in_no_table_is_unknown(reason: str, calls: bool) -> None:
    words = (reason, *reason.split(":"))
    known = any(normalize_reason(word) in table for word in words for table in TABLES.values())
    found = find_ending(reason, calls=calls)
    if not known:
        assert found is (Ending.CALLS if calls and not reason else Ending.UNKNOWN)


def test_words_are_kept_as_they_came_and_bounded() -> None:
    assert keep_reason("Session_Rotated ") == "Session_Rotated "
    assert len(keep_reason("x" * 10_000)) == 100
    assert (keep_reason(None), keep_reason(7)) == ("", "7")


def test_a_plain_word_of_a_gateway_hides_no_other_of_the_vendor_behind_it() -> None:
    assert find_ending("stop", native="SAFETY") is Ending.FILTERED
    assert find_ending("length", native="STOP") is Ending.CUT
    assert find_ending("error", native="MALFORMED_FUNCTION_CALL") is Ending.MALFORMED_CALL
    assert find_ending("error", native="stop") is Ending.BROKEN_OFF
    assert find_ending("tool_calls", native="stop") is Ending.MALFORMED_CALL
    assert find_ending("stop", native="a_new_word") is Ending.COMPLETE


def test_each_consequence_follows_from_an_ending() -> None:
    assert {find_consequence(ending) for ending in Ending} == set(EndingConsequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('    UNKNOWN = "unknown"\n', '    UNKNOWN = "unknown"\n    EVICTED = "evicted"\n'),
        ('    "eos": Ending.COMPLETE,\n', '    "eos": Ending.EVICTED,\n'),
    ],
)
def test_an_ending_without_a_consequence_does_not_type_check(tmp_path: Path, old: str, new: str) -> None:
    source = SOURCE.read_text(encoding="utf-8")
    assert source.count(old) == 1

    def check(text: str) -> subprocess.CompletedProcess[str]:
        copy = tmp_path / "endings_copy.py"
        copy.write_text(text, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            f"--cache-dir={tmp_path}",
            str(copy),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert check(source).returncode == 0
    broken = check(source.replace(old, new))
    assert broken.returncode == 1 and "EVICTED" in broken.stdout
