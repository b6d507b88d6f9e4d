"""Plans of pairs of circuits."""

import numpy as np

from skcircuits.circuits import Bernoulli, Circuit, Product, Sum
from skcircuits.circuits.structure._scopes import variables_of
from skcircuits.kernels.pairs import _plan


def chain(n_variables, seed=0):
    rng = np.random.default_rng(seed)
    nodes = [Bernoulli(0, p) for p in rng.random(2)]
    for variable in range(1, n_variables):
        leaves = [Bernoulli(variable, p) for p in rng.random(2)]
        products = [Product(pair) for pair in zip(nodes, leaves, strict=True)]
        nodes = [Sum(products, weights=rng.dirichlet(np.ones(2))) for _ in range(2)]
    return Circuit(nodes[0])


def test_variables_of_long_scopes_are_not_listed(monkeypatch):
    listed = []

    def counted(mask):
        listed.append(mask.bit_count())
        return variables_of(mask)

    monkeypatch.setattr(_plan, "variables_of", counted)
    plan = chain(150).plan
    pairs = _plan.compile_pairs(plan, plan, {0: 1, 149: 0})
    assert [region.scope for region in pairs.regions][-1] == 2**150 - 1
    # The scopes have 11,000 variables together
    assert sum(listed) < 500


def test_regions_come_after_those_they_need():
    plan = chain(12).plan
    done = set()
    for region in _plan.compile_pairs(plan, plan).regions:
        assert done.issuperset(region.factor_scopes)
        done.add(region.scope)
    assert len(done) == 23
