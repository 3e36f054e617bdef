"""The audit of stored runs: what they show about a benchmark's numbers."""
