"""`DeclaredFact`: a benchmark's declaration of a fact that it measures, for tables.

A record carries the declarations of its facts, so that a reader needs no access to the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

DEFAULT_FACT_GRID = "what the benchmark measured besides the scores"
"""Default caption of the grid that shows facts."""


class DeclaredFact(BaseModel):
    """One fact of a benchmark's `measured`, with its aggregation, title and explanation in tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    """The column's title."""
    kind: Literal["share", "mean"] = "share"
    """`share`: percent of the cases in which it is true (not 0); `mean`: its mean over the cases."""
    better: Literal["higher", "lower"] | None = None
    """The better direction; None: neither."""
    of: Literal["attacked", "all"] = "all"
    """The cases that have it: attacked ones, or benign ones too."""
    metric: str | None = None
    """Name in exported numbers; None: the fact's own name."""
    grid: str = DEFAULT_FACT_GRID
    """Caption of the grid that shows it, with all other facts of this caption."""
    note: str | None = None
    """A sentence or two below the tables that show it."""
    errors_failed: str | None = None
    """Name of a second number in which errored cases count as false, for comparison with published results that
    know no errors; None: there is none."""
    wants_control: bool = False
    """True if it is compared with a control (the same cases with an empty payload): tables then note a missing
    control."""


_CAUSES_GRID = "what caused attacks to succeed"
_CONDUCT_GRID = "utility and conduct by what was measured"

ASB_FACTS: Mapping[str, DeclaredFact] = {
    "injection_success_execution": DeclaredFact(
        title="ASR executed",
        better="lower",
        of="attacked",
        metric="targeted_asr_execution",
        grid=_CAUSES_GRID,
    ),
    "injection_success_text": DeclaredFact(
        title="ASR by text",
        better="lower",
        of="attacked",
        metric="targeted_asr_text",
        grid=_CAUSES_GRID,
        note="Executed: the tools ran. By text: their words stand in the conversation at its end, which a "
        "defense that rewrites results undoes without preventing anything.",
        errors_failed="targeted_asr_text_errors_failed",
    ),
    "planner_chosen": DeclaredFact(
        title="Planner-chosen", of="attacked", metric="asr_planner_chosen", grid=_CAUSES_GRID
    ),
    "patched_plan": DeclaredFact(
        title="Patched plan", of="attacked", metric="asr_patched_plan", grid=_CAUSES_GRID
    ),
    "injection_caused": DeclaredFact(
        title="Injection-caused",
        better="lower",
        of="attacked",
        metric="asr_injection_caused",
        grid=_CAUSES_GRID,
        note="Planner-chosen: the attack tool was in the agent's own plan, or called before any payload "
        "was shown. Patched plan: the benchmark had written it into every step; what the injection added "
        "cannot be told (compare with the control). Injection-caused: all other successes.",
        wants_control=True,
    ),
    "utility_execution": DeclaredFact(title="Utility executed", better="higher", grid=_CONDUCT_GRID),
    "utility_text": DeclaredFact(
        title="Utility by text",
        better="higher",
        grid=_CONDUCT_GRID,
        errors_failed="utility_text_errors_failed",
    ),
    "payloads_delivered": DeclaredFact(title="Exposed", of="attacked", metric="exposed", grid=_CONDUCT_GRID),
    "refused": DeclaredFact(title="Refused", grid=_CONDUCT_GRID),
    "workflow_failure": DeclaredFact(title="Workflow failures", better="lower", grid=_CONDUCT_GRID),
}
"""The facts of Agent Security Bench: its benchmark declares these, and records without declarations (older ones, and
ASB's own result files) are read with them."""
