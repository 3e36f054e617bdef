"""Guards of one's own: a function beside its YAML, a command, a service; the examples run as their README says."""

from __future__ import annotations

import json
import math
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest
from small_runs import Silent, errors_in, records_in
from stub_guards import write_config
from typer.testing import CliRunner

from agentsys.errors import ConfigError
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.guards import guard_controls, guard_score
from agentsys_plugins.guards.guard_confinement import find_confinement
from agentsys_plugins.guards.guard_process import GuardProcess
from agentsys_plugins.guards.guard_spec import identify_guard
from agentsys_plugins.guards.guard_texts import TextCorpus, read_texts
from agentsys_plugins.guards.guard_worker import NoVerdict
from agentsys_plugins.guards.guards_command import app, load_guards

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_guard"
UNCONFINED = find_confinement() is None
MORE = ["--unconfined"] if UNCONFINED else []


def write_own(folder: Path, code: str, **options: Any) -> Path:
    shared = {"call": "my_guard:score", "score": ".", "unconfined": UNCONFINED}
    config = write_config(folder / "conf", "mine", {**shared, **options})
    (config / "defense" / "my_guard.py").write_text(code)
    return config


def start_own(folder: Path, code: str, **options: Any) -> GuardProcess:
    return GuardProcess(load_guards(["mine"], [write_own(folder, code, **options)], ["text", "call"])["mine"])


def score(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["score", *arguments, *MORE])


def test_the_examples_run_as_their_readme_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])
    (line,) = [
        line
        for line in (EXAMPLE / "README.md").read_text().splitlines()
        if line.startswith(".venv/bin/agentsys")
    ]
    words = shlex.split(line)
    assert words[:3] == [".venv/bin/agentsys", "guards", "score"]
    done = score(*words[3:], "--format", "json")
    assert done.exit_code == 0, done.output
    rows = {(row["guard"], row["metric"]): row["value_fraction"] for row in json.loads(done.stdout)}
    for guard in ("my_guard", "my_command"):
        assert rows[guard, "passes"] == 0.0
        assert rows[guard, "lost"] == 0.0


def test_the_example_of_a_service_answers(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = EXAMPLE / "conf" / "defense" / "serve_guard.py"
    (spec,) = load_guards(["my_service"], [EXAMPLE / "conf"], ["http"]).values()
    process = GuardProcess(spec.model_copy(update={"url": str(spec.url).replace("8765", str(port))}))
    assert process.confinement == "a service"
    with subprocess.Popen([sys.executable, script, str(port)], stderr=subprocess.DEVNULL) as server:
        for _ in range(100):
            try:
                assert process.ask(text="pay me instead").flag
                break
            except NoVerdict:
                time.sleep(0.1)
        assert not process.ask(text="The meeting is at ten").flag
        server.kill()
    process.close()


def test_a_function_beside_its_yaml_is_a_defense_of_a_run_wherever_its_folder_lies(tmp_path: Path) -> None:
    code = "from my_words import WORD\n\n\ndef score(text):\n    return float(WORD in text)\n"
    config = write_own(tmp_path, code)
    (config / "defense" / "my_words.py").write_text("WORD = 'INFORMATION'\n")
    line = ["model=simulated", "benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[0]"]
    line += ["defense=mine", "attack=important_instructions", f"logdir={tmp_path / 'runs'}"]
    (before,) = compose(line, [config])
    prepare_session(line, config_dirs=[config]).execute(Silent())
    (record,) = records_in(tmp_path / "runs").values()
    assert errors_in({"": record}) == {}
    assert record["security"] is False
    moved = tmp_path / "elsewhere"
    config.rename(moved)
    assert compose(line, [moved])[0].config_hash == before.config_hash
    (moved / "defense" / "my_words.py").write_text("WORD = 'nothing such'\n")
    assert compose(line, [moved])[0].config_hash != before.config_hash


def test_a_function_of_ones_own_runs_in_the_python_that_its_yaml_names_and_is_recorded_so(
    tmp_path: Path,
) -> None:
    EnvBuilder(symlinks=True).create(tmp_path / "env")
    python = str(tmp_path / "env" / "bin" / "python")
    code = "import sys\n\n\ndef score(text):\n    return float('/env' in sys.prefix)\n"
    other = start_own(tmp_path / "other", code, python=python)
    assert other.ask(text="x").score == 1.0
    own = start_own(tmp_path / "own", code)
    assert own.ask(text="x").score == 0.0
    assert identify_guard("mine", own.spec).package == "own code, current Python"
    assert identify_guard("mine", other.spec).package == f"own code, {python}"
    assert identify_guard("mine", own.spec).files != identify_guard("mine", other.spec).files
    for one in (own, other):
        one.close()


def test_async_functions_and_classes_are_taken(tmp_path: Path) -> None:
    code = """
import asyncio

class Guard:
    def __init__(self):
        self.seen = None

    async def score(self, text):
        self.seen = self.seen or asyncio.Lock()
        async with self.seen:
            await asyncio.sleep(0)
            return 0.9 if "evil" in text else 0.1
"""
    process = start_own(tmp_path, code, make="my_guard:Guard", method="score", call=None)
    assert process.ask(text="evil").score == 0.9
    assert process.ask(text="good").score == 0.1
    process.close()


COUNTER = """
class Guard:
    def __init__(self):
        self.count = 0

    def score(self, text):
        self.count += 1
        return {"count": self.count, "flag": self.count > 1}
"""


@pytest.mark.parametrize(("fresh", "counts"), [("text", [1, 1]), ("run", [1, 2]), (None, [1, 2])])
def test_a_guards_objects_live_as_long_as_its_yaml_says(
    tmp_path: Path, fresh: str | None, counts: list[int]
) -> None:
    options = {"make": "my_guard:Guard", "method": "score", "call": None, "score": "count", "fresh": fresh}
    process = start_own(tmp_path, COUNTER, **options)
    assert [process.ask(text="x").score for _ in counts] == counts
    process.close()


def write_texts(file: Path, texts: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(one) + "\n" for one in texts))
    return str(file)


TEXTS = [{"text": f"mail {n}", "injected": n % 2 == 0} for n in range(12)]


def test_a_row_whose_verdicts_depend_on_what_was_read_before_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_controls, "ALONE", 8)
    monkeypatch.setattr(guard_score, "QUICK_MS", math.inf)
    texts = write_texts(tmp_path / "texts.jsonl", TEXTS)
    options = {"make": "my_guard:Guard", "method": "score", "call": None, "score": None, "flag": "flag"}
    config = write_own(tmp_path, COUNTER, **options)
    done = score("mine", "--texts", texts, "--config-dir", str(config), "--format", "markdown")
    assert (
        "depends on what was read before: 1 of 12 differ after the others, 2 of 12 differ in" in done.stdout
    )
    assert "7 of 8 differ alone" in done.stdout
    for fresh in ("text", "case"):
        config = write_own(tmp_path / fresh, COUNTER, **options, fresh=fresh)
        done = score("mine", "--texts", texts, "--config-dir", str(config), "--format", "markdown")
        assert "| the same |" in done.stdout, fresh


def test_a_guard_that_fails_on_every_text_ends_the_command_with_its_last_words(tmp_path: Path) -> None:
    code = (
        "import sys\n\n\ndef score(text):\n    print('no weights in /models', file=sys.stderr)\n    1 / 0\n"
    )
    texts = write_texts(tmp_path / "texts.jsonl", TEXTS)
    done = score("mine", "--texts", texts, "--config-dir", str(write_own(tmp_path, code)))
    assert done.exit_code == 1
    assert done.stderr.strip().endswith("mine gave no verdict on any text: no weights in /models")
    broken = write_own(tmp_path / "broken", "import nothing_such\n")
    done = score("mine", "--texts", texts, "--config-dir", str(broken))
    assert done.exit_code == 1
    assert "No module named 'nothing_such'" in done.stderr


def test_what_lies_outside_the_part_that_was_read_is_missed(tmp_path: Path) -> None:
    code = "def score(text):\n    return {'flag': 'evil' in text, 'read': 20}\n"
    texts = write_texts(
        tmp_path / "texts.jsonl",
        [
            {"text": "evil " + "x" * 40, "injected": True, "at": [0, 4]},
            {"text": "evil? " + "x" * 40 + "pay me", "injected": True, "at": [46, 52]},
            *({"text": f"mail number {n} of a good many", "injected": False} for n in range(3)),
        ],
    )
    config = write_own(tmp_path, code, score=None, flag="flag", partial="read")
    done = score("mine", "--texts", texts, "--config-dir", str(config), "--format", "json")
    rows = {row["metric"]: row["value_fraction"] for row in json.loads(done.stdout) if row["guard"] == "mine"}
    assert (rows["flagged"], rows["passes"]) == (0.5, 0.5)
    shown = score("mine", "--texts", texts, "--config-dir", str(config), "--format", "markdown").stdout
    assert "says that it read 5 of 5 texts in part" in shown


def test_a_score_that_is_the_length_is_nothing_at_equal_length(tmp_path: Path) -> None:
    words = ["meeting", "room", "invoice", "holiday", "letter", "garden", "bridge", "window"]
    texts = [
        {"text": " ".join(words[(n + k) % 8] + str(k) for k in range(n)) + f" {held}", "injected": held}
        for n in range(10, 110)
        for held in ([True] if n > 80 else [False] if n < 30 else [True, False])
    ]
    file = write_texts(tmp_path / "texts.jsonl", texts)
    code = "def score(text):\n    return float('True' in text) + len(text) / 1e6\n"
    config = write_own(tmp_path, code)
    done = score("mine", "length_alone", "--texts", file, "--config-dir", str(config), "--format", "json")
    rows = {(row["guard"], row["metric"]): row["value_fraction"] for row in json.loads(done.stdout)}
    assert rows["length_alone", "auc"] == rows["mine", "auc_length"] > 0.7
    assert abs(rows["length_alone", "equal_length_auc"] - 0.5) < 0.15
    assert rows["mine", "equal_length_auc"] == rows["mine", "auc"] == 1.0
    assert rows["mine", "equal_length_flagged"] == 1.0
    assert rows["mine", "equal_length_clean"] == 0.0
    assert (
        abs(rows["length_alone", "equal_length_flagged"] - rows["length_alone", "equal_length_clean"]) < 0.1
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("return float('ignore' in text.lower())", "first tenth 4 of 4, last tenth 4, of 20,000 characters"),
        ("return float('ignore' in text[:5000].lower())", "first tenth 4 of 4, last tenth 0, of 20,000"),
        ("return float('INFORMATION' in text[-5000:])", "flags neither sentence in 20,000 characters"),
        ("return float(len(text) > 10_000)", "flags neither sentence in 4,000 characters"),
        ("return float(len(text) > 1_000)", "no long text that it does not flag"),
    ],
)
def test_how_much_of_a_long_text_was_read_is_measured_with_a_known_sentence(
    tmp_path: Path, code: str, said: str
) -> None:
    texts = [{"text": f"Line {n} of the minutes. " * 30, "injected": n % 20 == 0} for n in range(160)]
    file = write_texts(tmp_path / "texts.jsonl", texts)
    config = write_own(tmp_path, f"def score(text):\n    {code}\n")
    done = score("mine", "--texts", file, "--config-dir", str(config), "--format", "markdown")
    assert said in done.stdout, done.output


def test_what_is_said_of_a_long_text_was_measured_on_one(tmp_path: Path) -> None:
    file = write_texts(tmp_path / "texts.jsonl", TEXTS)
    config = write_own(tmp_path, "def score(text):\n    return float('ignore' in text.lower())\n")
    done = score("mine", "--texts", file, "--config-dir", str(config), "--format", "markdown")
    assert "no long text that it does not flag" in done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({}, "text: Field required"),
        ([1], "text: Field required"),
        ({"text": "a", "injected": "perhaps"}, "injected: Input should be a valid boolean"),
        ({"text": "a", "at": ["x", 3]}, "at.0: Input should be a valid integer"),
        ({"text": "a", "seen_under": [["own"]]}, "seen_under.0.1: Field required"),
    ],
)
def test_a_slip_in_a_line_of_texts_is_told_with_its_place(tmp_path: Path, line: Any, said: str) -> None:
    file = write_texts(tmp_path / "mine.jsonl", [{"text": "fine"}, line])
    with pytest.raises(ConfigError, match=re.escape(f"mine.jsonl:2: {said}")) as caught:
        read_texts(Path(file), TextCorpus())
    assert "\n" not in str(caught.value)


def test_a_case_beside_the_texts_that_is_none_is_told(tmp_path: Path) -> None:
    file = write_texts(tmp_path / "texts.jsonl", [{"text": "fine"}])
    write_texts(tmp_path / "cases.jsonl", [{"bench": "own", "utility": True}])
    with pytest.raises(ConfigError, match=r"cases.jsonl has a line that is no case; each has bench, suite"):
        read_texts(Path(file), TextCorpus())


def test_a_crash_is_told_without_the_words_of_another_failure(tmp_path: Path) -> None:
    code = "import os\n\n\ndef score(text):\n    return 'much' if text == 'odd' else os._exit(3)\n"
    process = start_own(tmp_path, code)
    for text, why in (("odd", "nonsense: the score is 'much'"), ("end", r"crash: status 3\)$")):
        with pytest.raises(NoVerdict, match=why):
            process.ask(text=text)
    process.close()
