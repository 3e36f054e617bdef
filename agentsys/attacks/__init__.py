"""Attacks: the texts written into a benchmark's injection vectors, one module each.

AgentDojo's registered attacks come through `registered`; the rest are our own.
"""
