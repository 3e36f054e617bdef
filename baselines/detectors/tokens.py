"""`Tokens`: a text as the token ids a classifier reads, in one or several windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baselines.detectors.settings import MOST_TOKENS_AT_ONCE, ClassifierSettings

TokenIds = list[int]


@dataclass(frozen=True)
class WindowTokenizer:
    """A tokenizer with the special tokens it puts around a text."""

    tokenizer: Any
    """A `transformers` tokenizer."""
    before: TokenIds
    """Special tokens in front of a text, e.g. `[CLS]`."""
    after: TokenIds
    """Special tokens behind it, e.g. `[SEP]`."""
    padding: int
    """Id that fills up the shorter windows of a batch."""

    def windows(self, text: str, settings: ClassifierSettings) -> list[TokenIds]:
        """The passes in which a text is read: special tokens included, none longer than the settings say."""
        ids = encode_plain(self.tokenizer, text)
        most = MOST_TOKENS_AT_ONCE if settings.long_input == "whole" else settings.max_length
        room = most - len(self.before) - len(self.after)
        pieces = split_overlapping(ids, room, settings.stride) if settings.long_input == "windows" else [ids[:room]]
        return [[*self.before, *piece, *self.after] for piece in pieces]


def wrap_tokenizer(tokenizer: Any) -> WindowTokenizer:
    """A tokenizer with its special tokens, found by tokenizing a word with and without them."""
    probe = "a"
    bare, full = encode_plain(tokenizer, probe), list(tokenizer(probe, verbose=False)["input_ids"])
    places = range(len(full) - len(bare) + 1)
    start = next(place for place in places if full[place : place + len(bare)] == bare)
    padding = tokenizer.pad_token_id
    return WindowTokenizer(tokenizer, full[:start], full[start + len(bare) :], 0 if padding is None else int(padding))


def encode_plain(tokenizer: Any, text: str) -> TokenIds:
    """A text's token ids without special ones, however many (`verbose` would warn of long texts)."""
    text = text.encode("utf-8", "replace").decode()  # tokenizers refuse lone surrogates
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def split_overlapping(ids: Sequence[int], size: int, overlap: int) -> list[TokenIds]:
    """Windows of at most `size` that share `overlap` with their neighbours and leave nothing out.

    Args:
        ids: Token ids to cut up; none give one empty window.
        size: Length of all windows but the last, which may be shorter.
        overlap: Smaller than `size`.
    """
    starts = range(0, max(len(ids) - overlap, 1), size - overlap)
    return [list(ids[start : start + size]) for start in starts]
