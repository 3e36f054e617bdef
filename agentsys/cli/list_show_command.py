"""`agentsys list` and `agentsys show`: what can be run, and what configs, prompts and attacks hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from agentsys.analysis.tables.table_document import break_between_words
from agentsys.base.config_catalog import (
    CONFIG_GROUPS,
    PREFIX_LINES,
    find_config_file,
    list_config_names,
    read_description,
)
from agentsys.base.object_import import add_plugin_paths
from agentsys.cli import complete_names, complete_overrides, format_examples
from agentsys.cli.cli_output import ConfigDirOption, PluginPathOption, find_table_width, print_line
from agentsys.cli.terminal import escape_controls, escape_to_line
from agentsys.errors import ConfigError, unknown_name

_DEFENSE_HELP = "A defense, as `agentsys list defenses` names it."


class _ShowGroup(TyperGroup):
    """Tells whoever gives a name of a defense or attack at once which word is missing."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name.

        Raises:
            ConfigError: For the name of a config.
        """
        for kind in ("defense", "attack"):
            if cmd_name in list_config_names(kind) and cmd_name not in self.commands:
                raise ConfigError(f"'{cmd_name}' is of the kind {kind}: agentsys show {kind} {cmd_name}")
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=_ShowGroup,
    help="Show a resolved config, what a defense does, its prompts, or an attack's text.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("config", epilog=format_examples("agentsys show config defense=none,agentsys limit_per_suite=3"))
def show_config(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides as for `agentsys run`.", autocompletion=complete_overrides),
    ] = None,
    config_dir: ConfigDirOption = None,
) -> None:
    """Print as YAML what a run would work with; of a sweep, one document for each combination."""
    import yaml

    from agentsys.models.secrets import mask_credentials
    from agentsys.runs.compose import compose

    for settings in compose(overrides or [], config_dir or []):
        shown = yaml.safe_dump(mask_credentials(settings.model_dump(mode="json")), sort_keys=False)
        print(f"---\n{escape_controls(shown).rstrip()}")


@app.command(
    "defense",
    epilog=format_examples(
        "agentsys show defense agentsys", "agentsys show defense mine --config-dir conf --plugin-path ."
    ),
)
def show_defense(
    name: Annotated[str, typer.Argument(help=_DEFENSE_HELP, autocompletion=complete_names("defense"))],
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print what a defense does, as its config sets it: what a defense-aware attacker is told."""
    print_line(_describe_defense(name, config_dir or [], plugin_path or []))


def _describe_defense(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> str:
    from agentsys.runs.search_quest import describe_defense

    return describe_defense(_build_defense(name, config_dirs, plugin_paths))


@app.command(
    "prompts",
    epilog=format_examples(
        "agentsys show prompts agentsys", "agentsys show prompts mine --config-dir conf --plugin-path ."
    ),
)
def show_prompts(
    defense: Annotated[str, typer.Argument(help=_DEFENSE_HELP, autocompletion=complete_names("defense"))],
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print every prompt of a defense, with the options its config gives."""
    built = _build_defense(defense, config_dir or [], plugin_path or [])
    texts: dict[str, str] = built.prompts() if hasattr(built, "prompts") else {}
    if not texts:
        print_line(f"Defense '{defense}' has no prompts of its own.")
    for name, text in texts.items():
        print(f"=== {escape_to_line(name)} ===\n{escape_controls(text).rstrip()}\n")


def _build_defense(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> Any:
    find_config_file("defense", name, config_dirs)  # an unknown name is refused before heavy imports
    add_plugin_paths(plugin_paths)
    from agentsys.runs.instantiate import instantiate
    from agentsys.runs.references import load_defense_config

    return instantiate("defense", load_defense_config(name, config_dirs))


@app.command(
    "attack",
    epilog=format_examples(
        "agentsys show attack direct --suite banking --user-task 0 --injection-task 0",
        "agentsys show attack dos --suite slack --user-task 1 --injection-task 1",
    ),
)
def show_attack(
    name: Annotated[
        str,
        typer.Argument(
            help="An attack, as `agentsys list attacks` names it.", autocompletion=complete_names("attack")
        ),
    ],
    suite: Annotated[str, typer.Option(help="The suite.")],
    user_task: Annotated[str, typer.Option("--user-task", help="Its id, or its number.")],
    injection_task: Annotated[str, typer.Option("--injection-task", help="Its id, or its number.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="As for `agentsys run`, e.g. model=gpt-4o benchmark.version=v1.",
            autocompletion=complete_overrides,
        ),
    ] = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
) -> None:
    """Print the exact text an attack writes for one pair of tasks, and the injection vectors it goes into.

    Where a model will read another text, because of YAML's escapes and folding, that one follows.
    """
    from agentsys.runs.preview import build_attack_texts

    add_plugin_paths(plugin_path or [])
    chosen = [f"attack={name}", *(overrides or [])]
    texts, sources = build_attack_texts(chosen, suite, user_task, injection_task, config_dir or [])
    for source in sources:
        print_line(escape_to_line(source))
    for text in texts:
        print(f"=== {escape_to_line(text.vector)} ===\n{escape_controls(text.written)}\n")
        if text.read != text.written:
            print(f"--- as a model reads it ---\n{escape_controls(text.read)}\n")


_FAMILIES = {
    "none": ("none",),
    "isolate what tools return": ("agentsys", "camel", "fides", "isolategpt"),
    "watch the calls": ("drift", "progent", "melon"),
    "rewrite or cut results": ("firewall", "promptarmor"),
    "detect": ("piguard", "protectai"),
    "word the prompt": ("spotlighting",),
}
"""What the best-known defenses do; the others are forms of these, or stand in `agentsys list defenses`."""


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(CONFIG_GROUPS)}. Default: how many there are of each."),
    ] = None,
    config_dir: ConfigDirOption = None,
    format: Annotated[
        Literal["table", "json", "markdown"], typer.Option(help="How to print; markdown: with --long.")
    ] = "table",
    long: Annotated[
        bool,
        typer.Option("--long", help="Defenses: also what each does, as a defense-aware attacker hears it."),
    ] = False,
) -> None:
    """List what can be run, with one line on each."""
    dirs = config_dir or []
    group = CONFIG_GROUPS.get(kind) if kind else None
    if kind and not group:
        raise ConfigError(unknown_name("kind of config", kind, CONFIG_GROUPS))
    if group:
        rows = [(name, read_description(group, name, dirs)) for name in list_config_names(group, dirs)]
    else:
        rows = [
            (each, f"{len(list_config_names(folder, dirs))}; a line on each: agentsys list {each}")
            for each, folder in CONFIG_GROUPS.items()
        ]
    if long and group != "defense":
        raise ConfigError("--long is for defenses, as in agentsys list defenses --long.")
    if format == "json":
        listed = [{"name": name, "description": text} for name, text in rows]
        more = [{"long": _describe_defense(name, dirs, [])} if long else {} for name, _ in rows]
        print(json.dumps([one | other for one, other in zip(listed, more, strict=True)], indent=2))
        return
    if long and format == "markdown":
        parts = [f"## {name}\n\n{_describe_defense(name, dirs, [])}" for name, _ in rows]
        print(escape_controls("\n\n".join(parts)))
        return
    if long:
        for name, text in rows:
            print_line(f"{escape_to_line(name)}: {escape_to_line(text)}", hang="  ")
            does = f"  {escape_to_line(_describe_defense(name, dirs, []))}"
            print(break_between_words(does, min(find_table_width(), 100), "  ") + "\n")
        return
    if group is None:
        print_line("A dozen defenses by what they do (defense=NAME):")
        _print_columns([(family, ", ".join(names)) for family, names in _FAMILIES.items()], "  ")
    _print_columns(rows)
    if group == "model":
        print_line("Without a YAML (the cost is then unknown, unless one of the above is that model):")
        _print_columns(list(PREFIX_LINES.items()), "  ")


def _print_columns(rows: list[tuple[str, str]], indent: str = "") -> None:
    width = max((len(escape_to_line(name)) for name, _ in rows), default=0)
    for name, text in rows:
        print_line(f"{indent}{escape_to_line(name):<{width}}  {escape_to_line(text)}".rstrip(), hang="    ")
