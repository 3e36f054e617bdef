"""Data of other people's public repositories, each from a pinned state: published runs, AgentDyn's package.

(ASB's few data files are fetched one by one: `agentsys.benchmarks.asb.fetch`.)
"""
