"""The simulated model in a process of its own, so that its work is not counted as its client's."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ADDRESS = re.compile(r"OpenAI at (\S+/v1)")


@dataclass(frozen=True)
class ServedModel:
    """A running `agentsys serve`."""

    base_url: str
    """Where it speaks OpenAI's format."""
    pid: int

    def cpu_s(self) -> float:
        """CPU seconds the server has used so far; nan where there is no /proc to tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def served_model(latency_ms: float, version: str = "v1.2.2") -> Iterator[ServedModel]:
    """Start the server on a free port; it ends with the block.

    Raises:
        RuntimeError: If it does not come up.
    """
    command = [sys.executable, "-m", "agentsys", "serve", "--port", "0"]
    command += ["--latency-ms", str(latency_ms), "--version", version]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        banner = server.stdout.readline() if server.stdout else ""
        found = _ADDRESS.search(banner)
        if found is None:
            raise RuntimeError(f"agentsys serve did not start: {banner!r}")
        yield ServedModel(found.group(1), server.pid)
    finally:
        server.terminate()
        server.wait(timeout=30)
