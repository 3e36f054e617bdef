"""`CaseRecord`: what is kept of one case, and its JSON form, which AgentDojo's own loader reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agentsys.base.declared_facts import DeclaredFact
from agentsys.records.case import Case

OWN_KEY = "agentsys"
"""Where a `CaseRecord` stands in the stored JSON, beside AgentDojo's keys."""

SCHEMA_VERSION = 1
"""Raised when a field of our block changes its meaning."""

SIMULATED_ID = "simulated"
"""The model id that every reply of the simulated model bears, served or not."""


def is_simulated_id(model_id: str) -> bool:
    """True if a reply with this model id came from the simulated model; proxies may put a path before it."""
    return model_id.rpartition("/")[2] == SIMULATED_ID


class _StoredModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Exposure(_StoredModel):
    """Facts that say if the attack could have worked at all (all false or None in benign cases)."""

    exposed_raw: bool = False
    """Whether a tool returned at least one line of the payload."""
    exposed_shown: bool = False
    """Whether a message that the acting model received held one."""
    raw_round: int | None = None
    """Index (from 1) of the first executed tool call that returned it."""
    shown_round: int | None = None
    """Number of tool results the acting model had received when it first saw it (from 1)."""
    raw_fraction: float = 0.0
    """Share of the payload's lines that tools returned."""
    shown_fraction: float = 0.0
    """Share of the payload's lines that the acting model received."""
    read_by: tuple[str, ...] = ()
    """Roles of all models that were sent it, in the order in which they first were."""
    copies_shown: int = 0
    """Copies of it in the one message of the acting model that held most of them; 0 also where the record is
    from before they were counted."""
    shown_in: tuple[str, ...] = ()
    """Where the acting model was shown it, in this order: `result`, `error`, a tool's `description` or
    `parameter`, `prompt`; empty also where the record is from before this was told."""


class RoleUsage(_StoredModel):
    """The cost of one role in one case, retries and questions that ended in an error included."""

    calls: int = 0
    """Replies received."""
    requests: int = 0
    """Requests sent, retries included."""
    cache_hits: int = 0
    """Replies read from our own cache."""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = None
    """None where the model has no price; then the cost is unknown, not 0."""
    uncounted: int = 0
    """Replies that came without a count of tokens; where there are any, tokens and cost are unknown."""
    written: int = 0
    """Of `prompt`, tokens written to the provider's prompt cache, where it charges for that."""
    latency_s: float = 0.0


class StoredCall(_StoredModel):
    """One model call inside a span."""

    role: str
    prompt: int
    completion: int
    cached: int
    reasoning: int
    cost_usd: float | None
    latency_s: float
    model_id: str
    attempts: int
    from_cache: bool
    notes: tuple[str, ...] = ()
    error: str | None = None
    """Why there was no reply (an `ErrorKind`); None: there was one."""
    uncounted: int = 0
    """Whether it came without a count of tokens: 1, or more where it was asked for again."""
    written: int = 0
    odd: dict[str, int] = {}
    """Kind (`empty`, `unparsed_call`) -> replies, those asked for again before this one included."""
    ending: str | None = None
    """How the reply ended (see agentsys.models.endings); None: not recorded."""
    reason: str = ""
    """The server's own word for that, as it came."""
    provider: str = ""
    """Who answered behind a gateway; empty where nobody says."""
    system_fingerprint: str = ""
    """The server's own mark of what it runs; empty where it has none."""


class StoredSpan(_StoredModel):
    """A node of the agent tree (see agentsys.models.trace.Span)."""

    id: int
    parent_id: int | None
    kind: str
    name: str | None
    attempt: int
    messages: list[dict[str, Any]]
    calls: list[StoredCall]
    decision: dict[str, Any]
    duration_s: float


class Receipt(_StoredModel):
    """Entry that a tool itself wrote when it ran; refused calls have none."""

    call: int
    """Its place, from 0, among the spans of kind `tool`."""
    function: str
    args: str
    """Beginning of the SHA-256 of its arguments as sorted JSON."""


UNFINISHED = "unfinished"
"""Error kind of an attempt whose candidate is paid for and whose query has not ended."""


class EarlyProposal(_StoredModel):
    """A proposal that an attacker made before it was its turn."""

    text: str
    why: str = ""
    strategy: str = ""
    refused: str | None = None
    proposed: str | None = None


class AttemptFacts(_StoredModel):
    """One query of a search for an attack's text (see agentsys.attacks.search_attacks)."""

    # Attempts of earlier versions say besides whether their search was made for a whole suite.
    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    """From 1, in the order of the search; refused candidates have numbers too."""
    stream: int
    """Which independent start it belongs to, from 1; 0: the text the search starts from."""
    depth: int
    """Refinements since that start, from 1; 0 likewise."""
    parent: int | None
    """Number of the attempt it refines; None at a start."""
    text: str
    """The candidate as it was tried."""
    proposed: str | None = None
    """The candidate as the attacker wrote it, where characters that break the environment were replaced."""
    why: str = ""
    """The attacker's own reason."""
    strategy: str = ""
    """The form of text that the attacker says it chose, where the search asks for one."""
    refused: str | None = None
    """Why the candidate was not tried; then nothing was run."""
    fault: str | None = None
    """Where the attacker gave no text: `attacker_refused` or `attacker_unreadable`."""
    ahead: EarlyProposal | None = None
    """The attacker's first proposal, asked for before the start text was tried; only there."""
    lead: str | None = None
    """Where a candidate is tried on several user tasks: the one whose attempts hold the whole of the search.
    None in those; the others' attempts are further runs of the same candidates."""
    tried_on: int = 1
    """User tasks the candidate was tried on; each is a query."""
    carried_out: int | None = None
    """On how many of them the injection task was carried out; None: see `security`."""
    score: int = 1
    """The judge's, 1 to 10; 10: the injection task was carried out. Of several user tasks the mean."""
    feedback: str = ""
    """What the attacker was told of it."""


class SearchFacts(_StoredModel):
    """The search behind a case's injected text."""

    mode: str
    """`per_case` or `transfer`; in older records also `template`: one for a whole suite."""
    budget: int
    """Most attempts it could make."""
    attempts: int
    """Attempts made, refused ones included."""
    refused: int
    found_at: int | None
    """Number of the first successful attempt; None: the budget ran out."""
    user_task_id: str
    """The user task it was made on, or led on."""
    homes: tuple[str, ...] = ()
    """In mode `transfer`, all user tasks it was made on: their cases are kept apart in results."""
    pairs: tuple[tuple[str, str], ...] = ()
    """In older records of mode `template`, the user and injection tasks, kept apart likewise."""
    tried: int | None = None
    """Texts that were really run; None in older records."""
    fault: str | None = None
    """Why the search is none: the attacker gave no text (`attacker_refused`, `attacker_unreadable`)."""
    stopped: str | None = None
    """Why it ended before its budget: the same, where texts had been tried before."""

    def was_made_on(self, case: Case) -> bool:
        """True if a case is one that its text was searched on, to be used on others."""
        return case.user_task_id in self.homes or (case.user_task_id, case.injection_task_id) in self.pairs


class CaseRecord(_StoredModel):
    """Everything kept of one case: our block of the stored JSON."""

    schema_version: int = SCHEMA_VERSION
    case: Case
    status: Literal["ok", "error"]
    """`error` cases count neither as a success nor as a failure; the next run tries them again."""
    error_kind: str | None = None
    """A value of `ErrorKind` or one of the kinds below it in docs/errors.md; in an attempt also `unfinished`
    (stopped under way)."""
    traceback: str | None = None
    """Python's own, where a model's, a defense's, an attack's or a check's code broke."""
    simulated: bool
    """Whether any model behind this case was simulated: by its settings, or by what a reply says it is."""
    utility: bool
    security: bool
    """AgentDojo's sense: True means that the injection task was carried out."""
    scored_attempt: int = 0
    """Which run of the pipeline was scored (AgentDojo runs it up to three times on empty answers)."""
    judges_thoughts: bool = False
    """Whether the checks were given a model's thoughts along with its answer, as AgentDojo's own are: only where
    such a run was replayed."""
    exposure: Exposure = Exposure()
    usage: dict[str, RoleUsage] = {}
    """Per role."""
    spans: list[StoredSpan] = []
    noop: bool = False
    """Whether the environment ended as it began."""
    ground_truth_length: int | None = None
    """Calls in the user task's ground truth; None where it has none that can be computed."""
    seed: int = 0
    injection_mode: str = "folded"
    """`folded`: AgentDojo's own substitution; `exact`: the literal text."""
    clock: datetime | None = None
    """Where the clock that the case's tools read began; None where they read the machine's."""
    drawn: tuple[str, ...] = ()
    """One-time codes and order numbers that the case's tools drew at random, in order."""
    written: dict[str, str] = {}
    """Injection vector -> text as the attack wrote it (what is read may be folded: see the messages)."""
    shown_tools: dict[str, list[dict[str, Any]]] = {}
    """Role -> the tools that it was shown otherwise than the suite has them (changed, added), as it was shown
    them last. Only where an attack owns tools, or a defense reads them; all others were the suite's own."""
    versions: dict[str, str] = {}
    """Packages, Python and `data` (hash of the environment's data)."""
    config_hash: str = ""
    """Hash of the resolved config this case ran with."""
    asked: dict[str, str] = {}
    """Role -> the model id that was asked for; what answered stands in the spans' calls."""
    measured: dict[str, Any] = {}
    """What the benchmark measures besides the two scores; keys are its own (docs/benchmarks.md)."""
    receipts: tuple[Receipt, ...] | None = None
    """Calls whose tool said that it ran, in order, of all runs of the pipeline; None: its tools write none."""
    facts: dict[str, DeclaredFact] = {}
    """What the benchmark says of such facts, by their names: all that it declares, measured here or not."""
    attempt: AttemptFacts | None = None
    """Only in the files of a search's attempts, `<case>.attempts/<number>.json`."""
    search: SearchFacts | None = None
    """Where the injected text was searched for; also in the file of the attempt that ended a search."""
    notes: tuple[str, ...] = ()


class StoredBlock(CaseRecord):
    """A `CaseRecord` as files are read: by its own fields, with none of what only people look at checked.

    Unknown fields are let through (an older agentsys reads what a newer one wrote), and spans stay plain
    data, for speed (`agentsys.records.agentsys_format.parse_stored_block` checks their form).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int
    traceback: Any = None
    spans: list[Any] = []
    facts: dict[str, Any] = {}
    noop: Any = False
    injection_mode: Any = "folded"
