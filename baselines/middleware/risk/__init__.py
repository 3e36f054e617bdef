"""Risk: what injected text sounds like (`patterns.yaml`), how it is read, and what a score leads to.

Used by all three layers. Deterministic, linear in the text, no model.
"""
