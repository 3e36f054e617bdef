"""`Cell`: one combination of model, defense, attack and benchmark, built and ready to run.

Scripted models are given what they need to know: ground truths from the benchmark, roles from the
defenses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentsys.abilities import (
    ChecksItsNeeds,
    HasInjectionMode,
    NeedsOwnModels,
    PlaysRoles,
    Rehearsable,
    TakesTurns,
    WholeProgram,
)
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, ATTACKER_ROLES
from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.contracts import Attack, Benchmark, Defense, Victim
from agentsys.errors import Unavailable
from agentsys.models.budget import UsageLog
from agentsys.models.build_model import ModelStack, build_stack
from agentsys.models.chat import ChatModel
from agentsys.models.model_card import parse_card
from agentsys.runs.instantiate import find_kept_folders, instantiate
from agentsys.runs.settings import Settings
from agentsys.runs.store import REPLIES_FOLDER, Store
from agentsys.simulated.playbook_index import Playbook
from agentsys.simulated.simulated_role import SimulatedRole


@runtime_checkable
class Scriptable(Protocol):
    """A model that plays from a script (the simulated one)."""

    def with_playbook(
        self, playbook: Callable[[], Playbook], roles: Mapping[str, SimulatedRole]
    ) -> ChatModel:
        """A copy that can play these roles, and makes itself the script when it needs it."""
        ...


def make_scripter(benchmark: Benchmark, players: Iterable[object]) -> Callable[[ChatModel], ChatModel]:
    """Make what finishes each built provider: scripted ones get playbook and roles, others stay."""
    roles = collect_simulated_roles([benchmark, *players])

    def finish(model: ChatModel) -> ChatModel:
        if not isinstance(model, Scriptable):
            return model
        return model.with_playbook(partial(build_benchmark_playbook, benchmark), roles)

    return finish


def collect_simulated_roles(players: Iterable[object]) -> dict[str, SimulatedRole]:
    """The simulated roles that benchmarks, defenses and attacks bring along."""
    roles: dict[str, SimulatedRole] = {}
    for player in players:
        if isinstance(player, PlaysRoles):
            roles.update(player.simulated_roles())
    return roles


def build_benchmark_playbook(benchmark: Benchmark) -> Playbook:
    """The ground truths of every suite of a benchmark."""
    return build_playbook([benchmark.suite(name) for name in benchmark.suite_names()])


@dataclass(frozen=True)
class Cell:
    """Everything a case needs besides its tasks."""

    settings: Settings
    benchmark: Benchmark
    attack: Attack
    defense: Defense
    stack: ModelStack
    victim: Victim
    books: UsageLog | None = None
    """Where its requests are booked; None: nowhere (a rehearsal)."""
    lacks: tuple[Unavailable, ...] = ()
    """What it needs and this machine has not, as far as that is known before it runs."""
    notes: tuple[str, ...] = ()
    """What was seen before the run and belongs into every record of its cases."""

    @cached_property
    def config_hash(self) -> str:
        """Hash of the settings' identity, which every record of its cases bears."""
        return self.settings.config_hash

    @property
    def injection_mode(self) -> str:
        """Way in which text gets into the environment: `exact`, or `folded` as YAML folds it in AgentDojo."""
        return self.benchmark.injection if isinstance(self.benchmark, HasInjectionMode) else "folded"

    def warm_up(self) -> None:
        """Have made now what the first cases would wait for, and count as their time.

        Raises:
            Exception: If the data of its suites are damaged, before a case is run.
        """
        suites = [self.benchmark.suite(name) for name in self.benchmark.suite_names()]
        for suite in suites:
            suite.get_injection_vector_defaults()
        self.stack.warm_up()
        for suite in suites:
            with suppress(Exception):  # code of a user's, maybe: the case that needs it will say so
                suite.load_and_inject_default_environment({})


class CellBuilder:
    """Builds cells, sharing what several of them have in common (benchmarks, attacks, SDK clients).

    Args:
        store: Store that replies are cached in and files kept beside.
        config_dirs: The user's own config folders, for models named under `roles`.
        rehearsal: Whether the simulated model stands in for every model: needs no key, costs nothing.
        books: Books that requests are entered in; None: they are not.
    """

    def __init__(
        self,
        store: Store,
        config_dirs: tuple[Path, ...] = (),
        *,
        rehearsal: bool = False,
        books: UsageLog | None = None,
    ) -> None:
        self._books = books
        self._store = store
        self._config_dirs = config_dirs
        self._rehearsal = rehearsal
        self._built: dict[str, Any] = {}

    def build(self, settings: Settings) -> Cell:
        """The cell of these settings.

        Raises:
            ConfigError: If a `_target_` cannot be found or refuses its options, or a key is missing.
        """
        benchmark: Benchmark = self._build_once("benchmark", settings.benchmark)
        attack: Attack = self._build_once("attack", _fill_seed(settings.attack, settings.seed))
        defense: Defense = self._build_once(
            "defense", self._place_folders(_fill_seed(settings.defense, settings.seed))
        )
        check_turn_support(defense, benchmark)
        stack = self._build_stack(settings, benchmark, defense, attack)
        needy = defense
        if stack.is_simulated and isinstance(defense, Rehearsable):
            defense = defense.rehearsed()
        # A rehearsal tells what the real run would need.
        found = (
            [_missing_for_defense(needy), self._missing_for_model(settings)]
            if self._rehearsal
            else [_missing_for_defense(defense)]
        )
        found.append(_missing_role_model(defense, settings.model))
        lacks = tuple(one for one in found if one is not None)
        victim = Victim(parse_card(settings.model).prose_name, benchmark.user_name)
        return Cell(settings, benchmark, attack, defense, stack, victim, self._books, lacks)

    def _missing_for_model(self, settings: Settings) -> Unavailable | None:
        model = resolve_model_config(settings)
        key = f"needs:{model!r}"
        if key not in self._built:
            try:
                build_stack(model, cache_dir=None, load_model=self._load_model)
                self._built[key] = None
            except Unavailable as error:
                self._built[key] = error
        found: Unavailable | None = self._built[key]
        return found

    def _load_model(self, name: str) -> dict[str, Any]:
        return load_config("model", name, self._config_dirs)

    def _place_folders(self, config: dict[str, Any]) -> dict[str, Any]:
        """A defense that keeps files, or one inside it, keeps them beside the runs by default."""
        if self._rehearsal:
            return config
        placed = _map_nodes(config, self._place_folders)
        kept = {option: folder for option, folder in find_kept_folders(config).items() if option in placed}
        unplaced = {option: folder for option, folder in kept.items() if placed[option] is None}
        return placed | {option: str(self._store.own / folder) for option, folder in unplaced.items()}

    def _build_once(self, group: str, config: Mapping[str, Any]) -> Any:
        key = f"{group}:{config!r}"
        if key not in self._built:
            self._built[key] = instantiate(group, config)
        return self._built[key]

    def _build_stack(
        self, settings: Settings, benchmark: Benchmark, defense: Defense, attack: Attack
    ) -> ModelStack:
        model = resolve_model_config(settings)
        if self._rehearsal:
            model = {**load_config("model", "simulated"), "susceptibility": 0.0}
        # One client and one rate limit per model; a simulated one is built per defense, whose roles it plays.
        plays = [settings.benchmark, settings.defense, settings.attack] if model.get("simulated") else []
        key = f"stack:{model!r}:{plays!r}"
        if key not in self._built:
            own, books = self._store.own, self._books
            self._built[key] = build_stack(
                model,
                cache_dir=settings.cache.dir or own / REPLIES_FOLDER,
                cache_mode=settings.cache.mode,
                load_model=self._load_model,
                finish=make_scripter(benchmark, [defense, attack]),
                rates=None if books is None else own / "rates",
            )
        stack: ModelStack = self._built[key]
        return stack


def _missing_for_defense(defense: Defense) -> Unavailable | None:
    if isinstance(defense, ChecksItsNeeds):
        try:
            defense.ready()
        except Unavailable as error:
            return error
    return None


def _missing_role_model(defense: Defense, model: Mapping[str, Any]) -> Unavailable | None:
    """The first role that needs a model of its own and has none; the simulated model plays such roles."""
    if not isinstance(defense, NeedsOwnModels) or model.get("simulated"):
        return None
    given = model.get("roles") or {}
    for role in defense.own_roles:
        if given.get(role) is None:
            return Unavailable(
                f"Defense '{defense.name}' needs a model made for its role {role}: +model.roles.{role}=NAME"
                f" (a YAML of model/). Played by '{model.get('name')}' it would be another defense.",
                needs=f"model.roles.{role}",
            )
    return None


def resolve_model_config(settings: Settings) -> dict[str, Any]:
    """The model's YAML, the attacker's roles played by the model that the attack names, if it names one.

    The scripted model plays one that a preset names, so that the preset can be tried offline.
    """
    model, attacker = settings.model, settings.attack.get("attacker")
    if attacker is None or settings.scripted_attacker:
        return model
    roles = dict.fromkeys(sorted(ATTACKER_ROLES), attacker) | dict(model.get("roles") or {})
    return {**model, "roles": {**roles, ATTACKER_ROLE: attacker}}


def _fill_seed(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A config whose `seed: null`, and those of the objects it describes inside, became the run's."""
    inner = _map_nodes(config, lambda node: _fill_seed(node, seed))
    return {**inner, "seed": seed} if "seed" in inner and inner["seed"] is None else inner


def _map_nodes(
    config: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """A config with each object that one of its options describes, or a list in one, changed."""

    def changed(option: Any) -> Any:
        if isinstance(option, list):
            return [changed(one) for one in option]
        return change(option) if isinstance(option, dict) and "_target_" in option else option

    return {name: changed(option) for name, option in config.items()}


def check_turn_support(defense: Defense, benchmark: Benchmark) -> None:
    """Refuse a defense that decides by itself how the conversation goes where the benchmark wants to.

    Raises:
        Unavailable: If the defense is a `WholeProgram` and a suite leads the agent by turns. The other cells
            of a sweep can run without it.
    """
    if not (isinstance(defense, WholeProgram) and defense.whole_program):
        return
    for name in benchmark.suite_names():
        suite = benchmark.suite(name)
        if isinstance(suite, TakesTurns) and suite.several_turns:
            raise Unavailable(
                f"Defense '{defense.name}' runs a program of its own from request to answer, so it cannot "
                f"take part in the several turns of {benchmark.name} ({name}); run it where the conversation "
                "is one user turn (benchmark.mode=react, if the benchmark has modes).",
                needs="a conversation of one user turn",
            )
