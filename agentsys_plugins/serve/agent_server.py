"""`serve_agent`: a defended agent, or the simulated model, behind one base URL.

Builds the agent from the settings of a run and stores each conversation as a record beside those of runs:
read by the report, counted in no rate.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, JUDGE_ROLE
from agentsys.attacks.attacker_search import play_attacker
from agentsys.attacks.search_judge import play_attacker_judge
from agentsys.base.atomic_file import write_atomically
from agentsys.base.config_catalog import list_config_names
from agentsys.base.json_values import to_plain_data
from agentsys.base.ledger import LEDGER_FILE, Ledger
from agentsys.errors import ConfigError
from agentsys.models.budget import Meter, UsageLog
from agentsys.models.build_model import build_provider, parse_card
from agentsys.models.chat import CLIENT_SUITE, ChatModel, Scene, system, user
from agentsys.records.case import Case
from agentsys.records.case_row import NO_ATTACK, SERVED, UNRECORDED
from agentsys.records.names_file import SERVED_FILE, AnsweringAgent, read_answering_agent
from agentsys.records.schema import CaseRecord, is_simulated_id
from agentsys.runs.build_record import make_span_storable, sum_usage_by_role, to_stored_span
from agentsys.runs.cell import Cell, CellBuilder, build_benchmark_playbook
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate
from agentsys.runs.references import load_defense_config
from agentsys.runs.settings import read_code_versions
from agentsys.runs.store import Store
from agentsys.simulated.simulated_model import SimulatedModel
from agentsys.simulated.simulated_role import join_roles
from agentsys_plugins.serve.conversation_router import ConversationLimits, ConversationRouter
from agentsys_plugins.serve.defended_agent import DefendedAgent, Dialogue
from agentsys_plugins.serve.served_model import Server, serve
from agentsys_plugins.serve.served_model.json_check import find_misfit

_LOG = logging.getLogger(__name__)

DIALOGUE_VERSION = "1"
"""Version of what a served conversation is."""


def make_dialogue_writer(store: Store, cell: Cell) -> Any:
    """Make the function that stores each conversation of an agent, as it stands."""
    store.store_config(cell.settings.config_hash, cell.settings.identity)

    def keep(dialogue: Dialogue) -> None:
        record = build_dialogue_record(dialogue, cell)
        store.write(record, build_agentdojo_form(dialogue, record))

    return keep


def build_dialogue_record(dialogue: Dialogue, cell: Cell) -> CaseRecord:
    """Our block of the stored JSON. A conversation has no scores: both are false and mean nothing."""
    calls = dialogue.tracer.all_calls
    labels = cell.settings.labels
    usage = sum_usage_by_role(calls)
    return CaseRecord(
        case=Case(
            benchmark=SERVED,
            version=DIALOGUE_VERSION,
            suite=CLIENT_SUITE,
            user_task_id=dialogue.trace_id,
            injection_task_id=None,
            attack=NO_ATTACK,
            model=labels["model"],
            defense=labels["defense"],
        ),
        status="ok" if dialogue.error_kind is None else "error",
        error_kind=dialogue.error_kind,
        traceback=to_plain_data(dialogue.traceback),
        simulated=cell.stack.is_simulated or any(is_simulated_id(call.model_id) for call in calls),
        utility=False,
        security=False,
        usage=usage,
        spans=[to_stored_span(make_span_storable(span), scored=0) for span in dialogue.tracer.spans],
        seed=cell.settings.seed,
        versions={**read_code_versions(), "python": platform.python_version()},
        config_hash=cell.settings.config_hash,
        asked={role: asked for role in usage if (asked := cell.stack.model_id(role))},
        notes=tuple(dict.fromkeys(to_plain_data(note) for call in calls for note in call.notes)),
    )


def build_agentdojo_form(dialogue: Dialogue, record: CaseRecord) -> Mapping[str, Any]:
    """The top level of the stored JSON, in AgentDojo's form."""
    asked = [system(""), *(user(said) for said in dialogue.requests)]
    return {
        "suite_name": record.case.suite,
        "pipeline_name": record.case.pipeline,
        "user_task_id": record.case.user_task_id,
        "injection_task_id": None,
        "attack_type": None,
        "injections": {},
        "messages": list(dialogue.messages or dialogue.tracer.last_main_messages or asked),
        "error": dialogue.error,
        "utility": False,
        "security": True,
        "duration": dialogue.duration_s,
        "evaluation_timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(dialogue.started)),
        "agentdojo_package_version": read_code_versions()["agentdojo"],
        "benchmark_version": DIALOGUE_VERSION,
    }


def build_served_model(overrides: Sequence[str] = ()) -> ChatModel:
    """The simulated model as `agentsys serve` offers it: all suites of a benchmark, all defenses' roles."""
    settings = compose(["model=simulated", *overrides])
    if len(settings) > 1:
        raise ConfigError(f"{' '.join(overrides)}: one benchmark at a time; start a server for each.")
    benchmark = instantiate("benchmark", settings[0].benchmark)
    defenses = [instantiate("defense", load_defense_config(name)) for name in list_config_names("defense")]
    # The benchmark last: a defense that plays the agent itself must not take it away from it.
    roles = join_roles(player.simulated_roles() for player in [*defenses, benchmark])
    roles = {**roles, ATTACKER_ROLE: play_attacker, JUDGE_ROLE: play_attacker_judge}
    node = settings[0].model
    model = cast(SimulatedModel, build_provider(node, parse_card(node)))
    scripted = model.with_playbook(partial(build_benchmark_playbook, benchmark), roles)
    scripted.warm_up()
    return scripted.for_scene(Scene("", "", None, "", seed=settings[0].seed))


_MOST_ASKED = 100
"""Model ids of clients that are kept, and the length up to which one is."""


class AnsweringSign:
    """Says in the log folder who answered, for the files that clients' own runners store there."""

    def __init__(self, store: Store, cell: Cell) -> None:
        self._path = store.root / SERVED_FILE
        before = read_answering_agent(str(store.root))
        labels, asked = cell.settings.labels, [] if before is None else before.asked
        self._agent = AnsweringAgent(
            model=labels["model"], defense=labels["defense"], simulated=cell.stack.is_simulated, asked=asked
        )
        if before not in (None, self._agent):
            # Two agents answered into one folder, and no client's file says which: it is neither's.
            self._agent = self._agent.model_copy(update={"model": UNRECORDED, "defense": UNRECORDED})
        self._noted = set[str]()

    def note_asked(self, model_id: str) -> None:
        """Note the id of a model that a client asked for, and whose name its files will bear."""
        asked = self._agent.asked
        if model_id in self._noted or len(asked) >= _MOST_ASKED or len(model_id) > _MOST_ASKED:
            return
        self._noted.add(model_id)
        if model_id not in asked:
            asked.append(model_id)
        try:
            write_atomically(self._path, self._agent.model_dump_json().encode())
        except OSError as error:  # a client is answered all the same; its files are then `unrecorded`
            _LOG.warning("%s cannot be written: %s", self._path, error.strerror)


@dataclass(frozen=True)
class ServedAgent:
    """A running server with a defended agent behind it."""

    server: Server
    router: ConversationRouter
    cell: Cell
    folder: Path
    """The log folder that conversations are stored in."""


def build_defended_agent(
    overrides: Sequence[str], config_dirs: Sequence[Path] = ()
) -> tuple[DefendedAgent, Cell, Store]:
    """Build the agent that some overrides describe; return it with its cell and its store.

    Raises:
        ConfigError: If the overrides name several models or defenses, or this machine lacks what they need.
    """
    # Words of one client's conversation are no answer to another's, however alike the questions are.
    settings = compose([*overrides, "model.cache=false"], config_dirs)
    if len(settings) > 1:
        raise ConfigError(f"{' '.join(overrides)}: one model and one defense; start a server for each.")
    kept = settings[0].store
    store = Store(settings[0].logdir, kept.mode, compress=kept.compress)
    usage_log = UsageLog(Meter(settings[0].budget), Ledger(store.own / LEDGER_FILE))
    cell = CellBuilder(store, tuple(config_dirs), usage_log=usage_log).build(settings[0])
    for lacking in cell.lacks:
        raise lacking
    agent = DefendedAgent(cell.defense, cell.stack, settings[0].seed, usage_log)
    agent.check()
    cell.stack.warm_up()
    return agent, cell, store


@contextmanager
def serve_agent(
    overrides: Sequence[str],
    *,
    config_dirs: Sequence[Path] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Sequence[str] = (),
    limits: ConversationLimits | None = None,
) -> Iterator[ServedAgent]:
    """Serve a model with a defense around it until the block is left; then every conversation is ended.

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
    labels = cell.settings.labels
    name = f"{labels['model']}+{labels['defense']}"
    writer, note = make_dialogue_writer(store, cell), AnsweringSign(store, cell).note_asked
    router = ConversationRouter(agent, name, writer, limits, note)
    find_misfit(b"{}", {})  # The process that checks arguments is there before the first request.
    with serve(router, host=host, port=port, tokens=tokens) as server:
        try:
            yield ServedAgent(server, router, cell, store.root)
        finally:
            router.stop()
