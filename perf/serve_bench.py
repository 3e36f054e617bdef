"""The served agent's own cost, for `make bench`: CPU a call with few and with many conversations kept, and waiting.

A server of its own process with `defense=none` stands before the constant model; light clients of this
process ask it and, beside that, the model itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from constant_model import CALLS, constant_model

KEPT = 4000
AT_ONCE = 200
LATENCY_S = 0.2
SAMPLE = 100
"""Conversations that CPU a call is measured over."""
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("a", "b")
]


@contextmanager
def served_agent(model_url: str) -> Iterator[tuple[str, int]]:
    """Base URL and process id of a served agent before a model."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["model=served", f"model.base_url={model_url}", "defense=none", f"logdir={folder}"]
        command = [sys.executable, "-m", "agentsys", "serve", "--port", "0", *chosen]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                banner = ""
                while not (found := re.search(r"OpenAI at\s+(http\S+/v1)", banner)):
                    line = process.stdout.readline()
                    if not line:
                        raise SystemExit(f"the server did not start: {banner}")
                    banner += line
                yield found[1], process.pid
            finally:
                process.terminate()


async def converse(url: str, times: list[float]) -> None:
    """One conversation over a connection of its own: every call's seconds, the first's included."""
    host = urlsplit(url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for _ in range(CALLS):
        started = time.perf_counter()
        body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
        head = f"POST {host.path}/chat/completions HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}\r\n".encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answered.lower())
        assert length is not None, answered
        message = json.loads(await reader.readexactly(int(length[1])))["choices"][0]["message"]
        times.append(time.perf_counter() - started)
        messages.append(message)
        results = message.get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in results]
    writer.close()


async def converse_at_once(url: str, count: int, at_a_time: int) -> list[float]:
    """Seconds of every call of so many conversations."""
    times: list[float] = []
    room = asyncio.Semaphore(at_a_time)

    async def one() -> None:
        async with room:
            await converse(url, times)

    await asyncio.gather(*(one() for _ in range(count)))
    return times


def cpu_of_process(pid: int) -> float:
    """CPU seconds of a process so far."""
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - no file of ours
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_cpu() -> Sequence[float]:
    """CPU milliseconds of the server for each call, with no conversation kept and with many."""
    found = []
    with constant_model(0.0) as model, served_agent(model.base_url) as (url, pid):
        asyncio.run(converse_at_once(url, 20, 4))
        for more in (0, KEPT):
            asyncio.run(converse_at_once(url, more, 32))
            before = cpu_of_process(pid)
            asyncio.run(converse_at_once(url, SAMPLE, 4))
            found.append(1000 * (cpu_of_process(pid) - before) / (SAMPLE * CALLS))
    return found


def measure_waits() -> Sequence[float]:
    """Median milliseconds of a call at so many conversations at once: direct, and through the agent."""
    with constant_model(LATENCY_S) as model, served_agent(model.base_url) as (url, _):
        return [
            1000 * statistics.median(asyncio.run(converse_at_once(base, AT_ONCE, AT_ONCE)))
            for base in (model.base_url, url)
        ]


def serve_rows() -> Iterator[tuple[str, str]]:
    """What is measured, and its figures."""
    few, many = measure_cpu()
    yield (
        f"`agentsys serve`, CPU a call, ms: none kept / {KEPT:,} conversations kept",
        f"{few:.1f} / {many:.1f}",
    )
    direct, served = measure_waits()
    what = (
        f"median call at {AT_ONCE} conversations and {LATENCY_S * 1000:.0f} ms upstream, ms: direct / served"
    )
    yield what, f"{direct:.0f} / {served:.0f} ({served / direct:.1f} times)"


if __name__ == "__main__":
    for row in serve_rows():
        print(*row, sep=": ")
