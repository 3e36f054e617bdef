"""`read_trajectory`: a stored file -> what was done, whoever wrote it."""

from __future__ import annotations

from agentsys.records.formats.agentsys import OWN_KEY
from agentsys.records.stored_file import json_of
from agentsys.records.unreadable import UnreadableRecord
from agentsys.rescoring.trajectories.foreign import foreign_trajectory
from agentsys.rescoring.trajectories.own import own_trajectory
from agentsys.rescoring.trajectories.trajectory import Trajectory
from agentsys.rescoring.trajectories.unusable import Obstacle, Unusable


def read_trajectory(path: str) -> Trajectory | None:
    """What the case in a file did.

    Args:
        path: The file's path.

    Returns:
        None for JSON that is no case (a plan, a cache).

    Raises:
        Unusable: If it should hold a finished (or errored) case and does not.
    """
    try:
        stored = json_of(path)
        if not isinstance(stored, dict):
            return None
        if OWN_KEY in stored:
            return own_trajectory(stored, path)
        if "suite_name" in stored and "user_task_id" in stored:
            return foreign_trajectory(stored, path)
    except UnreadableRecord as fault:
        raise Unusable(Obstacle.UNREADABLE, str(fault)) from None
    except RecursionError:
        raise Unusable(Obstacle.UNREADABLE, "nested too deeply") from None
    return None
