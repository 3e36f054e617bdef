"""Attacks: the texts written into a benchmark's injection vectors, and the search for such texts.

AgentDojo's registered attacks come through `text_attacks`; the rest are our own. `attack_search` says
what a search asks of its target, `attacker_search` is the base of attacks that have a model search,
`search_attacks` the ones that do. Attacks that no table of the paper needs are in `red_team`.
"""

from __future__ import annotations
