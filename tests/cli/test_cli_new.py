"""`agentsys new` writes a plug-in that works under a name of the user's own, and overwrites nothing."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from command_output import command_output, run_program
from typer.testing import CliRunner

from agentsys.base.config_catalog import load_config
from agentsys.cli import app
from agentsys.cli.new_command import _EXAMPLES, Kind
from agentsys.errors import ConfigError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind, as a user gets them."""
    made = tmp_path_factory.mktemp("own")
    for kind in Kind:
        command_output("new", kind.value, f"own_{kind.value}_1", "--to", made)
    return made


@pytest.mark.parametrize("kind", list(Kind))
def test_it_writes_python_yaml_and_test_and_no_word_of_the_example_is_left(folder: Path, kind: Kind) -> None:
    name = f"own_{kind.value}_1"
    config = load_config(_EXAMPLES[kind].group or kind.value, name, [folder / "conf"])
    assert name in str(config.get("_target_")) + str(config.get("call"))
    files = [path for path in folder.rglob("*.*") if name in path.name]
    assert {path.suffix for path in files} >= {".py", ".yaml"} and folder / f"test_{name}.py" in files
    words = ("my_", "My", *_EXAMPLES[kind].words)
    texts = {path.name: path.read_text() for path in files}
    assert [
        (path, word) for path, text in texts.items() for word in words if re.search(rf"\b{word}", text)
    ] == []


@pytest.mark.parametrize(
    ("kind", "name"), [*((kind, f"my_{kind.value}") for kind in Kind), (Kind.METRIC, "safe_and_useful")]
)
def test_the_names_of_the_examples_may_be_taken(kind: Kind, name: str, tmp_path: Path) -> None:
    assert f"Wrote {tmp_path}" in command_output("new", kind.value, name, "--to", tmp_path, columns=500)


@pytest.mark.parametrize("kind", [Kind.DEFENSE, Kind.GUARD])
def test_a_folder_with_a_space_in_its_name_is_one_word_of_what_it_says_to_type(
    kind: Kind, tmp_path: Path
) -> None:
    to = tmp_path / "my work"
    printed = command_output("new", kind.value, "own_1", "--to", to, columns=500)
    test, line = (shlex.split(text) for text in re.findall(r"^(?:Test|Next): (.*)$", printed, re.MULTILINE))
    assert test == ["pytest", str(to / "test_own_1.py")]
    assert line[line.index("--config-dir") + 1] == str(to / "conf")
    other = "--plugin-path" if kind is Kind.DEFENSE else "--texts"
    assert Path(line[line.index(other) + 1]).exists()


@pytest.mark.slow
def test_the_written_tests_pass_at_once(folder: Path) -> None:
    done = run_program([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], folder, timeout=300)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= len(Kind) + 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.DEFENSE, Kind.ATTACK, Kind.GUARD])
def test_the_command_that_it_prints_works(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"mine_{kind.value}"
    printed = command_output("new", kind.value, name, columns=300)
    [line] = re.findall(r"^Next: agentsys (.*)$", printed, re.MULTILINE)
    limits = ["benchmark.suites=banking"] if line.startswith("run") else ["--unconfined"]
    assert name in command_output(*shlex.split(line), *limits, columns=200)


def test_what_is_there_already_stays_and_nothing_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_mine.py").write_text("kept")
    result = CliRunner().invoke(app, ["new", "defense", "mine"])
    assert isinstance(result.exception, ConfigError) and "nothing was written" in str(result.exception)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("test_mine.py", "kept")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("defense", "My-Filter"), "small letters"),
        (("defense", "../up"), "small letters"),
        (("defense", "null"), "small letters"),
        (("model", "class"), "small letters"),
        (("attack", "nan"), "small letters"),
        (("guard", "inf"), "small letters"),
        (("defense", "none_"), "a class None"),
        (("model", "value_error"), "a class ValueError"),
        (("model", "chat_reply"), "a class ChatReply"),
        (("attack", "direct"), "name of a shipped attack"),
        (("guard", "none"), "name of a shipped defense"),
        (("metric", "json"), "a Python module already"),
        (("model", "my_own", "--to", "file/in/it"), "--to"),
    ],
)
def test_a_name_that_cannot_be_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    result = CliRunner().invoke(app, ["new", *words])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception) and "\n" not in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
