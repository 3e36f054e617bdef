"""Stored cases as logs of Inspect (`inspect_ai`, extra `inspect`): one log a cell, one sample a case.

What is stored here is looked at, never computed anew: scores, tokens and errors are those of the records.
Only this room imports `inspect_ai`, which takes seconds, and only `agentsys export` imports this room.
"""
