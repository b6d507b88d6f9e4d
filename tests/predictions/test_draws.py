"""Expectations by draws: against closed forms, and what their errors promise."""

import numpy as np
import pytest
from scipy.stats import norm

from skcircuits.circuits import Circuit, Gaussian, MultivariateGaussian
from skcircuits.predictions._closed_forms import IncompleteRows, Response
from skcircuits.predictions._expected_response import MIN_DRAWS, DrawBudget, ExpectedResponse

NAN = np.nan
CIRCUIT = Circuit(
    0.3 * MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]])
    + 0.7 * MultivariateGaussian([0, 1], [2.0, 1.0], [[1.0, -0.5], [-0.5, 2.0]])
)


class Model:
    """Sums and indicators, to be told apart."""

    @staticmethod
    def predict(X):
        return np.column_stack([X.sum(axis=1), X[:, 1] > 1.0])


def response():
    return Response([Model()], "predict", lambda encoded: encoded)


def rows(cells, is_integral=(False, False)):
    cells = np.array(cells)
    return IncompleteRows(cells, cells, np.array(is_integral))


def budget(**parameters):
    return DrawBudget(**{"max_draws": 2**14, "tol": 0.02, "scale": 1.0, "seed": 3} | parameters)


def test_moments_agree_with_closed_forms():
    incomplete = rows([[0.5, NAN], [NAN, NAN], [NAN, -1.0]])
    found = ExpectedResponse(response(), CIRCUIT, budget()).by_draws(incomplete)
    assert (found.error <= 0.02).all()
    np.testing.assert_allclose(
        found.mean[:, 0], CIRCUIT.expectation(incomplete.cells).sum(axis=1), atol=0.06
    )
    conditional = CIRCUIT.condition([0.5, NAN])
    above = np.exp(conditional.log_prob_box([[NAN, 1.0]], [[NAN, NAN]])[0])
    assert found.mean[0, 1] == pytest.approx(above, abs=0.04)
    assert found.variance[0, 1] == pytest.approx(above * (1 - above), abs=0.04)
    assert found.variance[0, 0] == pytest.approx(
        CIRCUIT.variance(incomplete.cells)[0].sum(), rel=0.05
    )


def test_errors_are_as_large_as_promised():
    # Many rows with one conditional distribution each known: errors must match their estimates
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0))
    first = np.linspace(-1.0, 1.0, 400)
    incomplete = rows(np.column_stack([first, np.full(400, NAN)]))
    # The scale leaves the sum out of the error
    only = budget(max_draws=64, tol=0.0, scale=np.array([1e9, 1.0]))
    found = ExpectedResponse(response(), circuit, only).by_draws(incomplete)
    assert found.error.max() > 0
    errors = found.mean[:, 1] - norm.sf(1.0)
    spread = np.sqrt(np.mean(errors**2))
    assert 0.5 < spread / np.sqrt(np.mean(found.error**2)) < 1.5
    # Lattices stratify a single number: far below the error of independent draws
    assert spread < 0.75 * np.sqrt(norm.sf(1.0) * norm.cdf(1.0) / 64)


def test_draws_stop_at_the_tolerance():
    calls = []

    class Counting(Model):
        def predict(self, X):
            calls.append(len(X))
            return Model.predict(X)

    counting = Response([Counting()], "predict", lambda encoded: encoded)
    ExpectedResponse(counting, CIRCUIT, budget(tol=1e9)).by_draws(rows([[NAN, NAN]] * 10))
    assert sum(calls) == 10 * MIN_DRAWS
    calls.clear()
    ExpectedResponse(counting, CIRCUIT, budget(max_draws=1000, tol=0.0)).by_draws(
        rows([[NAN, NAN]])
    )
    assert 900 < sum(calls) <= 1000


def test_draws_are_keyed_by_the_row():
    table = [[0.5, NAN], [NAN, NAN], [NAN, -1.0]]
    all_rows = ExpectedResponse(response(), CIRCUIT, budget(max_draws=64)).by_draws(rows(table))
    one_row = ExpectedResponse(response(), CIRCUIT, budget(max_draws=64)).by_draws(rows(table[2:]))
    np.testing.assert_allclose(all_rows.mean[2:], one_row.mean, rtol=1e-12)
    other = ExpectedResponse(response(), CIRCUIT, budget(max_draws=64, seed=9)).by_draws(
        rows(table)
    )
    assert (all_rows.mean[:, 0] != other.mean[:, 0]).all()


def test_integers_are_drawn_as_integers():
    seen = []

    class Watching(Model):
        def predict(self, X):
            seen.append(X)
            return Model.predict(X)

    watching = Response([Watching()], "predict", lambda encoded: encoded)
    incomplete = rows([[0.25, NAN]], is_integral=[True, True])
    ExpectedResponse(watching, CIRCUIT, budget(max_draws=64)).by_draws(incomplete)
    cells = np.vstack(seen)
    assert (cells[:, 0] == 0.25).all()
    assert (cells[:, 1] == np.rint(cells[:, 1])).all()


def test_answers_that_rarely_differ_are_not_taken_for_constant():
    # A jump of one unit that most rounds of few draws never see
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0))
    rare = 0.02

    class Jump:
        def predict(self, X):
            return (X[:, 1] > norm.isf(rare)).astype(float)

    jumps = Response([Jump()], "predict", lambda encoded: encoded)
    incomplete = rows(np.column_stack([np.linspace(-1.0, 1.0, 200), np.full(200, NAN)]))
    for tol in (0.05, 0.005):
        found = ExpectedResponse(jumps, circuit, budget(tol=tol)).by_draws(incomplete)
        relative = (found.mean[:, 0] - rare) / found.error
        assert np.sqrt(np.mean(relative**2)) < 1.3
        assert (found.error <= tol).all()


def test_draws_go_on_until_deviations_are_known():
    circuit = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0))
    incomplete = rows(np.column_stack([np.linspace(-1.0, 1.0, 100), np.full(100, NAN)]))
    steps = budget(tol=0.03, scale=np.array([2.0, 1.0]))
    plain = ExpectedResponse(response(), circuit, steps).by_draws(incomplete)
    found = ExpectedResponse(response(), circuit, steps).by_draws(incomplete, with_variance=True)
    np.testing.assert_array_equal(found.mean, plain.mean)  # whether deviations are asked or not
    above = norm.sf(1.0)
    truth = np.array([1.0, np.sqrt(above * (1.0 - above))])
    errors = (np.sqrt(found.variance) - truth) / [2.0, 1.0]
    assert np.sqrt(np.mean(errors**2, axis=0)).max() <= 0.03
    assert (found.error <= 0.03).all()
