"""The paper's tables: what each one has, our numbers beside the printed ones, and the notes below them.

Measuring lives in `agentsys.analysis.metrics`, the printed numbers in `agentsys.analysis.published`.
"""
