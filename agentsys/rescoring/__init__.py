"""Re-scoring: anyone's recorded runs, executed again call by call and scored under any version.

What lives here: reading what a record did (`read_trajectory`), doing it again on a fresh environment
(`reexecute`), asking a version's own checks (`score`), saying why a score flipped (`explain`), and writing
the re-scored records. No model is asked. How the outcome is printed is the command's business.
"""
