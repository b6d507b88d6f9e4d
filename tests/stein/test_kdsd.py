"""The exact discrepancy of two circuits against enumeration."""

from itertools import product

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.kernels import RBF, Delta, Hamming
from skcircuits.stein import kdsd, stein_gram


def chain(cardinalities, seed):
    """A compiled chain; all chains over the same variables are compatible."""
    rng = np.random.default_rng(seed)
    pairs = zip(range(len(cardinalities) - 1), range(1, len(cardinalities)))
    factors = [(pair, rng.uniform(0.2, 1, [cardinalities[v] for v in pair])) for pair in pairs]
    order = list(range(len(cardinalities)))
    return FactorGraph(factors, cardinalities).compile(order=order)


@pytest.mark.parametrize("cardinalities", [(3, 3, 3), (2, 2, 2, 2), (3, 2, 4)], ids=str)
@pytest.mark.parametrize(
    "kernel", [Hamming(2.0), RBF(0.3), Delta() + 2.0 * Hamming(3.0)], ids=["hamming", "rbf", "sum"]
)
def test_equals_enumeration(cardinalities, kernel):
    p, q = chain(cardinalities, 0), chain(cardinalities, 1)
    states = np.array(list(product(*map(range, cardinalities))), dtype=float)
    K = stein_gram(states, p, kernel, operator="difference")
    weights = np.exp(q.log_prob(states))
    assert_allclose(kdsd(q, p, kernel), weights @ K @ weights, rtol=1e-9)
    assert_allclose(kdsd(p, p, kernel), 0.0, atol=1e-12)


def test_jobs_do_not_change_a_bit():
    p, q = chain((3, 2, 4), 0), chain((3, 2, 4), 1)
    with parallel_config("threading"):
        assert kdsd(q, p, Hamming(2.0), n_jobs=2) == kdsd(q, p, Hamming(2.0))


def test_independent_variables_in_closed_form():
    # One Bernoulli: u = (q1 r - q2, ...) with r the odds of the target.
    q, p = Circuit(Bernoulli(0, 0.3)), Circuit(Bernoulli(0, 0.6))
    u = np.array([0.7 * 0.6 / 0.4 - 0.3, 0.3 * 0.4 / 0.6 - 0.7])
    assert_allclose(kdsd(q, p, Delta()), u @ u)


def test_targets_that_are_refused():
    zero = Circuit(Categorical(0, [0.5, 0.5, 0.0]))
    full = Circuit(Categorical(0, [0.5, 0.3, 0.2]))
    with pytest.raises(CircuitPropertyError, match="target of kdsd must be positive everywhere"):
        kdsd(full, zero, Delta())
    assert kdsd(zero, full, Delta()) > 0
    mixture = Circuit(0.5 * Categorical(0, [0.5, 0.5]) + 0.5 * Categorical(0, [0.2, 0.8]))
    with pytest.raises(CircuitPropertyError, match="deterministic"):
        kdsd(mixture, mixture, Delta())
    normal = Circuit(Gaussian(0, 0.0, 1.0))
    with pytest.raises(CircuitPropertyError, match="over categorical variables"):
        kdsd(normal, normal, Delta())


def test_models_are_compiled_first():
    model = IsingModel.grid(1, 2, couplings=0.5)
    with pytest.raises(TypeError, match=r"be circuits; got kind='IsingModel'"):
        kdsd(model, model.compile(), Delta())


def test_states_that_only_the_target_knows():
    p = Circuit(Categorical(0, [0.2, 0.3, 0.5]))
    few, same = Circuit(Categorical(0, [0.6, 0.4])), Circuit(Categorical(0, [0.6, 0.4, 0.0]))
    assert kdsd(few, p, Delta()) == pytest.approx(kdsd(same, p, Delta()), rel=1e-12)
    with pytest.raises(CircuitPropertyError, match="q of kdsd must have no more states"):
        kdsd(p, few, Delta())


def test_a_single_impossible_state_among_many():
    n = 34
    table = np.array([[0.5, 0.5], [0.3, 0.7]])
    factors = [((0,), [0.4, 0.6]), *(((v - 1, v), table) for v in range(1, n))]
    ones = np.ones((2, 2))
    ones[1, 1] = 0.0
    factors.append(((n - 2, n - 1), ones))
    p = FactorGraph(factors, [2] * n).compile(order=list(range(n)))
    with pytest.raises(CircuitPropertyError, match="positive everywhere; got n_states=17179869184"):
        kdsd(p, p, Hamming(1.0))
