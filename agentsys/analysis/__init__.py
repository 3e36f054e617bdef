"""Analysis: stored runs -> data frame -> metrics -> tables and figures. Never runs anything.

It reads files through `agentsys.records.schema` and imports neither AgentDojo nor a model SDK, so
that showing results is quick.
"""
