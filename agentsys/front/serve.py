"""`serve_agent`: a defended agent behind one base URL, from the settings of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsys.errors import ConfigError
from agentsys.front.agent import DefendedAgent
from agentsys.front.desk import ConversationLimits, ConversationRouter
from agentsys.front.stored_dialogue import make_dialogue_writer
from agentsys.front.target import AttackTarget
from agentsys.ledger import LEDGER_FILE, Ledger
from agentsys.models.budget import UsageLog, Meter
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.serving import Server, serve
from agentsys.models.serving.callers import WireCaller
from agentsys.runs.cell import Cell, CellBuilder
from agentsys.runs.compose import compose
from agentsys.runs.store import Store


@dataclass(frozen=True)
class AgentEndpoint:
    """Answers names of cases as a target of attacks, and every other name in conversations."""

    router: ConversationRouter
    target: AttackTarget

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.router.name

    def for_caller(self, caller: WireCaller) -> ChatModel:
        """The agent, or a case, as one caller sees it.

        Raises:
            Refused: If the caller asks for a case that there is not.
        """
        return (self.target if self.target.is_case_name(caller.model) else self.router).for_caller(caller)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request of nobody in particular, in a conversation."""
        return self.router.complete(request)

    def listed(self, under: str) -> Sequence[str]:
        """The agent and a case of every suite, or the cases under a suite's name."""
        return [*([] if under else [self.name]), *self.target.listed(under)]


@dataclass(frozen=True)
class ServedAgent:
    """A running server with a defended agent behind it; a context manager that stops it."""

    server: Server
    router: ConversationRouter
    target: AttackTarget
    cell: Cell
    folder: Path
    """The log folder that conversations are stored in."""

    def stop(self) -> None:
        """End every conversation, wait for their threads, and stop listening."""
        self.router.stop()
        self.server.stop()
        self.target.stop()

    def __enter__(self) -> ServedAgent:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def build_defended_agent(
    overrides: Sequence[str], config_dirs: Sequence[Path] = ()
) -> tuple[DefendedAgent, Cell, Store]:
    """The agent of some settings, its cell and its log folder.

    Raises:
        ConfigError: If something cannot be built or used here, or there are several of it.
    """
    # Words of one client's conversation are no answer to another's, however alike the questions are.
    settings = compose([*overrides, "model.cache=false"], config_dirs)
    if len(settings) > 1:
        raise ConfigError(f"{' '.join(overrides)}: one model and one defense; start a server for each.")
    [one] = settings
    store = Store(one.logdir)
    books = UsageLog(Meter(one.budget), Ledger(store.own / LEDGER_FILE))
    cell = CellBuilder(store, tuple(config_dirs), books=books).build(one)
    for lacking in cell.lacks:
        raise lacking
    agent = DefendedAgent(cell.defense, cell.stack, one.seed, books)
    agent.check()
    return agent, cell, store


def serve_agent(
    overrides: Sequence[str],
    *,
    config_dirs: Sequence[Path] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Sequence[str] = (),
    limits: ConversationLimits | None = None,
) -> ServedAgent:
    """Start serving a model with a defense around it, from threads of its own.

    Args:
        overrides: Settings as for a run, e.g. `["model=gpt-4o", "defense=agentsys", "logdir=runs"]`.
        config_dirs: The user's own config folders.
        host: A loopback address; any address where tokens are asked for.
        port: The port; 0 takes a free one.
        tokens: Keys one of which a client must send; none: whoever is on this machine may ask.
        limits: How many conversations there may be, and for how long.

    Raises:
        ConfigError: If something cannot be built, used or listened on.
    """
    agent, cell, store = build_defended_agent(overrides, config_dirs)
    labels, limits = cell.settings.labels, limits or ConversationLimits()
    desk = ConversationRouter(agent, f"{labels['model']}+{labels['defense']}", make_dialogue_writer(store, cell), limits)
    target = AttackTarget(cell, store, limits.at_once)
    try:
        server = serve(AgentEndpoint(desk, target), host=host, port=port, tokens=tokens)
    except ConfigError:
        target.stop()
        raise
    return ServedAgent(server, desk, target, cell, store.root)
