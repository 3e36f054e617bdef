"""`data_block`: values as JSON that may stand inside a `<script>` element."""

from __future__ import annotations

import json

from markupsafe import Markup

_STEERING = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def data_block(value: object) -> Markup:
    """JSON in which no character can end the element, open a comment or begin an entity.

    Args:
        value: JSON-ready data; lone surrogates in its texts are kept as escapes.

    Returns:
        ASCII only, so that line and paragraph separators (U+2028, U+2029) are escapes too. Marked as
        markup: inside `<script type="application/json">` HTML's own escapes would not be undone.

    Raises:
        ValueError: For `nan` and infinities, which the browser's parser would refuse.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_STEERING))
