"""Sixty mistakes: one line each, no traceback, and what the line advises works when it is typed."""

from __future__ import annotations

import inspect
import io
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from command_output import command_output
from hydra.core.override_parser.overrides_parser import OverridesParser
from stored_cases import case_of, store_own

from agentsys.base.config_catalog import list_config_names, load_config
from agentsys.base.object_import import load_target
from agentsys.cli import app, dry_run
from agentsys.cli.terminal import run_to_exit_status
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
    ("executor.address=auto", "executor=ray executor.address=auto"),
    ("model=gpt-4o-mini model.retry.total_s=8", "+model.retry.total_s=8"),
    ("model=gpt-4o-mini model.tools=text", "+model.tools=text"),
    ("model=gpt-4o-mini model.price.written=3", "+model.price.written=3"),
    ("model=gpt-4o-mini model.roles.attacker=gpt-4o", "+model.roles.attacker=gpt-4o"),
    ("model=gpt-4o-mini model.price.as=3", "no such option"),
    ("model=served +model.retry.total_s=8", "Write model.retry.total_s=8"),
    ("model=opnai/gpt-5", "Did you mean openai?"),
    ("model=vllm/x", "model=vllm/x@http://127.0.0.1:8000/v1"),
    ("model.max_tokens=100", "no such option"),
    ("benchmark.sutes=[banking]", "Did you mean benchmark.suites?"),
    ("benchmark.colour=red", "no such option"),
    ("model.susceptibilty=1", "Did you mean model.susceptibility?"),
    ("attack=import*", "'attack=glob(import*)'"),
    ("'defense=none,agentsys_*'", "'defense=glob(agentsys_*)'"),
    ("defense=kept_in_conf", "add --config-dir conf"),
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
    ("-m defense=none,agentsys", "defense=none,agentsys"),
    ("defense=3", "Unknown defense '3'"),
    ("defense", "Write key=value"),
    ("model=openai/ä:x", "Write \"model='openai/ä:x'\""),
    ("defense.tag=a=b", "Write \"defense.tag='a=b'\""),
    ("'defense.tag=f(x), g'", "Write \"defense.tag='f(x), g'\""),
    ("'model=openai/ä,simulated,vllm/ö@http://h/v1'", "\"model='openai/ä',simulated,'vllm/ö@http://h/v1'\""),
    ("'attack.tag=what the $ö`s'", """Write 'attack.tag='"'"'what the $ö`s'"'"''"""),
    ("défense=none", "Write key=value"),
    ("user_tasks=[user_task_0", "A bracket or a quote has no end"),
    ("sweep.model=[simulated,gpt-4o]", "Write model=simulated,gpt-4o"),
    ("'sweep.model.susceptibility=[0.0, 1]'", "Write model.susceptibility=0.0,1"),
    ("sweep.defense=none", "Write defense=none"),
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
    ("results runs --by suite", "--full"),
    ("results runs --by model", "agentsys compare DIR --by model"),
    ("figure 4 runs --out fig4.png", "--out ."),
    ("figure 4 runs --out file/in/it", "--out results/figures"),
    ("table 2 runs --out file/in/table.txt", "--out table.txt"),
    ("results runs --out /proc/none/table.txt", "--out table.txt"),
    ("compare runs --out file/table.txt", "--out table.txt"),
    ("report runs --out file/report.html --no-figures", "--out report.html"),
)


def line_printed(*words: str) -> tuple[int, str]:
    """Status and the one line on standard error of a command, as the installed program ends it."""
    said = io.StringIO()
    with redirect_stderr(said):
        status = run_to_exit_status(lambda: app(list(words), standalone_mode=False, prog_name="agentsys"))
    lines = said.getvalue().splitlines()
    assert len(lines) == 1, lines
    return status, lines[0].removesuffix(" See agentsys run --help.")


def test_there_are_sixty() -> None:
    assert len(SETTINGS) + len(COMMANDS) >= 60


@pytest.mark.usefixtures("each_choice_once")
@pytest.mark.parametrize(("typed", "said"), SETTINGS)
def test_a_wrong_setting_is_one_line_that_helps(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "conf" / "defense" / "kept_in_conf.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("defaults: [none]\n")
    words = shlex.split(typed)
    status, text = line_printed("run", "--dry-run", *words)
    assert status and said in text
    right = [word for word in words[:-1] if word != "-m"]
    for advice in re.findall(r"Write (?!key=)(\+?[\w.]+=\S.*)$", text):
        compose([*right, *shlex.split(advice)])
    for advice in re.findall(r"quotes of its own[.] Write (.+)$", text):
        [quoted] = shlex.split(advice)
        parsed = OverridesParser.create().parse_override(quoted)
        swept = parsed.is_sweep_override() and ",".join(parsed.sweep_string_iterator())
        assert words[-1].partition("=")[2] == (swept.replace("'", "") if swept else parsed.value())
    for line in re.findall(r"agentsys run (\S+=\S+)", text):
        compose([line.rstrip(".")])
    for pattern in re.findall(r"'(\w+=glob\(.*\))'", text):
        assert compose([*right, pattern])
    for folder in re.findall(r"add --config-dir (\S+)$", text):
        assert compose(words, [Path(folder)])
    if "Did you mean model." in text:
        assert compose([f"{re.findall(r'Did you mean (model[.][^? ]+)', text)[0]}=1"])


@pytest.mark.parametrize(("typed", "said"), COMMANDS)
def test_a_wrong_command_is_one_line_that_helps(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("empty.zip", "w") as archive:
        archive.writestr("x", "y")
    Path("file").touch()
    for defense in ("none", "agentsys"):
        store_own(Path("runs"), case_of(defense=defense, model="gpt-4o-mini"))
    status, text = line_printed(*shlex.split(typed))
    assert status and said in text
    for out in re.findall(r"(?:folder|another): (--out \S+)$", text):
        before = typed.partition(" --out ")[0].split()
        command_output(*before, *out.split(), *(["--no-figures"] if before[0] == "report" else []))
    if match := re.search(r"agentsys (compare) DIR (--by \w+)$", text):
        command_output(match[1], "runs", *match[2].split()[:1], "defense")


def list_unwritten_options() -> Iterator[tuple[str, str, str, object]]:
    """(group, name, option, default) of what a class takes and its YAML does not list, one per class."""
    seen = set()
    for group in ("model", "defense", "attack", "benchmark"):
        for name in list_config_names(group):
            node = load_config(group, name)
            target = node.get("_target_")
            if not isinstance(target, str) or target in seen:
                continue
            seen.add(target)
            for option, parameter in inspect.signature(load_target(group, node)).parameters.items():
                simple = parameter.default is None or isinstance(parameter.default, (bool, int, float))
                if option not in node and simple:
                    yield group, name, option, "null" if parameter.default is None else parameter.default
                    break


def test_an_option_that_a_yaml_does_not_list_is_advised_with_a_plus_in_every_group() -> None:
    advised = set()
    for group, name, option, default in list_unwritten_options():
        needed = [f"{group}.{key}=x" for key, value in load_config(group, name).items() if value == "???"]
        words = [f"{group}={name}", *needed]
        with pytest.raises(ConfigError) as caught:
            compose([*words, f"{group}.{option}={default}"])
        advice = f"+{group}.{option}={default}"
        assert str(caught.value).endswith(f"Write {advice}")
        assert option in getattr(compose([*words, advice])[0], group) or default == "null"
        advised.add(group)
    assert advised >= {"model", "defense"}


def test_an_option_of_a_class_that_derives_from_nothing_is_advised_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "own_plain_class.py").write_text("class Plain:\n    def __init__(self, tag='x'): pass\n")
    for group in ("defense", "attack", "benchmark"):
        (tmp_path / group).mkdir()
        (tmp_path / group / "plain.yaml").write_text("_target_: own_plain_class.Plain\n")
        with pytest.raises(ConfigError, match=rf"Write \+{group}\.tag=3$"):
            compose([f"{group}=plain", f"{group}.tag=3"], [tmp_path])


OWN_CODE = {
    "syntax": ("class Mine:\n    def broken(self)\n        pass\n", "line 2: SyntaxError: expected ':'"),
    "module_level": ("\nLIMIT = {}['a']\nclass Mine: pass\n", "line 2: KeyError: 'a'"),
    "in_a_library": ("import json\njson.loads('{')\nclass Mine: pass\n", "line 2: JSONDecodeError"),
    "import": ("import no_such_library\nclass Mine: pass\n", "line 1: ModuleNotFoundError: No module named"),
    "name": ("from json import nothing\nclass Mine: pass\n", "line 1: ImportError: cannot import name"),
    "misspelt": ("class Mines: pass\nclass Other: pass\n", "Did you mean Mines? Known: Mines, Other."),
}
"""Case -> a module of the user's own, and what the answer says of it."""


@pytest.mark.parametrize("kind", OWN_CODE)
def test_a_fault_in_ones_own_module_is_its_file_line_and_message(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    code, said = OWN_CODE[kind]
    module = tmp_path / f"own_{kind}.py"
    module.write_text(code)
    (tmp_path / "conf" / "defense").mkdir(parents=True)
    (tmp_path / "conf" / "defense" / "mine.yaml").write_text(f"_target_: own_{kind}.Mine\n")
    words = ["run", "--dry-run", "defense=mine", "--config-dir", str(tmp_path / "conf")]
    status, text = line_printed(*words, "--plugin-path", str(tmp_path))
    assert status == 2 and str(module) in text and said in text


def test_a_dry_run_does_not_pass_on_agentdojos_warning_of_an_empty_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        dry_run, "show_estimate", lambda *_: warnings.warn("Model output was None for task x", stacklevel=1)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        command_output("run", "--dry-run", "limit_per_suite=1", "benchmark.suites=[banking]")
    assert [str(one.message) for one in caught] == []


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
