import numpy as np
import pytest

from skcircuits.particles._steps import make_optimizer


def test_gradient_ascent_scales():
    np.testing.assert_allclose(make_optimizer("sgd").displacement(np.array([[2.0]]), 0.5), [[1.0]])


def test_adagrad_remembers_everything():
    rule = make_optimizer("adagrad")
    rule.displacement(np.array([[3.0]]), 1.0)
    np.testing.assert_allclose(rule.displacement(np.array([[4.0]]), 1.0), [[0.8]], rtol=1e-6)


def test_rmsprop_forgets():
    rule = make_optimizer("rmsprop")
    rule.displacement(np.array([[3.0]]), 1.0)
    expected = 4.0 / np.sqrt(0.9 * 9 + 0.1 * 16 + 1e-6)
    np.testing.assert_allclose(rule.displacement(np.array([[4.0]]), 1.0), [[expected]], rtol=1e-12)


def test_adam_is_unbiased_from_the_first_step():
    rule = make_optimizer("adam")
    for _ in range(3):
        step = rule.displacement(np.array([[-5.0, 1e-2]]), 0.1)
        np.testing.assert_allclose(step, [[-0.1, 0.1]], rtol=1e-2)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rmsprop", "adam"])
def test_zero_directions_do_not_move_and_inputs_stay(name):
    rule = make_optimizer(name)
    direction = np.array([[0.0, 2.0]], dtype=np.float32)
    for _ in range(2):
        step = rule.displacement(direction, 0.1)
        assert step[0, 0] == 0 and step[0, 1] > 0 and step.dtype == np.float32
    np.testing.assert_array_equal(direction, [[0.0, 2.0]])


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rmsprop", "adam"])
def test_all_climb_a_hill(name):
    rule, x = make_optimizer(name), np.array([[3.0, -2.0]])
    for t in range(400):
        x = x + rule.displacement(-x, (1.0 if name == "adagrad" else 0.3) * 0.99**t)
    np.testing.assert_allclose(x, 0.0, atol=0.05)


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="'sgd'"):
        make_optimizer("newton")
