"""A model of constant latency for `make bench`: an asyncio server that speaks OpenAI's chat completions.

Each conversation takes `CALLS` calls: in all but the last, the model asks for one of the tools that need no
arguments, then it says that it is done. So every runner makes the same calls on the same tasks, and what
differs between them is their own. A request with one tool at most (a runner that asks whether the model is
there, and calls tools) gets a short answer and is not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CALLS = 4
"""Calls of a conversation."""


@dataclass
class Served:
    """What the server has done so far."""

    calls: int = 0
    conversations: int = 0
    begun_s: float = 0.0
    """When the first request came, on the server's clock."""
    ended_s: float = 0.0
    """When the last reply went."""
    begun_cpu_s: float = 0.0
    """CPU seconds that the watched process had used when the first request came."""
    ended_cpu_s: float = 0.0
    """The same when the last reply went."""

    @property
    def seconds(self) -> float:
        """From the first request to the last reply."""
        return self.ended_s - self.begun_s


def make_reply(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: the next tool without arguments, or the end of the conversation."""
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    tools = _tools_without_arguments(request)
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if tools and turn < CALLS - 1:
        function = {"name": tools[turn % len(tools)], "arguments": "{}"}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "tool_calls" if message["content"] is None else "stop"
    return {
        "id": "bench",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _tools_without_arguments(request: dict[str, Any]) -> list[str]:
    functions = [tool["function"] for tool in request.get("tools") or ()]
    return sorted(one["name"] for one in functions if not one.get("parameters", {}).get("required"))


def _read_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its threads; 0 where there is no such process, or no Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _serve(latency_s: float) -> None:
    served, watched = Served(), 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: HTTP/1.1 with a length, one request after the other."""
        nonlocal watched
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            came = time.monotonic()
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next((int(one[15:]) for one in lines if one.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            if not length:
                watched = int(lines[0].partition("/watch/")[2].partition(" ")[0] or watched)
                said = json.dumps(asdict(served))
            else:
                request = json.loads(body)
                reply = make_reply(request)
                said = json.dumps(reply)
                if len(request.get("tools") or ()) > 1:
                    served.begun_cpu_s = served.begun_cpu_s or _read_cpu_s(watched)
                    served.begun_s = served.begun_s or came
                    served.calls += 1
                    served.conversations += reply["choices"][0]["finish_reason"] == "stop"
                await asyncio.sleep(came + latency_s - time.monotonic())
                served.ended_s, served.ended_cpu_s = time.monotonic(), _read_cpu_s(watched)
            sent = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(said)}\r\n\r\n"
            writer.write((sent + said).encode())

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class ConstantModel:
    """A running server.

    Args:
        port: Where it listens on this machine.
    """

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def served(self) -> Served:
        """What it has done so far."""
        return self._ask("")

    def watch(self, pid: int) -> None:
        """Note the CPU of this process at the first request and at the last reply (on Linux)."""
        self._ask(f"/watch/{pid}")

    def _ask(self, path: str) -> Served:
        with urllib.request.urlopen(self.base_url + path) as reply:
            return Served(**json.loads(reply.read()))


@contextmanager
def constant_model(latency_s: float) -> Iterator[ConstantModel]:
    """Start a server of its own process; it ends with the block."""
    command = [sys.executable, __file__, str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield ConstantModel(int(process.stdout.readline()))
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
