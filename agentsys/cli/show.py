"""`agentsys show`: the config a run would have, the prompts a defense uses, the text an attack writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from agentsys.catalog import node
from agentsys.cli.terminal import one_line, printable
from agentsys.errors import ConfigError, unknown_name
from agentsys.named_module import import_from

ConfigDir = Annotated[
    list[Path] | None,
    typer.Option("--config-dir", help="A folder with configs of your own; may be repeated."),
]
PluginPath = Annotated[
    list[Path] | None, typer.Option("--plugin-path", help="Folder your own modules are imported from.")
]

app = typer.Typer(
    help="Show a resolved config, what a defense does, its prompts, or an attack's text.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("config")
def config(
    overrides: Annotated[list[str] | None, typer.Argument(help="As for `agentsys run`.")] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Print the resolved config as YAML, one document for each combination of a sweep."""
    import yaml

    from agentsys.models.secrets import masked
    from agentsys.runs.compose import compose

    for settings in compose(overrides or [], config_dir or []):
        print("---")
        shown = masked(settings.model_dump(mode="json"))
        print(printable(yaml.safe_dump(shown, sort_keys=False)).rstrip())


@app.command("defense")
def defense(
    name: Annotated[str, typer.Argument(help="A defense, as `agentsys list defenses` names it.")],
    config_dir: ConfigDir = None,
    plugin_path: PluginPath = None,
) -> None:
    """Print what a defense does, as its config sets it: what a defense-aware attacker is told."""
    print(printable(defense_text(name, config_dir or [], plugin_path or [])))


def defense_text(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> str:
    """A defense's description of itself."""
    from agentsys.runs.search.search_task import description

    return description(_built(name, config_dirs, plugin_paths))


@app.command("prompts")
def prompts(
    defense: Annotated[str, typer.Argument(help="A defense, as `agentsys list defenses` names it.")],
    config_dir: ConfigDir = None,
    plugin_path: PluginPath = None,
) -> None:
    """Print every prompt of a defense, with the options its config gives."""
    built = _built(defense, config_dir or [], plugin_path or [])
    texts: dict[str, str] = built.prompts() if hasattr(built, "prompts") else {}
    if not texts:
        print(f"Defense '{one_line(defense)}' has no prompts of its own.")
    for name, text in texts.items():
        print(f"=== {one_line(name)} ===\n{printable(text).rstrip()}\n")


def _built(name: str, config_dirs: list[Path], plugin_paths: list[Path]) -> Any:
    """A defense with the options its config gives."""
    values = node("defense", name, config_dirs)
    import_from(plugin_paths)
    from agentsys.runs.instantiate import instantiate

    return instantiate("defense", values)


@app.command("attack")
def attack(
    name: Annotated[str, typer.Argument(help="An attack, as `agentsys list attacks` names it.")],
    suite: Annotated[str, typer.Option(help="The suite.")],
    user_task: Annotated[str, typer.Option("--user-task", help="Its id, or its number.")],
    injection_task: Annotated[str, typer.Option("--injection-task", help="Its id, or its number.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="As for `agentsys run`, e.g. model=gpt-4o benchmark.version=v1."),
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Print the exact text an attack writes for one pair of tasks, and the injection vectors it goes into.

    Where a model will read another text, because of YAML's escapes and folding, that one follows.
    """
    chosen = [f"attack={name}", *(overrides or [])]
    shown = attack_texts(chosen, suite, user_task, injection_task, config_dir or [])
    for vector, (text, read) in shown.items():
        print(f"=== {one_line(vector)} ===\n{printable(text)}\n")
        if read != text:
            print(f"--- as a model reads it ---\n{printable(read)}\n")


def attack_texts(
    overrides: list[str], suite_name: str, user_task: str, injection_task: str, config_dirs: list[Path]
) -> Mapping[str, tuple[str, str]]:
    """Injection vector -> the text that is written, and the one that a model reads.

    Args:
        overrides: Hydra overrides that choose attack, benchmark and model (for the victim's name).
        suite_name: The suite.
        user_task: A user task's id, or its number.
        injection_task: An injection task's id, or its number.
        config_dirs: The user's own config folders.

    Raises:
        ConfigError: If a name is unknown, the attack writes nothing, or the task cannot be injected.
    """
    from agentsys.attacks.literal import read_of
    from agentsys.contracts import AttackKind, NotInjectable, Victim
    from agentsys.models.card import model_card
    from agentsys.runs.compose import compose
    from agentsys.runs.instantiate import instantiate

    settings = compose(overrides, config_dirs)[0]
    benchmark = instantiate("benchmark", settings.benchmark)
    attack = instantiate("attack", settings.attack)
    if attack.kind is AttackKind.NONE:
        raise ConfigError("Attack 'none' writes nothing; name another one (agentsys list attacks).")
    suite = benchmark.suite(suite_name)
    victim = Victim(model_card(settings.model).prose_name, benchmark.user_name)
    user = _task("user_task", user_task, suite.user_tasks)
    injection = _task("injection_task", injection_task, suite.injection_tasks)
    try:
        texts = attack.injections(suite, user, injection, victim)
    except NotInjectable as error:
        raise ConfigError(f"{error}") from None
    return {vector: (text, read_of(suite, text)) for vector, text in texts.items()}


def _task(kind: str, name: str, tasks: Mapping[str, Any]) -> Any:
    """A task by id or number."""
    full = f"{kind}_{name}" if name.isdigit() else name
    if full not in tasks:
        raise ConfigError(unknown_name(kind.replace("_", " "), full, tasks))
    return tasks[full]
