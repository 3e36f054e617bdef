"""`TemplateTree`: templates and what was made of them, and which of them the search goes on from.

Monte-Carlo tree search as AgentVigil (arXiv 2505.05849) uses it over templates, with UCT (Kocsis and
Szepesvari 2006). Plain values: the same rewards in the same order make the same tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentsys.attacks.search import Attempt


@dataclass(eq=False)
class TemplateNode:
    """One template."""

    text: str
    parent: TemplateNode | None
    """The template it was made from; None: the search starts from it."""
    attempts: tuple[Attempt, ...]
    """Its runs, at least one, one per pair of tasks."""
    own: float
    """Its own reward."""
    visits: int = 1
    """Its own trial, and every one of what was made of it, those without a text included."""
    total: float = 0.0
    """The rewards of these."""
    tries: int = 1
    """Its own trial, and every time something was made directly of it."""
    children: list[TemplateNode] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Changes since the template that the search started from."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def root(self) -> TemplateNode:
        """The template that the search started from."""
        return self if self.parent is None else self.parent.root


class TemplateTree:
    """The templates tried so far.

    Args:
        exploration: UCT's constant: how much a template that was seldom gone on from is preferred.
    """

    def __init__(self, exploration: float) -> None:
        self.exploration = exploration
        self.roots: list[TemplateNode] = []

    def add(
        self, text: str, parent: TemplateNode | None, attempts: Sequence[Attempt], reward: float
    ) -> TemplateNode:
        """Put a tried template into the tree and its reward into all that it was made from."""
        node = TemplateNode(text, parent, tuple(attempts), reward, total=reward)
        (self.roots if parent is None else parent.children).append(node)
        self._booked(parent, reward)
        return node

    def failed(self, parent: TemplateNode) -> None:
        """Note that nothing came of going on from a template: a visit without a reward."""
        self._booked(parent, 0.0)

    @staticmethod
    def _booked(parent: TemplateNode | None, reward: float) -> None:
        if parent is not None:
            parent.tries += 1
        while parent is not None:
            parent.visits, parent.total = parent.visits + 1, parent.total + reward
            parent = parent.parent

    def selected(self) -> TemplateNode:
        """The template to go on from.

        Down from the roots, always to the arm with the highest bound; of equals the earliest. A template's
        arms are those made of it, and itself: a template can be gone on from more than once.

        Raises:
            ValueError: If the tree is empty.
        """
        node = self._best(self.roots, sum(root.visits for root in self.roots))
        while node.children:
            child = self._best(node.children, node.visits)
            itself = self._bound(node.own, node.tries, node.visits)
            if itself >= self._bound(child.total / child.visits, child.visits, node.visits):
                return node
            node = child
        return node

    def _best(self, arms: Sequence[TemplateNode], visits: int) -> TemplateNode:
        return max(arms, key=lambda arm: self._bound(arm.total / arm.visits, arm.visits, visits))

    def _bound(self, mean: float, tried: int, visits: int) -> float:
        return mean + self.exploration * math.sqrt(math.log(visits) / tried)

    def nodes(self) -> list[TemplateNode]:
        """Every template, in the order in which they were tried."""
        found, queue = [], list(self.roots)
        while queue:
            node = queue.pop()
            found.append(node)
            queue += node.children
        return sorted(found, key=lambda node: node.attempts[0].number)
