import itertools
import pickle
import re
import signal
import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcircuits import GaussianMixtureDensity, GraphicalSVGDSampler, WMISPNDensity
from skcircuits.circuits import Circuit, Gaussian
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.graphical import GaussianMRF, SensorNetwork
from skcircuits.particles._problem import SVGDProblem
from skcircuits.targets import from_function


class StandardNormal:
    """A target that fits tables of any width and knows no graph."""

    def __repr__(self):
        # names of tests may not hold an address: parallel runs compare them
        return "StandardNormal()"

    def grad_log_prob(self, X):
        return -X

    def log_prob_unnormalized(self, X):
        return -0.5 * np.sum(np.asarray(X) ** 2, axis=1)


class NormalDensity(BaseEstimator):
    """A density estimator that can be a target."""

    def fit(self, X, y=None):
        self.mean_, self.variance_ = X.mean(axis=0), X.var(axis=0)
        return self

    def grad_log_prob(self, X):
        return (self.mean_ - X) / self.variance_


@pytest.fixture(scope="module")
def chain():
    links = np.eye(6, k=1) + np.eye(6, k=-1)
    return GaussianMRF(1.5 * np.eye(6) - 0.5 * links, np.linspace(-1, 1, 6))


@pytest.fixture(scope="module")
def fitted(chain):
    return GraphicalSVGDSampler(target=chain, n_particles=30, random_state=0).fit()


@parametrize_with_checks([GraphicalSVGDSampler(target=StandardNormal(), max_iter=20, tol=0.1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks_with_a_target_of_any_width(estimator, check):
    check(estimator)


def test_a_chain_is_approximated(chain, fitted):
    assert fitted.particles_.shape == (30, 6)
    assert fitted.n_features_in_ == 6
    np.testing.assert_allclose(fitted.particles_.mean(axis=0), chain.mean_, atol=0.02)
    ratio = fitted.particles_.var(axis=0) / np.diag(chain.covariance_)
    assert 0.9 < ratio.mean() < 1.02
    assert fitted.stein_discrepancy_per_node_.shape == fitted.bandwidths_.shape == (6,)
    total = fitted.stein_discrepancy_per_node_.sum()
    assert fitted.stein_discrepancy_ == pytest.approx(total)
    draws = chain.sample(30, random_state=0)
    draws = SVGDProblem(chain, 6, neighbors=chain.neighbors).measure(draws)[0]
    assert 0 < total < 0.3 * draws.sum()
    assert fitted.force_ < 0.05 and 1 <= fitted.n_iter_ <= 1000


def test_particles_answer_questions(chain, fitted):
    np.testing.assert_allclose(
        fitted.expectation(lambda x: x[:, 0] * x[:, 1]),
        np.mean(fitted.particles_[:, 0] * fitted.particles_[:, 1]),
    )
    with pytest.raises(ValueError, match="f must give one value or array for each of"):
        fitted.expectation(lambda x: x.mean())
    draws = fitted.sample(500, random_state=0)
    assert {tuple(row) for row in draws} <= {tuple(row) for row in fitted.particles_}
    np.testing.assert_array_equal(draws, fitted.sample(500, random_state=0))
    X = np.ones((2, 6))
    np.testing.assert_array_equal(fitted.score_samples(X), chain.log_prob_unnormalized(X))


def test_starting_particles_are_taken_as_they_are(chain):
    start = chain.sample(17, random_state=0)
    sampler = GraphicalSVGDSampler(target=chain, max_iter=1, step_size=1e-9, tol=10.0).fit(start)
    assert sampler.n_iter_ == 1
    np.testing.assert_allclose(sampler.particles_, start, atol=1e-7)


def test_seeds_decide(chain):
    def particles(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            sampler = GraphicalSVGDSampler(target=chain, n_particles=8, kernel="random", max_iter=5)
            return sampler.set_params(random_state=seed).fit().particles_

    np.testing.assert_array_equal(particles(1), particles(1))
    assert np.abs(particles(1) - particles(2)).max() > 0.1


@pytest.mark.parametrize("n_init", [1, 3])
def test_jobs_do_not_change_a_bit(chain, n_init):
    options = {"n_particles": 20, "n_init": n_init, "max_iter": 10, "tol": 0.5, "random_state": 0}
    one = GraphicalSVGDSampler(target=chain, n_jobs=1, **options).fit()
    with joblib.parallel_config("threading"):
        two = GraphicalSVGDSampler(target=chain, n_jobs=2, **options).fit()
    np.testing.assert_array_equal(one.particles_, two.particles_)


def test_restarts_keep_the_least_discrepancy(chain):
    options = {"n_particles": 10, "max_iter": 3, "tol": 1.0, "optimizer": "sgd"}
    single = GraphicalSVGDSampler(target=chain, random_state=0, **options).fit()
    best = GraphicalSVGDSampler(target=chain, random_state=0, n_init=8, **options).fit()
    assert best.stein_discrepancy_ < single.stein_discrepancy_


def test_warm_start_goes_on(chain):
    sampler = GraphicalSVGDSampler(
        target=chain,
        n_particles=20,
        max_iter=60,
        step_size=0.3,
        warm_start=True,
        random_state=0,
        optimizer="sgd",
        preconditioner=None,
        tol=0.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = sampler.fit().stein_discrepancy_
        again = sampler.fit().stein_discrepancy_
    assert again < 0.8 * first


def test_warm_start_needs_the_same_coordinates(chain):
    sampler = GraphicalSVGDSampler(target=chain, n_particles=5, max_iter=300, warm_start=True)
    sampler.set_params(random_state=0, tol=10.0).fit()
    sampler.set_params(target=GaussianMRF(np.eye(2), [0, 0]))
    with pytest.raises(ValueError, match=r"\(2\); got n_features=\d+\. Set warm_start=False"):
        sampler.fit()


@pytest.mark.parametrize(
    "score", [lambda X: -X.T, lambda X: -X.sum(axis=1), lambda X: -X[:, :1]], ids=range(3)
)
def test_scores_of_a_wrong_shape_are_refused(score):
    target = SimpleNamespace(grad_log_prob=score, neighbors=[[1], [0]])
    with pytest.raises(ValueError, match=r"give an array of shape \(\d+, 2\); got shape="):
        GraphicalSVGDSampler(target=target, n_particles=7, random_state=0).fit()


@pytest.mark.parametrize("neighbors", [{0: [1], 1: [0]}, sparse.eye_array(2), [[1.5], [0]]])
def test_graphs_that_are_no_lists_are_refused(neighbors):
    target = SimpleNamespace(grad_log_prob=lambda X: -X, neighbors=neighbors)
    with pytest.raises(ValueError, match="neighbors must be one list of integers per node"):
        GraphicalSVGDSampler(target=target).fit()


def test_annealing_reaches_the_same_target(chain):
    sampler = GraphicalSVGDSampler(
        target=chain, n_particles=30, annealing=0.5, random_state=0
    ).fit()
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), chain.mean_, atol=0.02)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "adagrad", "sgd"])
def test_optimizers_agree(chain, optimizer):
    step_size = {"sgd": 1.0, "adagrad": 0.5}.get(optimizer, 0.05)
    sampler = GraphicalSVGDSampler(
        target=chain, n_particles=30, optimizer=optimizer, step_size=step_size, random_state=0
    ).fit()
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), chain.mean_, atol=0.05)


def test_single_precision(chain):
    sampler = GraphicalSVGDSampler(
        target=chain, n_particles=30, dtype="float32", random_state=0
    ).fit()
    assert sampler.particles_.dtype == np.float32
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), chain.mean_, atol=0.02)


def test_without_a_target_a_sparse_field_is_learned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) * [1, 10, 0.1, 3] + [5, -100, 0, 2]
    X[:, 1] += 8 * X[:, 0]
    sampler = GraphicalSVGDSampler(random_state=0).fit(X)
    assert isinstance(sampler.target_, GaussianMRF)
    deviation = X.std(axis=0)
    error = (sampler.particles_.mean(axis=0) - X.mean(axis=0)) / deviation
    np.testing.assert_allclose(error, 0.0, atol=0.03)
    np.testing.assert_allclose(sampler.particles_.std(axis=0) / deviation, 1.0, atol=0.05)
    assert 1 in sampler.target_.neighbors[0]
    assert sum(map(len, sampler.target_.neighbors)) < 12  # pruned


def test_a_density_as_target_is_cloned_and_fitted():
    X = np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    density = NormalDensity()
    sampler = GraphicalSVGDSampler(target=density, n_particles=20, random_state=0).fit(X)
    assert not hasattr(density, "mean_")
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), X.mean(axis=0), atol=0.05)
    assert not hasattr(sampler, "score_samples")


def test_a_frozen_density_keeps_its_fit():
    X = np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    density = NormalDensity().fit(X + 1.0)
    sampler = GraphicalSVGDSampler(target=FrozenEstimator(density), n_particles=20, random_state=0)
    sampler.fit(X)
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), density.mean_, atol=0.05)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_a_mixture_as_target(scale):
    """The step size is in units of the columns: their scale does not matter."""
    rng = np.random.default_rng(0)
    centers = rng.choice([-1.3, 1.3], size=(500, 1)) * [1.0, 0.5]
    X = scale * (5.0 + centers + rng.normal(size=(500, 2)))
    density = GaussianMixtureDensity(n_components=2, random_state=0)
    sampler = GraphicalSVGDSampler(target=density, random_state=0).fit(X)
    mixture = sampler.target_.circuit_
    nothing = np.full((1, 2), np.nan)
    deviation = np.sqrt(mixture.variance(nothing)[0])
    error = (sampler.particles_.mean(axis=0) - mixture.expectation(nothing)[0]) / deviation
    np.testing.assert_allclose(error, 0.0, atol=0.05)
    np.testing.assert_allclose(sampler.particles_.std(axis=0) / deviation, 1.0, atol=0.05)
    np.testing.assert_allclose(
        np.corrcoef(sampler.particles_.T)[0, 1],
        np.corrcoef(mixture.sample(100_000, random_state=0).T)[0, 1],
        atol=0.05,
    )
    np.testing.assert_array_equal(sampler.score_samples(X), sampler.target_.score_samples(X))


def test_a_circuit_and_a_frozen_density_are_targets():
    X = np.random.default_rng(0).normal(size=(100, 2))
    density = GaussianMixtureDensity(n_components=1).fit(X + 7.0)
    mean = density.means_[0]
    frozen = GraphicalSVGDSampler(target=FrozenEstimator(density), random_state=0).fit(X[:30])
    np.testing.assert_allclose(frozen.particles_.mean(axis=0), mean, atol=0.02)
    direct = GraphicalSVGDSampler(target=density.circuit_).fit(X[:30])
    np.testing.assert_allclose(direct.particles_.mean(axis=0), mean, atol=0.02)
    single = GraphicalSVGDSampler(target=density.circuit_, dtype="float32").fit(X[:30])
    assert single.particles_.dtype == np.float32
    np.testing.assert_allclose(single.particles_.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(
        single.particles_.std(axis=0), direct.particles_.std(axis=0), rtol=0.03
    )


def test_densities_without_a_score_are_refused():
    rng = np.random.default_rng(0)
    labels = GraphicalSVGDSampler(
        target=GaussianMixtureDensity(n_components=1, categorical_features=[0])
    )
    with pytest.raises(ValueError, match=r"GaussianMixtureDensity has it if all columns"):
        labels.fit(rng.integers(2, size=(30, 2)))
    pieces = GraphicalSVGDSampler(target=WMISPNDensity())
    with pytest.raises(CircuitPropertyError, match=r"input_units=\['PiecewisePolynomial'\]"):
        pieces.fit(rng.normal(size=(100, 2)))


def test_targets_may_start_their_own_particles():
    network = SensorNetwork(
        [[0, 1], [0, 2]], [0.5, 0.5], [[0.0, 0.0], [0.6, 0.0]], 1, box=(-1.0, 1.0)
    )
    sampler = GraphicalSVGDSampler(target=network, n_particles=40, random_state=0).fit()
    height = sampler.particles_[:, 1]  # mirror images above and below the anchors
    assert 10 <= np.sum(height > 0) <= 30
    np.testing.assert_allclose(np.abs(height), 0.4, atol=0.2)


def test_pipeline_clone_and_pickle(chain, fitted):
    X = np.random.default_rng(0).normal(2.0, 3.0, (30, 3))
    pipeline = make_pipeline(StandardScaler(), GraphicalSVGDSampler(random_state=0)).fit(X)
    np.testing.assert_allclose(pipeline[-1].particles_.mean(axis=0), 0.0, atol=0.03)
    assert clone(fitted).get_params()["target"] is chain
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.particles_, fitted.particles_)


def test_a_wrong_graph_warns(chain):
    class Misled(StandardNormal):
        neighbors = tuple([] for _ in range(6))

        def grad_log_prob(self, X):
            return chain.grad_log_prob(X)

    with pytest.warns(UserWarning, match="more than their neighbors"):
        GraphicalSVGDSampler(target=Misled(), n_particles=5, random_state=0).fit()


class History:
    """A callback that keeps the particles of every iteration."""

    def __init__(self):
        self.particles = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if fitted_estimator is not None:
            self.particles.append(fitted_estimator.particles_)


@pytest.mark.parametrize("with_target", [True, False])
def test_callbacks_see_the_history_in_the_units_of_the_data(chain, with_target):
    X = 100.0 + chain.sample(50, random_state=0)
    target = GaussianMRF.from_moments(chain.mean_ + 100.0, chain.covariance_)
    history = History()
    sampler = GraphicalSVGDSampler(
        target=target if with_target else None, max_iter=30, tol=0.0, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sampler.set_callbacks(history).fit(X)
    assert len(history.particles) == 30
    np.testing.assert_array_equal(history.particles[-1], sampler.particles_)
    steps = [np.abs(b - a).max() for a, b in itertools.pairwise(history.particles)]
    # States hold the best particles so far.
    assert all(0 <= step < 2 for step in steps) and any(step > 0 for step in steps)
    assert np.abs(history.particles[0].mean(axis=0) - 100).max() < 3


@pytest.mark.parametrize(
    ("options", "n_particles", "warns"),
    [
        ({"kernel": "global"}, 20, True),
        ({"kernel": "global"}, 50, False),
        ({"kernel": "global", "linear_weight": 0.0}, 50, True),
        ({"kernel": "random"}, 20, False),
        ({"kernel": "graphical"}, 20, True),  # no graph: everyone is a neighbour
        ({"kernel": "graphical"}, 1, False),
    ],
)
def test_shrinking_variances_are_announced(options, n_particles, warns):
    sampler = GraphicalSVGDSampler(
        target=StandardNormal(), preconditioner=None, max_iter=1, tol=10.0, **options
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(np.random.default_rng(0).normal(size=(n_particles, 40)))
    assert any("variances will be too small" in str(w.message) for w in caught) == warns


def test_too_few_iterations_warn(chain):
    sampler = GraphicalSVGDSampler(target=chain, n_particles=20, max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=5"):
        sampler.fit()


@pytest.fixture
def ctrl_c_raises():
    """As in a terminal: shells start processes in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_interruption_keeps_the_particles():
    class Interrupting(StandardNormal):
        n_calls = 0

        def grad_log_prob(self, X):
            self.n_calls += 1
            if self.n_calls == 8:
                signal.raise_signal(signal.SIGINT)
            return -X

    start = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.warns(ConvergenceWarning, match="interrupted after 7"):
        sampler = GraphicalSVGDSampler(target=Interrupting()).fit(start)
    assert sampler.n_iter_ == 7 and np.all(np.isfinite(sampler.particles_))


@pytest.mark.parametrize(
    ("sampler", "X", "message"),
    [
        (GraphicalSVGDSampler(), None, "X must hold data to learn the target from"),
        (GraphicalSVGDSampler(target=StandardNormal()), None, "Pass starting particles"),
        (GraphicalSVGDSampler(target=NormalDensity()), None, "X must hold data"),
        (
            GraphicalSVGDSampler(target=GaussianMRF(np.eye(2), [0, 0])),
            np.ones((3, 5)),
            r"one column per coordinate of the target \(2\)",
        ),
        (GraphicalSVGDSampler(target=StandardScaler()), np.eye(3), "grad_log_prob after fit"),
        (GraphicalSVGDSampler(), np.ones((1, 2)), "n_samples=1"),
        (GraphicalSVGDSampler(), 1e160 * np.eye(3), "column 0 must be at most 1e.150"),
    ],
)
def test_impossible_requests_say_what_to_do(sampler, X, message):
    with pytest.raises(ValueError, match=message):
        sampler.fit(X)


@pytest.mark.parametrize("n_samples", [0, -1, 2.5])
def test_number_of_samples_is_checked(fitted, n_samples):
    with pytest.raises((ValueError, TypeError), match="n_samples"):
        fitted.sample(n_samples)


@pytest.mark.slow
def test_restarts_run_on_dask(chain):
    distributed = pytest.importorskip("dask.distributed")
    options = {"n_particles": 10, "n_init": 3, "max_iter": 50, "tol": 0.5, "random_state": 0}
    alone = GraphicalSVGDSampler(target=chain, **options).fit()
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        together = GraphicalSVGDSampler(target=chain, n_jobs=2, **options).fit()
    np.testing.assert_array_equal(alone.particles_, together.particles_)


def test_circuits_that_leave_columns_out_are_refused():
    target = Circuit(Gaussian(0, 0.0, 1.0) * Gaussian(2, 1.0, 1.0))
    with pytest.raises(ValueError, match=r"a circuit as target must have the variables 0, 1"):
        GraphicalSVGDSampler(target=target).fit(np.zeros((5, 3)))


def long_range_fields():
    chain = 2 * np.eye(30) - np.eye(30, k=1) - np.eye(30, k=-1)
    yield GaussianMRF(chain, chain @ np.full(30, 5.0))
    grid = 4 * np.eye(100) - np.eye(100, k=10) - np.eye(100, k=-10)
    beside = (np.arange(99) % 10 != 9).astype(float)
    yield GaussianMRF(grid - np.diag(beside, 1) - np.diag(beside, -1), np.zeros(100))
    for correlation in (0.9, 0.99):
        ends = np.r_[1.0, np.full(98, 1 + correlation**2), 1.0]
        links = np.eye(100, k=1) + np.eye(100, k=-1)
        yield GaussianMRF(np.diag(ends) - correlation * links, np.zeros(100))


class CorrelatedUnits:
    """Normal numbers whose units lie up to eight orders of magnitude apart, and correlations."""

    units = np.logspace(-4, 4, 9)
    mean = 3.0 * units
    correlation = 0.6 ** np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))
    neighbors = tuple(np.delete(np.arange(9), i) for i in range(9))

    def grad_log_prob(self, X):
        return np.linalg.solve(self.correlation, (self.mean - X).T / self.units[:, None]).T / (
            self.units
        )


def test_units_of_coordinates_may_differ_by_any_factor(recwarn):
    target = CorrelatedUnits()
    particles = GraphicalSVGDSampler(target=target, random_state=0).fit().particles_
    np.testing.assert_allclose(particles.var(axis=0) / target.units**2, 1.0, atol=0.1)
    np.testing.assert_allclose(particles.mean(axis=0) / target.units, 3.0, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(particles.T), target.correlation, atol=0.1)
    assert not recwarn.list


@pytest.mark.parametrize("field", list(long_range_fields()), ids=["chain", "grid", "ar.9", "ar.99"])
def test_variances_of_long_range_fields_are_right(field):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = GraphicalSVGDSampler(target=field, random_state=0).fit()
    ratio = sampler.particles_.var(axis=0) / np.diag(field.covariance_)
    assert ratio.min() > 0.85 and ratio.max() < 1.15
    assert sampler.n_iter_ < 200
    # For a Gaussian target the estimate is the truth, up to the metric found.
    np.testing.assert_allclose(sampler.variance_ratio_, ratio, atol=0.1)


class Funnel:
    """Neal's: the first coordinate is the log variance of the others."""

    def grad_log_prob(self, X):
        precision = np.exp(-X[:, :1])
        squares = (X[:, 1:] ** 2).sum(axis=1)
        first = -X[:, 0] / 9 - (X.shape[1] - 1) / 2 + squares * precision[:, 0] / 2
        return np.column_stack([first, -X[:, 1:] * precision])


@pytest.mark.parametrize("preconditioner", ["auto", None])
def test_a_funnel_is_told_to_be_too_wide(preconditioner):
    sampler = GraphicalSVGDSampler(
        target=Funnel(), preconditioner=preconditioner, random_state=0, max_iter=400
    )
    with pytest.warns(ConvergenceWarning, match=r"variances of .* are too small.*reparametrise"):
        sampler.fit(np.random.default_rng(0).normal(size=(100, 10)))


class StudentT:
    """Five degrees of freedom: SVGD sends a few particles far out and gathers the others."""

    @staticmethod
    def grad_log_prob(X):
        return -6.0 * X / (5.0 + X**2)


def test_heavy_tails_are_mended():
    start = np.random.default_rng(0).normal(size=(100, 10))
    sampler = GraphicalSVGDSampler(target=StudentT(), random_state=0, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sampler.fit(start)
    assert sampler.corrected_ and sampler.variance_ratio_.min() > 1.2
    # The fourth moment is nine times the squared variance: relative errors are about .07.
    ratio = sampler.particles_.var(axis=0) / (5.0 / 3.0)
    assert ratio.min() > 0.8 and ratio.max() < 1.25


@pytest.mark.parametrize("options", [{"preconditioner": None}, {"correction": False}])
def test_without_correction_heavy_tails_are_told(options):
    start = np.random.default_rng(0).normal(size=(100, 10))
    sampler = GraphicalSVGDSampler(target=StudentT(), random_state=0, max_iter=300, **options)
    with pytest.warns(ConvergenceWarning, match=r"variances of .* too large.*cannot be trusted"):
        sampler.fit(start)
    assert not sampler.corrected_


class StateSpace:
    """A random walk of 50 steps seen with noise; the last two coordinates are log scales."""

    def __init__(self):
        rng = np.random.default_rng(4)
        self.seen = np.cumsum(0.3 * rng.normal(size=50)) + 0.7 * rng.normal(size=50)

    def log_prob_unnormalized(self, X):
        z, walk, noise = X[:, :50], X[:, 50], X[:, 51]
        steps = (np.diff(z, axis=1) ** 2).sum(axis=1)
        errors = ((self.seen - z) ** 2).sum(axis=1)
        prior = (z[:, 0] / 3) ** 2 + (walk + 1) ** 2 + (noise + 1) ** 2
        terms = steps * np.exp(-2 * walk) + errors * np.exp(-2 * noise) + prior
        return -0.5 * terms - 49 * walk - 50 * noise

    def grad_log_prob(self, X):
        z, walk, noise = X[:, :50], X[:, 50:51], X[:, 51:]
        steps, errors = np.diff(z, axis=1), self.seen - z
        gradient = errors * np.exp(-2 * noise)
        gradient[:, 1:] -= steps * np.exp(-2 * walk)
        gradient[:, :-1] += steps * np.exp(-2 * walk)
        gradient[:, 0] -= z[:, 0] / 9
        of_walk = (steps**2).sum(axis=1, keepdims=True) * np.exp(-2 * walk) - 49 - walk - 1
        of_noise = (errors**2).sum(axis=1, keepdims=True) * np.exp(-2 * noise) - 50 - noise - 1
        return np.hstack([gradient, of_walk, of_noise])


def chain_of_steps():
    along = [[j for j in (i - 1, i + 1) if 0 <= j < 50] for i in range(50)]
    return [[*others, 50, 51] for others in along] + [[*range(50)]] * 2


@pytest.mark.parametrize("with_graph", [True, False])
def test_a_state_space_model_has_the_right_variances(with_graph):
    target = StateSpace()
    if with_graph:
        target.neighbors = chain_of_steps()
    sampler = GraphicalSVGDSampler(target=target, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.fit(np.random.default_rng(0).normal(size=(100, 52)))
    # Log scales and some states, by quadrature over the two scales, the states summed out.
    ratio = sampler.particles_.var(axis=0)[[50, 51, 0, 1, 25, 49]]
    ratio /= [0.13208, 0.01432, 0.12966, 0.104, 0.08248, 0.13182]
    assert ratio.min() > 0.85 and ratio.max() < 1.15


def test_collapsed_variances_are_told():
    field = next(long_range_fields())
    sampler = GraphicalSVGDSampler(target=field, preconditioner=None, random_state=0, max_iter=200)
    with pytest.warns(ConvergenceWarning, match="means of coordinates"):
        sampler.fit()


@pytest.mark.parametrize(("n_particles", "is_told"), [(1, False), (2, True), (3, True), (8, False)])
def test_variances_of_few_particles_are_told(chain, n_particles, is_told):
    sampler = GraphicalSVGDSampler(target=chain, n_particles=n_particles, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        sampler.fit()
    is_small = (sampler.particles_.var(axis=0) < np.diag(chain.covariance_) / 1.5).any()
    assert is_small == (is_told or n_particles == 1)
    assert any("too small" in str(item.message) for item in caught) == is_told
    assert not sampler.corrected_


@pytest.mark.parametrize("kind", ["covariance", "array"])
def test_given_metrics_are_used(kind):
    field = next(long_range_fields())
    X = field.sample(100, random_state=0)
    preconditioner = field.precision if kind == "array" else kind
    sampler = GraphicalSVGDSampler(target=field, preconditioner=preconditioner, random_state=0)
    sampler.fit(X)
    ratio = sampler.particles_.var(axis=0) / np.diag(field.covariance_)
    assert ratio.min() > 0.85 and ratio.max() < 1.15
    if kind == "array":
        np.testing.assert_allclose(sampler.preconditioner_, field.precision, atol=1e-8)


def test_metrics_that_are_none_are_refused():
    field = next(long_range_fields())
    for wrong in (np.ones((2, 2)), -np.eye(30)):
        with pytest.raises(ValueError, match="preconditioner must be symmetric and positive"):
            GraphicalSVGDSampler(target=field, preconditioner=wrong).fit()
    with pytest.raises(ValueError, match="preconditioner='hessian' must have one mode"):
        X = np.random.default_rng(0).normal(size=(30, 2))
        GraphicalSVGDSampler(target=FourModes(), preconditioner="hessian").fit(X)


class FourModes:
    def grad_log_prob(self, X):
        towards = 4.0 * np.sign(np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])) - X[:, None]
        weights = np.exp(-0.5 * (towards**2).sum(axis=2) + 8.0)
        return (weights[..., None] * towards).sum(axis=1) / weights.sum(axis=1, keepdims=True)


def test_several_modes_keep_their_particles():
    X = 4 * np.random.default_rng(0).normal(size=(100, 2))
    sampler = GraphicalSVGDSampler(target=FourModes(), random_state=0).fit(X)
    assert sampler.preconditioner_ is None
    quadrants = (sampler.particles_ > 0) @ [2, 1]
    assert np.bincount(quadrants, minlength=4).min() > 10


def test_modes_without_particles_are_told():
    X = 4.0 + np.random.default_rng(0).normal(size=(100, 2))
    sampler = GraphicalSVGDSampler(target=FourModes(), correction=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"have fractions .*1\.00.* of the particles"):
        sampler.fit(X)
    # Of one mode the moments are right.
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), 4.0, atol=0.1)


class Mixture:
    """Normal distributions far from each other."""

    def __init__(self, weights, means):
        self.weights, self.means = np.array(weights), np.array(means)

    def log_prob_unnormalized(self, X):
        return logsumexp(self.parts(X), axis=1)

    def parts(self, X):
        return np.log(self.weights) - 0.5 * ((X[:, None] - self.means) ** 2).sum(axis=2)

    def grad_log_prob(self, X):
        shares = np.exp(self.parts(X) - logsumexp(self.parts(X), axis=1, keepdims=True))
        return np.einsum("nk,nkd->nd", shares, self.means - X[:, None])

    def fractions(self, X):
        return np.bincount(self.parts(X).argmax(axis=1), minlength=len(self.weights)) / len(X)


@pytest.mark.parametrize("d", [1, 2, 5, 20])
@pytest.mark.parametrize(
    ("weights", "positions"),
    [([0.8, 0.2], [0.0, 10.0]), ([0.5, 0.5], [0.0, 30.0]), ([0.2, 0.3, 0.5], [0.0, -9.0, 9.0])],
)
def test_modes_have_their_fractions_of_the_particles(d, weights, positions):
    means = np.outer(positions, np.ones(d) / np.sqrt(d))
    target = Mixture(weights, means)
    X = np.random.default_rng(0).normal(size=(100, d))  # all in the first mode
    sampler = GraphicalSVGDSampler(target=target, random_state=0, max_iter=30)
    with warnings.catch_warnings():
        warnings.filterwarnings("error")
        warnings.filterwarnings("ignore", ".* did not converge in max_iter=30")
        sampler.fit(X)
    assert sampler.corrected_
    np.testing.assert_allclose(target.fractions(sampler.particles_), weights, atol=0.06)


def test_fractions_that_are_right_are_kept():
    target = Mixture([0.5, 0.5], [[-5.0], [5.0]])
    X = np.random.default_rng(0).normal(size=(100, 1))
    X *= np.where(np.arange(100) % 2, 1.0, -1.0)[:, None] * np.sign(X)
    assert told(target, X, correction=False) == ""


@pytest.mark.parametrize("target", [FourModes(), StudentT(), Funnel()])
def test_no_mode_is_invented(target):
    X = 4 * np.random.default_rng(0).normal(size=(100, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GraphicalSVGDSampler(target=target, random_state=0, max_iter=300).fit(X)
    assert not any("further modes" in str(warning.message) for warning in caught)


class HalfNormal(StandardNormal):
    """Positive numbers only, which its score does not tell."""

    def log_prob_unnormalized(self, X):
        return np.where((X > 0).all(axis=1), super().log_prob_unnormalized(X), -np.inf)


class Halves(StandardNormal):
    """Two coordinates with density 6 x (1 - x) between 0 and 1."""

    def grad_log_prob(self, X):
        return 1 / X - 1 / (1 - X)

    def log_prob_unnormalized(self, X):
        inside = ((X > 0) & (X < 1)).all(axis=1)
        with np.errstate(invalid="ignore"):
            return np.where(inside, np.log(X * (1 - X)).sum(axis=1), -np.inf)


def told(target, X, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GraphicalSVGDSampler(target=target, random_state=0, max_iter=300, **options).fit(X)
    return "; ".join(str(warning.message) for warning in caught)


def test_particles_outside_the_support_are_told():
    X = np.abs(np.random.default_rng(0).normal(size=(50, 2))) + 0.1
    message = told(HalfNormal(), X, correction=False)
    assert re.search(r"density of the target is zero at \d+ of 50 particles", message)
    assert "not the gradient" not in message


class Gamma(StandardNormal):
    """Gamma variables of shape 3, whose score also leads away from zero below zero."""

    def grad_log_prob(self, X):
        return 2.0 / X - 1.0

    def log_prob_unnormalized(self, X):
        inside = (X > 0).all(axis=1)
        return np.where(inside, (2.0 * np.log(np.abs(X)) - X).sum(axis=1), -np.inf)


@pytest.mark.parametrize(
    ("target", "mean", "variance", "has_ends"),
    [(HalfNormal(), 0.798, 0.363, True), (Gamma(), 3.0, 3.0, False)],
)
def test_particles_that_leave_the_support_are_drawn_from_it(target, mean, variance, has_ends):
    X = np.random.default_rng(0).uniform(0.05, 0.95, size=(100, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = GraphicalSVGDSampler(target=target, random_state=0).fit(X)
    messages = [str(warning.message) for warning in caught]
    assert any("does not vanish at the ends" in message for message in messages) is has_ends
    assert not any("density of the target is zero" in message for message in messages)
    assert sampler.corrected_ and (sampler.particles_ > 0).all()
    np.testing.assert_allclose(sampler.particles_.mean(axis=0), mean, rtol=0.12)
    np.testing.assert_allclose(sampler.particles_.var(axis=0), variance, rtol=0.3)


def test_scores_tell_that_particles_have_left_the_support():
    class Score:
        grad_log_prob = Gamma.grad_log_prob

    X = np.random.default_rng(0).uniform(0.05, 0.95, size=(100, 2))
    message = told(Score(), X)
    assert "mean of the score at the particles is far from zero (coordinates 0, 1)" in message


def test_no_mode_is_found_outside_the_support():
    X = np.random.default_rng(0).uniform(0.1, 0.9, size=(50, 2))
    assert "further modes" not in told(Halves(), X)


@pytest.mark.parametrize("n_coordinates", [1, 2, 30])
@pytest.mark.parametrize(
    ("wrong", "is_told"),
    [
        (lambda X: -X, False),
        (lambda X: -5.0 * X, True),
        (lambda X: -X + 3.0, True),
        (lambda X: -X * np.where(np.arange(X.shape[1]) % 3, 1.0, 2.0), True),
    ],
)
def test_scores_that_are_no_gradients_are_told(n_coordinates, wrong, is_told):
    target = StandardNormal()
    target.grad_log_prob = wrong
    X = np.random.default_rng(0).normal(size=(50, n_coordinates))
    message = told(target, X, correction=False)
    assert ("grad_log_prob of the target is not the gradient" in message) is is_told


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_gradients_of_log_densities_in_single_precision_pass(scale):
    class Single(StandardNormal):
        def grad_log_prob(self, X):
            return (-X / scale**2).astype(np.float32)

        def log_prob_unnormalized(self, X):
            return np.float32(1e4) + super().log_prob_unnormalized(X / scale).astype(np.float32)

    X = scale * np.random.default_rng(0).normal(size=(50, 3))
    assert "not the gradient" not in told(Single(), X)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("tall", r"^X must be an array of numbers.* could not convert string to float: 'tall'"),
        (np.nan, r"^Cells of X must be finite, neither NaN nor infinity; got value=nan\. Complete"),
        (np.inf, r"^Cells of X must be finite, neither NaN nor infinity; got value=inf\. Complete"),
    ],
)
def test_points_that_are_no_numbers_are_refused(cell, words):
    X = np.ones((4, 2), dtype=object)
    X[2, 1] = cell
    with pytest.raises(ValueError, match=words):
        GraphicalSVGDSampler(max_iter=2).fit(X)


@pytest.mark.parametrize("wrong", [lambda X: X, lambda X: X[:, :1], lambda X: 0.0])
def test_log_densities_of_wrong_shape_are_refused(wrong):
    target = StandardNormal()
    target.log_prob_unnormalized = wrong
    with pytest.raises(ValueError, match="log_prob_unnormalized of the target must give an array"):
        GraphicalSVGDSampler(target=target).fit(np.random.default_rng(0).normal(size=(50, 2)))


@pytest.mark.parametrize("wrong", [lambda X: X, lambda X: X[:, :1], lambda X: 0.0, lambda X: None])
def test_functions_that_give_log_densities_of_wrong_shape_are_refused(wrong):
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match="the log density must have shape"):
        GraphicalSVGDSampler(target=from_function(wrong, lambda X: -X)).fit(X)


@pytest.mark.parametrize("outside", [np.nan, np.inf])
def test_particles_at_which_the_log_density_is_no_number_are_told(outside):
    target = StandardNormal()
    target.log_prob_unnormalized = lambda X: np.where(X[:, 0] > 0, -0.5 * (X**2).sum(1), outside)
    X = np.abs(np.random.default_rng(0).normal(size=(50, 2))) + 0.1
    message = told(target, X)
    assert re.search(
        rf"not a number \(-inf where impossible\) at \d+ of 50 particles, .* {outside} at \[-",
        message,
    )


def test_searches_meet_errors_out_of_the_support():
    class Bounded(StandardNormal):
        def grad_log_prob(self, X):
            if (np.abs(X) > 6.0).any():
                raise ArithmeticError("too far")
            return -X

    X = np.random.default_rng(0).normal(0.5, 1.5, size=(50, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = GraphicalSVGDSampler(target=Bounded(), random_state=0).fit(X)
    np.testing.assert_allclose(sampler.particles_.var(axis=0), 1.0, atol=0.05)
    with pytest.raises(ArithmeticError, match="too far"):
        GraphicalSVGDSampler(target=Bounded(), random_state=0).fit(10.0 * X)


def test_warnings_name_columns():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["mu", "tau"])
    sampler = GraphicalSVGDSampler(
        target=StandardNormal(), max_iter=1, preconditioner=None, step_size=1e-9
    )
    with pytest.warns(ConvergenceWarning, match="variances of coordinates mu, tau are too small"):
        sampler.fit(0.1 * table)


def test_particles_in_modes_that_nothing_compares_are_told():
    def score(X):
        return -48.0 * X * (X**2 - 1.0) + 0.15

    start = np.where(np.random.default_rng(0).random((30, 6)) < 0.5, 1.0, -1.0)
    sampler = GraphicalSVGDSampler(target=SimpleNamespace(grad_log_prob=score), max_iter=100)
    with pytest.warns(ConvergenceWarning, match="parts of the density, between which chains"):
        sampler.fit(start + 0.05 * np.random.default_rng(1).normal(size=start.shape))
