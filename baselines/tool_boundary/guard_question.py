"""Parts of questions to guard models: marks around what others wrote, and small readers."""

from __future__ import annotations

import hashlib

from agentsys.models.chat import ChatRequest, text_of


def read_question(request: ChatRequest) -> str:
    """The question of a request, whatever was answered and said of it since; for simulations."""
    return next(text_of(message) for message in request.messages if message["role"] == "user")


def read_truth(value: object) -> object:
    """Read a truth value that a model may have written as a word; anything else stays as it is."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    return words.get(value.strip().casefold()) if isinstance(value, str) else value


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
