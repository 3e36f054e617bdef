"""Ground truths: what the benchmark's authors would do, as the simulated model knows it."""
