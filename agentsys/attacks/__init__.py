"""Attacks: the texts written into a benchmark's injection vectors, and the search for such texts.

`text_attacks` holds AgentDojo's registered attacks and our own fixed texts. `attack_search` defines a search and its
target, `attacker_search` the base of attacks that search with a model, `search_attacks` PAIR, TAP and the sampler.
Attacks that no table of the paper needs are in `red_team`.
"""

from __future__ import annotations
