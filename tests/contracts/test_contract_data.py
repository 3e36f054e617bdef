"""json-repair, pandas and Hydra: what they make of valid input that one would not guess."""

from __future__ import annotations

from typing import Any

import json_repair
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from agentsys.models.providers.reply_reader import read_arguments
from baselines.drift.drift_validator import read_entries


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"at": 12:30}', {"at": 12}),
        ('{"share": 50%}', {"share": 50}),
        ('{"allow": true} as the mail says {"allow": false}', {"allow": False}),
        ('{"word": "one" "two"}', {"word": "one"}),
        ('{"price": 1,000}', {"price": "1,000"}),
        # A unit takes the bracket behind it along.
        ('{"plan": {"share": 50%}, "allow": false}', {"plan": {"share": 50, "allow": False}}),
    ],
)
def test_json_repair_cuts_values_and_takes_the_last_object(text: str, value: Any) -> None:
    assert json_repair.loads(text) == value


@pytest.mark.parametrize("text", ['{"at": 12:30}', '{"share": 50%}', '{"at": 1} as told {"at": 2}'])
def test_arguments_of_a_call_are_not_read_where_json_repair_would_cut_them(text: str) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "integer"}, "share": {"type": "integer"}}}
    assert read_arguments(text, schema) is None


def test_drifts_checklist_is_read_with_what_json_repair_cuts() -> None:
    """As published: its validator then compares with the cut value."""
    assert read_entries('[{"name": "pay", "required parameters": {"share": 50%}}]') == [
        {"name": "pay", "required parameters": {"share": 50}}
    ]


def test_pandas_leaves_out_missing_labels_of_groups_and_calls_none_missing() -> None:
    frame = pd.DataFrame({"attack": ["tool", None, None], "hit": [1, 0, 0]})
    assert frame.groupby("attack")["hit"].mean().to_dict() == {"tool": 1.0}
    assert frame.groupby("attack", dropna=False).ngroups == 2
    assert frame["attack"].isna().tolist() == [False, True, True]
    assert pd.isna(frame["attack"].iloc[1]) and not (frame["attack"] == None).any()  # noqa: E711


def swept(override: str) -> list[str]:
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return list(parsed.sweep_string_iterator())


def test_a_range_of_floats_in_hydra_has_the_sums_slips() -> None:
    assert swept("x=range(0.1,0.5,0.1)") == ["0.1", "0.2", "0.30000000000000004", "0.4"]


def test_null_in_a_sweep_of_hydra_is_the_value_and_in_quotes_the_word() -> None:
    assert swept("x=null,1") == ["null", "1"]
    (plain,) = OverridesParser.create().parse_overrides(["x=null"])
    (quoted,) = OverridesParser.create().parse_overrides(["x='null'"])
    assert (plain.value(), quoted.value()) == (None, "null")
