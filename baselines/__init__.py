"""Baselines: every defense AgentSys is compared with, one module each.

A baseline turns a chat model and a suite into a pipeline. It knows nothing of
plans, storage or scoring: those live in `agentsys.runs` and `agentsys.analysis`.
"""
