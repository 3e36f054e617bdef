"""The attacker of a search: what its model is told, how its replies are read, who says what is off topic.

Knows searches and their attempts (`agentsys.attacks.search`), nothing of runs.
"""

ATTACKER_ROLE = "attacker"
"""Proposes texts."""
JUDGE_ROLE = "attacker_judge"
"""Says whether a text is on topic, and rates an attempt where a search asks for that."""
ATTACKER_ROLES = frozenset({ATTACKER_ROLE, JUDGE_ROLE})
"""The attacker's side; every other role belongs to the attacked agent."""
