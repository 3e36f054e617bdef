"""The defects of the reference implementation, each as one switch: on, it is mended; off, it is as it was.

The preset `progent` has all of them on, `progent_compat` none (see docs/baselines/progent.md).
"""

from __future__ import annotations

from enum import Enum


class ProgentFix(Enum):
    """One mended defect."""

    CHECK_SUPPLIED_ARGUMENTS = "check_supplied_arguments"
    """An argument that was left out is not checked. Reference: its default is, and null fails."""
    READ_ARGUMENT_NAMES = "read_argument_names"
    """A schema of the whole arguments object is taken apart, and a rule for an argument that the tool does
    not have is asked for again. Reference: neither applies to anything, and so everything is allowed."""
    TRY_ALL_ENTRIES = "try_all_entries"
    """A call passes by any rule that the policy model wrote for its tool. Reference: by the first or not."""
    CHECK_SCHEMAS_WHEN_WRITTEN = "check_schemas_when_written"
    """A rule that cannot be applied is asked for again. Reference: it refuses every call."""
    UPDATE_ON_SUCCESS = "update_on_success"
    """Refused and failed calls start no update. Reference: they do, with empty results."""
    READ_WHOLE_WORDS = "read_whole_words"
    """Only the word no means no. Reference: so does "Nothing" or "Note that"."""
    READ_LOOSE_JSON = "read_loose_json"
    """A fence may lack its language, and a last entry may end in a comma. Reference: a failed attempt."""
    PROVE_NARROWER = "prove_narrower"
    """A new rule that cannot be shown to be narrower is wider. Reference: it is taken for narrower."""


NO_FIXES: frozenset[ProgentFix] = frozenset()
"""The reference implementation."""
ALL_FIXES: frozenset[ProgentFix] = frozenset(ProgentFix)
"""What one would want."""
