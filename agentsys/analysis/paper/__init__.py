"""The paper's tables: what each one has, and our numbers put beside the printed ones.

What lives here: the tables' definitions, the choice of cells for them, and the notes below them.
Measuring lives in `agentsys.analysis`, the printed numbers in `agentsys.analysis.published`.
"""
