"""The defects of the reference implementation, each as one switch: on, it is mended; off, it is as it was.

The preset `drift` has all of them on, `drift_compat` none. They are an enum and not options of the
defense, so that a difference between the two can be put down to one of them (see docs/baselines/drift.md).
"""

from __future__ import annotations

from enum import Enum


class DriftFix(Enum):
    """One mended defect."""

    SCAN_ALL_RESULTS = "scan_all_results"
    """Every result of a turn is looked through. Reference: only the last one."""
    MASK_ERRORS = "mask_errors"
    """A span is cut from the stored error too. Reference: the error is back, whole, in the next turn."""
    SKIP_EMPTY_SPANS = "skip_empty_spans"
    """Empty and non-text items of a detection are ignored. Reference: they put a space everywhere."""
    READ_DETECTION_STRICTLY = "read_detection_strictly"
    """A detection that is no list is asked for again, then fails closed. Reference: it means clean."""
    REQUIRE_A_MATCH = "require_a_match"
    """A detection has worked if a span was found. Reference: if the text's length changed, by a strip too."""
    PARSE_BEFORE_REPAIR = "parse_before_repair"
    """Calls are repaired only if they cannot be read as they are. Reference: always split at every comma."""
    COUNT_FROM_BATCH = "count_from_batch"
    """A batch is compared with the checklist from its own place on. Reference: from its last call's place."""
    FORMAT_ONCE = "format_once"
    """The checklist is made JSON once, and one entry for each planned call. Reference: rewritten each turn,
    and plan and checklist drift apart where it was not JSON to begin with."""
    CHECK_EVERY_CALL = "check_every_call"
    """A call without required values passes alone. Reference: the rest of its batch passes unseen."""
    COMMIT_ACCEPTED = "commit_accepted"
    """A refused batch leaves no trace in the progress. Reference: it counts as achieved."""
    TELL_REPEATS = "tell_repeats"
    """Repeated reads run; a repeated action is refused in words. Reference: the run ends without a word."""
    REFUSE_UNKNOWN_TOOLS = "refuse_unknown_tools"
    """An unplanned call of a tool that does not exist is refused. Reference: accepted, put into the plan."""
    READ_VERDICTS_STRICTLY = "read_verdicts_strictly"
    """Judge and classifier must answer in form, else no / Write. Reference: a word or letter anywhere."""
    SHOW_FIRST_PLAN = "show_first_plan"
    """The judge sees the plan as it was first made as well. Reference: only as extended since."""
    FLAG_REFUSALS = "flag_refusals"
    """The loop goes on after a refusal. Reference: after any message that holds the refusal's mark."""


NO_FIXES: frozenset[DriftFix] = frozenset()
"""The reference implementation."""
ALL_FIXES: frozenset[DriftFix] = frozenset(DriftFix)
"""What one would want."""
