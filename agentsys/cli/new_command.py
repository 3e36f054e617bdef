"""`agentsys new`: writes a plug-in of the user's own, its YAML and its test, from the shipped examples."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from agentsys.base.config_catalog import list_config_names
from agentsys.base.python_parser import parse_module
from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys.extensions import find_shipped_examples_dir


class Kind(StrEnum):
    """What can be written."""

    DEFENSE = "defense"
    ATTACK = "attack"
    METRIC = "metric"
    GUARD = "guard"
    MODEL = "model"


class _Example(NamedTuple):
    files: tuple[str, ...]
    """Paths in `examples/own_KIND`; `my_KIND` stands for the name."""
    next_command: str
    """What to type next; `{name}` and `{options}` are filled in."""
    group: str = ""
    """Config group; empty: the kind's own name."""
    words: Mapping[str, str] = {}
    """Words of the example besides `my_KIND` and `MyKind` -> the forms `name`, `class` or `title` of the name."""


_RUN = "agentsys run {options} model=simulated limit_per_suite=3 "
_EXAMPLES = {
    Kind.DEFENSE: _Example(
        ("my_defense.py", "conf/defense/my_defense.yaml", "test_my_defense.py"),
        _RUN + "defense=none,{name} attack=none,important_instructions",
    ),
    Kind.ATTACK: _Example(
        ("my_attack.py", "conf/attack/my_attack.yaml", "test_my_attack.py"),
        _RUN + "defense=none,agentsys attack=none,{name}",
    ),
    Kind.METRIC: _Example(
        ("my_metric.py", "conf/metric/safe_and_useful.yaml", "test_my_metric.py"),
        "agentsys results DIR {options} --metric {name}",
        words={"safe_and_useful": "name", "SafeAndUseful": "class", "Safe and useful": "title"},
    ),
    Kind.GUARD: _Example(
        ("conf/defense/my_guard.py", "conf/defense/my_guard.yaml", "texts.jsonl", "test_my_guard.py"),
        "agentsys guards score {name} --config-dir {conf} --texts {texts}",
        group="defense",
        words={"texts.jsonl": "texts"},
    ),
    Kind.MODEL: _Example(
        ("my_model.py", "conf/model/my_model.yaml", "test_my_model.py"),
        "agentsys run {options} model={name} defense=none attack=none limit_per_suite=1",
    ),
}


def new_command(
    kind: Annotated[Kind, typer.Argument(help="What to write.")],
    name: Annotated[str, typer.Argument(help="Its name on the command line and in tables, e.g. my_filter.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder to write into.")] = Path(),
) -> None:
    """Write a plug-in of your own that works, to be changed: its Python file, its YAML and its test."""
    example, source = _EXAMPLES[kind], find_shipped_examples_dir() / f"own_{kind.value}"
    _check_name(name, example.group or kind.value)
    title = "".join(part.capitalize() for part in name.split("_"))
    texts = {file: (source / file).read_text(encoding="utf-8") for file in example.files}
    forms = {
        "name": name,
        "class": title,
        "title": name.replace("_", " ").capitalize(),
        "texts": f"{name}.jsonl",
    }
    words = {f"my_{kind.value}": name, f"My{kind.value.capitalize()}": title}
    words |= {word: forms[form] for word, form in example.words.items()}
    used = _list_used_names(text for file, text in texts.items() if file.endswith(".py"))
    if title in used - words.keys():
        raise ConfigError(
            f"'{name}' makes a class {title}, which Python or the code has. Try my_{name.strip('_')}."
        )
    written = {to / _replace_words(file, words): _replace_words(text, words) for file, text in texts.items()}
    for path in written:
        if path.exists():
            raise ConfigError(
                f"{path} is there already, and nothing was written. Give another name, or --to DIR."
            )
    for path, text in written.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"Cannot write {path}: {error.strerror}. Name another folder: --to DIR"
            ) from None
        print_line(escape_to_line(f"Wrote {path}"))
    print_line(escape_to_line(f"Test: pytest {shlex.quote(str(to / f'test_{name}.py'))}"))
    options = shlex.join(["--config-dir", str(to / "conf"), "--plugin-path", str(to)])
    paths = {"conf": shlex.quote(str(to / "conf")), "texts": shlex.quote(str(to / f"{name}.jsonl"))}
    print_line(escape_to_line(f"Next: {example.next_command.format(name=name, options=options, **paths)}"))


_READ_AS_VALUES = {"null", "true", "false", "yes", "no", "on", "off", "inf", "nan"}
"""Names that Hydra or YAML reads as no text."""


def _check_name(name: str, group: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name in _READ_AS_VALUES:
        raise ConfigError(
            f"'{name}' cannot name a Python file, or reads as a value. Take small letters, digits and _: my_filter."
        )
    if name in list_config_names(group):
        raise ConfigError(f"'{name}' is the name of a shipped {group}. Take another one, e.g. my_{name}.")
    module = find_spec(name)
    if module is not None:
        raise ConfigError(
            f"'{name}' is a Python module already ({module.origin}). Take another name, e.g. my_{name}."
        )


def _list_used_names(sources: Iterable[str]) -> set[str]:
    """Names that a class would hide: those of Python, and those that a source imports."""
    nodes = (node for source in sources for node in ast.walk(parse_module(source)))
    imports = (node.names for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {*dir(builtins), *(alias.asname or alias.name for names in imports for alias in names)}


def _replace_words(text: str, words: Mapping[str, str]) -> str:
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(pattern, lambda match: words[match[0]], text)
