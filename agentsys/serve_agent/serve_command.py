"""`agentsys serve`: a defended agent, or the simulated model, for OpenAI's SDK and any other harness."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsys.base.option_checks import require_loopback
from agentsys.cli.cli_output import print_line
from agentsys.errors import ConfigError

if TYPE_CHECKING:
    from agentsys.serve_agent.agent_server import ServedAgent

Probability = Annotated[float, typer.Option(min=0.0, max=1.0)]
CONVERSATIONS_FOLDER = "results/served"
"""Log folder of conversations, unless another is given."""
_SIMULATED_OPTIONS = (
    "susceptibility",
    "verbatim",
    "validator_false_accept",
    "validator_false_deny",
    "sanitizer_recall",
    "reader",
    "sloppiness",
    "seed",
)


def serve_command(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[model=... defense=...] [benchmark=...]",
            help="An agent to serve, as for a run; or what the simulated model knows, e.g. benchmark=asb.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="A loopback address; any with --token-env.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8321,
    token_env: Annotated[
        str | None, typer.Option(help="Variable with the tokens one of which clients send as their key.")
    ] = None,
    idle_s: Annotated[float, typer.Option(min=0.1, help="Agents: how long a client is waited for.")] = 600.0,
    at_once: Annotated[
        int, typer.Option(min=1, max=10_000, help="Agents: conversations under way for one key.")
    ] = 256,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Agents: rounds of calls that clients take; then it answers.")
    ] = None,
    config_dir: Annotated[
        list[Path] | None, typer.Option("--config-dir", help="Agents: folder with your own configs.")
    ] = None,
    plugin_path: Annotated[
        list[Path] | None, typer.Option("--plugin-path", help="Agents: folder your own modules are in.")
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="One case's tools as an MCP server on stdio; files in logdir.")
    ] = False,
    latency_ms: Annotated[float, typer.Option(min=0.0, help="Time each answer takes at least.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the model's draws.")] = 0,
    version: Annotated[str, typer.Option(help="AgentDojo's benchmark version.")] = "v1.2.2",
    susceptibility: Probability = 1.0,
    verbatim: Annotated[bool, typer.Option(help="Workers return whole fields, not bare values.")] = False,
    validator_false_accept: Probability = 0.0,
    validator_false_deny: Probability = 0.0,
    sanitizer_recall: Probability = 1.0,
    reader: Annotated[str, typer.Option(help="Readers of results: hostile or literal.")] = "hostile",
    sloppiness: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Rate of slips in its replies: docs/simulated.md.")
    ] = 0.0,
) -> None:
    """Serve a defended agent, or the simulated model (not an LLM), as OpenAI's chat completions."""
    if mcp:
        _serve_case(context.params)
        return
    tokens = read_tokens(token_env)
    if not tokens:
        # A slip in the cheap options should not wait for the model.
        require_loopback(host, "a model is served")
    if any(not setting.startswith(("benchmark=", "benchmark.")) for setting in overrides or ()):
        _serve_agent(context, context.params, tokens)
    else:
        _serve_model(context.params, tokens)


def _serve_case(options: Mapping[str, Any]) -> None:
    from agentsys.base.object_import import add_plugin_paths
    from agentsys.serve_agent.mcp_case import serve_case

    add_plugin_paths(options["plugin_path"] or [])
    serve_case(add_conversations_folder(options["overrides"] or []), options["config_dir"] or [])


def read_tokens(variable: str | None) -> Sequence[str]:
    """The tokens that clients must send; none where no variable is named.

    Raises:
        ConfigError: If the variable holds none.
    """
    tokens = [] if variable is None else os.environ.get(variable, "").replace(",", " ").split()
    if variable is not None and not tokens:
        raise ConfigError(
            f"--token-env {variable}: no such variable, or it is empty; export {variable}=... first."
        )
    return tokens


_AGENT_OPTIONS = ("idle_s", "at_once", "rounds", "config_dir", "plugin_path")
_SHARED_OPTIONS = ("overrides", "host", "port", "token_env")


def _serve_agent(context: typer.Context, options: Mapping[str, Any], tokens: Sequence[str]) -> None:
    for name in options.keys() - {*_AGENT_OPTIONS, *_SHARED_OPTIONS}:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for the simulated model alone; an agent takes settings, as a run does "
                f"(model.susceptibility=0.5 seed=1)."
            )
    from agentsys.base.object_import import add_plugin_paths
    from agentsys.serve_agent.agent_server import serve_agent
    from agentsys.serve_agent.conversation_router import ConversationLimits

    add_plugin_paths(options["plugin_path"] or [])
    with serve_agent(
        add_conversations_folder(options["overrides"]),
        config_dirs=options["config_dir"] or [],
        host=options["host"],
        port=options["port"],
        tokens=tokens,
        limits=ConversationLimits(**{name: options[name] for name in ("at_once", "idle_s", "rounds")}),
    ) as served:
        announce(format_agent_banner(served))
        wait_for_interrupt()
        print_line(f"Served {served.server.requests} requests; conversations are in {served.folder}.")


def add_conversations_folder(overrides: Sequence[str]) -> list[str]:
    """The settings of an agent: its conversations have a folder of their own, unless another is given."""
    if any(setting.startswith("logdir=") for setting in overrides):
        return [*overrides]
    return [*overrides, f"logdir={CONVERSATIONS_FOLDER}"]


def _serve_model(options: Mapping[str, Any], tokens: Sequence[str]) -> None:
    from agentsys.models.serving import serve
    from agentsys.serve_agent.agent_server import build_served_model

    model = build_served_model(
        version=options["version"],
        options={name: options[name] for name in _SIMULATED_OPTIONS},
        overrides=options["overrides"] or (),
    )
    address = {"host": options["host"], "port": options["port"], "tokens": tokens}
    with serve(model, latency_s=options["latency_ms"] / 1000, **address) as server:
        how = f"`agentsys run model=served model.base_url={server.openai_base_url}`"
        what = f"Serving the simulated model (not an LLM), OpenAI at {server.openai_base_url}"
        announce(f"{what}; use it with {how}; Ctrl-C stops.")
        wait_for_interrupt()
        print_line(f"Served {server.requests} requests.")


def format_agent_banner(served: ServedAgent) -> str:
    """Say where an agent is reached, what it is and where its conversations go."""
    simulated = " (a simulated model, not an LLM)" if served.cell.stack.is_simulated else ""
    what = f"Serving {served.router.name}{simulated}, OpenAI at {served.server.openai_base_url}"
    return f"{what}; `agentsys report {served.folder}` shows its conversations; Ctrl-C stops."


def announce(banner: str) -> None:
    """Say that a server is ready, once nothing is left that its first requests would wait for."""
    # What was loaded stays: collections that look through all of it cost a fifth of a call's CPU.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    print_line(banner)
    sys.stdout.flush()


def wait_for_interrupt() -> None:
    """Return when the user has had enough: Ctrl-C, or `kill`."""
    # `kill` ends a server that a script has put in the background, where shells switch Ctrl-C off.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
