"""`CaseRow`: one stored case as a row of analysis, whoever wrote it, and the names that tables give it.

A simulated model's name says once that it is simulated; a long name is cut and ends in a digest, so that no
two are alike; `make_case_id` gives the short id that tables, links and pages share.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

SIMULATED_MARK = " (simulated)"
"""Appended to the name of a model behind which there was a simulated one."""
_NAMES_ITSELF = ("simulated", "simulated+", "simulated [", "simulated, fitted to ")
"""The simulated model's names, also with changed options or with the place of its files. The last one begins
those of earlier versions' records, whose agent was fitted to published runs."""
_NOT_SIMULATED_MARK = " (no simulated model)"


@lru_cache(maxsize=4096)
def mark_simulated_name(name: str, *, simulated: bool) -> str:
    """A model's name for tables: `gpt-4o`, `gpt-4o (simulated)`, `simulated+susceptibility=0.5`."""
    if simulated:
        return name if _is_own_name(name) else f"{name}{SIMULATED_MARK}"
    return f"{name}{_NOT_SIMULATED_MARK}" if is_simulated_name(name) else name


def is_simulated_name(shown: str) -> bool:
    """Say of a name as tables show it whether a simulated model was behind the cases."""
    return shown.endswith(SIMULATED_MARK) or (_is_own_name(shown) and not shown.endswith(_NOT_SIMULATED_MARK))


def strip_simulated_mark(shown: str) -> str:
    """A name as tables show it -> as records have it."""
    return shown.removesuffix(SIMULATED_MARK).removesuffix(_NOT_SIMULATED_MARK)


def _is_own_name(name: str) -> bool:
    return name == _NAMES_ITSELF[0] or name.startswith(_NAMES_ITSELF[1:])


ACTING_ROLES = frozenset({"agent", "main"})
"""Roles whose context carries the conversation with the user, in plain agents and in AgentSys."""

NO_ATTACK = "none"
"""The attack's label in benign cases."""

SERVED = "served"
"""The benchmark's label in records of a served agent's conversations, which have no scores."""

_ALONE = "injection_task_"
"""Begins a user task's id where it is an injection task."""

SEARCHED_ON_SUFFIX = "+home"
"""Appended to the attack of cases that its text was searched on (mode `transfer`): they are a line apart."""

UNRECORDED = "unrecorded"
IN_PIPELINE_NAME = ""
"""A defense that only the pipeline's name tells, which then stands in the model's place: until all pipelines that
were read together are known (`resolve_runs`)."""
"""The version's label where the file does not name one."""

PROVEN_V1_2 = "v1.2 or later"
"""The version's label where the file names none and the tasks of its pipeline are those of v1.2 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """One stored case. The fields are the columns of `agentsys.load_runs`, explained in docs/data.md."""

    benchmark: str
    version: str
    """The benchmark's version, `unrecorded`, or `v1.2 or later` where only that can be told."""
    model: str
    defense: str
    attack: str
    """`none` in benign cases."""
    suite: str
    user_task_id: str
    injection_task_id: str | None
    """None in benign cases. A denial of service stands on one of the suite's too, which it has no use for."""
    epoch: int = 0
    """Which repetition, from 0; always 0 in foreign files, which do not record it."""
    utility: bool
    """Whether the user task was solved. Without meaning where `status` is `error`."""
    injection_success: bool | None
    """Whether the attack reached its goal (JSON key `security`; for denial of service: the user task
    was not solved). None in benign cases, where the stored value means nothing."""
    status: Literal["ok", "error"] = "ok"
    error_kind: str | None = None
    """Why the case errored; None where it did not."""
    simulated: bool = False
    """Whether a simulated model was behind this case: by its settings, or by what a reply says it is."""
    exposed_raw: bool | None = None
    """Whether a tool returned the payload; None where unknown and in benign cases."""
    exposed_shown: bool | None = None
    """Whether a message that the acting model received held the payload; None likewise."""
    raw_round: int | None = None
    """First tool call that returned the payload, from 1."""
    shown_round: int | None = None
    """Tool results the acting model had received when it first saw the payload, from 1."""
    duration_s: float | None = None
    """Wall time in seconds."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    """US dollars, all roles; None where unknown."""
    source: str
    """Path of the file."""
    foreign: bool = True
    """Whether another tool wrote the file (AgentDojo's own runner, DRIFT's)."""
    trajectory_length: int | None = None
    """Tool results in the recorded messages; None where the file holds no messages."""
    ground_truth_length: int | None = None
    """Calls in the user task's ground truth; None where unknown."""
    injection_round: int | None = None
    """First tool result of the recorded messages that holds the injection, from 1; None if none does,
    in benign cases, and where the injections are not recorded."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Tool -> calls that were executed, workers' included, sorted by name."""
    tokens_by_role: Mapping[str, int] = field(default_factory=dict)
    """Role -> prompt and completion tokens. `all` where the file has only a sum; empty where unknown."""
    replies_by_role: Mapping[str, int] = field(default_factory=dict)
    """Role -> replies of models, cached ones included; empty where unknown."""
    cached_by_role: Mapping[str, int] = field(default_factory=dict)
    """Role -> of its prompt tokens, those that the provider read from its cache; empty where unknown."""
    cost_by_role: Mapping[str, float | None] = field(default_factory=dict)
    """Role -> US dollars; None for a role with an unpriced call; empty where unknown."""
    decisions: Mapping[str, int] = field(default_factory=dict)
    """`denied` and `allowed`: a validator's verdicts; `sanitized_spans`: passages cut; `labelled_tools` and
    `unlabelled_tools`: tools by whether a reply named their label. Empty where none of these is recorded."""
    receipts: int | None = None
    """Calls whose tool itself said that it ran; None where tools write no receipts, and in foreign files."""
    answer_chars: int | None = None
    """Characters of the final answer; None where the run did not end on one."""
    exposure_rounds: int | None = None
    """Times the acting agent was asked with the injection in its context; None in benign cases and
    where unknown."""
    exposure_rounds_workers: int | None = None
    """The same of its workers, all together; 0 where the defense has none."""
    untrusted_tokens: int | None = None
    """Tokens that came from tools into the acting agent's context, estimated; None where unknown."""
    untrusted_tokens_workers: int | None = None
    """The same of its workers' contexts, all together; 0 where the defense has none."""
    notes: tuple[str, ...] = ()
    """What the runner noted about the model calls."""
    odd_replies: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Model id -> kind -> replies: `empty` ones; `unparsed_call`, a tool call as text that the server did not
    parse; `cut` at a bound on tokens; `unreadable` to who asked for them. Empty in foreign files."""
    unreadable_by_role: Mapping[str, int] = field(default_factory=dict)
    """Role -> of its replies, those that could not be read. Empty in foreign files and older records."""
    proposed: int | None = None
    """Calls that a model proposed, executed or not; None where the file holds no messages."""
    ended: str | None = None
    """At what bound the agent ended: `stuck` (it repeated a refused call), `cut` (its last reply ran into the
    bound on tokens) or `rounds` (its last message still makes calls). None where it ended by itself, or the
    file holds no messages."""
    gates: Mapping[str, int] = field(default_factory=dict)
    """`filter/outcome/tool` -> calls that a filter ruled on before they ran. Empty where none does."""
    guards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Guard -> its verdicts on tool results against what was planted, counted by kind (docs/data.md).
    Empty where no guard gives verdicts, and in foreign files."""
    config_hash: str | None = None
    """Hash of the resolved config; None in foreign files."""
    data_hash: str | None = None
    """Hash of the benchmark's data; None in foreign files."""
    seed: int | None = None
    """The run's seed; None in foreign files."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What the benchmark measured besides the two scores; keys are its own. Empty in foreign files
    but ASB's results and what `agentsys rescore` wrote."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the benchmark says of these facts, by their names (`agentsys.base.declared_facts`)."""
    read_by: tuple[str, ...] = ()
    """Roles of all models that were sent the payload, in order; empty where unknown and in benign cases."""
    attempts: int | None = None
    """Runs of the pipeline (up to three, on empty answers); None in foreign files."""
    model_ids: Mapping[str, str] = field(default_factory=dict)
    """Model id that replies named -> the id that was asked for (empty where that is not recorded)."""
    servers: tuple[str, ...] = ()
    """Who answered behind a gateway (`provider NAME`) and the marks of what ran there (`system_fingerprint
    MARK`), as replies name them, in order of name; empty in foreign files."""
    cached_replies: int | None = None
    """Replies read from our own cache, which took no time; None in foreign files."""
    apart: str | None = None
    """The place that tells this pipeline from another one of the same name in the same folders; None
    where there is no other."""

    @property
    def model_label(self) -> str:
        """The model's name, with the place that tells it from another one of that name."""
        return self.model if self.apart is None else f"{self.model} [{self.apart}]"

    @property
    def table_model(self) -> str:
        """The model's name as tables must show it: told apart, and a simulated one marked."""
        return format_table_model(self.model, self.apart, self.simulated)

    @property
    def is_injection_task_alone(self) -> bool:
        """True if an injection task was run as if a user had asked for it: part of no metric."""
        return self.user_task_id.startswith(_ALONE)

    @property
    def is_scored(self) -> bool:
        """True if it is a case that metrics are made of."""
        return self.benchmark != SERVED and not self.user_task_id.startswith(_ALONE)

    @property
    def task_key(self) -> tuple[str, str, str | None, int]:
        """Key that tells the cases of one model, defense and attack apart."""
        return self.suite, self.user_task_id, self.injection_task_id, self.epoch

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens of all roles; None where the file does not hold them."""
        known = self.prompt_tokens is not None and self.completion_tokens is not None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0) if known else None

    @property
    def identity(self) -> tuple[str | int | None, ...]:
        """The values that no two counted cases share; the same case in two folders is counted once."""
        identity: tuple[str | int | None, ...] = _identity(self)
        return identity


@lru_cache(maxsize=4096)
def format_table_model(model: str, apart: str | None, simulated: bool) -> str:
    """`CaseRow.table_model` of a row with these values."""
    return mark_simulated_name(model if apart is None else f"{model} [{apart}]", simulated=simulated)


IDENTITY = (
    "benchmark",
    "version",
    "model",
    "simulated",
    "defense",
    "attack",
    "suite",
    "user_task_id",
    "injection_task_id",
    "epoch",
    "apart",
)
"""The columns of `CaseRow.identity`."""

_identity = attrgetter(*IDENTITY)

COLUMNS = tuple(column.name for column in fields(CaseRow))
"""Column names of the data frame, in order."""


MAX_NAME_CHARS = 60
"""Characters of a name in tables."""
_DIGEST = 8
_NAMES = tuple(name for name in IDENTITY if name not in ("simulated", "epoch"))


def shorten_name(name: str) -> str:
    """A name of at most `MAX_NAME_CHARS` characters; a longer one ends in a digest of the whole."""
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME_CHARS - _DIGEST - 1]}…{digest}"


def shorten_names(cases: Iterable[CaseRow]) -> tuple[CaseRow, ...]:
    """The cases as tables name them; what is written for other programs has the whole names."""
    listed = tuple(cases)
    for name in _NAMES:  # one column at a time: hardly any has a long one
        long = {
            value for value in set(map(attrgetter(name), listed)) if value and len(value) > MAX_NAME_CHARS
        }
        if long:
            listed = tuple(
                _shorten_row(case, name) if getattr(case, name) in long else case for case in listed
            )
    return listed


def _shorten_row(case: CaseRow, name: str) -> CaseRow:
    changed: dict[str, Any] = {name: shorten_name(getattr(case, name))}
    return replace(case, **changed)


CASE_ID_CHARS = 10
"""Characters, of five bits each: two of ten thousand cases share an id once in twenty million folders."""


def make_case_id(case: CaseRow) -> str:
    """Letters and digits for all that tells a case from the others; where its folder lies plays no part.

    Names are taken as tables have them, so that a cut one and a whole one give the same id.
    """
    told = [shorten_name(value) if isinstance(value, str) else str(value) for value in case.identity]
    digest = hashlib.sha256("\0".join(told).encode("utf-8", "backslashreplace")).digest()
    return base64.b32encode(digest).decode().lower()[:CASE_ID_CHARS]
