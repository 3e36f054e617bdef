"""Re-scoring: anyone's recorded runs, executed again call by call and scored under any version.

`read_trajectories` reads what a record did, `reexecution` does it again on a fresh environment and asks a
version's own checks, `score_flips` says why a score flipped, `rescoring_export` writes records anew. No
model is asked.
"""

from __future__ import annotations
