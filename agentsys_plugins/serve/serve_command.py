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
    from agentsys_plugins.serve.agent_server import ServedAgent

CONVERSATIONS_FOLDER = "results/served"
"""Log folder of conversations, unless another is given."""
SCRIPT_SETTINGS = ("benchmark=", "benchmark.", "model.", "seed=")
"""Beginnings of the settings of the simulated model; one of another begins an agent."""


def serve_command(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[model=... defense=...] [benchmark=...]",
            help="An agent to serve, as for a run; or the simulated model: benchmark=asb model.susceptibility=0.5.",
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
    config_dir: Annotated[
        list[Path] | None, typer.Option("--config-dir", help="Agents: folder with your own configs.")
    ] = None,
    plugin_path: Annotated[
        list[Path] | None, typer.Option("--plugin-path", help="Agents: folder your own modules are in.")
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="One case's tools as an MCP server on stdio; files in logdir.")
    ] = False,
) -> None:
    """Serve a defended agent, or the simulated model (not an LLM), as OpenAI's chat completions."""
    from agentsys.base.object_import import add_plugin_paths

    add_plugin_paths(plugin_path or [])
    if mcp:
        from agentsys_plugins.serve.mcp_case import serve_case

        serve_case(add_conversations_folder(overrides or []), config_dir or [])
        return
    tokens = read_tokens(token_env)
    if not tokens:
        # A slip in the cheap options should not wait for the model.
        require_loopback(host)
    address: dict[str, Any] = {"host": host, "port": port, "tokens": tokens}
    if all(setting.startswith(SCRIPT_SETTINGS) for setting in overrides or ()):
        _serve_model(overrides or (), address)
        return
    from agentsys_plugins.serve.agent_server import serve_agent
    from agentsys_plugins.serve.conversation_router import ConversationLimits

    with serve_agent(
        add_conversations_folder(overrides or ()),
        config_dirs=config_dir or (),
        limits=ConversationLimits(at_once=at_once, idle_s=idle_s),
        **address,
    ) as served:
        announce(format_agent_banner(served))
        wait_for_interrupt()
        print_line(f"Served {served.server.requests} requests; conversations are in {served.folder}.")
    if served.router.running_count:  # Python would wait for the threads, and they for a model.
        sys.stdout.flush()
        os._exit(0)


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


def add_conversations_folder(overrides: Sequence[str]) -> list[str]:
    """The settings of an agent: its conversations have a folder of their own, unless another is given."""
    if any(setting.startswith("logdir=") for setting in overrides):
        return [*overrides]
    return [*overrides, f"logdir={CONVERSATIONS_FOLDER}"]


def _serve_model(overrides: Sequence[str], address: Mapping[str, Any]) -> None:
    from agentsys_plugins.serve.agent_server import build_served_model
    from agentsys_plugins.serve.served_model import serve

    with serve(build_served_model(overrides), **address) as server:
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
