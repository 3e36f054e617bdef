"""`changes_what_it_checks`: checks that give another answer, or leave another world, the second time."""

from __future__ import annotations

from agentdojo.types import text_content_block_from_string

from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.changing_calls import asks_before_to_change
from agentsys.audit.static.task_player import Played, Stage, Task
from agentsys.benchmarks.shared_copies import twins


def changes_what_it_checks(subject: Subject) -> bool:
    """Whether the benchmark's own check alters the environments it is given, or its verdict on them.

    Looked for on the ground truth and on an agent that does nothing; and, for checks that come to the
    point only in worlds that no ground truth makes, in their source.
    """
    if asks_before_to_change(subject.task, subject.start):
        return True
    nothing = subject.stage.play(subject.start, (), "")
    plays = [nothing, *([subject.own] if subject.own else [])]
    return any(_changes(subject.stage, subject.task, played) for played in plays)


def _changes(stage: Stage, task: Task, played: Played) -> bool:
    # What the two share changes in both, and is seen; it takes a tenth of the time of whole copies.
    before, after = twins(played.before, played.after)
    answer = [text_content_block_from_string(played.answer)]
    # The class's own: the one on the suite that a benchmark gives out may check copies.
    check = type(stage.suite)._check_task_result
    try:
        first = check(stage.suite, task, answer, before, after, played.calls)
        second = check(stage.suite, task, answer, before, after, played.calls)
    except Exception:  # noqa: BLE001 - no verdict at all is another matter, see `Stage.passes`
        return False
    return bool(first != second or before != played.before or after != played.after)
