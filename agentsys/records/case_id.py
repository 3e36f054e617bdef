"""`case_id`: the short name of a stored case, alike in tables, links and pages."""

from __future__ import annotations

import base64
import hashlib

from agentsys.records.case_row import CaseRow
from agentsys.records.short_names import shorten_name

CASE_ID_CHARS = 10
"""Characters, of five bits each: two of ten thousand cases share an id once in twenty million folders."""


def make_case_id(case: CaseRow) -> str:
    """Letters and digits for all that tells a case from the others; where its folder lies plays no part.

    Names are taken as tables have them, so that a cut one and a whole one give the same id.
    """
    told = [shorten_name(value) if isinstance(value, str) else str(value) for value in case.identity]
    digest = hashlib.sha256("\0".join(told).encode("utf-8", "backslashreplace")).digest()
    return base64.b32encode(digest).decode().lower()[:CASE_ID_CHARS]
