"""`agentsys view` on the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from browser import PATIENCE_S
from reported_cases import store
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError


def run(*arguments: object) -> None:
    CliRunner().invoke(app, ["view", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.slow
def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    store(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "agentsys", "view", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "400"},  # the line in one piece, however narrow the screen here is
        # As in a terminal: a test that was started in the background comes with Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"{tmp_path}: open http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(line.split()[2], timeout=PATIENCE_S) as answer:
            assert "<title>agentsys view: Runs in" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_slips_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="not loopback"):
        run(tmp_path, "--host", "0.0.0.0")
    with pytest.raises(ConfigError, match="No folder"):
        run(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="No folder 'results/runs'"):
        run()
    with pytest.raises(ConfigError, match="no such file"):
        run(tmp_path, "--names", tmp_path / "names.yaml")
