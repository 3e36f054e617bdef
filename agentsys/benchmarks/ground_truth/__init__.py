"""What the benchmark's authors would do: the knowledge of the simulated model."""
