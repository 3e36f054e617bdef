"""`agentsys serve`: the simulated model on loopback, for the vendors' SDKs and for any other harness."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.cli.output import say
from agentsys.errors import ConfigError

if TYPE_CHECKING:
    from agentsys.models.chat import ChatModel
    from agentsys.models.serving import FaultKind, Server

Probability = Annotated[float, typer.Option(min=0.0, max=1.0)]


def serve(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[benchmark=...]", help="What it knows, as for a run, e.g. benchmark=asb."),
    ] = None,
    host: Annotated[str, typer.Option(help="A loopback address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8321,
    latency_ms: Annotated[float, typer.Option(min=0.0, help="Time each answer takes at least.")] = 0.0,
    fail_rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests that fail.")] = 0.0,
    faults: Annotated[
        str | None, typer.Option(help="Kinds of fault, by commas. Default: all that a retry survives.")
    ] = None,
    retry_after_s: Annotated[float, typer.Option(min=0.0, help="What a 429 asks to wait.")] = 0.05,
    hold_s: Annotated[float, typer.Option(min=0.0, help="How long a time-out holds a request.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the faults and of the model's draws.")] = 0,
    version: Annotated[str, typer.Option(help="AgentDojo's benchmark version.")] = "v1.2.2",
    susceptibility: Probability = 1.0,
    verbatim: Annotated[bool, typer.Option(help="Workers return whole fields, not bare values.")] = False,
    validator_false_accept: Probability = 0.0,
    validator_false_deny: Probability = 0.0,
    sanitizer_recall: Probability = 1.0,
    sloppiness: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Rate of slips in its replies: docs/sloppiness.md.")
    ] = 0.0,
) -> None:
    """Serve the simulated model in the formats of OpenAI, Anthropic and Gemini, till Ctrl-C. Not an LLM."""
    from agentsys.loopback import loopback
    from agentsys.models.serving import Faults
    from agentsys.models.serving import serve as start

    loopback(
        host, "a model is served"
    )  # A slip in the cheap options should not wait for the model to be built.
    planned = Faults(fail_rate, _kinds(faults, fail_rate), seed, retry_after_s=retry_after_s, hold_s=hold_s)
    options = {
        "susceptibility": susceptibility,
        "verbatim": verbatim,
        "validator_false_accept": validator_false_accept,
        "validator_false_deny": validator_false_deny,
        "sanitizer_recall": sanitizer_recall,
        "sloppiness": sloppiness,
        "seed": seed,
    }
    model = _model(version, options, overrides or ())
    with start(model, faults=planned, latency_s=latency_ms / 1000, host=host, port=port) as server:
        say(_banner(server))
        sys.stdout.flush()
        wait_for_interrupt()
        say(_summary(server))


def _kinds(faults: str | None, fail_rate: float) -> tuple[FaultKind, ...]:
    from agentsys.models.serving.faults import TRANSIENT, fault_kinds

    if faults is None:
        return TRANSIENT
    if fail_rate == 0.0:
        raise ConfigError(f"--faults {faults} without --fail-rate injects nothing; add --fail-rate 0.1, say.")
    return fault_kinds(faults.split(","))


def _model(version: str, options: Mapping[str, float], overrides: Sequence[str]) -> ChatModel:
    from agentsys.runs.served_model import served_model  # Brings AgentDojo along: seconds.

    return served_model(version=version, options=options, overrides=overrides)


def _banner(server: Server) -> str:
    root = server.base_url
    return (
        f"Serving the simulated model (not an LLM): OpenAI at {root}/v1, Anthropic at {root}, "
        f"Gemini at {root}; use it with `agentsys run model=served model.base_url={root}/v1`; Ctrl-C stops."
    )


def wait_for_interrupt() -> None:
    """Return when the user has had enough: Ctrl-C, or `kill`."""
    # `kill` ends a server that a script has put in the background, where shells switch Ctrl-C off.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _summary(server: Server) -> str:
    faults = ", ".join(f"{kind.value} {count}" for kind, count in sorted(server.faults.items()))
    return f"Served {server.requests} requests; faults: {faults or 'none'}."
