"""Ids of a served agent's calls: every client takes them, and stored files are known by them."""

from __future__ import annotations

import re

from agentsys.records.served_call_ids import ANSWER, TOOL, is_call_id, make_call_id


def test_ids_are_call_and_32_hex_digits_and_known_again_by_their_kind() -> None:
    for kind, other in ((TOOL, ANSWER), (ANSWER, TOOL)):
        made = {make_call_id(kind) for _ in range(100)}
        assert len(made) == 100
        assert all(re.fullmatch("call_[0-9a-f]{32}", one) for one in made)
        assert all(is_call_id(kind, one) and not is_call_id(other, one) for one in made)


def test_ids_of_others_are_not_ours_and_older_ones_are() -> None:
    others = ["call_" + "0123456789abcdef" * 2, "call_abc", "", None, "answer_" + "0" * 32, 5]
    assert not any(is_call_id(kind, one) for kind in (TOOL, ANSWER) for one in others)
    assert is_call_id(TOOL, "agentsys_" + "0" * 32)
