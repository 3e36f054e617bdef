"""A server that nobody here wrote: `transformers serve` with weights drawn at random (slow; extra `servers`).

`AGENTSYS_TRANSFORMERS` may name the command of another environment.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_chat_model
from small_runs import Silent, records_in
from started_servers import command, started
from tiny_chat_model import PARSED, UNPARSED

from agentsys.errors import ConfigError
from agentsys.models.chat import ErrorKind
from agentsys.records.case_reader import read_cases
from agentsys.runs.run_session import prepare_session

CASES = 20
FEW = 8
KINDS = {kind.value for kind in ErrorKind}
OFFLINE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of both models, and the command that serves them."""
    start = command("transformers", "AGENTSYS_TRANSFORMERS", "servers", ["torch", "fastapi", "uvicorn"])
    folder = tmp_path_factory.mktemp("models")
    python = start.with_name("python")
    subprocess.run([python, tiny_chat_model.__file__, folder], check=True, capture_output=True, timeout=900)
    return folder, str(start)


@pytest.fixture(scope="module")
def server(models: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    serve = [
        models[1],
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--device",
        "cpu",
        "--default-seed",
        "0",
    ]
    log = tmp_path_factory.mktemp("server") / "log"
    with started(serve, log, _address, OFFLINE) as address:
        yield f"{address}/v1"


def _address(printed: str) -> str | None:
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", printed)
    return found[1] if found else None


def ran(server: str, model: Path, folder: Path, *options: str) -> list[Any]:
    """Records of a run; one case after the other, so that the server draws in the same order each time."""
    chosen = ["model=qwen2.5-7b-instruct", f"model.base_url={server}", f"model.model_id='{model}'"]
    chosen += ["model.temperature=1.0", "model.timeout_s=120", "benchmark.suites=[slack]", "defense=none"]
    chosen += ["attack=important_instructions", f"limit={FEW}", "executor.workers=1", f"logdir={folder}"]
    session = prepare_session([*chosen, "+model.retry={base_s: 0.01, longest_s: 0.1}", *options])
    session.preflight().execute(Silent())
    return list(records_in(folder).values())


def calls_of(record: Any) -> list[str]:
    return [call["function"] for m in record["messages"] for call in (m.get("tool_calls") or ())]


def checked(records: list[Any], cases: int = FEW) -> list[Any]:
    """The requests of a run, whose every case must have ended in an outcome that has a name."""
    blocks = [record["agentsys"] for record in records]
    assert len(blocks) == cases
    assert all(block["status"] == "ok" or block["error_kind"] in KINDS for block in blocks)
    assert not any(block["traceback"] for block in blocks)
    sent = [call for block in blocks for span in block["spans"] for call in span["calls"]]
    assert all(call["uncounted"] or (call["prompt"] > 0 and call["completion"] > 0) for call in sent)
    return sent


@pytest.mark.slow
def test_cases_at_a_server_that_parses_calls_have_structured_ones(
    server: str, models: tuple[Path, str], tmp_path: Path
) -> None:
    records = ran(server, models[0] / PARSED, tmp_path, f"limit={CASES}")
    sent = checked(records, CASES)
    assert len(sent) > CASES
    made = Counter(name for record in records for name in calls_of(record))
    assert len(made) > 1, made
    # What it wrote in a form that its parser does not know is counted; so is a reply with nothing in it.
    odd = Counter(kind for call in sent for kind, count in call["odd"].items() for _ in range(count))
    assert odd["unparsed_call"] and odd["empty"]


@pytest.mark.slow
def test_a_server_without_a_parser_is_found_before_the_first_case(
    server: str, models: tuple[Path, str], tmp_path: Path
) -> None:
    model = models[0] / UNPARSED
    # It draws what it says: some answers to the small question are no call at all.
    with pytest.raises(ConfigError, match="wrote its tool call as text, which its server did not parse"):
        for n in range(20):
            ran(server, model, tmp_path / str(n), "limit=1")
    sent = checked(ran(server, model, tmp_path / "all", "preflight=false"))
    assert sum(call["odd"].get("unparsed_call", 0) for call in sent) > 0


@pytest.mark.slow
def test_the_same_server_takes_tools_through_text(
    server: str, models: tuple[Path, str], tmp_path: Path
) -> None:
    text = ["+model.tools=text", "+model.text_protocol=agentdojo+", "+model.tool_role=input"]
    records = ran(server, models[0] / UNPARSED, tmp_path, *text, "preflight=false")
    checked(records)
    made = Counter(name for record in records for name in calls_of(record))
    assert len(made) > 1, made


@pytest.mark.slow
def test_replies_that_a_bound_cuts_are_scored_as_they_stand(
    server: str, models: tuple[Path, str], tmp_path: Path
) -> None:
    records = ran(server, models[0] / UNPARSED, tmp_path, "model.max_tokens=2", "preflight=false")
    checked(records)
    assert {record["agentsys"]["status"] for record in records} == {"ok"}
    ends = [row.ended for row in read_cases([tmp_path]).cases]
    assert ends.count("cut") > FEW / 4
