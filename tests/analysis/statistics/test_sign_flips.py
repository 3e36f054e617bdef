"""Signs and what flips make of a difference: by hand, and against the definition written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from paired_grids import difference_of, grid_of

from agentsys.analysis.statistics.difference import mean_difference
from agentsys.analysis.statistics.outcome_grid import FloatArray
from agentsys.analysis.statistics.sign_flips import SignDraws, every_pattern


def test_signs_depend_on_the_seed_the_suite_the_way_and_the_tasks_alone() -> None:
    tasks = ("a", "b", "c")
    first = SignDraws(50, 7).signs("banking", "user", tasks)
    assert set(np.unique(first)) == {-1.0, 1.0}
    assert (first == SignDraws(50, 7).signs("banking", "user", tasks)).all()
    others = [
        SignDraws(50, 8).signs("banking", "user", tasks),
        SignDraws(50, 7).signs("slack", "user", tasks),
        SignDraws(50, 7).signs("banking", "injection", tasks),
        SignDraws(50, 7).signs("banking", "user", ("a", "b", "d")),
    ]
    assert not any((first == other).all() for other in others)


def test_signs_are_fair_and_independent() -> None:
    signs = SignDraws(20_000).signs("s", "user", tuple("abcde"))
    assert np.abs(signs.mean(axis=0)).max() < 0.03
    assert np.abs(np.corrcoef(signs.T) - np.eye(5)).max() < 0.03


def test_every_pattern_is_listed_once_up_to_the_overall_sign() -> None:
    patterns = {tuple(row) for row in every_pattern(4)}
    assert len(patterns) == 8
    mirrored = {tuple(-sign for sign in row) for row in patterns}
    assert patterns | mirrored == set(itertools.product((-1.0, 1.0), repeat=4))
    assert (1.0,) * 4 in patterns


def _by_definition(parts: list[FloatArray], at: float, way: int) -> float:
    """p of all flips of one kind of task, straight from the definition; one case per cell."""
    cells = [(part - at) / part.size / len(parts) for part in parts]

    def statistic(flipped: list[FloatArray]) -> float:
        variance = 0.0
        for x in flipped:
            a, b, c = (x.sum(axis=1) ** 2).sum(), (x.sum(axis=0) ** 2).sum(), (x**2).sum()
            variance += max(a + b - c, a, b)
        return float(abs(sum(x.sum() for x in flipped)) / np.sqrt(variance))

    counts = [part.shape[way] for part in parts]
    observed, found = statistic(cells), []
    for signs in itertools.product((-1.0, 1.0), repeat=sum(counts)):
        pieces = np.split(np.array(signs), np.cumsum(counts)[:-1])
        turned = [x * (s[:, None] if way == 0 else s) for x, s in zip(cells, pieces, strict=True)]
        found.append(statistic(turned) >= observed * (1 - 1e-9))
    return float(np.mean(found))


@pytest.mark.parametrize("at", [0.0, 0.17, -0.4])
@pytest.mark.parametrize("seed", range(3))
def test_p_of_few_tasks_is_that_of_the_definition(seed: int, at: float) -> None:
    generator = np.random.default_rng(seed)
    parts = [generator.integers(-1, 2, shape).astype(float) for shape in ((4, 3), (5, 2))]
    difference = mean_difference([grid_of(part, suite=str(n)) for n, part in enumerate(parts)])
    by_user, by_injection = difference.references
    assert by_user.complete
    assert by_injection.complete
    assert by_user.p(at) == pytest.approx(_by_definition(parts, at, 0))
    assert by_injection.p(at) == pytest.approx(_by_definition(parts, at, 1))


def test_drawn_flips_agree_with_all_there_are() -> None:
    generator = np.random.default_rng(5)
    change = generator.integers(-1, 2, (13, 4)).astype(float)
    change[:, 0] = 1.0
    (by_user, _) = difference_of(change).references
    assert not by_user.complete
    assert by_user.p(0.0) == pytest.approx(_by_definition([change], 0.0, 0), abs=0.015)


def test_drawn_flips_are_never_p_zero() -> None:
    (by_user, _) = difference_of(-np.ones((40, 30)), draws=99).references
    assert by_user.p(0.0) == 0.01
