"""What simulated guards share: the passages of a text that hold an injected goal, found or overlooked."""

from __future__ import annotations

from agentsys.models.simulated.role import SimulatedKnowledge
from agentsys.models.simulated.spans import find_instruction_spans


def find_injected_passages(text: str, role: str, knowledge: SimulatedKnowledge) -> list[str]:
    """Passages of a text with an injected goal, each goal found with probability `sanitizer_recall`.

    Args:
        text: A tool's result, as the guard was shown it.
        role: The guard's role, for the draw.
        knowledge: What the simulated model knows.
    """
    recall = knowledge.options.sanitizer_recall
    return [
        piece
        for goal in knowledge.find_goals(text)
        if knowledge.draw(recall, role, goal.suite, goal.task_id, text)
        for piece in find_instruction_spans(text, goal.goal)
    ]


def remove_injected_passages(text: str, role: str, knowledge: SimulatedKnowledge) -> str:
    """A text without the passages found in it; the very same where none is."""
    for piece in find_injected_passages(text, role, knowledge):
        text = text.replace(piece, "")
    return text
