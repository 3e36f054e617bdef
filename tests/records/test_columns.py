"""Rows -> columns -> rows, and rows -> a frame: nothing is lost, whatever a column holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
from stored_cases import row

from agentsys.records import columns
from agentsys.records.case_row import COLUMNS, CaseRow


def _various(number: int) -> list[CaseRow]:
    """Rows that differ in numbers, texts and mappings, with some of each missing, and all of others."""
    return [
        replace(
            row(),
            source=f"{at}.json",
            user_task_id=f"user_task_{at % 7}",
            duration_s=None if at % 3 else at / 8,
            raw_round=None if at % 5 else at,
            injection_success=(None, True, False)[at % 3],
            error_kind=None,
            calls={"send": at % 4} if at % 2 else {},
            notes=("said",) if at % 11 == 0 else (),
            gates={},
        )
        for at in range(number)
    ]


@pytest.mark.parametrize("number", [0, 1, 200])
def test_rows_come_back_as_they_were_and_in_order(number: int) -> None:
    rows = _various(number)
    packed, left_out = columns.pack_rows(rows)
    again = columns.unpack_rows(packed, [one.source for one in rows], range(number))
    assert again == rows and not left_out
    assert columns.unpack_rows(packed, [rows[-1].source], [number - 1]) == rows[-1:] if rows else not again
    assert len({id(one.model) for one in again}) <= 1


@pytest.mark.parametrize(
    "odd",
    [{"duration_s": math.inf}, {"prompt_tokens": 2**70}, {"measured": {"share": math.nan}}],
    ids=["inf", "huge", "nan"],
)
def test_a_row_that_json_cannot_give_back_is_left_out(odd: dict[str, object]) -> None:
    plain, other, last = _various(3)
    packed, left_out = columns.pack_rows([plain, replace(other, **odd), last])  # type: ignore[arg-type]
    assert left_out == {1}
    assert columns.unpack_rows(packed, ["0.json", "2.json"], [0, 1]) == [plain, last]


def test_a_frame_has_a_type_for_each_column_and_keeps_missing_values_apart() -> None:
    rows = _various(12)
    frame = columns.build_frame([*rows, replace(rows[0], prompt_tokens=2**70)])
    assert tuple(frame.columns) == COLUMNS
    types = {name: str(frame[name].dtype) for name in ("model", "epoch", "raw_round", "exposed_raw", "calls")}
    assert types == {
        "model": "str",
        "epoch": "int64",
        "raw_round": "Int64",
        "exposed_raw": "boolean",
        "calls": "object",
    }
    assert frame["raw_round"].tolist()[:6] == [0, pd.NA, pd.NA, pd.NA, pd.NA, 5]
    assert frame["prompt_tokens"].tolist()[-1] is pd.NA
    assert str(frame["error_kind"].dtype) == "object" and frame["error_kind"].tolist()[0] is None
