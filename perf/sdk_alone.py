"""What the vendor's SDK alone reaches: the most that any runner on it could, on this machine.

Threads do nothing but post one request of 10 kB again and again, without a benchmark, a store or a record.
What is missing from the latency's limit here is missing from everybody's who posts through the SDK.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from bench_table import Table
from served_model import served_model

LATENCY_MS = 200.0
SECONDS = 15.0
THREADS_A_CLIENT = 16
BODY = json.dumps({"model": "simulated", "messages": [{"role": "user", "content": "Hello there. " * 800}]})


def tables() -> Iterator[Table]:
    """Calls a second of 32 and 64 threads, in one process and in four."""
    rows = []
    with served_model() as server:
        for processes, threads in ((1, 32), (1, 64), (4, 8), (4, 16)):
            command = [sys.executable, __file__, server.base_url(LATENCY_MS), str(threads)]
            started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
            calls, used = (sum(each) for each in zip(*map(_told, started), strict=True))
            limit = processes * threads / (LATENCY_MS / 1000) * SECONDS
            rows.append((str(processes), str(threads), f"{calls / limit:.0%}", f"{1000 * used / calls:.1f}"))
    said = (
        f"OpenAI's SDK alone, {LATENCY_MS:.0f} ms for each call: "
        "what a runner that posts through it could reach at most."
    )
    yield Table(said, ("Processes", "Threads each", "Of the latency's limit", "CPU, ms per call"), rows)


def _told(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    calls, used = json.loads(process.communicate()[0])
    return calls, used


def post(base_url: str, threads: int) -> tuple[int, float]:
    """Post for a while; how many replies came, and the CPU seconds of it."""
    import openai

    clients = [
        openai.OpenAI(base_url=base_url, api_key="x", max_retries=0)
        for _ in range(-(-threads // THREADS_A_CLIENT))
    ]
    counts = [0] * threads
    go = threading.Barrier(threads + 1)
    begun = 0.0

    def send(number: int) -> None:
        client = clients[number % len(clients)]
        options: Any = {"headers": {"Content-Type": "application/json"}}

        def one() -> None:
            client.post("/chat/completions", cast_to=bytes, content=BODY.encode(), options=options)

        one()  # its connection, off the clock
        go.wait()
        while time.monotonic() < begun + SECONDS:
            one()
            counts[number] += 1

    running = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    begun, used = time.monotonic() + 60, time.process_time()
    go.wait()
    begun, used = time.monotonic(), time.process_time()
    for thread in running:
        thread.join()
    return sum(counts), time.process_time() - used


if __name__ == "__main__":
    print(json.dumps(post(sys.argv[1], int(sys.argv[2]))))
