"""Captions of every figure: whose numbers these are, and what hollow marks mean."""

from __future__ import annotations

from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.published import PAPER_MODEL
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.tables.escaping import plain

HOLLOW = f"Hollow: as printed in the paper ({PAPER_MODEL})."
WHISKERS = f"Whiskers: {CONFIDENCE:.0f}% intervals, user and injection tasks resampled."


def subtitle(selection: Selection) -> list[str]:
    """Lines under a figure's title: the model, the version, and the mark of a simulated one."""
    if not selection.lines:
        return [f"No runs for this figure. {HOLLOW}"]
    versions = ", ".join(dict.fromkeys(line.version for line in selection.lines))
    model = plain(selection.shown.model_name(selection.model))
    lines = [f"Filled: {model}, benchmark version {plain(versions)}. {HOLLOW}"]
    if selection.simulated:
        lines.insert(0, "SIMULATED: filled marks come from a scripted agent, not from a language model.")
    if any(line.is_mixed for line in selection.lines):
        lines.append("Some series mix versions of the benchmark.")
    return lines


def not_shown(selection: Selection) -> list[str]:
    """Notes on models and defenses that are in the runs and not in the figure."""
    notes = []
    if selection.hidden:
        hidden = ", ".join(map(selection.shown.defense_name, selection.hidden))
        notes.append(f"Not drawn: {plain(hidden)} (choose with --defense).")
    if selection.others:
        others = ", ".join(map(selection.shown.model_name, selection.others))
        notes.append(f"Also in the runs: {plain(others)} (choose with --model).")
    return notes
