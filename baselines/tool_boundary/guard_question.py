"""Questions to a guard model: its reply is read by the caller, and asked for again where it is unreadable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, assistant, text_of, user
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import mark_reply_unreadable

Read = TypeVar("Read")


@dataclass(frozen=True)
class GuardAnswer(Generic[Read]):
    """What came of a question."""

    value: Read | None
    """As it was read; None if no reply could be."""
    asked: int
    """Replies that were given."""
    unreadable: int
    """Those of them that could not be read."""


def ask_guard(
    model: ChatModel, request: ChatRequest, read: Callable[[str], Read | None], retries: int = 1
) -> GuardAnswer[Read]:
    """Ask until a reply can be read.

    Args:
        model: The model.
        request: The question. The next one also has the reply and what was wrong with it: the identical
            request would get the identical reply.
        read: Reads the words of a reply; None where they are not what was asked for.
        retries: How often it is asked again.

    Raises:
        ModelError: If the model gave no reply; that is never a verdict.
    """
    return ask_guard_reply(model, request, lambda reply: read(visible_words(reply)), retries)


def ask_guard_reply(
    model: ChatModel, request: ChatRequest, read: Callable[[ChatReply], Read | None], retries: int = 1
) -> GuardAnswer[Read]:
    """Ask as `ask` does where more than the words of a reply is read."""
    messages = list(request.messages)
    for unreadable in range(retries + 1):
        reply = model.complete(replace(request, messages=list(messages)))
        cut = is_cut_off(reply, request)
        value = None if cut else read(reply)
        if value is not None:
            return GuardAnswer(value, unreadable + 1, unreadable)
        mark_reply_unreadable()
        # A model may answer with nothing; some providers refuse empty messages.
        messages += [assistant(visible_text(reply.message) or "(nothing)"), user(CUT if cut else UNREAD)]
    return GuardAnswer(None, retries + 1, retries + 1)


UNREAD = "Your reply could not be read. Answer again in exactly the form asked for, and with nothing else."
CUT = "Your reply was cut off before its end. Answer again, shorter, in exactly the form asked for."
"""What is said of a reply that cannot be used."""


def read_question(request: ChatRequest) -> str:
    """The question of a request, whatever was answered and said of it since; for simulations."""
    return next(text_of(message) for message in request.messages if message["role"] == "user")


def read_truth(value: object) -> object:
    """Read a truth value that a model may have written as a word; anything else stays as it is."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    return words.get(value.strip().casefold()) if isinstance(value, str) else value


def visible_words(reply: ChatReply) -> str:
    """Give a reply's words without hidden reasoning, also where it is left in the text (`<think>`)."""
    text = visible_text(reply.message)
    return text.partition("</think>")[2] if text.lstrip().startswith("<think>") else text


def is_cut_off(reply: ChatReply, request: ChatRequest) -> bool:
    """Whether a reply ended at a bound on its tokens, by its server's word or by the tokens it used up."""
    bound = request.max_tokens
    return reply.cut or (bound is not None and reply.usage.completion >= bound)


def draw_fence_word(seed: int, *texts: str) -> str:
    """Draw a word that stands in none of the texts, for marks around them that they cannot close.

    It depends on the seed and all of the texts, so a run repeats it and who writes a part of them cannot
    foresee it without the seed.
    """
    key = "\x1f".join([str(seed), *texts]).encode("utf-8", "surrogatepass")
    while True:
        key = hashlib.blake2b(key, digest_size=8).digest()
        word = key.hex()
        if not any(word in text for text in texts):
            return word


def wrap_in_fences(word: str, text: str) -> str:
    """Put a text between two marks that hold the word."""
    return f"[begin {word}]\n{text}\n[end {word}]"


def read_fenced_text(text: str, number: int = 0) -> str:
    """Read what stands between a question's marks (the pair of this number from 0), for simulations."""
    rest = text
    for _ in range(number + 1):
        word, _, rest = rest.partition("[begin ")[2].partition("]\n")
        inside, _, rest = rest.partition(f"\n[end {word}]")
    return inside
