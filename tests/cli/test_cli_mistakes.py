"""Sixty mistakes: one line each, no traceback, and what the line advises works when it is typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose

SETTINGS: tuple[tuple[str, str], ...] = (
    ("suite=banking", "benchmark.suites=banking"),
    ("suites=banking", "benchmark.suites=banking"),
    ("version=v1.1", "benchmark.version=v1.1"),
    ("task=user_task_1", "user_tasks=user_task_1"),
    ("tasks=3", "user_tasks=3"),
    ("injection_task=2", "injection_tasks=2"),
    ("n=10", "limit_per_suite=10"),
    ("samples=10", "limit_per_suite=10"),
    ("workers=2", "executor.workers=2"),
    ("threads=2", "executor.workers=2"),
    ("out=runs", "logdir=runs"),
    ("output=runs", "logdir=runs"),
    ("budget_usd=3", "budget.usd=3"),
    ("defenses=agentsys", "defense=agentsys"),
    ("attacks=none", "attack=none"),
    ("models=simulated", "model=simulated"),
    ("defense@x=1", "Write key=value"),
    ("model@a.b=simulated", "Write key=value"),
    ("quickstart", "agentsys run experiment=quickstart"),
    ("table2", "agentsys run experiment=table2"),
    ("config-dir=conf", "--config-dir conf"),
    ("plugin-path=.", "--plugin-path ."),
    ("defense=agentsis", "see agentsys list defenses"),
    ("defense=[none,agentsys]", "defense=none,agentsys"),
    ("attack=important_instruction", "Did you mean important_instructions"),
    ("model=gpt4o", "Did you mean gpt-4o"),
    ("experiment=quick", "Did you mean quickstart"),
    ("experiment=rivals", "experiment=recent"),
    ("experiment=table2_light", "experiment=table2"),
    ("experiment=table2_compat", "experiment=table2 'defense=none,"),
    ("executor=processes", "executor=threads"),
    ("limit_per_sute=3", "Did you mean limit_per_suite"),
    ("limit=3", "limit_per_suite=3"),
    ("limit_per_suite=many", "limit_per_suite"),
    ("limit_per_suite=-1", "limit_per_suite"),
    ("epochs=0", "epochs"),
    ("seed=x", "seed"),
    ("benchmark.suites=bank", "banking"),
    ("benchmark.version=v9", "v1.2.2"),
    ("user_tasks=user_task_999", "user_task_999"),
    ("defense=glob(zzz*)", "zzz"),
    ("defense.validator=", "validator"),
    ("defense.melon.embedder=char_ngrams", "no cell of this run has defense=melon"),
    ("model.susceptibility=2", "susceptibility"),
    ("model.susceptibility=often", "susceptibility"),
    ("budget.usd=lots", "usd"),
    ("cache.mode=sometimes", "cache"),
    ("=3", "Write key=value"),
    ("defense=3", "Unknown defense '3'"),
    ("defense", "Write key=value"),
    ("logdir=${oc.env:HOME}x${oc.env:OPENAI_API_KEY}", "OPENAI_API_KEY"),
)
"""What is typed behind `agentsys run`, and what the answer says among other things."""

COMMANDS: tuple[tuple[str, str], ...] = (
    ("quickstart", "agentsys run experiment=quickstart"),
    ("help", "agentsys --help"),
    ("show agentsys", "agentsys show defense agentsys"),
    ("verify x.zip", "agentsys check"),
    ("doctor", "agentsys init --check"),
    ("guard x", "agentsys guards scan"),
    ("resutls x", "Did you mean results"),
    ("results nowhere", "No folder 'nowhere'"),
    ("results empty.zip", "agentsys bundle DIR"),
    ("check nowhere", "No folder 'nowhere'"),
    ("compare nowhere", "No folder 'nowhere'"),
    ("report nowhere", "No folder 'nowhere'"),
    ("init --url nowhere", "agentsys init --url"),
)


def is_one_line(error: BaseException | None) -> bool:
    """Whether it is printed as one line, ours or click's."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return isinstance(error, ConfigError) or "ClickException" in kinds or isinstance(error, SystemExit)


def test_there_are_sixty() -> None:
    assert len(SETTINGS) + len(COMMANDS) >= 60


@pytest.mark.usefixtures("each_choice_once")
@pytest.mark.parametrize(("typed", "said"), SETTINGS)
def test_a_wrong_setting_is_one_line_that_helps(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", "--dry-run", typed])
    assert is_one_line(result.exception), result.exception
    text = str(result.exception) if isinstance(result.exception, ConfigError) else result.output
    assert said in text and "Traceback" not in text
    for advice in re.findall(r"Write ([\w.]+=\S+)$", text):
        compose([advice])
    for line in re.findall(r"agentsys run (\S+=\S+)", text):
        compose([line.rstrip(".")])


@pytest.mark.parametrize(("typed", "said"), COMMANDS)
def test_a_wrong_command_is_one_line_that_helps(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("empty.zip", "w") as archive:
        archive.writestr("x", "y")
    result = CliRunner().invoke(app, shlex.split(typed))
    assert is_one_line(result.exception), result.exception
    text = str(result.exception) if isinstance(result.exception, ConfigError) else result.output
    assert said in text and "\n" not in str(result.exception)


@pytest.mark.parametrize("content", [b"_target_: [oops\n", b"a: \xcb\n"])
def test_a_broken_yaml_of_ones_own_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "defense").mkdir()
    (tmp_path / "defense" / "bad.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^A YAML of yours is not valid: .+$"):
        compose(["defense=bad"], [tmp_path])


@pytest.mark.usefixtures("each_choice_once")
def test_what_messages_advise_is_accepted() -> None:
    """The settings that error texts name, in the runs in which they are said."""
    melon = compose(["defense=none,melon", "defense.melon.embedder=char_ngrams"])[1]
    alone = compose(["defense=melon", "defense.embedder=char_ngrams"])[0]
    assert melon.defense == alone.defense and melon.labels == alone.labels
    assert compose(["model=gpt-4o-mini", "++model.tools=text"])[0].model["tools"] == "text"
    assert compose(["model=meta-secalign-8b", "++model.tools=text"])[0].model["tools"] == "text"
    compat = compose(
        [
            "experiment=table2",
            "defense=none,prompt_sandwiching,agentsys,glob(*_compat,exclude=[attriguard*,datafilter*])",
        ]
    )
    assert {one.labels["defense"] for one in compat} >= {"none", "agentsys", "melon_compat", "camel"} - {
        "camel"
    }
    for line in ("model.qwen2.5-7b-instruct.temperature=1", "attack.important_instructions.model_name=null"):
        with pytest.raises(ConfigError, match="no cell of this run"):
            compose([line])
