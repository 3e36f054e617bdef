"""`final_answer`: of a last message with sections, the part that a user would see.

AgentDojo's checks are given the last message whole. A defense that writes its thoughts or its calls into
that message (DRIFT does) has them judged along with the answer, and may owe a utility to them.
"""

from __future__ import annotations

from agentdojo.types import text_content_block_from_string

from agentsys.audit.rescoring.reexecute import Reexecution, convert_calls
from agentsys.audit.rescoring.tasks import RecordTasks
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.contracts import Suite
from agentsys.models.tagged_calls import ANSWER

_OPENING, _CLOSING = f"<{ANSWER}>", f"</{ANSWER}>"


def find_final_answer(trajectory: Trajectory) -> str | None:
    """The text of the answer section; None where the last message has none.

    A section that is not closed goes to the end.
    """
    whole = "\n".join(block["content"] for block in trajectory.answer if block["type"] == "text")
    _, opened, rest = whole.partition(_OPENING)
    return rest.partition(_CLOSING)[0] if opened else None


def score_final_answer(
    trajectory: Trajectory, tasks: RecordTasks, suite: Suite, done: Reexecution
) -> bool | None:
    """The utility had only the answer section been judged; it takes what `checked` does.

    Returns:
        None where there is no such section, or the check fails on it.
    """
    answer = find_final_answer(trajectory)
    if answer is None:
        return None
    seen = convert_calls(trajectory.seen_by_checks)
    blocks = [text_content_block_from_string(answer)]
    try:
        return bool(suite._check_task_result(tasks.user, blocks, done.before, done.after, seen))
    except Exception:  # noqa: BLE001 - a check may stumble over any text; the official score stands
        return None
