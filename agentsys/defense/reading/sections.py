"""The one layout of messages that hold several texts for a model, and its exact inverse.

All sections but the last are single lines; the last runs to the end of the message. An untrusted text
stands last, so nothing in it can imitate a heading: headings are only looked for in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence


def write_sections(titles: Sequence[str], bodies: Sequence[str]) -> str:
    """Write one message from titles and bodies.

    Raises:
        ValueError: If a body other than the last holds a line break.
    """
    if any("\n" in body for body in bodies[:-1]):
        raise ValueError("only the last section may have more than one line")
    lines = [f"{title}: {body}" for title, body in zip(titles[:-1], bodies[:-1], strict=True)]
    return "\n".join([*lines, f"{titles[-1]}:", bodies[-1]])


def read_sections(text: str, titles: Sequence[str]) -> list[str] | None:
    """The bodies of a message that `write_sections` wrote with these titles; None for any other text."""
    lines = text.split("\n", len(titles))
    if len(lines) != len(titles) + 1 or lines[-2] != f"{titles[-1]}:":
        return None
    heads = [f"{title}: " for title in titles[:-1]]
    if not all(line.startswith(head) for line, head in zip(lines, heads, strict=False)):
        return None
    bodies = [line.removeprefix(head) for line, head in zip(lines, heads, strict=False)]
    return [*bodies, lines[-1]]
