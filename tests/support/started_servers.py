"""Servers that nobody here wrote, started as processes of their own by the tests that talk to them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

PATIENCE_S = 600


def command(name: str, variable: str, extra: str, modules: Sequence[str]) -> Path:
    """A server's command: what a variable names, or the one beside this Python; skips where none could start.

    Args:
        name: The command's name.
        variable: Environment variable that may name the command of another environment.
        extra: The extra that installs it.
        modules: What the server needs besides, looked for in this environment.
    """
    given = os.environ.get(variable)
    if given:
        return Path(given)
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    if beside is None or not all(map(find_spec, modules)):
        pytest.skip(f"needs the extra `{extra}`: pip install 'agentsys-bench[{extra}]'")
    return Path(beside)


@contextmanager
def started(
    command: Sequence[str], log: Path, ready: Callable[[str], str | None], environment: Mapping[str, str]
) -> Iterator[str]:
    """Start a server and stop it afterwards.

    Args:
        command: The command with its arguments.
        log: File for what it prints.
        ready: Told what it has printed; gives its address as soon as it answers there.
        environment: Variables besides this process's own.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **environment}, stdin=subprocess.DEVNULL
        )
        try:
            yield _address(process, log, ready)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _address(process: subprocess.Popen[bytes], log: Path, ready: Callable[[str], str | None]) -> str:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        printed = log.read_text(errors="replace")
        assert process.poll() is None, printed[-2000:]
        address = ready(printed)
        if address is not None:
            return address
        time.sleep(0.5)
    pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def litellm_proxy(base_url: str, folder: Path) -> Iterator[str]:
    """The address of litellm's proxy, which passes all models on to a server of OpenAI's chat completions.

    Args:
        base_url: The server's base URL.
        folder: For its configuration and what it prints.
    """
    start = command("litellm", "AGENTSYS_LITELLM", "proxy", ["fastapi", "uvicorn"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    config = folder / "proxy.yaml"
    config.write_text(
        "model_list:\n"
        "  - model_name: served\n"
        f"    litellm_params: {{model: custom_openai/served, api_key: none, api_base: '{base_url}'}}\n"
    )
    address = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"

    def answering(_: str) -> str | None:
        try:
            with urllib.request.urlopen(f"{url}/health/liveliness", timeout=2):
                return url
        except OSError:
            return None

    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with started([str(start), *address], folder / "proxy.log", answering, environment):
        yield url
