"""`agentsys guards`: install other people's guards, measure them on recorded outputs, replay a hijacked agent."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.base.config_catalog import list_config_names, load_config
from agentsys.cli.cli_output import ConfigDirOption, FormatOption, OutOption, write_output
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys_plugins.guards.guard_confinement import WAYS, explain_refusal, find_confinement
from agentsys_plugins.guards.guard_spec import GuardSpec, identify_guard, install_guard, read_guard_spec

app = typer.Typer(add_completion=False, no_args_is_help=True)
_TARGET = "agentsys_plugins.guards.guard_defense.GuardDefense"
ALL = "all"
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Guards, as their YAMLs are called, or all.")
]
UnconfinedOption = Annotated[
    bool, typer.Option("--unconfined", help="Run them even where the system has no way to shut them in.")
]


@app.callback()
def guards() -> None:
    """Scan a text, or measure other people's guards without a model."""


def load_guards(
    names: Sequence[str], config_dirs: Sequence[Path], kinds: Sequence[str], *, unconfined: bool = False
) -> dict[str, GuardSpec]:
    """Guards by the names of their YAMLs; `all` are those of these kinds.

    Raises:
        ConfigError: If a name is no guard's, or one of another kind.
    """
    found: dict[str, GuardSpec] = {}
    for name in names if ALL not in names else list_config_names("defense", config_dirs):
        from agentsys.runs.references import add_yaml_folder  # brings AgentDojo along

        config = add_yaml_folder(load_config("defense", name, config_dirs), name, config_dirs)
        of_guard = config.pop("_target_", None) == _TARGET
        spec = read_guard_spec(name, config) if of_guard else None
        if spec is not None and spec.kind in kinds:
            found[name] = spec.model_copy(update={"unconfined": True}) if unconfined else spec
        elif ALL not in names:
            if spec is None:
                raise ConfigError(f"defense '{name}' is no guard: its _target_ is not {_TARGET}.")
            mend = f"Measure it with: agentsys guards {'replay' if spec.kind == 'call' else 'score'} {name}"
            what = f"defense '{name}' is a guard of kind {spec.kind}"
            raise ConfigError(f"{what}; this takes guards of kind {', '.join(kinds)}. {mend}")
    return found


@app.command()
def add(
    names: NamesArgument,
    wheels: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Take packages from this folder and no index.")
    ] = None,
    config_dir: ConfigDirOption = None,
) -> None:
    """Install guards, each into an environment of its own, by exact version and from wheels only."""
    for name, spec in load_guards(names, config_dir or (), ("text", "call", "command", "http")).items():
        install_guard(spec, wheels)
        one = identify_guard(name, spec)
        print(escape_to_line(f"{name}: {one.package}, files {one.files}, Python {one.python}"))


@app.command()
def score(
    names: NamesArgument,
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines of texts (docs/guards.md), .gz or not.")
    ] = None,
    max_asr: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Fail where the worst edit leaves a higher ASR.")
    ] = None,
    max_lost: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Fail where more benign tasks are lost.")
    ] = None,
    badge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the verdict as a badge's JSON (shields.io).")
    ] = None,
    unconfined: UnconfinedOption = False,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    config_dir: ConfigDirOption = None,
) -> None:
    """Score guards of texts over recorded tool outputs: runs=FOLDER, --texts FILE, or both. Asks no model."""
    from rich.console import Console

    from agentsys_plugins.guards.guard_score import score_guard, score_nothing
    from agentsys_plugins.guards.guard_tables import build_score_output
    from agentsys_plugins.guards.guard_texts import TextCorpus, read_runs, read_texts

    folders = [Path(name[5:]).expanduser() for name in names if name.startswith("runs=")]
    chosen = [name for name in names if not name.startswith("runs=")]
    specs = load_guards(chosen, config_dir or (), ("text", "command", "http"), unconfined=unconfined)
    corpus = TextCorpus()
    if texts is not None:
        read_texts(texts, corpus)
    if folders:
        read_runs(folders, corpus)
    if not corpus.texts:
        raise ConfigError("No texts to judge: give runs=FOLDER of undefended runs, or --texts FILE.")
    # Each has a process of its own.
    with Console(stderr=True).status("Asking guards ..."), ThreadPoolExecutor(os.cpu_count()) as pool:
        scores = list(pool.map(lambda name: score_guard(name, specs[name], corpus), specs))
    write_output(build_score_output([score_nothing(corpus), *scores], corpus), form, out)
    # What could not be measured counts as the worst.
    asr, lost = (max((one.find_worst(of, 100.0) for one in scores), default=100.0) for of in ("asr", "lost"))
    failed = (max_asr is not None and asr > max_asr) or (max_lost is not None and lost > max_lost)
    if badge is not None:
        color = "red" if failed or (max_asr is None and asr > 5) else "brightgreen"
        message = f"ASR {asr:.0f} %, tasks lost {lost:.0f} %"
        shown = {"schemaVersion": 1, "label": "guard league", "message": message, "color": color}
        badge.write_text(json.dumps(shown) + "\n", encoding="utf-8")
    silent = [one for one in scores if not one.judged]
    for one in silent:
        print(
            escape_to_line(f"{one.identity.name} gave no verdict on any text: {one.last_words}"),
            file=sys.stderr,
        )
    if failed:
        print(f"Worst edit: ASR {asr:.1f} %; benign tasks lost: {lost:.1f} %.", file=sys.stderr)
    if failed or silent:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Say how guards are shut in on this system."""
    taken = find_confinement()
    for way, gives in WAYS.items():
        why = explain_refusal(way)
        state = f"not here: {why}" if why else "here, and taken" if way == taken else "here"
        print(escape_to_line(f"{way} ({state}): {gives}."))
    if taken is None:
        print(
            "A guard runs only with --unconfined, and its row says so: it has your files, your network and no key."
        )


@app.command()
def replay(
    names: NamesArgument,
    attack: Annotated[str, typer.Option(help="The attack whose text stands in the environment.")] = (
        "important_instructions"
    ),
    version: Annotated[str, typer.Option(help="AgentDojo's version.")] = "v1.2.2",
    order: Annotated[
        Literal["before", "between", "after"], typer.Option(help="Where the attack's calls come.")
    ] = "between",
    unconfined: UnconfinedOption = False,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    config_dir: ConfigDirOption = None,
) -> None:
    """Replay the fully hijacked agent through gates on calls: ground truths, call by call. Asks no model."""
    from rich.console import Console

    from agentsys_plugins.guards.guard_replay import replay_guards
    from agentsys_plugins.guards.guard_tables import build_replay_output

    specs = load_guards(names, config_dir or (), ("call",), unconfined=unconfined)
    with Console(stderr=True).status("Replaying ground truths ..."):
        replayed, without = replay_guards(specs, attack, version, order)
    write_output(build_replay_output(replayed, without), form, out)


with contextlib.suppress(ImportError):  # a room of its own, which may be left out
    app.command("scan")(import_module("agentsys_plugins.vectors.middleware.guard_command").guard)
