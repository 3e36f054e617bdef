"""UCT over templates: a table worked out by hand, and what failures do to it."""

from __future__ import annotations

import pytest

from agentsys.attacks.evolve.nodes import TemplateNode, TemplateTree
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal

STEPS = [
    # (reward of what is made of the template that is chosen, the template)
    # bounds with constant 1: mean + sqrt(ln visits of the parent / own visits)
    ("a", 0.5),  # a 1+.833, b .833; a alone
    ("a", 0.0),  # a .75+.741, b 1.048; itself 1+.589, c1 .5+.833
    ("a", 0.0),  # a .5+.680, b 1.177; itself 1+.605, c1 .5+1.048, c2 1.048
    ("b", 1.5),  # a .375+.634, b 1.269
    ("c4", 0.0),  # a .375+.669, b .75+.947; b itself .589, c4 1.5+.833
    ("c4", 0.0),  # a .375+.697, b .5+.805; b itself .741, c4 .75+.741; c4 itself 1.5+.589, c5 .833
    ("c1", 0.0),  # a .375+.721 and b the same: the earlier; itself 1+.589, c1 .5+1.177, c2 1.177
    ("c4", 0.0),  # a .3+.663, b .375+.741; b itself .833, c4 .5+.680; c4 itself 1.5+.605, c5 1.048
    ("a", 0.0),  # a .3+.679 and b the same: the earlier; itself 1+.634, c1 .25+.897, c2 1.269
    ("c4", 0.0),  # a .25+.632, b .3+.693; b itself .897, c4 .375+.634; c4 itself 1.5+.589, c5 1.177
]


def tried(number: int) -> Attempt:
    return Attempt(number, Place(0, 0, None), Proposal(""), success=False, judgement=Judgement(1, ""))


def two_roots(exploration: float) -> TemplateTree:
    tree = TemplateTree(exploration)
    for number, (text, reward) in enumerate([("a", 1.0), ("b", 0.0)], start=1):
        tree.add(text, None, [tried(number)], reward)
    return tree


def test_ten_selections_are_those_worked_out_by_hand() -> None:
    tree = two_roots(1.0)
    chosen = []
    for number, (_, reward) in enumerate(STEPS, start=1):
        parent = tree.selected()
        chosen.append(parent.text)
        tree.add(f"c{number}", parent, [tried(2 + number)], reward)
    assert chosen == [text for text, _ in STEPS]
    assert [node.text for node in tree.nodes()] == ["a", "b", *(f"c{number}" for number in range(1, 11))]


def test_without_exploration_the_best_mean_is_gone_on_from() -> None:
    tree = two_roots(0.0)
    child = tree.add("c", tree.selected(), [tried(3)], 1.5)
    assert (child.parent, tree.selected()) == (tree.roots[0], child)


@pytest.mark.parametrize("failures", [1, 5])
def test_what_comes_to_nothing_counts_against_its_template_and_all_it_was_made_from(failures: int) -> None:
    tree = two_roots(1.0)
    child = tree.add("c", tree.roots[0], [tried(3)], 0.0)
    for _ in range(failures):
        tree.failed(child)

    def counts(node: TemplateNode) -> tuple[int, int, float]:
        return node.visits, node.tries, node.total

    assert counts(child) == (1 + failures, 1 + failures, 0.0)
    assert counts(tree.roots[0]) == (2 + failures, 2, 1.0)
    assert counts(tree.roots[1]) == (1, 1, 0.0)
