"""`agentsys show`: the config a run would have, the prompts a defense uses, the text an attack writes."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from agentsys.catalog import config_path
from agentsys.cli.help.completion import names_in, overrides_beginning_with
from agentsys.cli.help.lazy import LazyCommand
from agentsys.cli.output import ConfigDirOption, PluginPathOption, say
from agentsys.cli.terminal import one_line, printable
from agentsys.named_module import import_from

_DEFENSE = "A defense, as `agentsys list defenses` names it."

app = typer.Typer(
    help="Show a resolved config, what a defense does, its prompts, or an attack's text.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("config", context_settings={"ignore_unknown_options": True})
def config(
    line: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND] [ARGUMENT]...",
            help="Overrides as for `agentsys run`; or any command with its arguments.",
            autocompletion=overrides_beginning_with,
        ),
    ] = None,
    config_dir: ConfigDirOption = None,
) -> None:
    """Print as YAML what a command would work with; of a sweep, one document for each combination."""
    from agentsys.cli import COMMANDS

    words, folders = line or [], config_dir or []
    command = words[0] if words and words[0] in COMMANDS else None
    if command is None:
        _print_cells(words, folders)
        return
    own = [word for folder in folders for word in ("--config-dir", str(folder))]
    context = LazyCommand(command, COMMANDS[command]).make_context(command, [*words[1:], *own])
    _print_document({"command": command, "options": _options(context)})
    if overrides := context.params.get("overrides"):
        _print_cells([text for text in overrides if not text.startswith("runs=")], folders)


def _print_cells(overrides: list[str], config_dirs: list[Path]) -> None:
    from agentsys.models.secrets import masked
    from agentsys.runs.compose import compose

    for settings in compose(overrides, config_dirs):
        _print_document(masked(settings.model_dump(mode="json")))


def _options(context: Any) -> dict[str, Any]:
    """The command's options as they are typed, with what they are set to."""
    shown = {}
    for parameter in context.command.params:
        if parameter.name in context.params and parameter.name != "overrides":
            name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.name
            shown[name] = _plain(context.params[parameter.name])
    return shown


def _plain(value: Any) -> Any:
    """An option's value as YAML can hold it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, bool | int | float | None) else str(value)


def _print_document(values: Any) -> None:
    import yaml

    print("---")
    print(printable(yaml.safe_dump(values, sort_keys=False)).rstrip())


@app.command("defense")
def defense(
    name: Annotated[str, typer.Argument(help=_DEFENSE, autocompletion=names_in("defense"))],
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print what a defense does, as its config sets it: what a defense-aware attacker is told."""
    say(defense_text(name, config_dir or [], plugin_path or []))


def defense_text(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> str:
    """A defense's description of itself."""
    from agentsys.runs.search.search_task import description

    return description(_built(name, config_dirs, plugin_paths))


@app.command("prompts")
def prompts(
    defense: Annotated[str, typer.Argument(help=_DEFENSE, autocompletion=names_in("defense"))],
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print every prompt of a defense, with the options its config gives."""
    built = _built(defense, config_dir or [], plugin_path or [])
    texts: dict[str, str] = built.prompts() if hasattr(built, "prompts") else {}
    if not texts:
        say(f"Defense '{defense}' has no prompts of its own.")
    for name, text in texts.items():
        print(f"=== {one_line(name)} ===\n{printable(text).rstrip()}\n")


def _built(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> Any:
    """A defense with the options its config gives."""
    config_path("defense", name, config_dirs)  # an unknown name is refused before anything heavy is imported
    import_from(plugin_paths)
    from agentsys.runs.instantiate import instantiate
    from agentsys.runs.references import defense_config

    return instantiate("defense", defense_config(name, config_dirs))


@app.command("attack")
def attack(
    name: Annotated[
        str,
        typer.Argument(
            help="An attack, as `agentsys list attacks` names it.", autocompletion=names_in("attack")
        ),
    ],
    suite: Annotated[str, typer.Option(help="The suite.")],
    user_task: Annotated[str, typer.Option("--user-task", help="Its id, or its number.")],
    injection_task: Annotated[str, typer.Option("--injection-task", help="Its id, or its number.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="As for `agentsys run`, e.g. model=gpt-4o benchmark.version=v1.",
            autocompletion=overrides_beginning_with,
        ),
    ] = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print the exact text an attack writes for one pair of tasks, and the injection vectors it goes into.

    Where a model will read another text, because of YAML's escapes and folding, that one follows.
    """
    from agentsys.runs.attack_text import attack_texts

    import_from(plugin_path or [])
    chosen = [f"attack={name}", *(overrides or [])]
    shown = attack_texts(chosen, suite, user_task, injection_task, config_dir or [])
    for source in shown.sources:
        say(one_line(source))
    for vector, text in shown.texts.items():
        print(f"=== {one_line(vector)} ===\n{printable(text.written)}\n")
        if text.read != text.written:
            print(f"--- as a model reads it ---\n{printable(text.read)}\n")
