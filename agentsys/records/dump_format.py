"""Reads files of others that hold many cases: dumps with one trace a line, and Inspect's logs of its AgentDojo port.

A dump (`.jsonl`) has AgentDojo's own records, or what the public explorer of traces gives: messages, and metadata with
the case's keys. Inspect's logs are read by their own scores; its port calls `security` what is the attack's success.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsys.records.asb_format import AsbResultRow
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow

INSPECT_BENCHMARK = "inspect_agentdojo"
"""Inspect's port of AgentDojo: its cases and checks are not the package's, so they share no row with them."""

_INSPECT_NAME = r"\d{4}-\d\d-\d\dT[\d:+-]+_.+\.json"
TABLE_NAME = re.compile(rf"(?s:.*)\.(jsonl|eval|csv)|{_INSPECT_NAME}")
"""Names of files that may hold many cases: dumps, tables, and Inspect's logs."""
_SNIFFED = 1 << 16
_UNPACKED = "cannot be unpacked here; convert it: inspect log convert FILE --to json --output-dir DIR"


def is_dump(path: str) -> bool:
    """True if a file holds many cases in one of these forms; False if it cannot be read."""
    name = path.rpartition("/")[2]
    if name.endswith(".eval"):
        return zipfile.is_zipfile(path)
    if name.endswith(".csv") or not TABLE_NAME.fullmatch(name):
        return False
    try:
        with open(path, "rb") as file:  # noqa: PTH123  as in the other formats
            head = file.read(_SNIFFED)
    except OSError:
        return False
    marks = (b'"eval"',) if name.endswith(".json") else (b'"messages"', b'"metadata"', b'"role"')
    return any(mark in head for mark in marks)


def read_dump_rows(path: str) -> Iterator[AsbResultRow]:
    """Every case of a file; a bad one does not stop the others."""
    read = _read_lines if path.endswith(".jsonl") else _read_inspect_log
    try:
        yield from read(path)
    except NotImplementedError:
        yield AsbResultRow(path, None, _UNPACKED)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        yield AsbResultRow(path, None, f"cannot be read ({type(error).__name__})")


def _read_lines(path: str) -> Iterator[AsbResultRow]:
    from agentsys.records.agentdojo_format import (
        build_agentdojo_columns,
    )  # with the first line that is taken apart

    with open(path, "rb") as file:  # noqa: PTH123
        for number, line in enumerate(file, start=1):
            place = f"{path}#{number}"
            try:
                stored = _make_agentdojo_record(json.loads(line)) if line.strip() else None
                if stored is not None:
                    yield AsbResultRow(place, CaseRow(**build_agentdojo_columns(stored, place)), None)
            except UnreadableRecord as fault:
                yield AsbResultRow(place, None, str(fault))
            except (ValueError, RecursionError):
                yield AsbResultRow(place, None, "not valid JSON, perhaps cut off")


def _make_agentdojo_record(trace: Any) -> dict[str, Any] | None:
    """One trace in AgentDojo's form; None for the metadata of a whole dump."""
    if isinstance(trace, list):  # events, perhaps with metadata in front
        first = trace[0] if trace and isinstance(trace[0], dict) and "metadata" in trace[0] else {}
        trace = {"messages": trace[bool(first) :], **first}
    if not isinstance(trace, dict):
        raise UnreadableRecord("no trace: neither an object nor a list")
    if "suite_name" in trace:
        return trace
    facts = trace.get("metadata")
    if not isinstance(facts, dict) or "messages" not in trace:
        return None
    if not isinstance(trace["messages"], list) or "suite_name" not in facts:
        raise UnreadableRecord("a trace whose metadata names no suite of AgentDojo's")
    return {
        "injections": {},
        **facts,
        "pipeline_name": facts.get("pipeline_name") or facts.get("model"),
        "utility": facts.get("utility", facts.get("success")),
        "messages": [_level_calls(message) for message in trace["messages"]],
    }


def _level_calls(message: Any) -> Any:
    """A message with its calls in AgentDojo's form; the explorer has OpenAI's."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_level_call(call) for call in calls]}


def _level_call(call: Any) -> Any:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict):
        return call
    given = inner.get("arguments")
    args = json.loads(given) if isinstance(given, str) else given
    return {"function": inner.get("name"), "args": args or {}, "id": call.get("id")}


def _read_inspect_log(path: str) -> Iterator[AsbResultRow]:
    header, samples = _open_inspect_log(Path(path))
    about = header["eval"]
    if "agentdojo" not in str(about.get("task")):
        return
    for number, sample in enumerate(samples, start=1):
        place = f"{path}#{number}"
        try:
            yield AsbResultRow(place, _build_inspect_row(about, sample, place), None)
        except (KeyError, TypeError, AttributeError) as error:
            yield AsbResultRow(place, None, f"no sample of Inspect's AgentDojo: {type(error).__name__}")


def _open_inspect_log(path: Path) -> tuple[Mapping[str, Any], Iterable[Any]]:
    if path.suffix == ".json":
        whole = json.loads(path.read_bytes())
        return whole, whole.get("samples") or ()
    archive = zipfile.ZipFile(path)
    names = archive.namelist()
    header = "header.json" if "header.json" in names else "_journal/start.json"
    listed = (name for name in names if name.startswith("samples/"))
    return json.loads(archive.read(header)), (json.loads(archive.read(name)) for name in listed)


def _build_inspect_row(about: Mapping[str, Any], sample: Mapping[str, Any], place: str) -> CaseRow:
    """Build the row of one sample of Inspect's AgentDojo; its `security` is the attack's success."""
    facts, options = sample["metadata"], about.get("task_args") or {}
    values: dict[str, Any] = {}
    for score in (sample.get("scores") or {}).values():
        values |= score["value"] if isinstance(score["value"], dict) else {}
    injection = facts.get("injection_task_id")
    is_scored = "utility" in values and (injection is None or "security" in values)
    agent = options.get("agent", "default")
    return CaseRow(
        benchmark=INSPECT_BENCHMARK,
        version=str(about.get("task_version", UNRECORDED)),
        model=str(about["model"]),
        defense="none" if agent == "default" else str(agent),
        attack=NO_ATTACK if injection is None else str(options.get("attack", UNRECORDED)),
        suite=str(facts["task_suite_name"]),
        user_task_id=f"user_task_{facts['task_id']}",
        injection_task_id=None if injection is None else f"injection_task_{injection}",
        epoch=int(sample.get("epoch", 1)) - 1,
        utility=values.get("utility") in _CORRECT,
        # Correct, or 1.0, is an attack that was carried out: no secure agent.
        injection_success=None if injection is None else values.get("security") in _CORRECT,
        status="ok" if is_scored else "error",
        error_kind=None if is_scored else "unscored",
        duration_s=sample.get("total_time"),
        source=place,
    )


_CORRECT = ("C", 1, True)

POLARITY_NOTE = (
    "Inspect's AgentDojo: its `security` is 1.0 where every attack was carried out; shown here as ASR, the share of"
    " attacks that were."
)
