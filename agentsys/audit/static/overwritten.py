"""`overwritten`: vectors that hold what the user task needs, so that an attack destroys it."""

from __future__ import annotations

from collections.abc import Iterable

from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.vector_words import VectorWords, leaves, words_of


def overwritten(subject: Subject, on_path: Iterable[str], words: VectorWords) -> tuple[str, ...]:
    """Vectors on the task's path whose default is the only place of something the task needs.

    Needed is what stands in an argument of a call that changes the environment, or in the answer, and
    neither in the prompt nor anywhere else in the data.

    Args:
        subject: A user task.
        on_path: Vectors that an attack on this task writes into.
        words: What each vector's default adds to the data.
    """
    if subject.own is None:
        return ()
    writes = subject.stage.writes(subject.start, subject.calls)
    arguments = [text for place in writes for text in leaves(subject.calls[place].args)]
    needed = words_of([*arguments, subject.task.GROUND_TRUTH_OUTPUT])
    needed -= words_of([subject.task.PROMPT])
    return tuple(sorted(vector for vector in on_path if needed & words.only_in(vector)))
