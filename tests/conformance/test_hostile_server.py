"""Many ways for a server to be hostile or broken: each ends its own case, in time, and nothing else.

One `agentsys run` per vendor: every wrong answer gets a conversation of its own, the other conversations are
answered well, and all of them run side by side.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fuzz_parsers
import pytest
from hostile_modes import BY_VENDOR, ENDS_THE_RUN, GOOD, KEY, PORT, TRANSPORT, Mode, bomb
from hostile_server import Answer, hostile

TIMEOUT_S, SLACK_S = 3.0, 5.0
MOST_MEGABYTES = 600
MEASURE = """
import pathlib, resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command and writes its peak memory in KiB.

A small process of its own: Linux counts the memory of the process that starts another as the other's peak.
"""
MODELS = {"openai": "served", "anthropic": "served-anthropic", "google": "served-google"}
VENDORS = tuple(MODELS)


def modes_of(vendor: str) -> list[Mode]:
    """The vendor's own, and every third of those below JSON, which are the same for all."""
    return [*BY_VENDOR[vendor], *TRANSPORT[VENDORS.index(vendor) :: len(VENDORS)]]


def prompt_of(request: bytes) -> str:
    """The user's request in an HTTP request of any of the three formats."""
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    turns = body.get("contents") or body["messages"]
    first = next(turn for turn in turns if turn["role"] == "user")
    said = first.get("parts") or first["content"]
    return str(said if isinstance(said, str) else said[0]["text"])


@dataclass
class Assigned:
    """Which conversation gets which wrong answer, to its first request; all else is answered well."""

    vendor: str
    modes: Sequence[Mode]
    other_port: int
    by_prompt: dict[str, Mode | None] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: bytes) -> Answer:
        prompt = prompt_of(request)
        with self.lock:
            if prompt in self.by_prompt:
                return iter([GOOD[self.vendor]])
            place = len(self.by_prompt)
            mode = self.by_prompt[prompt] = self.modes[place] if place < len(self.modes) else None
        return iter([GOOD[self.vendor]]) if mode is None else self._pointed(mode.answer())

    def _pointed(self, answer: Answer) -> Iterator[bytes | float]:
        port = str(self.other_port).encode()
        for piece in answer:
            yield piece.replace(PORT.encode(), port) if isinstance(piece, bytes) else piece


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    status: int
    output: bytes
    megabytes: float
    records: list[dict[str, Any]]
    folder: Path

    def by_prompt(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self.records:
            first = next(message for message in record["messages"] if message["role"] == "user")
            told = {"took_s": record["duration"], "error": record["error"]}
            found.setdefault(first["content"][0]["content"], []).append(record["agentsys"] | told)
        return found


def run(folder: Path, vendor: str, base_url: str, *options: str) -> Ran:
    """`agentsys run` against a server, in a process of its own so that its memory can be measured."""
    command = [
        *(sys.executable, "-m", "agentsys", "run", f"model={MODELS[vendor]}", f"logdir={folder / 'logs'}"),
        f"model.base_url={base_url}{'/v1' if vendor == 'openai' else ''}",
        *("model.api_key_env=HOSTILE_KEY", f"model.timeout_s={TIMEOUT_S}", "+model.max_reply_bytes=8000000"),
        "model.retry={attempts: 1, base_s: 0.01, longest_s: 1.0, total_s: 5.0, empty_retries: 0}",
        *("defense=none", "attack=none", "executor.workers=12", "preflight=false", *options),
    ]
    environment = {**os.environ, "HOSTILE_KEY": KEY}
    peak = folder / "peak"
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, str(peak), *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    stored = [
        json.loads(p.read_bytes()) for p in (folder / "logs").rglob("*.json") if ".agentsys" not in p.parts
    ]
    return Ran(ended.returncode, ended.stdout, int(peak.read_text()) / 1024, stored, folder)


def leaks_in(ran: Ran) -> list[str]:
    """Where a key, or a byte that steers a terminal, stands in the output or anywhere in the log folder."""
    secret = [KEY.encode(), KEY[:12].encode(), KEY[-12:].encode(), base64.b64encode(KEY.encode())[:16]]
    places = {"output": ran.output}
    for path in (ran.folder / "logs").rglob("*"):
        places[f"name of {path.name!r}"] = os.fsencode(path.name)
        places[str(path)] = path.read_bytes() if path.is_file() else b""
    return [
        f"{mark!r} in {where}"
        for where, text in places.items()
        for mark in (*secret, b"\x1b", b"\x07", "\x9b".encode(), "\u202e".encode())
        if mark in text and not (mark == "\u202e".encode() and where.endswith(".json"))
    ]


def outcome(record: dict[str, Any]) -> str:
    return "ok" if record["status"] == "ok" else str(record["error_kind"])


@pytest.mark.slow
@pytest.mark.parametrize("vendor", VENDORS)
def test_every_way_ends_its_own_case_in_time_and_no_other(vendor: str, tmp_path: Path) -> None:
    bomb()
    with hostile(lambda _: iter([b""])) as other:
        assigned = Assigned(vendor, modes_of(vendor), other.port)
        with hostile(assigned.answer) as server:
            ran = run(tmp_path, vendor, server.base_url)
        assert other.requests == [], "a redirect was followed"
    assert b"Traceback" not in ran.output
    assert ran.status == 0, ran.output[-2000:]
    assert len(ran.records) == 97
    wrong = {}
    for prompt, records in ran.by_prompt().items():
        mode = assigned.by_prompt[prompt]
        right = ("ok",) if mode is None else mode.kinds if len(records) == 1 else ("ok", *mode.kinds)
        for record in records:
            late = record["took_s"] > TIMEOUT_S + SLACK_S
            if outcome(record) not in right or late:
                name = "a good answer" if mode is None else mode.name
                wrong[name] = (outcome(record), right, record["error"], round(record["took_s"], 1))
    assert wrong == {}
    assert {mode.name for mode in modes_of(vendor)} <= {m.name for m in assigned.by_prompt.values() if m}
    assert leaks_in(ran) == []
    assert ran.megabytes < MOST_MEGABYTES


@pytest.mark.slow
@pytest.mark.parametrize("mode", ENDS_THE_RUN, ids=lambda mode: mode.name)
def test_an_error_that_ends_the_run_is_one_clean_line(mode: Mode, tmp_path: Path) -> None:
    assigned = Assigned("openai", [mode], 0)
    with hostile(assigned.answer) as server:
        ran = run(tmp_path, "openai", server.base_url, "limit_per_suite=4", "benchmark.suites=[banking]")
    assert ran.status == 1
    assert b"Traceback" not in ran.output
    assert f"Stopped early: {mode.kinds[0]}" in ran.output.decode()
    assert mode.kinds[0] in {outcome(record["agentsys"]) for record in ran.records}
    assert leaks_in(ran) == []


TARGETS = {target.name: target for target in fuzz_parsers.targets()}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_reply_raises_nothing_but_our_own_errors(name: str) -> None:
    found = fuzz_parsers.fuzz(TARGETS[name], 600, seed=1)
    assert found.texts == 600
    assert found.crashes == []


@pytest.mark.slow
def test_a_parser_that_fails_or_dawdles_is_found() -> None:
    def bad(text: str) -> None:
        if "99999" in text:
            raise KeyError("x")
        if text == "12ü":
            sum(range(10_000_000))

    found = fuzz_parsers.fuzz(fuzz_parsers.Target("bad", bad, ["12ü", "12"]), 60, seed=0)
    assert "KeyError" in found.crashes[0][0]
    assert found.slow
