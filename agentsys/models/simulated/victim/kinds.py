"""Kinds of forecast: what the number of a simulated case means."""

from __future__ import annotations

FITTED = "fitted"
"""No defense: rates of the runs themselves, drawn again."""
STRUCTURAL = "structural"
"""What a defense shows and offers is decided by itself; the victim behaves as it does undefended."""
BOUND = "bound"
"""Likewise, and the defense refuses more than its structure: an upper bound of the ASR."""
FACTOR = "factor"
"""A defense that only rewords: an interval over other models, never a number."""
NO_RUNS = "no runs"
"""Nothing to forecast from."""
KINDS = (FITTED, STRUCTURAL, BOUND, FACTOR)
"""What a defense may say of itself."""
