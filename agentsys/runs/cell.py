"""`Cell`: one combination of model, defense, attack and benchmark, built and ready to run; `JobList`: its cases.

Scripted models are given ground truths from the benchmark, and roles from the defenses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, overload, runtime_checkable

from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, ATTACKER_ROLES
from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.contracts import Attack, Benchmark, Defense, Victim
from agentsys.errors import Unavailable
from agentsys.models.budget import UsageLog
from agentsys.models.build_model import ModelCard, ModelStack, build_stack, parse_card
from agentsys.models.chat import ChatModel
from agentsys.models.thought_text import ThoughtBlock
from agentsys.records.case import Case, make_safe_name
from agentsys.runs.instantiate import instantiate, load_class
from agentsys.runs.settings import Settings
from agentsys.simulated.playbook_index import Playbook
from agentsys.simulated.simulated_role import SimulatedRole


@runtime_checkable
class Scriptable(Protocol):
    """A model that acts from a script (the simulated one)."""

    def with_playbook(
        self, playbook: Callable[[], Playbook], roles: Mapping[str, SimulatedRole]
    ) -> ChatModel:
        """Copy the model with these roles; it calls `playbook` when it first needs the script."""


def give_script(benchmark: Benchmark, players: Iterable[Defense | Attack], model: ChatModel) -> ChatModel:
    """Give a scripted model the playbook and the roles of benchmark, defense and attack; return others unchanged."""
    if not isinstance(model, Scriptable):
        return model
    roles: dict[str, SimulatedRole] = {}
    for player in (benchmark, *players):
        roles.update(player.simulated_roles())
    return model.with_playbook(partial(build_benchmark_playbook, benchmark), roles)


def build_benchmark_playbook(benchmark: Benchmark) -> Playbook:
    """Collect the ground truths of every suite of a benchmark."""
    return build_playbook([benchmark.suite(name) for name in benchmark.suite_names()])


@dataclass(frozen=True)
class Cell:
    """Everything a case needs besides its tasks."""

    settings: Settings
    benchmark: Benchmark
    attack: Attack
    defense: Defense
    card: ModelCard
    """Card of its model, also where the simulated one stands for it."""
    stack: ModelStack
    victim: Victim
    usage_log: UsageLog | None = None
    """Log of its requests and their cost; None in a rehearsal."""
    lacks: tuple[Unavailable, ...] = ()
    """Requirements that this machine lacks, as far as that is known before the run."""
    notes: tuple[str, ...] = ()
    """Observations from before the run, stored in every record of its cases."""

    @cached_property
    def config_hash(self) -> str:
        """Hash of the settings' identity, stored in every record of its cases."""
        return self.settings.config_hash

    def warm_up(self) -> None:
        """Load data and models before the first cases, so that their durations do not include it.

        Raises:
            Exception: If the data of its suites are damaged.
        """
        suites = [self.benchmark.suite(name) for name in self.benchmark.suite_names()]
        for suite in suites:
            suite.get_injection_vector_defaults()
        self.stack.warm_up()
        for suite in suites:
            with suppress(Exception):  # May be a user's code; the case that needs it reports the error.
                suite.load_and_inject_default_environment({})


class CellLabels(NamedTuple):
    """Labels of a cell, as in records."""

    model: str
    defense: str
    attack: str


@dataclass(frozen=True)
class Job:
    """A case with the cell it belongs to."""

    case: Case
    cell: Cell

    @property
    def labels(self) -> CellLabels:
        """Labels of its cell."""
        return CellLabels(self.case.model, self.case.defense, self.case.attack)

    @property
    def needs_search(self) -> bool:
        """True if the attack's text has to be searched for; a model that replays runs brings its own texts."""
        attack, attacked = self.cell.attack, self.case.injection_task_id is not None
        return attacked and attack.searched and not (attack.replays or self.cell.stack.replays_runs)


TaskPair = tuple[str, str | None]
"""Ids of a user task and of an injection task (None: no attack)."""


def make_job(cell: Cell, suite: str, pair: TaskPair, epoch: int) -> Job:
    """Build a cell's case for one pair of tasks and one epoch."""
    labels, (user_task, injection_task) = cell.settings.labels, pair
    case = Case(
        benchmark=cell.benchmark.name,
        version=cell.benchmark.version,
        suite=suite,
        user_task_id=user_task,
        injection_task_id=injection_task,
        attack=labels["attack"],
        model=labels["model"],
        defense=labels["defense"],
        epoch=epoch,
    )
    return Job(case, cell)


def make_file_names(pair: TaskPair) -> tuple[str, str]:
    """The parts of a record's path that a pair of tasks decides: two pairs may share them."""
    user_task, injection_task = pair
    return make_safe_name(user_task), make_safe_name(injection_task or "none")


@dataclass(frozen=True)
class JobBlock:
    """The cases of one cell, suite and epoch."""

    cell: Cell
    suite: str
    epoch: int
    pairs: Sequence[TaskPair]
    """At least one; blocks of the same tasks share them."""

    def __iter__(self) -> Iterator[Job]:
        return (make_job(self.cell, self.suite, pair, self.epoch) for pair in self.pairs)

    @property
    def first(self) -> Job:
        """Its first case."""
        return make_job(self.cell, self.suite, self.pairs[0], self.epoch)


class JobList(Sequence[Job]):
    """Cases in blocks. A million of them take the memory of their blocks."""

    def __init__(self, blocks: Iterable[JobBlock]) -> None:
        self.blocks = tuple(block for block in blocks if block.pairs)
        self._ends = [*accumulate(len(block.pairs) for block in self.blocks)]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(self.blocks)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job]: ...
    def __getitem__(self, place: int | slice) -> Job | list[Job]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        number = bisect_right(self._ends, at)
        block = self.blocks[number]
        return make_job(block.cell, block.suite, block.pairs[at - self._ends[number]], block.epoch)

    @property
    def cells(self) -> list[Cell]:
        """The cells of these cases, each once."""
        return list({id(block.cell): block.cell for block in self.blocks}.values())

    @property
    def pipelines(self) -> list[str]:
        """The folders of these cases below the log folder, each once."""
        return list(dict.fromkeys(block.first.case.pipeline for block in self.blocks))

    @property
    def searched(self) -> JobList:
        """The cases whose text has to be searched for: all of a block, or none."""
        return JobList(block for block in self.blocks if block.first.needs_search)

    def count_by_labels(self) -> Counter[CellLabels]:
        """Cell's labels -> its cases."""
        counts: Counter[CellLabels] = Counter()
        for block in self.blocks:
            counts[block.first.labels] += len(block.pairs)
        return counts

    def group_by_labels(self) -> Mapping[CellLabels, Mapping[str, JobList]]:
        """Cell's labels -> suite -> its cases."""
        groups: defaultdict[CellLabels, defaultdict[str, list[JobBlock]]]
        groups = defaultdict(lambda: defaultdict(list))
        for block in self.blocks:
            groups[block.first.labels][block.suite].append(block)
        return {
            labels: {suite: JobList(blocks) for suite, blocks in by_suite.items()}
            for labels, by_suite in groups.items()
        }

    def replace_cells(self, change: Callable[[Cell], Cell | None]) -> JobList:
        """Copy the list with changed cells; where `change` returns None, the cell's cases are dropped."""
        changed = {id(cell): change(cell) for cell in self.cells}
        return JobList(
            replace(block, cell=cell)
            for block in self.blocks
            if (cell := changed[id(block.cell)]) is not None
        )


class CellFolder(Protocol):
    """What a cell reads of the log folder (`agentsys.runs.store.Store`)."""

    own: Path
    """Folder for files that defenses keep."""

    @property
    def replies(self) -> Path:
        """Folder of cached replies."""

    def load_inferred_blocks(self) -> dict[str, ThoughtBlock]:
        """Load how replies of models begin with thoughts, as far as that was seen."""


@dataclass
class CellBuilder:
    """Builds cells; cells share benchmarks, attacks, defenses and SDK clients of the same config."""

    store: CellFolder
    config_dirs: tuple[Path, ...] = ()
    _: KW_ONLY
    rehearsal: bool = False
    """True: the simulated model stands for every model."""
    usage_log: UsageLog | None = None
    _built: dict[str, Any] = field(default_factory=dict, init=False)

    def build(self, settings: Settings) -> Cell:
        """Build the cell of these settings.

        Raises:
            ConfigError: If a `_target_` cannot be imported or refuses its options, or an API key is missing.
        """
        benchmark: Benchmark = self._build_once("benchmark", settings.benchmark)
        attack: Attack = self._build_once("attack", self._complete("attack", settings.attack, settings.seed))
        defense: Defense = self._build_once(
            "defense", self._complete("defense", settings.defense, settings.seed)
        )
        check_turn_support(defense, benchmark)
        stack = self._build_stack(settings, benchmark, defense, attack)
        played = defense.rehearsed() if stack.is_simulated else defense
        # A rehearsal reports what the real run would need.
        checked, missing_for_model = (
            (defense, self._find_missing_for_model(settings)) if self.rehearsal else (played, None)
        )
        lacks = [] if missing_for_model is None else [missing_for_model]
        try:
            checked.ready()
        except Unavailable as error:
            lacks.insert(0, error)
        if (missing := _find_missing_role_model(played, settings.model)) is not None:
            lacks.append(missing)
        card = parse_card(resolve_model_config(settings))
        victim = Victim(card.prose_name, benchmark.user_name)
        return Cell(settings, benchmark, attack, played, card, stack, victim, self.usage_log, tuple(lacks))

    def _find_missing_for_model(self, settings: Settings) -> Unavailable | None:
        """Return what the real model lacks on this machine, which a rehearsal reports; None if nothing."""
        model = resolve_model_config(settings)
        key = f"needs:{model!r}"
        if key not in self._built:
            try:
                build_stack(model, cache_dir=None, load_model=self._load_model)
                self._built[key] = None
            except Unavailable as error:
                self._built[key] = error
        missing: Unavailable | None = self._built[key]
        return missing

    def _load_model(self, name: str) -> dict[str, Any]:
        return load_config("model", name, self.config_dirs)

    def _complete(self, group: str, option: Any, seed: int) -> Any:
        """Fill in options that are null, in this option and in those nested in it.

        `seed: null` becomes the run's seed; a folder that a defense keeps files in is put beside the runs.
        """
        if isinstance(option, list):
            return [self._complete(group, item, seed) for item in option]
        if not isinstance(option, dict) or "_target_" not in option:
            return option
        inner = {name: self._complete(group, value, seed) for name, value in option.items()}
        own: dict[str, Any] = {"seed": seed}
        if group == "defense" and not self.rehearsal:
            folders = load_class("defense", option).keeps
            own |= {name: str(self.store.own / folder) for name, folder in folders.items()}
        return inner | {name: value for name, value in own.items() if name in inner and inner[name] is None}

    def _build_once(self, group: str, config: Mapping[str, Any]) -> Any:
        key = f"{group}:{config!r}"
        if key not in self._built:
            self._built[key] = instantiate(group, config)
        return self._built[key]

    def _build_stack(
        self, settings: Settings, benchmark: Benchmark, defense: Defense, attack: Attack
    ) -> ModelStack:
        """Build the model, or take the one of an equal config; in a rehearsal the simulated one."""
        model = resolve_model_config(settings)
        if self.rehearsal:
            model = {**load_config("model", "simulated"), "susceptibility": 0.0}
        # One client and rate limit per model config; a simulated model is built per defense, whose roles it plays.
        plays = [settings.benchmark, settings.defense, settings.attack] if model.get("simulated") else []
        key = f"stack:{model!r}:{plays!r}"
        if key not in self._built:
            own, usage_log = self.store.own, self.usage_log
            built = build_stack(
                model,
                cache_dir=settings.cache.dir or self.store.replies,
                cache_mode=settings.cache.mode,
                load_model=self._load_model,
                finish=partial(give_script, benchmark, [defense, attack]),
                rates=None if usage_log is None else own / "rates",
            )
            blocks = self.store.load_inferred_blocks()
            self._built[key] = built.split_thoughts(blocks) if blocks else built
        stack: ModelStack = self._built[key]
        return stack


def _find_missing_role_model(defense: Defense, model: Mapping[str, Any]) -> Unavailable | None:
    """Return the error for the first role that needs a model of its own and has none.

    The simulated model plays such roles itself.
    """
    if model.get("simulated"):
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
    """Return the model's config, with the attacker roles assigned to the attack's `attacker`, if it names one.

    With `scripted_attacker` the scripted model plays these roles, so that a preset can be tried offline.
    """
    model, attacker = settings.model, settings.attack.get("attacker")
    if attacker is None or settings.scripted_attacker:
        return model
    roles = dict.fromkeys(sorted(ATTACKER_ROLES), attacker) | dict(model.get("roles") or {})
    return {**model, "roles": {**roles, ATTACKER_ROLE: attacker}}


def check_turn_support(defense: Defense, benchmark: Benchmark) -> None:
    """Refuse a defense that controls the whole conversation on a benchmark that does, too.

    Raises:
        Unavailable: If the defense is a whole program and a suite has several user turns. The other cells of a
            sweep can still run.
    """
    if not defense.whole_program:
        return
    for name in benchmark.suite_names():
        if benchmark.suite(name).several_turns:
            raise Unavailable(
                f"Defense '{defense.name}' runs a program of its own from request to answer, so it cannot "
                f"take part in the several turns of {benchmark.name} ({name}); run it where the conversation "
                "is one user turn (benchmark.mode=react, if the benchmark has modes).",
                needs="a conversation of one user turn",
            )
