"""Joint normal units over a single variable are univariate ones under every question."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.circuits import (
    Circuit,
    FactorGaussian,
    Gaussian,
    MultivariateGaussian,
    Product,
    Sum,
    entropy,
    kl_divergence,
    multiply,
)
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._boxes import Evidence, RestrictedCircuit
from skcircuits.kernels import (
    RBF,
    Laplacian,
    Linear,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
)

NAN = np.nan
MAKE = {
    "joint": lambda v, m, s: MultivariateGaussian([v], [m], [[s**2]]),
    "factors": lambda v, m, s: FactorGaussian([v], [m], [[0.6 * s]], [0.64 * s**2]),
}
X = np.array([[0.3, -1.0], [NAN, 0.4], [2.0, NAN], [NAN, NAN]])
QUESTIONS = {
    "log_prob": lambda p: p.log_prob(X),
    "expectation": lambda p: p.expectation(X),
    "variance": lambda p: p.variance(X),
    "gradient": lambda p: p.grad_log_prob(X),
    "boxes": lambda p: p.log_prob_box(X - 0.5, X + 0.5),
    "marginal": lambda p: p.marginalize([1]).log_prob(X),
    "condition": lambda p: p.condition([NAN, 0.4]).log_prob(X),
    "best": lambda p: p.mpe(X, method="max_product"),
    "square": lambda p: multiply(p, p).log_prob(X[:1]),
}
KERNELS = [RBF(0.5), Laplacian(0.3), Linear(), Polynomial(2, 0.5), RBF(0.2) + Linear()]


def circuit(*families):
    """A mixture of products; families in turns."""
    parameters = [(0, 0.1, 0.5), (1, -1.0, 2.0), (0, 2.0, 1.0), (1, 0.5, 0.7)]
    units = [families[i % len(families)](*own) for i, own in enumerate(parameters)]
    return Circuit(Sum([Product(units[:2]), Product(units[2:])], weights=[0.3, 0.7]))


@pytest.fixture(params=[*MAKE, "mixed"])
def both(request):
    """The circuit and one of univariate units."""
    families = [MAKE[request.param]] if request.param in MAKE else [Gaussian, *MAKE.values()]
    return circuit(*families), circuit(Gaussian)


@pytest.mark.parametrize("question", QUESTIONS)
def test_queries(both, question):
    found, expected = map(QUESTIONS[question], both)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels(both, kernel):
    p, expected = both
    value = expected_kernel(expected, expected, kernel)
    for left, right in ((p, p), (p, expected), (expected, p)):
        assert_allclose(expected_kernel(left, right, kernel), value, rtol=1e-9)
    grams = [
        [
            expected_kernel_matrix(X, points, circuit=one, kernel=kernel)
            for points in (None, X[:1], np.repeat(X[:1], 600, axis=0))
        ]
        for one in both
    ]
    for found, other in zip(*grams):
        assert_allclose(found, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", MAKE)
def test_information(family):
    p = Circuit(MAKE[family](0, 0.1, 0.5))
    q, other = Circuit(Gaussian(0, 0.1, 0.5)), Circuit(Gaussian(0, 1.0, 2.0))
    assert_allclose(entropy(p), entropy(q), rtol=1e-12)
    assert_allclose(kl_divergence(p, other), kl_divergence(q, other), rtol=1e-12)
    assert_allclose(kl_divergence(other, p), kl_divergence(other, q), rtol=1e-12)


def test_intervals(both):
    box = Box(X - 0.5, X + 0.5)
    known = Evidence(np.full(X.shape, NAN), box)
    found, expected = (RestrictedCircuit(p.plan, known) for p in both)
    assert_allclose(found.moments(), expected.moments(), rtol=1e-8, atol=1e-12)
    assert_allclose(found.mpe()[0], expected.mpe()[0], rtol=1e-8, atol=1e-9)
