"""Base: small modules that every other package may import.

They import nothing of ours but `agentsys.errors` and `agentsys.extensions`, and nothing heavy.
"""

from __future__ import annotations
