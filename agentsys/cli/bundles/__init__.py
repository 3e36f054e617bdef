"""`agentsys bundle` and `agentsys verify`: a paper's artifact as one file, and its check."""
