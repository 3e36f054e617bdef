"""DRIFT's readers of what models write: names are ASCII, and mending takes bounded time."""

from __future__ import annotations

import json

import pytest

from agentsys.models.prompted_tools import CallSyntaxError, write_reply
from baselines.drift.drift_agent import read_actor_reply, repair_calls
from baselines.drift.drift_validator import align_checklist, read_entries
from baselines.drift.drift_validator import repair_json_text as repaired_list


def test_a_word_with_an_umlaut_between_commas_is_no_call() -> None:
    body = "[send_message(body='Pizza, rösti, and tea'), read_file]"
    assert repair_calls(body) == "[send_message(body='Pizza, rösti, and tea'), read_file()]"
    assert repair_calls("[tea, thé, _x1, 1x, été()]") == "[tea(), thé, _x1(), 1x, été()]"


def test_a_checklist_that_is_nearly_json_is_mended() -> None:
    entry = {"name": "pay", "required parameters": {"to": "x"}, "conditions": None}
    nearly = json.dumps([entry])[:-1] + ","
    assert json.loads(repaired_list(nearly) or "") == [entry]
    assert read_entries(nearly) == [entry]


@pytest.mark.parametrize(
    "text",
    [
        "[" + '"a" b ' * 3000,
        '[{"```json\n[{"name":"f"}]\n``` ',
        "[" * 20_000,
        '{"a": ' * 15_000,
        "x" * 30_000,
    ],
)
def test_what_json_repair_would_stumble_over_is_no_checklist(text: str) -> None:
    assert repaired_list(text) is None or len(text) < 20_000
    assert read_entries(text) is None
    assert json.loads(align_checklist(text, ["pay"]))[0]["name"] == "pay"


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000])
def test_a_number_that_cannot_be_printed_is_no_argument(number: str) -> None:
    with pytest.raises(CallSyntaxError):
        read_actor_reply(write_reply("", f"[pay(amount={number})]", ""), parse_first=True)
