"""`isolate_results`: a detector lists planted instructions, and what it lists is cut out of results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentdojo.types import ChatMessage, ChatToolResultMessage, text_content_block_from_string

from agentsys.base.python_parser import literal_eval
from agentsys.models.chat import ChatModel, assistant
from agentsys.models.early_questions import questions_ahead
from agentsys.models.prompted_tools import find_text_between_tags, wrap_in_tag
from agentsys.models.providers.wire_parts import read_result_text
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, span
from baselines.drift.drift_plan import DriftSettings, build_call_data
from baselines.drift.prompts import DETECTOR, DETECTOR_UNMATCHED, WITHHELD
from baselines.tool_boundary.result_rewriter import rewrite_text_blocks

ISOLATOR_ROLE = "drift_isolator"
QUERY, CALL, RESULT = "user_query", "tool_call", "tool_result"
"""Tags of the detector's question; the untrusted result comes last and its tag is never closed."""
_DETECTED = "detected_instructions"
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class IsolatedResult:
    """A result after isolation."""

    stored: ChatToolResultMessage
    """The results kept in the conversation."""
    shown: ChatToolResultMessage
    """The results that the actor reads in this turn; differ from `stored` only under `compat`."""


def read_detection(reply: str) -> list[Any] | None:
    """Read the items that a reply lists; None if the tagged section is missing or holds no list."""
    inside = find_text_between_tags(reply, _DETECTED)
    if inside is None:
        return None
    for read in (json.loads, literal_eval):
        try:
            items = read(inside.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(items, list):
            return items
    return None


DETECTOR_CONTRACT = ReplyContract[list[Any]](
    ISOLATOR_ROLE, *DETECTOR, read_detection, {ReplyFlaw.WRONG_FORM: DETECTOR_UNMATCHED}
)
"""The detector's answer; passages absent from the result count as the wrong form."""


def isolate_results(
    model: ChatModel, settings: DriftSettings, query: str, messages: Sequence[ChatMessage]
) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Clean the results the conversation ends with.

    Returns:
        The conversation to keep and the one to show to the actor in this turn; `messages` is not changed.
    """
    stored, shown = list(messages), list(messages)
    first = len(messages)
    while first and messages[first - 1]["role"] == "tool":
        first -= 1
    if settings.compat:  # Reference: it looks through a turn's last result only.
        first = max(first, len(messages) - 1)
    new = enumerate(messages[first:], first)
    results = {at: m for at, m in new if m["role"] == "tool" and read_result_text(m).strip()}
    with questions_ahead(model) as early:
        if early is not None:
            for message in results.values():
                early.ask(DETECTOR_CONTRACT.request(_open_conversation(query, message)))
        for index, message in results.items():
            cleaned = _clean_result(model, settings, query, message)
            stored[index], shown[index] = cleaned.stored, cleaned.shown
    return stored, shown


def _open_conversation(query: str, result: ChatToolResultMessage) -> list[ChatMessage]:
    (call,) = build_call_data([result["tool_call"]])
    prompts = [wrap_in_tag(QUERY, query), wrap_in_tag(CALL, json.dumps(call, ensure_ascii=False))]
    question = "\n".join([*prompts, f"<{RESULT}>", read_result_text(result)])
    return DETECTOR_CONTRACT.open_conversation(question)


def _clean_result(
    model: ChatModel, settings: DriftSettings, query: str, result: ChatToolResultMessage
) -> IsolatedResult:
    with span(ISOLATOR_ROLE, result["tool_call"].function) as opened:
        now, outcome, cut, asked = IsolatedResult(result, result), "unreadable", 0, 0
        contract = replace(DETECTOR_CONTRACT, read=partial(read_usable_spans, settings=settings))
        retry_messages: list[ChatMessage] = []
        while asked < settings.detector_calls and outcome not in ("clean", "cut"):
            conversation = [*_open_conversation(query, now.shown), *retry_messages]
            answer = contract.ask(model, conversation, retries=0)
            asked += 1
            flaw = answer.faults[0].flaw if answer.faults else ReplyFlaw.WRONG_FORM
            if answer.value is None:
                outcome = "unreadable"
            elif not answer.value:
                outcome = "clean"
            else:
                now, matched, worked = _cut_spans(now, answer.value, settings)
                outcome, cut = "cut" if worked else "unmatched", cut + matched
            if not settings.compat:
                retry_messages = [assistant(answer.words or "(nothing)"), contract.repair(flaw)]
        withholds = settings.unreadable_detection == "withhold" and not settings.compat
        withheld = outcome == "unreadable" and withholds
        opened.decision = {"outcome": outcome, "asked": asked, "spans_cut": cut, "withheld": withheld}
        if cut or withheld:
            opened.decision["raw"] = read_result_text(result)
    if not withheld:
        return now
    error = None if result["error"] is None else WITHHELD
    blank = [text_content_block_from_string(WITHHELD)]
    message: ChatToolResultMessage = {**result, "content": blank, "error": error}
    return IsolatedResult(message, message)


def read_usable_spans(reply: str, settings: DriftSettings) -> list[str] | None:
    """Read the passages to cut from a reply: none if the result is clean; None if it must be asked again."""
    items = read_detection(reply)
    if items is None:
        # Reference: a detection that is no list means clean.
        return [] if settings.compat and find_text_between_tags(reply, _DETECTED) is not None else None
    if settings.compat:  # Reference: empty and non-text items put a space everywhere.
        return [item if isinstance(item, str) else "" for item in items]
    spans = [item for item in items if isinstance(item, str) and item.strip()]
    return None if items and not spans else spans


def _cut_spans(
    now: IsolatedResult, spans: Sequence[str], settings: DriftSettings
) -> tuple[IsolatedResult, int, bool]:
    """Return the result without the spans, the number of cuts in the read text, and whether they suffice."""
    compat = settings.compat
    before = read_result_text(now.shown)
    masked, matched = mask_spans(before, spans, strip_unmatched=compat)
    shown = stored = _mask_result(now.shown, spans, compat, error=True)
    if compat:  # Reference: a span that is cut from an error is back in the next turn.
        stored = _mask_result(now.stored, spans, compat, error=False)
    # Reference: a detection has worked if the length changed, by a strip too.
    worked = len(masked) != len(before) if compat else matched > 0
    return IsolatedResult(stored, shown), matched, worked


def _mask_result(
    result: ChatToolResultMessage, spans: Sequence[str], compat: bool, *, error: bool
) -> ChatToolResultMessage:
    def cut(text: str) -> str:
        return mask_spans(text, spans, strip_unmatched=compat)[0]

    failed = result["error"]
    return {
        **result,
        "content": rewrite_text_blocks(result["content"] or [], cut),
        "error": cut(failed) if error and failed is not None else failed,
    }


def mask_spans(text: str, spans: Iterable[str], *, strip_unmatched: bool) -> tuple[str, int]:
    """Replace each span of the text by a space, and strip the ends.

    Args:
        text: A tool's result.
        spans: What to cut, in order; letter case counts, white space does not. A span without words puts a
            space at every place, as in the reference implementation: leave such spans out.
        strip_unmatched: Strip the ends even where a span is not found, as the reference does.

    Returns:
        The text, and how many places were cut.
    """
    matched = 0
    for planted in spans:
        cut, count = _remove_words(text, planted.split())
        matched += count
        text = cut.strip() if count or strip_unmatched else text
    return text, matched


def _remove_words(text: str, words: list[str]) -> tuple[str, int]:
    if not words:
        return _SPACE.subn(" ", text)
    pieces: list[str] = []
    end = count = 0
    pattern = re.compile(r"[\s\\]+".join(re.escape(word) for word in words))
    for match in pattern.finditer(text):
        # White space around a match is taken off by hand: as a part of the pattern it would make the search
        # take quadratic time on a long run of spaces.
        pieces.append(text[end : match.start()].rstrip())
        after = _SPACE.match(text, match.end())
        end = after.end() if after else match.end()
        count += 1
    return " ".join([*pieces, text[end:]]), count
