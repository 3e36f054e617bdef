"""The audit of a benchmark by itself: its data and its checks, without a model."""
