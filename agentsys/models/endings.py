"""How a reply ended: a closed set, a table for each wire from the server's word to it, and what follows.

Reasons are those that the types of the vendors' SDKs and the documentation of servers name. One that stands in no
table is `unknown`: kept word for word in the record, and counted. docs/errors.md is written from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import assert_never


class Ending(StrEnum):
    """The way in which a model's reply ended. Where its choices ended in several ways, the last of these counts."""

    COMPLETE = "complete"
    """The model said all that it wanted to say."""
    CALLS = "calls"
    """The model wants tools to be called, and says which."""
    REFUSED = "refused"
    """The model itself declined, in a field of its own."""
    UNKNOWN = "unknown"
    """The server gives no reason, or one that stands in no table."""
    CUT = "cut"
    """A bound on tokens ended the reply."""
    PAUSED = "paused"
    """The server handed over what there is so far, and wants to be asked to go on."""
    MALFORMED_CALL = "malformed_call"
    """The model called a tool, and the server could not read the call, or lost it."""
    FILTERED = "filtered"
    """A classifier of the provider stopped the reply."""
    BROKEN_OFF = "broken_off"
    """The server gave up before the model had ended."""


class EndingConsequence(StrEnum):
    """Consequence of an ending, whatever text came with it."""

    DELIVER = "the reply is what the model said, and is scored"
    DELIVER_COUNTED = (
        "the reply is what the model said; it is counted, and the cases with one bound the rates"
    )
    END_CASE = "the case ends as `content_refused`"
    ASK_AGAIN = "asked again; if it lasts, the case ends as `server_error` with the server's words"
    ASK_THEN_TELL = "asked again; if it lasts, the model is told, as of a tool's error, and may mend it"
    CONTINUE = "what came is sent back, and the model goes on"


def find_consequence(ending: Ending) -> EndingConsequence:
    """The consequence of an ending."""
    match ending:
        case Ending.COMPLETE | Ending.CALLS | Ending.REFUSED:
            return EndingConsequence.DELIVER
        case Ending.CUT | Ending.UNKNOWN:
            return EndingConsequence.DELIVER_COUNTED
        case Ending.FILTERED:
            return EndingConsequence.END_CASE
        case Ending.BROKEN_OFF:
            return EndingConsequence.ASK_AGAIN
        case Ending.MALFORMED_CALL:
            return EndingConsequence.ASK_THEN_TELL
        case Ending.PAUSED:
            return EndingConsequence.CONTINUE
    assert_never(ending)


EndingTable = Mapping[str, Ending]
"""The server's word, as `normalize_reason` writes it -> the ending where the reply holds what the word promises."""

ANTHROPIC_ENDINGS: EndingTable = {
    "end_turn": Ending.COMPLETE,
    "stop_sequence": Ending.COMPLETE,
    "tool_use": Ending.CALLS,
    "max_tokens": Ending.CUT,
    "model_context_window_exceeded": Ending.CUT,
    "compaction": Ending.PAUSED,
    "pause_turn": Ending.PAUSED,
    "refusal": Ending.FILTERED,
}
"""`stop_reason` of Anthropic's messages."""

GEMINI_ENDINGS: EndingTable = {
    "stop": Ending.COMPLETE,
    "max_tokens": Ending.CUT,
    # The bound on one request's tokens; we ask for no continuation token.
    "continuation": Ending.CUT,
    "safety": Ending.FILTERED,
    "recitation": Ending.FILTERED,
    "language": Ending.FILTERED,
    "blocklist": Ending.FILTERED,
    "prohibited_content": Ending.FILTERED,
    "spii": Ending.FILTERED,
    "jailbreak": Ending.FILTERED,
    "escalation": Ending.FILTERED,
    "model_armor": Ending.FILTERED,
    "image_safety": Ending.FILTERED,
    "image_prohibited_content": Ending.FILTERED,
    "image_recitation": Ending.FILTERED,
    "malformed_function_call": Ending.MALFORMED_CALL,
    "unexpected_tool_call": Ending.MALFORMED_CALL,
    "malformed_response": Ending.BROKEN_OFF,
    "too_many_tool_calls": Ending.BROKEN_OFF,
    "missing_thought_signature": Ending.BROKEN_OFF,
    "pup_limited_disabled": Ending.BROKEN_OFF,
    "no_image": Ending.BROKEN_OFF,
    "image_other": Ending.BROKEN_OFF,
    "other": Ending.BROKEN_OFF,
    "unspecified": Ending.UNKNOWN,
}
"""`finishReason` of Gemini's candidates, and `blockReason` of a prompt."""

RESPONSES_ENDINGS: EndingTable = {
    "completed": Ending.COMPLETE,
    "max_output_tokens": Ending.CUT,
    "max_tokens": Ending.CUT,
    "length": Ending.CUT,
    "max_messages": Ending.CUT,
    "content_filter": Ending.FILTERED,
    # Over a WebSocket, for an input that came in between; we open none.
    "steered": Ending.BROKEN_OFF,
    "incomplete": Ending.BROKEN_OFF,
    "failed": Ending.BROKEN_OFF,
    "cancelled": Ending.BROKEN_OFF,
    "in_progress": Ending.BROKEN_OFF,
    "queued": Ending.BROKEN_OFF,
}
"""OpenAI's Responses: why a response is `incomplete`, or its `status`."""

CHAT_ENDINGS: EndingTable = {
    # Gateways hand on what the vendors behind them say.
    **ANTHROPIC_ENDINGS,
    **GEMINI_ENDINGS,
    **RESPONSES_ENDINGS,
    # Hugging Face's server and Together; Cohere, Baidu, Cerebras; harmony's own tokens; LM Studio
    "eos": Ending.COMPLETE,
    "eos_token": Ending.COMPLETE,
    "complete": Ending.COMPLETE,
    "normal": Ending.COMPLETE,
    "done": Ending.COMPLETE,
    "return": Ending.COMPLETE,
    "eos_found": Ending.COMPLETE,
    "stop_string_found": Ending.COMPLETE,
    # OpenAI; mlx; llama.cpp before 2025
    "tool_calls": Ending.CALLS,
    "tool_call": Ending.CALLS,
    "tool": Ending.CALLS,
    "function_calls": Ending.CALLS,
    "function_call": Ending.CALLS,
    "call": Ending.CALLS,
    # Mistral; xAI; watsonx; Aleph Alpha; Cohere; LM Studio; Reka
    "model_length": Ending.CUT,
    "max_len": Ending.CUT,
    "max_context": Ending.CUT,
    "token_limit": Ending.CUT,
    "maximum_tokens": Ending.CUT,
    "error_limit": Ending.CUT,
    "max_predicted_tokens_reached": Ending.CUT,
    "context_length_reached": Ending.CUT,
    "context": Ending.CUT,
    # Z.ai and Tencent; Bedrock; Cohere; GigaChat
    "sensitive": Ending.FILTERED,
    "content_filtered": Ending.FILTERED,
    "guardrail_intervened": Ending.FILTERED,
    "error_toxic": Ending.FILTERED,
    "blacklist": Ending.FILTERED,
    # Bedrock; what Gemini's compatible endpoint writes before its own word
    "malformed_tool_use": Ending.MALFORMED_CALL,
    "function_call_filter": Ending.MALFORMED_CALL,
    "malformed_model_output": Ending.BROKEN_OFF,
    # Z.ai; DeepSeek; vLLM and SGLang; Mistral, OpenRouter and Cohere; xAI and watsonx; TensorRT-LLM; Cohere;
    # Ollama, whose model was just loaded; LM Studio
    "network_error": Ending.BROKEN_OFF,
    "insufficient_system_resource": Ending.BROKEN_OFF,
    "abort": Ending.BROKEN_OFF,
    "aborted": Ending.BROKEN_OFF,
    "repetition": Ending.BROKEN_OFF,
    "error": Ending.BROKEN_OFF,
    "time_limit": Ending.BROKEN_OFF,
    "timeout": Ending.BROKEN_OFF,
    "not_finished": Ending.BROKEN_OFF,
    "canceled": Ending.BROKEN_OFF,
    "user_cancel": Ending.BROKEN_OFF,
    "user_stopped": Ending.BROKEN_OFF,
    "load": Ending.BROKEN_OFF,
    "unload": Ending.BROKEN_OFF,
    "model_unloaded": Ending.BROKEN_OFF,
}
"""`finish_reason` of chat completions, of OpenAI and of all who speak its wire."""

TABLES: Mapping[str, EndingTable] = {
    "chat completions, litellm": CHAT_ENDINGS,
    "Responses": RESPONSES_ENDINGS,
    "Anthropic": ANTHROPIC_ENDINGS,
    "Gemini": GEMINI_ENDINGS,
}
"""Wire -> its table."""

_REASON_LENGTH = 100
_CAPITAL_INSIDE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ENUM_PREFIX = re.compile(r"\A((finish_|stop_)?reason[_.])+")


def keep_reason(reason: object) -> str:
    """The server's word as the record keeps it: as it came, of bounded length; empty where there is none."""
    return "" if reason is None else str(reason)[:_REASON_LENGTH]


def normalize_reason(reason: str) -> str:
    """A reason in small letters with underscores, without the name of its type: `MaxTokens`, `FinishReason.STOP`."""
    spelled = _CAPITAL_INSIDE.sub("_", reason.strip()).casefold().replace("-", "_").replace(" ", "_")
    return _ENUM_PREFIX.sub("", spelled)


def find_ending(reason: str, *, native: str = "", calls: bool = False, refused: bool = False) -> Ending:
    """The ending of a reply by the server's word and by what is there.

    A word is looked for in all tables: servers that speak one vendor's wire say the words of others.

    Args:
        reason: The server's word.
        native: The word of the vendor behind a gateway, which may have made a plain one of it.
        calls: Whether the reply calls a tool.
        refused: Whether it declines in a field of its own.
    """
    ending, behind = _look_up(reason), _look_up(native)
    if behind is not Ending.UNKNOWN and (
        behind not in PLAIN_ENDINGS or ending in (Ending.COMPLETE, Ending.UNKNOWN)
    ):
        ending = behind
    if ending is Ending.PAUSED and calls:
        ending = Ending.CALLS  # which want their results before anything goes on
    if ending not in PLAIN_ENDINGS:
        return ending
    if calls:
        # Many servers say `stop`, or nothing, beside calls; a word that nobody knows stays unknown.
        return Ending.UNKNOWN if ending is Ending.UNKNOWN and reason else Ending.CALLS
    if refused and ending is not Ending.UNKNOWN:
        return Ending.REFUSED
    return Ending.MALFORMED_CALL if ending is Ending.CALLS else ending


PLAIN_ENDINGS = (Ending.COMPLETE, Ending.CALLS, Ending.UNKNOWN)
"""What gateways make of other words, too."""


@lru_cache(maxsize=1000)
def _look_up(reason: str) -> Ending:
    """The ending that a word names; of two, as in `content_filter: SAFETY`, the last that is known."""
    words = [reason, *reversed(reason.split(":"))]
    known = (CHAT_ENDINGS[word] for word in map(normalize_reason, words) if word in CHAT_ENDINGS)
    return next(known, Ending.UNKNOWN)
