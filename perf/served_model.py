"""The simulated model behind a server that answers from memory, so that its thinking takes no client's CPU.

`agentsys serve` thinks for about 16 ms of CPU per case, on the cores that its client is measured on. In front
of it stands a small server, a process of its own, that learns the reply to each request by passing it on
once; asked again, it answers after the latency that stands in the address (`/200/v1/...`: 200 ms). What it
has not learnt it passes on, and counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class ServedModel:
    """A running server of learnt replies, and the model behind it."""

    port: int
    pids: tuple[int, int]

    def base_url(self, latency_ms: float = 0.0) -> str:
        """Where it speaks OpenAI's format and takes so long for each reply."""
        return f"http://127.0.0.1:{self.port}/{latency_ms:g}/v1"

    def cpu_s(self) -> float:
        """CPU seconds that both have used so far; nan where there is no /proc to tell."""
        try:
            stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids]
        except OSError:
            return float("nan")
        return sum(int(one[11]) + int(one[12]) for one in stats) / os.sysconf("SC_CLK_TCK")

    def passed_on(self) -> int:
        """Requests so far that it had not learnt."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/passed_on") as answer:
            return int(answer.read())


@contextlib.contextmanager
def served_model(version: str = "v1.2.2") -> Iterator[ServedModel]:
    """Start both on free ports; they end with the block.

    Raises:
        RuntimeError: If one does not come up.
    """
    with contextlib.ExitStack() as stack:
        serve = [sys.executable, "-m", "agentsys", "serve", "--port", "0", "--version", version]
        model, behind = _started(serve, stack)
        front, port = _started([sys.executable, __file__, str(behind)], stack)
        yield ServedModel(port, (front.pid, model.pid))


def _started(command: list[str], stack: contextlib.ExitStack) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait, timeout=30)
    stack.callback(process.terminate)
    banner = process.stdout.readline() if process.stdout else ""
    found = _ADDRESS.search(banner)
    if found is None:
        raise RuntimeError(f"{' '.join(command)} did not start: {banner!r}")
    return process, int(found.group(1))


@dataclass
class Replies:
    """Replies of the model behind, by request."""

    port: int
    passed_on: int = 0
    _learnt: dict[bytes, bytes] = field(default_factory=dict)

    async def reply(self, path: str, body: bytes) -> bytes:
        """The answer as it goes over the wire."""
        key = hashlib.sha256(path.encode() + b"\0" + body).digest()
        if key not in self._learnt:
            self.passed_on += 1
            status, answer = await asyncio.to_thread(self._asked, path, body)
            if status != http.HTTPStatus.OK:
                return answer
            self._learnt[key] = answer
        return self._learnt[key]

    def _asked(self, path: str, body: bytes) -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            headers = {"Content-Type": "application/json", "Authorization": "Bearer x"}
            connection.request("POST" if body else "GET", path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, _on_the_wire(answer.status, answer.read())


def _on_the_wire(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """A client's connection: HTTP/1.1 with a length, one request after the other."""

    def __init__(self, replies: Replies) -> None:
        self._replies, self._heard = replies, bytearray()
        self._tasks = set[asyncio.Task[None]]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        end = self._heard.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._heard[:end])
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        whole = end + 4 + (int(length.group(1)) if length else 0)
        if len(self._heard) < whole:
            return
        body = bytes(self._heard[end + 4 : whole])
        del self._heard[:whole]
        task = asyncio.ensure_future(self._answer(head.split(b" ", 2)[1].decode(), body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, address: str, body: bytes) -> None:
        if address == "/passed_on":
            self._transport.write(_on_the_wire(200, str(self._replies.passed_on).encode()))
            return
        begun = asyncio.get_running_loop().time()
        _, latency_ms, path = address.split("/", 2)
        answer = await self._replies.reply(f"/{path}", body)
        await asyncio.sleep(begun + float(latency_ms) / 1000 - asyncio.get_running_loop().time())
        self._transport.write(answer)


async def _serve(behind: int) -> None:
    replies = Replies(behind)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(replies), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
