import numpy as np

from skcircuits.numerics._optimization import Adam


def test_steps_follow_the_published_recursion():
    rng = np.random.default_rng(0)
    found = np.zeros((3, 50_000))  # more than one part
    expected, mean, square = np.zeros((3, *found.shape))
    rule = Adam(0.95, damping=1e-4)
    for t in range(1, 4):
        gradient = rng.normal(size=found.shape)
        rule.ascend(found, gradient, 0.1)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.95 * square + 0.05 * gradient**2
        expected += 0.1 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.95**t)) + 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_single_precision_stays():
    parameters = np.zeros(3, dtype=np.float32)
    Adam().ascend(parameters, np.array([1.0, -2.0, 0.0], dtype=np.float32), 0.5)
    np.testing.assert_allclose(parameters, [0.5, -0.5, 0.0], rtol=1e-6)
