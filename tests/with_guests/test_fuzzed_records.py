"""Mutated records, artefacts and files of names: nothing but our own exceptions, from any reader.

`AGENTSYS_FUZZ=100000 pytest -m slow tests/with_guests/test_fuzzed_records.py` makes so many mutants.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from stored_cases import case_of, model_call, span, store_own, store_published

from agentsys.analysis.metrics.search_budget import read_searches
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.errors import ConfigError
from agentsys.models.recorded_runs import UnreadableRun, read_run
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_reader import load_runs, read_cases
from agentsys.records.case_row import COLUMNS, CaseRow
from agentsys.records.columns import Columns
from agentsys.records.names_file import RunNames
from agentsys.records.resolve_runs import resolve_runs
from agentsys.records.stored_file import read_case_file
from agentsys_plugins.audit.rescoring.read_trajectories import read_trajectory
from agentsys_plugins.audit.rescoring.recorded_trajectory import Unusable
from agentsys_plugins.redteam.cache_files import read_texts

Json = Any
MUTANTS = int(os.environ.get("AGENTSYS_FUZZ", "3000"))
BATCH = 250
"""Mutants that are read together, as one folder, now and then."""
OURS = (UnreadableRecord, Unusable, UnreadableRun, ConfigError)
ODD: list[Json] = [
    None, True, 0, -1, 5, 10**30, 2**63, 1e400, float("nan"), -0.0, "", "x", "\ud800", "\x00\x1b[31m", "=1+1",
    "user_task_0", "none", "important_instructions", "workspace", "injection_task_13", "v1.2.2", "x" * 4000,
    [], {}, [[]], [5], {"a": 5}, [{"role": "tool"}], [{"role": 5, "content": {"x": 1}}], "../../etc",
]  # fmt: skip


def calls() -> list[Json]:
    call = {"function": "read_file", "args": {"file_path": "a.txt"}, "id": "a"}
    return [
        {"role": "system", "content": [{"type": "text", "content": "Be good."}]},
        {"role": "user", "content": [{"type": "text", "content": "Read it."}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "INJECTED " * 9, "tool_call_id": "a", "tool_call": call, "error": None},
        {"role": "assistant", "content": [{"type": "text", "content": "Done."}], "tool_calls": None},
    ]


def seeds(folder: Path) -> list[Json]:
    """One of each kind of file that a reader may meet."""
    reply = model_call("main", 1, 1, cached=1, reasoning=1, cost_usd=0.1)
    spans = [
        span(0, None, "main", calls=[reply], messages=calls()),
        span(1, None, "worker", calls=[reply], messages=calls(), decision={"output_chars": 9}),
        span(2, None, "validator", calls=[reply], decision={"allow": False}),
        span(3, None, "tool", calls=[reply], name="read_file", decision={"args": {}}),
    ]
    facts = {"number": 1, "stream": 1, "depth": 1, "parent": None, "text": "t"}
    own = {"spans": spans, "written": {"v": "INJECTED " * 9}, "asked": {"main": "n"}, "attempt": facts}
    files = [
        store_own(folder / "o", case_of(), **own),
        store_own(folder / "o", case_of(attack="none"), spans=spans),
        store_published(folder / "p", messages=calls(), injections={"v": "INJECTED " * 9}),
    ]
    found = [json.loads(path.read_text()) for path in files]
    for one in found:
        one["messages"] = calls()
    tasks = ("suite_name", "user_task_id", "injection_task_id", "attack_type")
    keys = ("pipeline_name", *tasks, "utility", "security")
    drift = {key: found[2][key] for key in keys} | {
        "conversations": calls(), "build_constraints": True, "injection_isolation": True,
        "dynamic_validation": True, "adaptive_attack": False, "tool_permission": {},
        "initial_trajectory": [], "initial_checklist": "",
        "benchmark_version": "v1.2", "total_tokens": 5, "duration": 1.0,
    }  # fmt: skip
    entry = {"suite": "banking", "user_task": "user_task_0", "injection_task": 1, "text": "t"}
    return [*found, drift, [entry, entry], {"format": 1, "entries": [entry]}, {"m*": {"model": "x"}}]


def mutated(seed: Json, draw: random.Random) -> bytes:
    """A seed with one to three places changed; sometimes its bytes as well."""
    value = copy.deepcopy(seed)
    for _ in range(draw.randint(1, 3)):
        _change(value, draw)
    content = json.dumps(value).encode("utf-8", "surrogatepass")
    if draw.random() < 0.08:
        at = draw.randrange(len(content))
        content = content[:at] + draw.choice([b"", b"\xff", b"{", b"[" * 400, b'"']) + content[at + 1 :]
    return content


def _change(value: Json, draw: random.Random) -> None:
    """Goes down at random and changes what is there."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.2:
            kind = draw.random()
            if kind < 0.15:
                del value[key]
            elif kind < 0.2:
                value[key] = _deep(draw.choice([30, 100, 300]))
            elif kind < 0.3 and isinstance(value, list):
                value.append(inner)  # JSON has no way to say that both are one
            else:
                value[key] = copy.deepcopy(draw.choice(ODD))
            return
        value = inner


def _deep(depth: int) -> Json:
    """Nested lists: no deeper than Python can copy and write."""
    value: Json = 5
    for _ in range(depth):
        value = [value]
    return value


def _kept(reader: Callable[[], Json]) -> Json:
    try:
        return reader()
    except OURS as error:
        assert "\n" not in str(error)
        return None


def _read(path: Path, rows: list[CaseRow]) -> None:
    name = str(path)
    row = _kept(lambda: read_case_file(name))
    if row is not None:
        rows.append(row)
    _kept(lambda: read_trajectory(name))
    _kept(lambda: read_run(path))
    _kept(lambda: read_texts(path))
    if path.stem.endswith("0"):  # YAML takes longer than all the others together
        _kept(lambda: list(RunNames(path).describe_unused()))


def _together(folder: Path) -> None:
    """What the commands do with a folder of such files."""
    reading = _kept(lambda: read_cases([folder]))
    if reading is not None:
        assert tuple(write_report_notes(ResultFrame(reading)))
        assert len(load_runs(folder)) == len(reading.cases)
    _kept(lambda: read_searches([folder]))


@pytest.mark.slow
def test_no_mutant_of_a_stored_file_raises_anything_but_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw, rows, kinds = random.Random(0), list[CaseRow](), seeds(tmp_path / "seeds")
    for number in range(MUTANTS):
        batch = tmp_path / f"b{number // BATCH}"
        place = batch / "m.attempts" if number % 5 == 0 else batch
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{number}.json"
        path.write_bytes(mutated(draw.choice(kinds), draw))
        _read(path, rows)
        if number % BATCH == BATCH - 1:
            packed = Columns()
            packed.add([{name: getattr(row, name) for name in COLUMNS} for row in rows])
            Columns.parse(*packed.dump(kept := packed.find_storable(range(len(rows)))), len(kept))
            resolve_runs(rows, RunNames())
            rows.clear()
            _together(batch)
            for file in batch.rglob("*.json"):
                file.unlink()


def test_the_seeds_are_what_the_readers_know(tmp_path: Path) -> None:
    read = []
    for number, seed in enumerate(seeds(tmp_path / "seeds")):
        path = tmp_path / f"{number}.json"
        path.write_bytes(orjson.dumps(seed))
        _read(path, read)
    assert [(row.defense, row.foreign) for row in read] == [
        ("agentsys", False),
        ("agentsys", False),
        ("none", True),
        ("drift", True),
    ]
