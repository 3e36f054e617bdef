"""Keys and credentials are cut out of texts, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.secrets import mask_address_credentials, mask_credentials, mask_key

KEY = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Bearer {KEY}!", "Bearer ***!"),
        (f"{KEY}{KEY}", "***"),
        (f"starts {KEY[:15]}...", "starts ***..."),
        (f"ends ...{KEY[-15:]}", "ends ...***"),
        (f"middle {KEY[7:30]}", "middle ***"),
        (f"short {KEY[:11]}", f"short {KEY[:11]}"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_the_key_and_its_longer_parts_are_cut(text: str, left: str) -> None:
    assert mask_key(text, KEY) == left


@pytest.mark.parametrize("key", [None, "", "none", "EMPTY", "sk-1234"])
def test_a_stand_in_for_a_key_cuts_nothing(key: str | None) -> None:
    assert mask_key("none of the EMPTY sk-1234 words", key) == "none of the EMPTY sk-1234 words"


@given(st.text(alphabet="skab-01", max_size=200), st.text(alphabet="skab-01", min_size=12, max_size=40))
def test_no_twelve_characters_of_a_key_stay_and_nothing_else_goes(text: str, key: str) -> None:
    grams = {key[i : i + 12] for i in range(len(key) - 11)}
    found = mask_key(text, key)
    assert not any(text[i : i + 12] in found and text[i : i + 12] in grams for i in range(len(text) - 11))
    if not any(gram in text for gram in grams):
        assert found == text or "***" in found  # base64 of the key may stand there by chance
    pieces = found.split("***")
    assert "".join(pieces) == "" or all(piece in text for piece in pieces)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://user:pass@host/v1", "http://***@host/v1"),
        ("https://token@host:8000", "https://***@host:8000"),
        ("http://host/v1?mail=a@b", "http://host/v1?mail=a@b"),
        ("write to a@b.c", "write to a@b.c"),
    ],
)
def test_user_and_password_of_an_address_are_masked(text: str, left: str) -> None:
    assert mask_address_credentials(text) == left
    assert mask_credentials({"a": [text, 5], "b": (text,)}) == {"a": [left, 5], "b": (left,)}
