"""`SharedDiff`: DeepDiff that takes no time for what two environments share.

AgentDojo's Workspace and Travel checks compare environments with DeepDiff. It stops at a part that both
hold as one object, which in a case's `twins` are most, but only after it has made a path to that
part: for one new mail, a path to each of the others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from inspect import signature
from itertools import islice
from typing import Any

from deepdiff.diff import DeepDiff

from agentsys.contracts import Suite


class SharedDiff(DeepDiff):
    """DeepDiff with the same findings. Of its options it knows `exclude_paths` alone."""

    def _diff_dict(
        self,
        level: Any,
        *rest: Any,
        override: bool = False,
        override_t1: Any = None,
        override_t2: Any = None,
        **how: Any,
    ) -> None:
        t1, t2 = (override_t1, override_t2) if override else (level.t1, level.t2)
        left_out = _left_out(t1, t2)
        how["override_t1"], how["override_t2"] = (
            {key: value for key, value in one.items() if key not in left_out} for one in (t1, t2)
        )
        how["override"] = True
        super()._diff_dict(level, *rest, **how)


def _left_out(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> set[Any]:
    """Keys of most entries that are one object in both dicts.

    As many such entries stay as there are others: DeepDiff reports two dicts as different altogether
    if they have less than a third of their keys in common, and of these more than half were.
    """
    shared = [key for key, value in second.items() if key in first and first[key] is value]
    others = len(first.keys() | second.keys()) - len(shared)
    stay = (key for key in shared if not str(key).startswith("__"))  # these DeepDiff does not count
    return set(shared).difference(islice(stay, others))


def pass_over_shared(suite: Suite) -> None:
    """Let the checks of a suite compare environments with `SharedDiff`.

    They find DeepDiff under names of their modules. Such a name is bound anew, once, where it stands for
    DeepDiff with no option but `exclude_paths`.
    """
    if "override_t1" not in signature(DeepDiff._diff_dict).parameters:
        return  # a DeepDiff that works in another way: its own time, then
    tasks = [*suite.user_tasks.values(), *suite.injection_tasks.values()]
    for name in {kind.__module__ for task in tasks for kind in type(task).__mro__}:
        for key, value in list(vars(sys.modules[name]).items()):
            if (
                isinstance(value, partial)
                and value.func is DeepDiff
                and {*value.keywords} <= {"exclude_paths"}
            ):
                vars(sys.modules[name])[key] = partial(SharedDiff, *value.args, **value.keywords)
