import numpy as np
import pytest

from skcircuits.trees.tree._centers import root_at_center


@pytest.mark.parametrize("seed", range(5))
def test_rooting_at_the_center_keeps_the_tree(seed):
    rng = np.random.default_rng(seed)
    parents = np.array([-1] + [rng.integers(v) for v in range(1, 30)])
    rooted = root_at_center(parents)

    def edges(array):
        return {frozenset((v, p)) for v, p in enumerate(array.tolist()) if p >= 0}

    def depth(array):
        steps, reached = 0, np.flatnonzero(array < 0)
        while len(reached):
            reached = np.flatnonzero(np.isin(array, reached))
            steps += 1
        return steps

    assert edges(rooted) == edges(parents)
    assert (rooted < 0).sum() == 1
    others = [depth(_rerooted(parents, root)) for root in range(30)]
    assert depth(rooted) == min(others)


def _rerooted(parents, root):
    """The same tree with any root, by turning edges around."""
    result, child, vertex = parents.copy(), -1, root
    while vertex >= 0:
        above = parents[vertex]
        result[vertex], child, vertex = child, vertex, above
    return result
