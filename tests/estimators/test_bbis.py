"""BBISWeighter: weights that repair samples, exact where enumeration is possible."""

import pickle
import warnings
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcircuits import BBISWeighter, ChowLiuDensity, GaussianMixtureDensity, MoATDensity
from skcircuits.circuits import Circuit, MultivariateGaussian, Sum
from skcircuits.estimators.targets import _weighing
from skcircuits.estimators.targets._targets import are_divided
from skcircuits.estimators.targets._weighted_samples import collapsed_discrepancy
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError
from skcircuits.graphical import BayesianNetwork, FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import RBF, Hamming
from skcircuits.stein import stein_diagnosis, stein_discrepancy, stein_gram
from skcircuits.stein._targets import probable_states
from skcircuits.stein.simplex import energy_residuals


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    couplings, fields = 0.6 * rng.normal(size=12), 0.6 * rng.normal(size=9)
    return IsingModel.grid(3, 3, couplings=couplings, fields=fields)


@pytest.fixture
def anywhere():
    return np.random.default_rng(0).integers(2, size=(200, 9)).astype(float)


def marginal_error(marginals, model):
    return max(np.abs(p - q).max() for p, q in zip(marginals, model.marginals()))


def test_uniform_samples_become_calibrated(model, anywhere):
    weighter = BBISWeighter(target=model).fit(anywhere)
    uniform = np.full(len(anywhere), 1 / len(anywhere))
    before = marginal_error(weighter.marginals(uniform), model)
    assert marginal_error(weighter.marginals(), model) < 0.25 * before
    assert_allclose(weighter.weights_.sum(), 1.0)
    assert weighter.weights_.min() >= 0
    assert 1 <= weighter.effective_sample_size_ <= len(anywhere)
    assert weighter.stein_discrepancy_ < stein_discrepancy(anywhere, model, weighter.kernel_)


@pytest.mark.parametrize("shared_subset", [True, False])
def test_collapsing_helps(model, anywhere, shared_subset):
    plain = BBISWeighter(target=model).fit(anywhere[:60])
    collapsed = BBISWeighter(
        target=model, collapse=0.5, shared_subset=shared_subset, random_state=0
    ).fit(anywhere[:60])
    assert marginal_error(collapsed.marginals(), model) < marginal_error(plain.marginals(), model)
    hidden = np.isnan(collapsed.samples_)
    assert (hidden.sum(axis=1) == 4).all()
    assert len(np.unique(hidden, axis=0)) == 1 or not shared_subset


def test_everything_collapsed_but_one_is_exact(model, anywhere):
    weighter = BBISWeighter(target=model, collapse=range(1, 9), regularization=0.0).fit(anywhere)
    assert marginal_error(weighter.marginals(), model) < 1e-5


def test_discrepancy_is_that_of_the_weights(model, anywhere):
    weighter = BBISWeighter(target=model, kernel=Hamming(9.0)).fit(anywhere)
    K = stein_gram(anywhere, model, Hamming(9.0))
    expected = weighter.weights_ @ K @ weighter.weights_
    assert_allclose(weighter.stein_discrepancy_, expected, rtol=1e-8)
    # The score has the reference kernel, and the weights that fit gives
    reference = stein_gram(anywhere, model, Hamming(16.0 * anywhere.shape[1]))
    score = -(weighter.weights_ @ reference @ weighter.weights_)
    assert_allclose(weighter.score(anywhere), score, rtol=1e-8)
    assert_allclose(weighter.effective_sample_size_, 1 / (weighter.weights_**2).sum())


def test_default_weights_follow_the_identity_for_the_energy(model):
    # Samples of a flatter model have too little of the modes.
    rows = model.soften(0.3).sample(100, random_state=0)
    # A given ridge: the few states are not listed.
    default = BBISWeighter(target=model, regularization=0.01).fit(rows)
    kernel_only = BBISWeighter(target=model, kernel=default.kernel_, regularization=0.01).fit(rows)
    residuals = energy_residuals(model, rows)
    assert abs(default.weights_ @ residuals) < 0.6 * abs(kernel_only.weights_ @ residuals)
    every = np.array(list(product([0, 1], repeat=9)), dtype=float)
    exact = np.exp(model.log_prob_unnormalized(every) - model.log_partition())
    energy = exact @ model.log_prob_unnormalized(every)
    found = [w.expectation(model.log_prob_unnormalized) for w in (default, kernel_only)]
    assert abs(found[0] - energy) < abs(found[1] - energy)


def test_equal_samples_share_their_weight(model, anywhere):
    rows = np.concatenate([anywhere[:20], anywhere[:5], anywhere[:5]])
    weights = BBISWeighter(target=model).fit(rows).weights_
    assert_array_equal(weights[:5], weights[20:25])
    assert_array_equal(weights[:5], weights[25:])


@pytest.mark.parametrize("cardinalities", [[1], [1, 1, 1]])
def test_targets_with_a_single_state(cardinalities):
    target = FactorGraph([((0,), [2.0])], cardinalities)
    weighter = BBISWeighter(target=target).fit(np.zeros((3, len(cardinalities)), dtype=int))
    np.testing.assert_allclose(weighter.weights_, 1 / 3)
    assert [marginal.tolist() for marginal in weighter.marginals()] == [[1.0]] * len(cardinalities)


def test_single_sample_has_all_weight(model):
    weighter = BBISWeighter(target=model).fit(np.zeros((1, 9)))
    assert_array_equal(weighter.weights_, [1.0])


def test_equal_samples_of_a_density_are_warned_of():
    with pytest.warns(UserWarning, match="all samples are equal"):
        BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(np.ones((30, 2)))


@pytest.mark.parametrize("kernel", ["auto", RBF(0.1)])
def test_variances_that_samples_cannot_have_are_warned_of(kernel):
    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(5, 5))) + 2.0 * np.eye(5)
    field = GaussianMRF(np.linalg.inv(root @ root.T), np.zeros(5))
    X = rng.normal(size=(300, 5)) @ root.T
    narrow = 0.4 * X
    with pytest.warns(UserWarning, match="variances of coordinates .* too small") as caught:
        weights = BBISWeighter(target=field, kernel=kernel).fit(narrow).weights_
    assert [warning.filename for warning in caught] == [__file__]
    variances = weights @ (narrow - weights @ narrow) ** 2
    assert (variances < 0.7 * np.diag(root @ root.T)).any()
    gradients = field.grad_log_prob(narrow)
    with pytest.warns(UserWarning, match="Stein's identity for variances by 0"):
        BBISWeighter(kernel=kernel).fit(narrow, gradients=gradients)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBISWeighter(target=field, kernel=kernel).fit(X)
        BBISWeighter(kernel=kernel).fit(X, gradients=field.grad_log_prob(X))


class Student:
    """Independent coordinates with three degrees of freedom and variance 3."""

    def __init__(self):
        self.n_rows = []

    def grad_log_prob(self, X):
        self.n_rows.append(len(X))
        return -4.0 * X / (3.0 + X**2)


def test_variances_of_heavy_tails_are_warned_of():
    X = 0.5 * np.random.default_rng(0).standard_t(3, size=(100, 2))
    with pytest.warns(UserWarning, match="variances of coordinates 0, 1 are too small"):
        weights = BBISWeighter(target=Student()).fit(X).weights_
    assert (weights @ (X - weights @ X) ** 2 < 2.0).all()


class Gamma:
    """Independent positive numbers; the density cannot be evaluated at others."""

    def grad_log_prob(self, X):
        if (X < 0.0).any():
            raise ArithmeticError("numbers must be positive")
        return 1.0 / X - 1.0


def test_targets_that_fail_out_of_their_support_are_compared():
    X = np.random.default_rng(0).gamma(2.0, size=(100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = BBISWeighter(target=Gamma()).fit(X).weights_
    np.testing.assert_allclose(weights @ X, 2.0, atol=0.2)
    with pytest.warns(UserWarning, match="variance of coordinate 0 is too small"):
        weights = BBISWeighter(target=Gamma()).fit(0.6 * X).weights_
    assert weights @ (0.6 * X[:, 0] - weights @ (0.6 * X[:, 0])) ** 2 < 2.0 / 1.5


@pytest.mark.parametrize("is_silent", [False, True])
def test_targets_known_at_the_samples_alone_are_weighted(is_silent):
    X = np.random.default_rng(0).normal(size=(100, 2))
    known = X[X[:, 0].argsort()]

    class Table:
        def grad_log_prob(self, Y):
            place = np.minimum(known[:, 0].searchsorted(Y[:, 0]), len(known) - 1)
            is_known = (known[place] == Y).all(axis=1, keepdims=True)
            if not is_silent and not is_known.all():
                raise LookupError("unknown row")
            return np.where(is_known, -Y, np.nan)

    why = "no chain leaves its sample" if is_silent else "LookupError: unknown row"
    with pytest.warns(UserWarning, match=f"are not compared .*{why}") as caught:
        weights = BBISWeighter(target=Table()).fit(X).weights_
    assert [warning.filename for warning in caught] == [__file__]
    gradients = BBISWeighter().fit(X, gradients=-X)
    assert_allclose(weights, gradients.weights_, atol=1e-3)


class Positive:
    """Independent numbers above zero with density ``x^(shape - 1) exp(-x)``."""

    def __init__(self, shape):
        self.shape = shape

    def grad_log_prob(self, X):
        return (self.shape - 1.0) / X - 1.0

    def log_prob_unnormalized(self, X):
        with np.errstate(all="ignore"):
            values = ((self.shape - 1.0) * np.log(X) - X).sum(axis=1)
        return np.where((X > 0.0).all(axis=1), values, -np.inf)


@pytest.mark.parametrize(("shape", "is_abrupt"), [(1.0, True), (1.3, False)])
def test_densities_that_end_at_once_are_warned_of(shape, is_abrupt):
    X = np.random.default_rng(0).gamma(shape, size=(300, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = BBISWeighter(target=Positive(shape)).fit(X).weights_
    if not is_abrupt:
        assert not caught
        assert_allclose(weights @ X, shape, atol=0.1)
        return
    # Weights of exact samples are wrong: Stein's identity does not hold for this density
    assert (weights @ X > 1.3 * shape).all()
    (warning,) = caught
    assert "does not vanish at the ends of its support (of coordinates 0, 1)" in str(
        warning.message
    )
    assert warning.filename == __file__


class Narrow:
    """Independent normals of which samples have seen little."""

    variable_names = ("mu", "tau")

    def grad_log_prob(self, X):
        return -X


def test_warnings_name_coordinates():
    X = 0.4 * np.random.default_rng(0).normal(size=(100, 2))
    with pytest.warns(UserWarning, match="variances of coordinates mu, tau are too small"):
        BBISWeighter(target=Narrow()).fit(X)
    table = pd.DataFrame(X, columns=["a", "b"])
    with pytest.warns(UserWarning, match="variances of coordinates a, b are too small"):
        BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(table)


def test_targets_may_write_into_their_argument():
    class Writing:
        def grad_log_prob(self, X):
            return np.negative(X, out=X)

        def log_prob_unnormalized(self, X):
            return -0.5 * np.square(X, out=X).sum(axis=1)

    X = np.random.default_rng(0).normal(0.5, 1.5, size=(100, 2))
    given = X.copy()
    weighter = BBISWeighter(target=Writing()).fit(given)
    assert_array_equal(given, X)
    expected = BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(X)
    assert_allclose(weighter.weights_, expected.weights_, atol=1e-12)


@pytest.mark.parametrize("wrong", [lambda X: -X[:, 0], lambda X: -X.mean(axis=0)])
def test_scores_of_wrong_shape_are_refused(wrong):
    target = Narrow()
    target.grad_log_prob = wrong
    with pytest.raises(ValueError, match=r"grad_log_prob .* must give an array of shape \(50, 2\)"):
        BBISWeighter(target=target).fit(np.random.default_rng(0).normal(size=(50, 2)))


def test_wrong_fractions_of_modes_are_warned_of():
    model = Circuit(
        Sum(
            [MultivariateGaussian((0, 1), mean, np.eye(2)) for mean in ([-4.0, 0.0], [4.0, 0.0])],
            [0.2, 0.8],
        )
    )
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[:, 0] += np.repeat([-4.0, 4.0], 100)
    with pytest.warns(UserWarning, match="by weighted draws, the mean of coordinate 0"):
        BBISWeighter(target=model).fit(X)


def test_scores_of_samples_are_evaluated_once():
    X, are_samples = np.random.default_rng(0).standard_t(5, size=(137, 2)), []

    class Recorded(Student):
        def grad_log_prob(self, points):
            are_samples.append(np.array_equal(points, X))
            return super().grad_log_prob(points)

    weighter = BBISWeighter(target=Recorded()).fit(X)
    assert sum(are_samples) == 1
    weighter.thin(5)
    assert sum(are_samples) == 1


@pytest.mark.parametrize("scale", [0.8, 1.5])
def test_variances_that_weights_put_right_are_not_warned_of(scale):
    X = scale * np.random.default_rng(0).normal(size=(300, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighter = BBISWeighter(target=GaussianMRF(np.eye(5), np.zeros(5))).fit(X)
    weights = weighter.weights_
    assert_allclose(weights @ (X - weights @ X) ** 2, 1.0, atol=0.1)


@pytest.mark.parametrize("shift", [0.5, 1.0, -1.0])
def test_samples_that_are_no_states_of_a_target_are_refused(shift):
    class Fair:
        cardinalities = (2, 2)

        def log_prob_unnormalized(self, X):
            return np.log(np.full((2, 2), 0.25))[tuple(X.astype(int).T)]

    samples = np.array([[0.0, 1.0], [1.0, 0.0]]) + shift
    with pytest.raises(ValueError, match="must be states between 0 and 1"):
        BBISWeighter(target=Fair()).fit(samples)


def test_expectation_of_collapsed_samples_is_exact(model, anywhere):
    weighter = BBISWeighter(target=model, collapse=[0, 4, 8]).fit(anywhere[:30])
    mean = weighter.expectation(lambda X: X)
    assert_allclose(mean, [p[1] for p in weighter.marginals()], rtol=1e-10)
    product = weighter.expectation(lambda X: X[:, 0] * X[:, 1])
    assert isinstance(product, float)
    assert 0 <= product <= min(mean[:2])
    plain = BBISWeighter(target=model).fit(anywhere)
    assert_allclose(plain.expectation(lambda X: X), plain.weights_ @ anywhere)
    other = np.full(200, 1 / 200)
    assert_allclose(plain.expectation(lambda X: X, weights=other), anywhere.mean(axis=0))


def test_expectation_refuses_too_many_completions():
    chain = IsingModel(np.diag(np.ones(19), 1) + np.diag(np.ones(19), -1))
    weighter = BBISWeighter(target=chain, collapse=range(15)).fit(np.zeros((2, 20)))
    with pytest.raises(ValueError, match="completions of a collapsed sample must be at most"):
        weighter.expectation(lambda X: X)


def test_thin_keeps_representative_samples(model, anywhere):
    weighter = BBISWeighter(target=model).fit(anywhere)
    kept = weighter.thin(20)
    assert kept.shape == (20,)
    assert kept.max() < len(anywhere)
    thinned = stein_discrepancy(anywhere[kept], model, weighter.kernel_)
    assert thinned < stein_discrepancy(anywhere[:20], model, weighter.kernel_)


def test_three_states_and_a_plain_target():
    graph = FactorGraph([((0, 1), [[4.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 9.0]])], [3, 3])

    class Plain:
        cardinalities = (3, 3)

        @staticmethod
        def log_prob_unnormalized(X):
            return graph.log_prob_unnormalized(X)

    rows = np.random.default_rng(0).integers(3, size=(100, 2))
    weighter = BBISWeighter(target=Plain(), regularization=0.0).fit(rows)
    assert marginal_error(weighter.marginals(), graph) < 1e-3
    assert_allclose(weighter.score_samples(rows), graph.log_prob_unnormalized(rows))
    circuit = BBISWeighter(target=graph.compile(), regularization=0.0).fit(rows)
    assert_allclose(circuit.weights_, weighter.weights_, atol=1e-6)


@pytest.mark.parametrize("kernel", ["auto", RBF(gamma=0.2)], ids=["imq", "rbf"])
def test_continuous_target(kernel):
    field = GaussianMRF.from_moments([0.5, -0.5], [[1.0, 0.4], [0.4, 1.0]])
    wide = np.random.default_rng(0).normal(size=(300, 2)) * 2
    weighter = BBISWeighter(target=field, kernel=kernel, regularization=0.01).fit(wide)
    assert_allclose(weighter.expectation(lambda X: X), field.mean_, atol=0.1)
    second = weighter.expectation(lambda X: X[:, 0] * X[:, 1])
    assert_allclose(second, 0.4 - 0.25, atol=0.2)
    with pytest.raises(ValueError, match="target must be categorical"):
        weighter.marginals()


def test_score_function_alone_is_enough_to_weight():
    class Score:
        @staticmethod
        def grad_log_prob(X):
            return -X

    weighter = BBISWeighter(target=Score()).fit(np.random.default_rng(0).normal(size=(50, 2)) + 1)
    assert np.abs(weighter.expectation(lambda X: X)).max() < 0.7
    with pytest.raises(ValueError, match=r"target of score_samples must have"):
        weighter.score_samples([[0.0, 0.0]])


def test_target_learned_from_numbers():
    X = np.random.default_rng(0).normal(size=(200, 3)) @ np.triu(np.ones((3, 3))) + 5
    weighter = BBISWeighter().fit(X)
    assert isinstance(weighter.target_, GaussianMRF)
    assert_allclose(weighter.expectation(lambda X: X), X.mean(axis=0), atol=0.1)


def test_target_learned_from_labels():
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "green", "blue"], size=300, p=[0.5, 0.3, 0.2])
    warm = np.where(rng.random(300) < 0.9, color == "red", color != "red")
    frame = pd.DataFrame({"color": color, "warm": np.where(warm, "yes", "no")})
    weighter = BBISWeighter().fit(frame)
    assert isinstance(weighter.target_, FactorGraph)
    assert weighter.categories_[0].tolist() == ["blue", "green", "red"]
    fractions = frame["color"].value_counts(normalize=True)[["blue", "green", "red"]]
    assert_allclose(weighter.target_.marginals()[0], fractions, atol=0.01)
    assert_allclose(weighter.target_.log_partition(), 0.0, atol=1e-9)
    assert_allclose(weighter.marginals()[0], fractions, atol=0.03)
    assert_array_equal(weighter.transform(frame)[:3], frame.to_numpy()[:3])
    collapsed = BBISWeighter(collapse=[1]).fit(frame)
    assert_allclose(collapsed.marginals()[1], weighter.target_.marginals()[1], atol=0.03)
    with pytest.raises(ValueError, match="all numeric or all categorical"):
        BBISWeighter().fit(frame.assign(size=1.0))


class FittedField(BaseEstimator):
    """A density estimator whose fitted form has a score function."""

    def fit(self, X, y=None):
        self.mean_ = np.asarray(X).mean(axis=0)
        return self

    def grad_log_prob(self, X):
        return self.mean_ - X


def test_estimators_as_target_are_cloned_and_fitted(anywhere):
    density = FittedField()
    weighter = BBISWeighter(target=density).fit(anywhere)
    assert not hasattr(density, "mean_")
    assert_allclose(weighter.target_.mean_, anywhere.mean(axis=0))


def test_weights_by_a_learned_field_do_not_depend_on_units():
    X = np.random.default_rng(0).normal(size=(80, 3)) @ (np.eye(3) + 0.5 * np.eye(3, k=1))
    converted = np.array([1e6, -5.0, 0.0]) + X * [100.0, 1.0, 0.01]
    one, other = BBISWeighter().fit(X), BBISWeighter().fit(converted)
    assert_allclose(other.weights_, one.weights_, rtol=1e-5, atol=1e-8)
    assert_allclose(other.stein_discrepancy_, one.stein_discrepancy_, rtol=1e-6)
    assert_allclose(other.score(converted), one.score(X), rtol=1e-6)
    assert_array_equal(one.thin(5), other.thin(5))


@pytest.mark.parametrize("far", [1e4, 1e10, 1e12, 1e100])
@pytest.mark.filterwarnings("error")
def test_an_outlier_does_not_stop_a_learned_field(far):
    X = np.vstack([np.random.default_rng(0).normal(size=(100, 3)), [far, 0.0, 0.0]])
    weighter = BBISWeighter().fit(X)
    assert weighter.effective_sample_size_ > 20
    assert weighter.weights_[-1] < 0.02


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dtypes_come_back_from_transform(library):
    X = pd.DataFrame({"a": pd.Categorical(["x", "y", "y", "x"]), "b": [True, False, True, True]})
    weighter = BBISWeighter().set_output(transform=library).fit(X)
    if library == "pandas":
        X.index = list("uvwx")
        pd.testing.assert_frame_equal(weighter.transform(X), X)
    else:
        assert weighter.transform(X)["b"].to_list() == X["b"].tolist()
    array = BBISWeighter(target=GaussianMRF(np.eye(2), [0, 0])).set_output(transform=library)
    assert list(array.fit_transform(np.eye(2)).columns) == ["x0", "x1"]


def test_frozen_density_keeps_its_fit(anywhere):
    density = FittedField().fit(anywhere + 3)
    weighter = BBISWeighter(target=FrozenEstimator(density))
    assert_allclose(clone(weighter).fit(anywhere).target_.mean_, density.mean_)


def test_clone_and_pickle_keep_graphical_targets(model, anywhere):
    weighter = BBISWeighter(target=model, collapse=0.25, random_state=0)
    copy = clone(weighter)
    assert copy.target is model
    fitted = weighter.fit(anywhere[:40])
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.weights_, fitted.weights_)
    for p, q in zip(again.marginals(), fitted.marginals()):
        assert_array_equal(p, q)


def test_seed_decides_what_is_collapsed(model, anywhere):
    def hidden(seed):
        weighter = BBISWeighter(target=model, collapse=0.5, random_state=seed)
        return np.isnan(weighter.fit(anywhere[:10]).samples_[0])

    assert_array_equal(hidden(0), hidden(0))
    assert any((hidden(0) != hidden(seed)).any() for seed in range(1, 5))


def test_jobs_do_not_change_weights(model, anywhere):
    rows = np.random.default_rng(1).integers(2, size=(400, 9))
    one = BBISWeighter(target=model, collapse=[0, 1], n_jobs=1).fit(rows)
    two = BBISWeighter(target=model, collapse=[0, 1], n_jobs=2).fit(rows)
    assert_array_equal(one.weights_, two.weights_)


@pytest.mark.parametrize("collapse", [None, [0, 1]])
def test_jobs_do_not_change_scores(model, collapse):
    rows = np.random.default_rng(1).integers(2, size=(150, 9))
    one = BBISWeighter(target=model, collapse=collapse).fit(rows)
    with parallel_config("threading"):
        two = BBISWeighter(target=model, collapse=collapse, n_jobs=2).fit(rows)
        assert two.score(rows) == one.score(rows)


def test_jobs_do_not_change_scores_of_numbers():
    X, gradients = scored_normal(150)
    one = BBISWeighter().fit(X, gradients=gradients)
    with parallel_config("threading"):
        two = BBISWeighter(n_jobs=2).fit(X, gradients=gradients)
        assert two.score(X) == one.score(X)


def test_gradients_of_equal_rows_may_differ_by_rounding():
    """Compiled, vectorised gradients do: the last rows of a batch take another path."""
    X, _ = scored_normal(20)
    X[10:] = X[:10]

    class Rounding:
        def grad_log_prob(self, X):
            return -X * (1.0 + 1e-15 * np.arange(len(X)))[:, None]

    weights = BBISWeighter(target=Rounding()).fit(X).weights_
    assert_allclose(weights[:10], weights[10:])


def test_step_of_a_pipeline(model, anywhere):
    pipeline = make_pipeline(FunctionTransformer(), BBISWeighter(target=model)).fit(anywhere)
    assert_array_equal(pipeline.transform(anywhere), anywhere)
    assert_allclose(pipeline.score_samples(anywhere), model.log_prob_unnormalized(anywhere))
    assert pipeline.score(anywhere) < 0


def test_published_operator_is_available(model, anywhere):
    weighter = BBISWeighter(target=model, operator="difference").fit(anywhere)
    K = stein_gram(anywhere, model, weighter.kernel_, operator="difference")
    assert_allclose(weighter.stein_discrepancy_, weighter.weights_ @ K @ weighter.weights_)


@pytest.mark.parametrize("operator", ["auto", "difference"])
def test_weights_of_many_states_do_no_harm(operator):
    rng = np.random.default_rng(6)
    grid = IsingModel.grid(4, 4, 0.6 * rng.normal(size=24), 0.3 * rng.normal(size=16))
    exact = np.concatenate(grid.marginals())
    X = grid.gibbs_sample(900, burn_in=100, thin=5, n_chains=3, random_state=0)
    ratios = []
    for chain in X.reshape(300, 3, 16).transpose(1, 0, 2):
        weighter = BBISWeighter(target=grid, operator=operator).fit(chain)
        given, uniform = (
            np.concatenate(weighter.marginals(own)) - exact for own in (None, np.full(300, 1 / 300))
        )
        ratios.append(np.linalg.norm(given) / np.linalg.norm(uniform))
    assert np.mean(ratios) < (0.75 if operator == "auto" else 1.05)


def test_few_samples_that_carry_everything_are_told():
    field = GaussianMRF(np.eye(2), np.zeros(2))
    far = np.random.default_rng(0).normal(size=(200, 2)) + 4.0
    with pytest.warns(UserWarning, match=r"few of 200 distinct samples carry nearly all weight"):
        BBISWeighter(target=field).fit(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBISWeighter(target=field).fit(far - 4.0)
    # A narrow cloud between the modes of a ring: what little weights find out is no better than it.
    ring = np.random.default_rng(0).normal(size=(100, 2))
    ring *= (1.5 + 0.1 * ring[:, :1]) / np.linalg.norm(ring, axis=1, keepdims=True)

    class Ring:
        @staticmethod
        def grad_log_prob(X):
            radius = np.linalg.norm(X, axis=1, keepdims=True)
            return 8.0 * (3.0 / radius - 1.0) * X

    with pytest.warns(UserWarning, match=r"the samples are far from the target"):
        weighter = BBISWeighter(target=Ring()).fit(ring)
    assert weighter.uniform_fraction_ > 0.5
    assert BBISWeighter(target=Ring(), regularization=0.1).fit(2 * ring).uniform_fraction_ == 0.0


def test_states_that_no_sample_has_are_told():
    grid = IsingModel.grid(4, 4, couplings=0.3)
    X = grid.sample(400, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBISWeighter(target=grid).fit(X)
        # Far, but all states are there.
        BBISWeighter(target=grid).fit(np.random.default_rng(0).integers(2, size=(200, 16)))
    missing = X[X[:, 0] == 0]
    with pytest.warns(UserWarning, match=r"marginal probabilities are wrong by up to 0\.5"):
        BBISWeighter(target=grid).fit(missing)
    function = SimpleNamespace(
        log_prob_unnormalized=grid.log_prob_unnormalized, cardinalities=grid.cardinalities
    )
    with pytest.warns(UserWarning, match=r"as far from the target as [\d.e+]+ independent ones"):
        BBISWeighter(target=function).fit(missing)
    assert stein_diagnosis(missing, grid, random_state=0).excess.argmax() == 0


@pytest.mark.parametrize("kind", ["graph", "collapsed", "circuit"])
def test_wrong_marginals_of_tractable_targets_are_told(kind):
    """No states hold most of the probability, so that no search finds the error."""
    grid = IsingModel.grid(5, 5, couplings=0.1, fields=0.3)
    target = grid.compile() if kind == "circuit" else grid
    X = np.random.default_rng(0).integers(2, size=(60, 25)).astype(float)
    X[:, [0, 24]] = 0.0
    collapse = range(1, 5) if kind == "collapsed" else None
    weighter = BBISWeighter(target=target, collapse=collapse)
    with pytest.warns(UserWarning, match="marginal probabilities are wrong") as caught:
        weighter.fit(X)
    error = marginal_error(weighter.marginals(), grid)
    assert f"by up to {error:.2g}" in str(caught[0].message)


def test_weights_that_are_worse_than_none_are_told():
    """Hellinger distances may grow where squared errors do not: rare states count more in them."""
    grid = IsingModel.grid(4, 4, couplings=0.6)
    chains = grid.gibbs_sample(20 * 20, burn_in=6, n_chains=20 * 20, random_state=1)
    exact = np.array(grid.marginals())
    n_worse = 0
    for X in chains.reshape(20, 20, 16):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            weighter = BBISWeighter(target=grid).fit(X)
        distances = []
        for weights in (weighter.weights_, np.full(20, 0.05)):
            own = np.array(weighter.marginals(weights))
            overlaps = np.sqrt(own * exact).sum(axis=1)
            distances.append(np.sqrt(np.maximum(1.0 - overlaps, 0.0)).mean())
        if distances[0] > distances[1] and marginal_error(weighter.marginals(), grid) > 0.1:
            n_worse += 1
            assert any("marginal probabilities are wrong" in str(own.message) for own in caught)
    assert n_worse >= 3


def test_zeros_are_told():
    network = BayesianNetwork([[], [0]], [[0.5, 0.5], np.eye(2)])
    with pytest.warns(UserWarning, match="zero next to the samples"):
        BBISWeighter(target=network).fit([[0, 0], [1, 1]])


@pytest.mark.filterwarnings("ignore:the target is zero")
def test_weights_do_no_harm_where_zeros_break_the_target():
    # Copies of fair coins: no move of one variable connects the states of a coin and its copies.
    tables = [[0.5, 0.5], *([np.eye(2)] * 3)] * 4 + [[0.7, 0.3]] * 4
    parents = [p for coin in range(4) for p in ([], *([[4 * coin]] * 3))] + [[]] * 4
    network = BayesianNetwork(parents, tables)
    truth = np.array([p[1] for p in network.marginals()])
    ratios = []
    for seed in range(5):
        X = network.sample(100, random_state=seed)
        weighter = BBISWeighter(target=network).fit(X)
        errors = [np.abs(w @ X - truth) for w in (np.full(100, 0.01), weighter.weights_)]
        ratios.append([errors[1][:16].mean() / errors[0][:16].mean(), errors[1].mean()])
        assert errors[1].mean() < 1.02 * errors[0].mean()
    assert np.mean(ratios, axis=0)[0] < 1.02


@pytest.mark.filterwarnings("ignore:the target is zero")
def test_weights_fall_back_where_samples_miss_a_part_of_a_target_with_zeros(monkeypatch):
    monkeypatch.setattr(_weighing, "MAX_STATES", 1)
    either = [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]
    network = BayesianNetwork(
        [[], [], [0, 1], [2]], [[0.7, 0.3], [0.6, 0.4], either, [[0.9, 0.1], [0.2, 0.8]]]
    )
    X = network.sample(400, random_state=0)
    assert BBISWeighter(target=network).fit(X).uniform_fraction_ == 0.0
    # No weights give the state that no sample has its due.
    missing = X[X[:, 3] == 0]
    weighter = BBISWeighter(target=network).fit(missing)
    assert weighter.uniform_fraction_ > 0.5
    uniform = np.full(len(missing), 1 / len(missing))
    alone = (weighter.weights_ - weighter.uniform_fraction_ * uniform) / (
        1 - weighter.uniform_fraction_
    )
    truth = np.concatenate(network.marginals())
    errors = [
        np.abs(np.concatenate(weighter.marginals(weights)) - truth).sum()
        for weights in (alone, weighter.weights_)
    ]
    assert errors[1] < errors[0]


@pytest.mark.filterwarnings("ignore:the target is zero")
def test_impossible_samples_get_no_weight():
    network = BayesianNetwork([[], [0], [1]], [[0.5, 0.5], np.eye(2), np.full((2, 2), 0.5)])
    rows = np.random.default_rng(0).integers(2, size=(50, 3))
    weighter = BBISWeighter(target=network).fit(rows)
    possible = rows[:, 0] == rows[:, 1]
    assert_allclose(weighter.weights_[possible].sum(), 1.0)
    assert possible[weighter.thin(5)].all()
    assert_allclose(weighter.marginals()[2], 0.5, atol=0.05)
    collapsed = BBISWeighter(target=network, collapse=[2]).fit(rows)
    assert_array_equal(collapsed.weights_[~possible], 0.0)
    assert_allclose(collapsed.marginals()[2], 0.5)
    with pytest.raises(ZeroProbabilityError, match="at least one of them"):
        BBISWeighter(target=network).fit([[0, 1, 0]])


def test_nothing_and_everything_collapsed(model, anywhere):
    nothing = BBISWeighter(target=model, collapse=0.0, random_state=0).fit(anywhere)
    assert_array_equal(nothing.weights_, BBISWeighter(target=model).fit(anywhere).weights_)
    everything = BBISWeighter(target=model, collapse=range(9)).fit(anywhere)
    assert_allclose(everything.weights_, 1 / len(anywhere))
    assert marginal_error(everything.marginals(), model) < 1e-12


def test_verbose_line(model, anywhere, capsys):
    BBISWeighter(target=model, verbose=1).fit(anywhere)
    assert "[BBISWeighter] 200 samples" in capsys.readouterr().out


def test_bad_arguments(model, anywhere):
    incomplete = anywhere.copy()
    incomplete[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"contains NaN.*collapse"):
        BBISWeighter(target=model).fit(incomplete)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 9\)"):
        BBISWeighter(target=model).fit(anywhere[:, :4])
    with pytest.raises(ValueError, match="be states between 0 and 1"):
        BBISWeighter(target=model).fit(anywhere + 1)
    with pytest.raises(TypeError, match="target must have"):
        BBISWeighter(target=object()).fit(anywhere)
    weighter = BBISWeighter(target=model).fit(anywhere)
    with pytest.raises(ValueError, match=r"weights must have shape \(200,\)"):
        weighter.marginals(weights=[1.0])
    for weights in (np.ones(200), np.zeros(200), np.full(200, np.nan)):
        with pytest.raises(ValueError, match="weights must sum to one"):
            weighter.marginals(weights)
    with pytest.raises(ValueError, match=r"weights must not be negative; got min=-1.0"):
        weighter.marginals(np.r_[-1.0, 2.0, np.zeros(198)])
    with pytest.raises(ValueError, match=r"f must give one value or array for each of 200 rows"):
        weighter.expectation(lambda rows: 1.0)
    with pytest.raises(ValueError, match="collapse must be below 9"):
        BBISWeighter(target=model, collapse=[9]).fit(anywhere)


def test_density_of_labels_as_target():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 150), "b": rng.choice(["no", "yes"], 150)})
    weighter = BBISWeighter(target=GaussianMixtureDensity(n_components=1)).fit(frame)
    assert weighter.target_.variables == (0, 1)
    fractions = frame["a"].value_counts(normalize=True)[["x", "y", "z"]]
    assert_allclose(weighter.marginals()[0], fractions, atol=0.02)
    with pytest.raises(CircuitPropertyError, match="circuit as target must be over categorical"):
        BBISWeighter(target=GaussianMixtureDensity(n_components=1)).fit(frame.assign(c=1.5))


@pytest.fixture
def mixture():
    """Two overlapping components, one of them narrow and tilted."""
    return Circuit(
        0.4 * MultivariateGaussian([0, 1], [-1.0, 0.0], [[1.0, 0.5], [0.5, 0.6]])
        + 0.6 * MultivariateGaussian([0, 1], [1.0, 1.0], [[0.5, 0.0], [0.0, 1.0]])
    )


def test_density_of_numbers_as_target(mixture):
    X = 100.0 * mixture.sample(300, random_state=0)
    density = GaussianMixtureDensity(n_components=2, random_state=0)
    weighter = BBISWeighter(target=density).fit(X)
    assert weighter.target_.variables == (0, 1)
    # The samples are those that the density has learned from.
    assert weighter.effective_sample_size_ > 0.8 * len(X)
    fitted = density.fit(X)
    assert_allclose(weighter.score_samples(X), fitted.score_samples(X))
    frozen = BBISWeighter(target=FrozenEstimator(fitted)).fit(X)
    assert_allclose(frozen.weights_, weighter.weights_)
    units = [1e-3, 1e4]
    density = GaussianMixtureDensity(n_components=2, random_state=0)
    assert_allclose(BBISWeighter(target=density).fit(X * units).weights_, weighter.weights_)
    # Equal weights may be the best: rounding apart, weights are no worse
    unweighted = stein_discrepancy(X, fitted, RBF(1e-4))
    weighted = stein_discrepancy(X, fitted, RBF(1e-4), weighter.weights_)
    assert weighted <= unweighted * (1.0 + 1e-12)


def test_weights_move_biased_samples_towards_a_mixture(mixture):
    rng = np.random.default_rng(0)
    samples = 1.3 * mixture.sample(400, random_state=0) + [0.3, -0.4]
    samples = np.append(samples, samples[rng.integers(400, size=40)], axis=0)
    weighter = BBISWeighter(target=mixture).fit(samples)
    functions = {
        "mean": lambda X: X,
        "second moment": lambda X: X[:, [0, 0, 1]] * X[:, [0, 1, 1]],
    }
    exact = mixture.sample(200_000, random_state=1)
    for name, f in functions.items():
        before, after = f(samples).mean(axis=0), weighter.expectation(f)
        expected = f(exact).mean(axis=0)
        error = np.linalg.norm(after - expected) / np.linalg.norm(before - expected)
        assert error < 0.5, name
    repeated = [np.isclose(samples, row).all(axis=1) for row in samples[-3:]]
    for copies in repeated:
        assert np.ptp(weighter.weights_[copies]) == 0.0


@pytest.mark.parametrize("density", [MoATDensity(max_iter=3), ChowLiuDensity()])
def test_fitted_densities_are_targets(density):
    rng = np.random.default_rng(0)
    X = rng.integers([2, 3, 2], size=(100, 3)).astype(float)
    density = density.set_params(random_state=0).fit(X)
    assert density.cardinalities.tolist() == [2, 3, 2]
    np.testing.assert_array_equal(density.log_prob_unnormalized(X), density.score_samples(X))
    weighter = BBISWeighter(target=FrozenEstimator(density), kernel=Hamming()).fit(X)
    direct = stein_discrepancy(X, density, Hamming(), weighter.weights_)
    assert weighter.stein_discrepancy_ == pytest.approx(direct, rel=1e-9)
    uniform = stein_discrepancy(X, density, Hamming())
    assert direct < uniform


def test_mixture_of_all_trees_of_labels_as_target():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 150), "b": rng.choice(["no", "yes"], 150)})
    target = MoATDensity(max_iter=20, random_state=0)
    weighter = BBISWeighter(target=target).fit(frame)
    fractions = frame["a"].value_counts(normalize=True)[["x", "y", "z"]]
    assert_allclose(weighter.marginals()[0], fractions, atol=0.03)
    with pytest.raises(CircuitPropertyError, match=r"must be complete; got n_missing_cells"):
        BBISWeighter(target=target, collapse=[0]).fit(frame)
    with pytest.raises(CircuitPropertyError, match=r"hold the numbers 0, 1.*columns=\[0, 1\]"):
        BBISWeighter(target=target).fit(rng.integers(2, size=(50, 2)) * 2.0)


@pytest.fixture
def named():
    """A target whose names are not in alphabetical order, and states of its variables."""
    network = BayesianNetwork(
        [[], [0]],
        [[0.9, 0.1], [[0.8, 0.2], [0.3, 0.7]]],
        variable_names=["rain", "wet"],
        state_names=[["yes", "no"], ["yes", "no"]],
    )
    return network, np.random.default_rng(0).integers(2, size=(100, 2))


def test_labels_are_the_names_of_the_states(named):
    network, states = named
    frame = pd.DataFrame({"rain": states[:, 0], "wet": states[:, 1]})
    labels = frame.replace({0: "yes", 1: "no"})
    by_number = BBISWeighter(target=network).fit(frame)
    by_name = BBISWeighter(target=network).fit(labels)
    assert_array_equal(by_name.weights_, by_number.weights_)
    assert by_name.categories_[0].tolist() == ["yes", "no"]
    assert_allclose(by_name.marginals()[0], [0.9, 0.1], atol=0.03)
    assert_array_equal(by_name.score_samples(labels), network.log_prob_unnormalized(states))
    assert_array_equal(by_name.transform(labels), labels.to_numpy())


def test_labels_that_no_sample_has_keep_their_state(named):
    network, _ = named
    rainless = pd.DataFrame({"rain": ["no"] * 4, "wet": ["no", "yes"] * 2})
    weighter = BBISWeighter(target=network).fit(rainless)
    assert_array_equal(weighter.samples_[:, 0], 1.0)
    assert_allclose(weighter.marginals()[0], [0.0, 1.0])


@pytest.mark.parametrize("kind", ["category", bool, object])
def test_numbers_as_labels_are_states(model, anywhere, kind):
    # The first variable is always 1: its only label must not become state 0.
    rows = anywhere[anywhere[:, 0] == 1].astype(int)
    frame = pd.DataFrame(rows, columns=[f"x{j}" for j in range(9)])
    weighter = BBISWeighter(target=model).fit(frame.astype(kind))
    assert_array_equal(weighter.samples_, rows)
    assert_array_equal(weighter.weights_, BBISWeighter(target=model).fit(rows).weights_)


def test_fitted_densities_keep_their_codes():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 150), "b": rng.choice(["no", "yes"], 150)})
    density = ChowLiuDensity().fit(frame)
    part = frame[frame["a"] != "x"].reset_index(drop=True)
    weighter = BBISWeighter(target=FrozenEstimator(density)).fit(part)
    assert weighter.categories_[0].tolist() == ["x", "y", "z"]
    assert_array_equal(weighter.samples_[:, 0], (part["a"] == "z") + 1.0)


def test_labels_that_are_no_states(named, model, anywhere):
    network, states = named
    frame = pd.DataFrame(states, columns=["rain", "wet"])
    with pytest.raises(ValueError, match=r"be its states \['yes', 'no'\], or numbers"):
        BBISWeighter(target=network).fit(frame.replace({0: "yes", 1: "never"}))
    with pytest.raises(ValueError, match=r"order of the target's variables.*variable_names"):
        BBISWeighter(target=network).fit(frame[["wet", "rain"]])
    letters = np.full(anywhere.shape, "a", dtype=object)
    with pytest.raises(ValueError, match=r"labels of column 0 must be 2 names.*labels=\['a'\]"):
        BBISWeighter(target=model).fit(letters)
    with pytest.raises(ValueError, match="be 2 names, or numbers of states below 2"):
        BBISWeighter(target=model).fit(pd.DataFrame(2 * anywhere.astype(int)).astype("category"))
    field = GaussianMRF(np.eye(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"continuous target must be numeric; got labels=\['b'\]"):
        BBISWeighter(target=field).fit(pd.DataFrame({"a": [0.0, 1.0], "b": ["u", "v"]}))
    fitted = BBISWeighter(target=network).fit(frame.replace({0: "yes", 1: "no"}))
    with pytest.raises(ValueError, match=r"among the categories.*value='never'"):
        fitted.score_samples(frame.replace({0: "yes", 1: "never"}))


def test_score_prefers_what_is_nearer_to_the_target():
    model = IsingModel.grid(3, 3, couplings=0.4)
    X = np.random.default_rng(0).integers(2, size=(60, 9)).astype(float)
    truth = np.array([p[1] for p in model.marginals()])

    def score_and_error(**options):
        weighter = BBISWeighter(target=model, random_state=0, **options).fit(X)
        found = np.array([p[1] for p in weighter.marginals()])
        return weighter.score(X), np.abs(found - truth).mean()

    settings = [
        {"regularization": 1e6},
        {"regularization": 0.3},
        {"regularization": 0.3, "collapse": [0, 4, 8]},
        {"regularization": 0.01, "collapse": [0, 2, 4, 6, 8]},
    ]
    scores, errors = np.transpose([score_and_error(**options) for options in settings])
    assert len(set(scores)) == len(settings)
    # The best score is that of the least error, the worst that of uniform weights.
    assert scores.argmax() == errors.argmin() and scores.argmin() == errors.argmax() == 0


def test_draws_of_completions_score_without_bias(monkeypatch):
    model = IsingModel.grid(3, 3, couplings=0.4)
    X = np.random.default_rng(0).integers(2, size=(20, 9)).astype(float)
    samples = BBISWeighter(target=model, collapse=[0, 1, 2, 6, 7, 8]).fit(X).samples_
    weights = np.random.default_rng(1).dirichlet(np.ones(20))
    exact = collapsed_discrepancy(model, Hamming(20.0), samples, weights)
    monkeypatch.setattr("skcircuits.estimators.targets._weighted_samples.MAX_ROWS", 100)
    draws = model.sample

    def estimate(seed):
        monkeypatch.setattr(
            IsingModel, "sample", lambda self, n, X, random_state: draws(n, X=X, random_state=seed)
        )
        return collapsed_discrepancy(model, Hamming(20.0), samples, weights)

    found = np.array([estimate(seed) for seed in range(60)])
    assert abs(found.mean() - exact) < 3 * found.std() / np.sqrt(60)
    assert found.std() < exact


def test_scores_do_not_depend_on_the_kernel_that_weighs():
    model = IsingModel.grid(2, 2, couplings=0.4)
    X = np.random.default_rng(0).integers(2, size=(50, 4)).astype(float)
    uniform = [
        BBISWeighter(target=model, kernel=Hamming(scale=scale), regularization=1e9).fit(X).score(X)
        for scale in (1.0, 100.0)
    ]
    np.testing.assert_allclose(uniform[0], uniform[1], rtol=1e-4)


def test_a_fraction_is_collapsed_as_far_as_it_is_cheap(monkeypatch):
    model = IsingModel.grid(4, 4, couplings=0.2)
    X = np.random.default_rng(0).integers(2, size=(30, 16)).astype(float)

    def n_collapsed():
        weighter = BBISWeighter(target=model, collapse=0.5, random_state=0).fit(X)
        return np.isnan(weighter.samples_[0]).sum()

    assert n_collapsed() == 8
    monkeypatch.setattr("skcircuits.estimators.bbis._MAX_COLLAPSE_SECONDS", 1e-5)
    assert n_collapsed() < 8


def scored_normal(n, d=2, seed=0):
    X = np.random.default_rng(seed).normal(0.5, 1.2, size=(n, d))
    return X, -X


def test_gradients_stand_for_a_target():
    X, gradients = scored_normal(80)
    X = np.concatenate([X, X[:3]])
    gradients = np.concatenate([gradients, gradients[:3]])
    weighter = BBISWeighter().fit(X, gradients=gradients)
    assert np.abs(weighter.expectation(lambda x: x)).max() < 0.2 * np.abs(X.mean(axis=0)).max()
    assert weighter.weights_[0] == weighter.weights_[80]
    # Units of the columns do not matter: gradients scale the other way.
    units = np.array([1e3, 1e-2])
    scaled = BBISWeighter().fit(X * units, gradients=gradients / units)
    assert_allclose(scaled.weights_, weighter.weights_, rtol=1e-6)
    with pytest.raises(ValueError, match="be given to evaluate rows that were not in fit"):
        weighter.score(X[:3] + 1.0)
    assert weighter.score(X) < 0


def test_wrong_gradients_are_refused():
    X, gradients = scored_normal(10)
    with pytest.raises(ValueError, match="gradients must have the shape of X"):
        BBISWeighter().fit(X, gradients=gradients[:, :1])
    with pytest.raises(ValueError, match="gradients must be equal for equal rows of X"):
        BBISWeighter().fit(np.zeros((10, 2)), gradients=gradients)
    with pytest.raises(ValueError, match="gradients must be None if a target is given"):
        BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(X, gradients=gradients)


@pytest.mark.parametrize("method", ["systematic", "thinning", "regularized_thinning"])
def test_resampled_rows_represent_the_target(method):
    X, _ = scored_normal(200)
    table = pd.DataFrame(X, columns=["a", "b"])
    weighter = BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2)), random_state=0)
    rows, labels = weighter.fit_resample(table, np.arange(200), method=method, n_samples=100)
    assert list(rows.columns) == ["a", "b"] and len(rows) == len(labels) == 100
    assert_array_equal(rows.index, labels)
    assert np.abs(rows.to_numpy().mean(axis=0)).max() < 0.5 * np.abs(X.mean(axis=0)).max()


def test_systematic_rows_come_up_as_often_as_their_weights_say():
    X, _ = scored_normal(60)
    weighter = BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2)), random_state=0)
    resampled = weighter.fit_resample(X, n_samples=600)
    times = (resampled[:, None] == X[None]).all(axis=2).sum(axis=0)
    assert np.abs(times - 600 * weighter.weights_).max() < 1.0


def test_a_form_of_low_rank_gives_nearly_the_same_estimates():
    X, _ = scored_normal(400, d=3)
    target = GaussianMRF(np.eye(3), np.zeros(3))
    # The weights themselves are well determined where the ridge is not tiny.
    whole = BBISWeighter(target=target, regularization=0.3).fit(X)
    complete = BBISWeighter(target=target, regularization=0.3, n_components=400).fit(X)
    assert_allclose(complete.weights_, whole.weights_, atol=1e-6)
    approximate = BBISWeighter(target=target, n_components=100).fit(X)
    for f in (lambda x: x, lambda x: x**2):
        before = np.abs(f(X).mean(axis=0) - whole.expectation(f)).max()
        assert np.abs(approximate.expectation(f) - whole.expectation(f)).max() < 0.1 * before
    same = BBISWeighter(target=target, n_components=100).fit(X)
    assert_array_equal(same.weights_, approximate.weights_)


def test_regularised_thinning_needs_a_density():
    X, gradients = scored_normal(20)
    weighter = BBISWeighter().fit(X, gradients=gradients)
    with pytest.raises(ValueError, match="target of regularized thinning must have"):
        weighter.thin(5, regularized=True)


def test_scores_of_numbers_do_not_depend_on_the_kernel_that_weighs():
    X, _ = scored_normal(60)
    X = X @ [[1.0, 3.0], [0.0, 0.5]]
    target = GaussianMRF(np.eye(2), np.zeros(2))
    uniform = [
        BBISWeighter(target=target, kernel=kernel, regularization=1e12).fit(X).score(X)
        for kernel in ("auto", RBF(0.1), RBF(10.0))
    ]
    assert_allclose(uniform, uniform[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularized": True}, "target must be continuous to be regularized"),
        ({"batch_size": [2]}, "batch_size must be a positive integer"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
    ],
)
def test_thinning_of_categories_names_what_it_cannot_take(options, message):
    X = np.random.default_rng(0).integers(2, size=(30, 4)).astype(float)
    weighter = BBISWeighter(target=IsingModel.grid(2, 2, couplings=0.3)).fit(X)
    with pytest.raises(ValueError, match=message):
        weighter.thin(5, **options)


@pytest.mark.parametrize("quantiles", ["X", {"a": 1}, [2.0], [[0.1]], [np.nan]])
def test_quantiles_of_summaries_are_numbers_between_0_and_1(quantiles):
    X = np.random.default_rng(0).normal(size=(30, 2))
    weighter = BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(X)
    with pytest.raises((ValueError, TypeError), match="quantiles must be"):
        weighter.summary(quantiles=quantiles)


def test_modes_that_a_valley_separates_keep_their_fractions():
    """Where samples fit one mode better than the other, weights would leave the other."""
    model = Circuit(
        0.4 * MultivariateGaussian([0, 1], [-3.0, 0.0], np.eye(2))
        + 0.6 * MultivariateGaussian([0, 1], [3.0, 1.0], np.eye(2))
    )
    X = model.sample(300, random_state=0)
    right = X[:, 0] > 0
    X[right] = [3.0, 1.0] + 0.6 * (X[right] - [3.0, 1.0]) - 0.3
    weights = BBISWeighter(target=model).fit(X).weights_
    assert weights[right].sum() == pytest.approx(right.mean(), abs=0.02)
    # Within the mode they mend what can be mended.
    inside = weights[right] / weights[right].sum()
    assert abs(inside @ X[right] - [3.0, 1.0]).max() < 0.1
    known = BBISWeighter().fit(X, gradients=model.grad_log_prob(X)).weights_
    assert abs(known[right].sum() - right.mean()) > 0.05


class Wells:
    """Independent coordinates around -1 and 1, with a high wall between them."""

    height, tilt = 12.0, 0.15

    def grad_log_prob(self, X):
        return -4.0 * self.height * X * (X**2 - 1.0) + self.tilt

    def draw(self, tilt, n, d):
        """Draw from a grid of the density, with another tilt."""
        grid = np.linspace(-2.0, 2.0, 801)
        log_density = -self.height * (grid**2 - 1.0) ** 2 + tilt * grid
        density = np.exp(log_density - log_density.max())
        return np.random.default_rng(0).choice(grid, (n, d), p=density / density.sum())


class KnownWells(Wells):
    def log_prob_unnormalized(self, X):
        return (-self.height * (X**2 - 1.0) ** 2 + self.tilt * X).sum(axis=1)


def test_wrong_fractions_of_many_modes_are_told():
    """Too many modes for draws around each: chains jump from one to another."""
    wells = KnownWells()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBISWeighter(target=wells).fit(wells.draw(wells.tilt, 200, 8))
    with pytest.warns(UserWarning, match="by Hamiltonian Monte Carlo chains, the means of"):
        BBISWeighter(target=wells).fit(wells.draw(-wells.tilt, 200, 8))


def test_modes_that_nothing_compares_are_told():
    """Scores alone do not tell how high a wall is, so that no chain jumps over it."""
    wells = Wells()
    with pytest.warns(UserWarning, match="parts of the density, between which nothing moves"):
        BBISWeighter(target=wells).fit(wells.draw(wells.tilt, 100, 8))
    X = wells.draw(wells.tilt, 200, 2)
    with pytest.warns(UserWarning, match="gradients do not tell the weights of the parts"):
        BBISWeighter().fit(X, gradients=wells.grad_log_prob(X))


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.filterwarnings("error")
def test_gradients_of_one_mode_need_no_warning(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    BBISWeighter().fit(X, gradients=-X)
    bent = X + [0.0, 0.5] * (X[:, :1] ** 2 - 1.0)
    BBISWeighter().fit(bent, gradients=np.column_stack([X[:, 0] * (X[:, 1] - 1.0), -X[:, 1]]))


@pytest.mark.parametrize("seed", range(3))
def test_halves_of_a_ring_are_no_parts(seed):
    """Little density lies between them, but they touch."""
    rng = np.random.default_rng(seed)
    angles, radii = 2.0 * np.pi * rng.random(1000), 3.0 + 0.4 * rng.normal(size=1000)
    X = radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    scores = ((3.0 / radii - 1.0) / 0.4**2)[:, None] * X
    assert not are_divided(X, scores, np.full(1000, 0.001))


def test_a_row_of_large_weight_is_no_part():
    X = np.append(np.random.default_rng(0).normal(size=100), 20.0)[:, None]
    assert not are_divided(X, -X, np.append(np.full(100, 0.009), 0.1))
    modes = np.concatenate([X[:100] - 10.0, X[:100] + 10.0])
    assert are_divided(modes, -np.concatenate([X[:100], X[:100]]), np.full(200, 0.005))


class Bounded:
    """A standard normal of positive numbers."""

    factor = 1.0

    def grad_log_prob(self, X):
        return -self.factor * X

    def log_prob_unnormalized(self, X):
        return np.where((X > 0).all(axis=1), -0.5 * (X**2).sum(axis=1), -np.inf)


@pytest.mark.filterwarnings("ignore:BBISWeighter. few")
def test_numbers_of_density_zero_have_no_weight():
    X = np.random.default_rng(0).normal(size=(100, 2))
    outside = (X <= 0).any(axis=1)
    weights = BBISWeighter(target=Bounded()).fit(X).weights_
    assert weights[outside].sum() == 0.0
    assert weights.sum() == pytest.approx(1.0)
    with pytest.raises(ZeroProbabilityError, match="samples must have positive probability"):
        BBISWeighter(target=Bounded()).fit(X[outside])


@pytest.mark.filterwarnings("ignore:BBISWeighter. few")
def test_scores_that_are_no_gradients_are_told():
    X = np.random.default_rng(0).normal(size=(100, 2))
    target = Bounded()
    target.factor = 5.0
    with pytest.warns(UserWarning, match="is not the gradient of its log_prob_unnormalized"):
        BBISWeighter(target=target).fit(X)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_samples_of_all_states_have_their_probabilities(has_zeros):
    """Under a peaked target each of a few states tells nothing about the others."""
    rng = np.random.default_rng(0)
    log_table = 10.0 * rng.normal(size=(3, 2, 2))
    log_table[0, :, 1] = -np.inf if has_zeros else -3.0
    states = np.array(list(product(range(3), range(2), range(2))), dtype=float)
    target = FactorGraph([((0, 1, 2), np.exp(log_table))], [3, 2, 2])
    X = states[rng.permutation(np.arange(200) % 12)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighter = BBISWeighter(target=target).fit(X)
    for found, expected in zip(weighter.marginals(), target.marginals(), strict=True):
        assert_allclose(found, expected, atol=1e-12)
    assert weighter.regularization_ == 0.0
    assert weighter.stein_discrepancy_ < 1e-9
    few = BBISWeighter(target=target).fit(X[(X[:, 0] > 0) | (X[:, 2] > 0)])
    assert few.regularization_ > 0.0


@pytest.mark.parametrize("cardinalities", [None, [0, 2], [2.5, 2], 3])
def test_cardinalities_that_are_no_numbers_of_states_are_refused(cardinalities):
    class Uniform:
        def log_prob_unnormalized(self, X):
            return np.zeros(len(X))

    target = Uniform()
    target.cardinalities = cardinalities
    with pytest.raises((TypeError, ValueError), match=r"^cardinalities of the target must be"):
        BBISWeighter(target=target).fit(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))


class Table:
    """Target whose log probabilities are a table."""

    def __init__(self, log_table):
        self.log_table, self.cardinalities = log_table, list(log_table.shape)

    def log_prob_unnormalized(self, X):
        return self.log_table[tuple(X.astype(int).T)]

    def marginals(self):
        p = softmax(self.log_table)
        return [p.sum(axis=tuple(np.delete(range(p.ndim), j))) for j in range(p.ndim)]


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0, 10.0])
def test_rough_targets_of_few_states_have_the_marginals_that_samples_allow(scale, is_exact):
    """What a state of an arbitrary table has tells nothing about those next to it."""
    rng = np.random.default_rng(int(scale) + 100 * is_exact)
    target = Table(scale * rng.normal(size=(3, 2, 4, 3)))
    p = softmax(target.log_table).ravel()
    drawn = rng.choice(72, 150, p=p if is_exact else None)
    X = np.array(np.unravel_index(drawn, target.log_table.shape), dtype=float).T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighter = BBISWeighter(target=target).fit(X)
    missed = 1.0 - p[np.unique(drawn)].sum()
    assert 0 < missed < 0.2
    assert marginal_error(weighter.marginals(), target) < missed
    # The probabilities alone, which leave out what no sample holds, are worse in pairs too
    ours, theirs = np.zeros(72), np.zeros(72)
    np.add.at(ours, drawn, weighter.weights_)
    theirs[drawn] = p[drawn]
    tables = [w.reshape(target.log_table.shape) for w in (ours, theirs / theirs.sum(), p)]
    pairs = [
        np.concatenate([t.sum(axis=axes).ravel() for axes in ((0, 1), (2, 3))]) for t in tables
    ]
    errors = [np.abs(found - pairs[2]).sum() for found in pairs[:2]]
    assert errors[0] < errors[1] + 1e-9


@pytest.mark.parametrize("shape", [(3, 2, 4, 3), (2,) * 13])
def test_probable_states_that_samples_miss_are_told(shape):
    rng = np.random.default_rng(0)
    target = Table(8.0 * rng.normal(size=shape))
    X = rng.integers(shape, size=(200, len(shape))).astype(float)
    mode = np.unravel_index(target.log_table.argmax(), shape)
    # The mode is next to samples, none of which is the mode
    X = np.concatenate([X[(mode != X).any(axis=1)], [mode]])
    X[-1, 0] = 1 - X[-1, 0] % 2
    with pytest.warns(UserWarning, match="marginal probabilities are wrong by up to"):
        weighter = BBISWeighter(target=target).fit(X)
    assert marginal_error(weighter.marginals(), target) > 0.1


@pytest.mark.parametrize("has_peak", [True, False])
def test_probable_states_far_from_samples_are_told(has_peak):
    """Few of 19683 states hold nearly all: several changes of single variables lead there."""
    rng = np.random.default_rng(1)
    strength = 1.5 if has_peak else 0.1
    shapes = [[3 if j in (i, i + 1) else 1 for j in range(9)] for i in range(8)]
    target = Table(strength * sum(rng.normal(size=shape) for shape in shapes))
    X = rng.integers(3, size=(100, 9)).astype(float)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weighter = BBISWeighter(target=target).fit(X)
    is_told = any("marginal probabilities are wrong" in str(w.message) for w in caught)
    assert is_told == has_peak
    assert (marginal_error(weighter.marginals(), target) > 0.1) == has_peak


def test_probable_states_hold_what_the_target_tells():
    rng = np.random.default_rng(0)
    table = sum(
        2.0 * rng.normal(size=[2 if j in (i, i + 1) else 1 for j in range(14)]) for i in range(13)
    )
    samples = rng.integers(2, size=(20, 14)).astype(float)
    rows, log_prob, log_missed = probable_states(Table(table), samples)
    assert len(np.unique(rows, axis=0)) == len(rows) < table.size
    assert_allclose(log_prob, table[tuple(rows.astype(int).T)])
    # Hardly another state is more probable, and those next to the states are most that they miss
    held, most, whole = (
        np.exp(logsumexp(v)) for v in (log_prob, np.sort(table.ravel())[-len(rows) :], table)
    )
    assert 0.99 * most < held <= (1 + 1e-9) * most
    assert 0.5 * (whole - held) < np.exp(log_missed) <= (1 + 1e-9) * (whole - held)


def test_collapsed_samples_have_the_probabilities_of_what_remains():
    rng = np.random.default_rng(1)
    target = FactorGraph([(range(4), np.exp(4.0 * rng.normal(size=(3, 2, 3, 2))))], [3, 2, 3, 2])
    X = rng.integers([3, 2, 3, 2], size=(60, 4)).astype(float)
    weighter = BBISWeighter(target=target, collapse=[1, 2]).fit(X)
    assert marginal_error(weighter.marginals(), target) < 1e-12


@pytest.mark.parametrize("n_states", [3, 12])
def test_columns_that_a_circuit_leaves_out_do_not_matter(n_states):
    rng = np.random.default_rng(0)
    density = ChowLiuDensity().fit(rng.integers(n_states, size=(500, 5)).astype(float))
    target = density.circuit_.marginalize([1])
    X = np.concatenate([np.full((1, 5), n_states - 1), rng.integers(n_states, size=(200, 5))])
    found, expected = (
        BBISWeighter(target=circuit).fit(rows)
        for circuit, rows in ((target, X), (target, np.where(np.arange(5) == 1, 0, X)))
    )
    assert_allclose(found.weights_, expected.weights_, rtol=1e-6)
    exact = target.marginals(np.full((1, 5), np.nan))
    assert max(np.abs(found.marginals()[j] - exact[j][0]).max() for j in exact) < 0.1


class Listed:
    """The standard normal distribution, with scores as nested lists."""

    def grad_log_prob(self, X):
        return (-X).tolist()


class Imaginary:
    """Scores that are no real numbers."""

    def grad_log_prob(self, X):
        return 1j * X


@pytest.mark.filterwarnings("error")
def test_scores_may_be_lists_and_must_be_real():
    X = np.random.default_rng(0).normal(size=(60, 2))
    weights = BBISWeighter(target=Listed()).fit(X).weights_
    exact = BBISWeighter(target=GaussianMRF(np.eye(2), np.zeros(2))).fit(X).weights_
    assert_allclose(weights, exact, atol=1e-6)
    with pytest.raises(TypeError, match="grad_log_prob of the target must be real numbers"):
        BBISWeighter(target=Imaginary()).fit(X)


@pytest.mark.filterwarnings("error")
def test_constants_of_a_learned_density_are_not_warned_of():
    """The variance of a constant was "too small, by about 2e18 x"."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    X[:, 2] = 1.0
    BBISWeighter().fit(X)
