"""The twelve attack vectors of agent security middleware, each with attack variants and benign look-alikes.

One AgentDojo suite per vector. `data/` holds the texts, all of them written for this benchmark; `corpus`
reads and disguises them; `vectors_benchmark` makes tasks of them and lets the simulated model read through
every disguise. What is told of a defense: how many attacks are carried out, and how many harmless documents
it keeps from the agent.
"""

from __future__ import annotations
