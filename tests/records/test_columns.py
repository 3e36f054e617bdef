"""Rows -> columns -> rows: nothing is lost, whatever a column holds and however many rows there are."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from stored_cases import row

from agentsys.records import columns
from agentsys.records.case_row import CaseRow

FULL = 3 * columns._AT_ONCE


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


@pytest.mark.parametrize("number", [0, 1, FULL // 3, FULL // 3 + 1, FULL])
def test_rows_come_back_as_they_were_and_in_order(number: int) -> None:
    rows = _various(number)
    schema = pa.schema(columns.ROW_FIELDS)
    halves = [rows[: number // 2], rows[number // 2 :]]
    table = pa.concat_tables(
        [pa.Table.from_arrays(columns.row_arrays(some), schema=schema) for some in halves]
    )
    assert columns.rows_of(table, [one.source for one in rows]) == rows


def test_rows_of_a_part_of_a_table_are_those_of_its_lines() -> None:
    rows = _various(40)
    table = pa.Table.from_arrays(columns.row_arrays(rows), schema=pa.schema(columns.ROW_FIELDS))
    some = rows[13:31]
    assert columns.rows_of(table.slice(13, 18), [one.source for one in some]) == some


@pytest.mark.parametrize("values", [[5, None, 7, None], [True, None, False, None], [0.5, None, 1.5, None]])
def test_a_part_of_a_column_has_its_own_values_and_nulls(values: list[object]) -> None:
    assert columns.plain_list(pa.array(values)[1:], null=-1) == [-1, values[2], -1]
    assert columns.plain_list(pa.array(["a", None, "b", "a"]).dictionary_encode()[1:]) == [None, "b", "a"]
