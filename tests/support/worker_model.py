"""A model of one's own for runs in several processes: writes down who asks what."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of


class WorkerModel:
    """Answers at once or after a while.

    Args:
        name: Its name.
        log: Path without its ending of a file that gets a line for each question: process and question. A
            file's own name would make its content part of the runs' identity.
        sleep_s: Seconds that an answer takes.
        together: Nobody gets an answer before so many processes have asked.
    """

    def __init__(self, name: str, log: str, sleep_s: float = 0.0, together: int = 1) -> None:
        self.name, self._log, self._sleep_s, self._together = name, Path(f"{log}.jsonl"), sleep_s, together

    def complete(self, request: ChatRequest) -> ChatReply:
        asked = next(text_of(message) for message in request.messages if message["role"] == "user")
        with self._log.open("a") as log:
            log.write(json.dumps([os.getpid(), asked]) + "\n")
        time.sleep(self._sleep_s)
        deadline = time.monotonic() + 200
        while self._asking() < self._together and time.monotonic() < deadline:
            time.sleep(0.1)
        return ChatReply(assistant("done", None), Usage(1, 1), cost_usd=0.0)

    def _asking(self) -> int:
        return len({line.partition(",")[0] for line in self._log.read_text().splitlines()})


def own_model(folder: Path, **fields: object) -> tuple[Path, Path]:
    """A config folder with `model=own`, whose class lies in a plug-in folder; the two folders."""
    conf, plugins = folder / "conf", folder / "plugins"
    (conf / "model").mkdir(parents=True, exist_ok=True)
    plugins.mkdir(exist_ok=True)
    source = Path(__file__).read_text()
    (plugins / "model_of_ones_own.py").write_text(source)
    node = {"_target_": "model_of_ones_own.WorkerModel", "name": "own", "prose_name": "O"}
    log = folder / "asked"
    log.with_suffix(".jsonl").touch()
    (conf / "model" / "own.yaml").write_text(json.dumps({**node, "log": str(log), **fields}))
    return conf, plugins


def asked(folder: Path) -> list[tuple[int, str]]:
    """(process, question) of everything that was asked so far."""
    return [tuple(json.loads(line)) for line in (folder / "asked.jsonl").read_text().splitlines()]
