"""Plans of pairs of circuits."""

from skcircuits.circuits.structure import properties
from skcircuits.kernels.pairs import _plan
from tests.reference.random_circuits import binary_chain


def test_variables_of_long_scopes_are_not_listed(monkeypatch):
    listed = []

    def counted(mask):
        listed.append(mask.bit_count())
        return variables_of(mask)

    variables_of = properties.variables_of
    monkeypatch.setattr(properties, "variables_of", counted)
    plan = binary_chain(150).plan
    pairs = _plan.compile_pairs(plan, plan, {0: 1, 149: 0})
    assert pairs.regions[-1].scope.mask == 2**150 - 1
    # The scopes have 11,000 variables together
    assert sum(listed) < 500


def test_regions_come_after_those_they_need():
    plan = binary_chain(12).plan
    done = set()
    for region in _plan.compile_pairs(plan, plan).regions:
        assert done.issuperset(region.factor_scopes)
        done.add(region.scope)
    assert len(done) == 23
