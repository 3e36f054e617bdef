"""Re-scoring: anyone's recorded runs, executed again call by call and scored under any version.

`trajectories` reads what a record did, `reexecute` does it again on a fresh environment, `score` asks a
version's own checks, `explain` says why a score flipped, and `write_rescored` writes the records anew. No
model is asked. How the outcome is printed is the command's business.
"""
