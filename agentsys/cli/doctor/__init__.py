"""`agentsys doctor`: the checks, and how they are told."""
