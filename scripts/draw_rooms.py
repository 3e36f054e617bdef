"""Draw docs/rooms.svg: the rooms of the house and the imports between them, read from the code.

Run it again when a room is new: .venv/bin/python scripts/draw_rooms.py
"""

from __future__ import annotations

import ast
import html
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "rooms.svg"
FLOORS = (
    ("cli", "api"),
    ("audit", "inspect_logs", "fetched"),
    ("rescoring", "front", "bundles"),
    ("runs", "analysis"),
    ("benchmarks", "attacks", "defense", "baselines", "records"),
    ("models",),
)
"""From the top; imports go down, never up."""
WHAT = {
    "cli": "a command a file",
    "api": "the public functions",
    "audit": "static / traces",
    "inspect_logs": "logs of Inspect",
    "fetched": "public data, pinned",
    "rescoring": "recorded calls again",
    "front": "an agent for clients",
    "bundles": "runs as one file, verified",
    "runs": "plan, claim, execute, store",
    "analysis": "statistics < metrics < tables < the rest",
    "benchmarks": "AgentDojo, ASB, repaired checks",
    "attacks": "what is written into vectors",
    "defense": "AgentSys itself",
    "baselines": "what it is compared with",
    "records": "a stored case, whoever wrote it",
    "models": "providers, wrappers, replay, simulated",
}
WIDTH, HEIGHT, GAP, STEP = 176, 52, 18, 104


def room_of(module: str) -> str | None:
    """The room a module is in; None for the leaves that every room may use."""
    parts = module.split(".")
    name = parts[0] if parts[0] == "baselines" else parts[1] if len(parts) > 1 else ""
    return name if name in WHAT else None


def arrows() -> Counter[tuple[str, str]]:
    """(importing room, imported room) -> number of import statements."""
    found: Counter[tuple[str, str]] = Counter()
    for package in ("agentsys", "baselines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            here = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module and here is not None:
                    there = room_of(node.module)
                    if there is not None and there != here:
                        found[here, there] += 1
    return found


def drawn() -> str:
    """The picture. Raises ValueError if an import goes up."""
    wide = max(len(floor) for floor in FLOORS) * (WIDTH + GAP) + GAP
    place = {}
    for row, floor in enumerate(FLOORS):
        start = (wide - len(floor) * (WIDTH + GAP) + GAP) / 2
        for column, room in enumerate(floor):
            place[room] = (start + column * (WIDTH + GAP), 20 + row * STEP)
    lines = []
    for (here, there), count in sorted(arrows().items()):
        (x1, y1), (x2, y2) = place[here], place[there]
        if y2 <= y1:
            raise ValueError(f"{here} imports {there}: upwards, or sideways")
        lines.append(
            f'<line x1="{x1 + WIDTH / 2:.0f}" y1="{y1 + HEIGHT}" x2="{x2 + WIDTH / 2:.0f}" y2="{y2 - 7}" '
            f'stroke="#8a94a6" stroke-width="{1 + min(count, 60) / 30:.1f}" marker-end="url(#to)"/>'
        )
    boxes = [
        f'<rect x="{x:.0f}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="#f4f6fa"'
        + ' stroke="#3b4a63"/>'
        + _text(x, y + 22, 'font-size="15" font-weight="600"', room)
        + _text(x, y + 39, 'font-size="9.5"', WHAT[room])
        for room, (x, y) in place.items()
    ]
    high = 20 + (len(FLOORS) - 1) * STEP + HEIGHT + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        'font-family="system-ui, sans-serif" text-anchor="middle" fill="#1d2636">\n'
        '<defs><marker id="to" markerUnits="userSpaceOnUse" markerWidth="7" markerHeight="7" refX="5"'
        ' refY="3.5" orient="auto">'
        '<path d="M0,0 L7,3.5 L0,7 z" fill="#8a94a6"/></marker></defs>\n'
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>\n'
        + "\n".join([*lines, *boxes])
        + "\n</svg>\n"
    )


def _text(left: float, line: int, look: str, words: str) -> str:
    return f'<text x="{left + WIDTH / 2:.0f}" y="{line}" {look}>{html.escape(words)}</text>'


if __name__ == "__main__":
    try:
        TARGET.write_text(drawn(), encoding="utf-8")
    except ValueError as upward:
        sys.exit(str(upward))
