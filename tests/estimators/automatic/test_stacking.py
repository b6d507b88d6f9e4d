"""Mixtures of several densities with learned weights."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skcircuits import (
    ChowLiuDensity,
    CircuitImputer,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StackingDensity,
    WMISPNDensity,
)
from skcircuits.exceptions import CircuitPropertyError


class Recorder:
    """Callback that records the names of the tasks that begin."""

    def __init__(self, seen):
        self.seen = seen

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **data):
        self.seen.append(context.task_name)

    def on_fit_task_end(self, estimator, context, **data):
        return False

    def teardown(self, estimator, context):
        pass


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    hidden = rng.random(200) < 0.5
    frame = pd.DataFrame(
        {
            "a": rng.normal(3.0 * hidden, 1.0),
            "b": rng.normal(-2.0 * hidden, 1.0),
            "c": np.where(hidden ^ (rng.random(200) < 0.1), "yes", "no"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.1)


def stack(**options):
    names = enumerate(["one", "two", "three"], start=1)
    # Members that choose nothing: trials are tested elsewhere
    members = [
        (name, GaussianMixtureDensity(n_components=n, covariance_type="full")) for n, name in names
    ]
    return StackingDensity(members, random_state=0, **options)


@pytest.fixture(scope="module")
def fitted(table):
    """Tests share it and only ask."""
    return stack().fit(table)


def test_the_mixture_is_that_of_its_members(table, fitted):
    density = fitted
    assert density.weights_.sum() == pytest.approx(1.0)
    members = np.column_stack(
        [member._log_density(density._read_table(table)) for member in density.estimators_]
    )
    expected = logsumexp(members + np.log(density.weights_), axis=1)
    np.testing.assert_allclose(density.score_samples(table), expected, rtol=1e-10)
    queries = [member.probability("a > 1", given={"c": "yes"}) for member in density.estimators_]
    joint = [member.probability({"c": "yes"}) for member in density.estimators_]
    exact = density.weights_ * joint @ np.array(queries) / (density.weights_ @ joint)
    assert density.probability("a > 1", given={"c": "yes"}) == pytest.approx(exact, rel=1e-9)


def test_weights_maximise_the_posterior_given_validation_rows(table):
    train, valid = table[:140], table[140:]
    density = stack().set_params(three="drop").fit(train, X_val=valid)
    members = [member.score_samples(valid) for member in density.estimators_]
    fractions = np.linspace(0, 1, 2001)[1:-1, None]
    grid = np.log(fractions * np.exp(members[0]) + (1 - fractions) * np.exp(members[1])).sum(axis=1)
    grid += 0.5 * np.log(fractions * (1 - fractions))[:, 0]  # one row, half of it of each density
    found = density.score(valid) * len(valid) + 0.5 * np.log(density.weights_).sum()
    assert found >= grid.max() - 1e-5
    assert density.weights_[0] == pytest.approx(fractions[grid.argmax(), 0], abs=2e-3)


def test_held_out_rows_are_learned_from_in_the_end(table):
    density = stack(validation_fraction=0.3).fit(table)
    alone = clone(density.estimators_[0]).fit(table)
    np.testing.assert_allclose(
        density.estimators_[0].score_samples(table), alone.score_samples(table), rtol=1e-9
    )


def test_names_and_dropped_members(table):
    density = stack().set_params(one="drop", two__n_components=4).fit(table)
    assert density.named_estimators_["one"] == "drop"
    assert density.named_estimators_["two"] is density.estimators_[0]
    assert density.estimators_[0].n_components == 4
    assert density.get_params()["three__n_components"] == 3
    single = density.set_params(three="drop").fit(table)
    np.testing.assert_array_equal(single.weights_, [1.0])


def test_search_over_a_nested_parameter(table):
    search = GridSearchCV(stack(), {"two__n_components": [2, 4]}, cv=2).fit(table)
    assert search.best_estimator_.named_estimators_["two"].n_components in (2, 4)


def test_pickles_answer_alike(table, fitted):
    density = fitted
    again = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(again.score_samples(table), density.score_samples(table))
    assert clone(density).get_params().keys() == density.get_params().keys()


def test_draws_of_an_imputer(table):
    imputer = CircuitImputer(density=stack(), strategy="sample", random_state=0)
    assert not pd.DataFrame(imputer.fit(table).transform(table)).isna().any(axis=None)


def test_draws_of_parameters_keep_the_weights(table, fitted):
    density = fitted
    encoded = density._read_table(table)
    drawn = density._clone_for_draw()
    drawn._fit_encoded(encoded, density._schema, np.random.default_rng(0).exponential(size=200))
    np.testing.assert_array_equal(drawn.weights_, density.weights_)
    assert drawn.estimators_[0]._is_draw
    assert (drawn.score_samples(table) != density.score_samples(table)).any()


def test_callbacks_see_every_fit(table):
    seen = []
    density = stack().set_callbacks(Recorder(seen))
    density.fit(table)
    assert seen.count("GaussianMixtureDensity") == 6  # a trial and a fit to all rows of each


def test_densities_and_probabilities_are_not_mixed():
    X = np.random.default_rng(0).integers(2, size=(60, 2)).astype(float)
    members = [("normal", GaussianMixtureDensity()), ("tree", ChowLiuDensity())]
    with pytest.raises(CircuitPropertyError, match=r"same columns; got columns=\[0, 1\]"):
        StackingDensity(members).fit(X)


def test_categories_are_not_named_where_masses_differ():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"kind": rng.choice(["a", "b"], 200), "rooms": rng.integers(0, 6, 200)})
    members = [("network", WMISPNDensity()), ("tree", HiddenChowLiuDensity(max_iter=2))]
    with pytest.raises(CircuitPropertyError, match=r"columns=\['rooms'\]. Set point_masses"):
        StackingDensity(members, random_state=0).fit(table)


def test_point_masses_of_all_members_are_mixed():
    rng = np.random.default_rng(0)
    debts = np.where(rng.random(300) < 0.5, 0.0, rng.exponential(size=300))
    table = pd.DataFrame({"debts": debts, "size": rng.normal(debts > 0)})

    def mixture(point_masses):
        mixture = GaussianMixtureDensity(n_components=2, point_masses=point_masses)
        networks = WMISPNDensity(point_masses=point_masses or True)
        return StackingDensity([("mixture", mixture), ("network", networks)], random_state=0)

    with pytest.raises(CircuitPropertyError, match=r"columns=\['debts'\]. Set point_masses=\"freq"):
        mixture(False).fit(table)
    density = mixture("frequent").fit(table)
    assert density.probability("debts <= 0") == pytest.approx((debts == 0).mean(), abs=0.01)


def test_point_masses_that_fits_to_all_rows_find_are_named():
    """Twelve values of nine rows each in the part, and of ten rows each in the table."""
    X = np.repeat(0.37 * np.arange(12.0), 10)[:, None]
    members = [("normal", GaussianMixtureDensity(n_components=1)), ("mass", WMISPNDensity())]
    density = StackingDensity(members, validation_fraction=0.1, random_state=0)
    with pytest.raises(CircuitPropertyError, match=r"same columns; got columns=\[0\]"):
        density.fit(X)


def test_what_cannot_be_mixed_is_refused(table):
    with pytest.raises(ValueError, match=r"Estimator 'all' must be a density that learns"):
        StackingDensity([("all", MoATDensity())]).fit(table)
    with pytest.raises(ValueError, match=r"Estimator 'all' must be a density that learns"):
        CircuitImputer(density=StackingDensity([("all", MoATDensity())])).fit(table)
    with pytest.raises(ValueError, match="not all of them dropped"):
        StackingDensity([("a", "drop")]).fit(table)
    with pytest.raises(ValueError, match="not unique"):
        StackingDensity([("a", ChowLiuDensity()), ("a", ChowLiuDensity())]).fit(table)
    with pytest.raises(ValueError, match="Estimator 'a': The 'n_components' parameter of"):
        StackingDensity([("a", ChowLiuDensity(n_components=-1))]).fit(table)


@pytest.mark.parametrize("n_observed", [1, 2])
def test_tables_of_nearly_empty_rows(n_observed):
    X = np.full((30, 1), np.nan)
    X[:n_observed, 0] = 0.3 + np.arange(n_observed)
    members = [("one", WMISPNDensity()), ("two", HiddenChowLiuDensity(n_latent_states=2))]
    for seed in range(2):
        density = StackingDensity(members, validation_fraction=0.3, random_state=seed).fit(X)
        assert np.isfinite(density.score_samples(X)).all()


def test_weights_are_those_of_densities_beside_point_masses():
    """A density that has no mass where another one has is impossible there in the mixture."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 1)) < 0.3, 0.0, rng.normal(size=(300, 1)))
    members = [("mass", WMISPNDensity()), ("none", WMISPNDensity(point_masses=False))]
    # Of few held-out rows, few are zero: weights would depend on which ones
    density = StackingDensity(members, validation_fraction=None, random_state=0).fit(X)
    # The second one has a density of more than one at zero, but no probability
    assert density.estimators_[1].circuit_.log_prob([[0.0]]) > 0.0
    assert density.weights_[0] > 0.95
    assert density.probability({0: 0.0}) == pytest.approx((X == 0.0).mean(), abs=0.05)


@pytest.mark.parametrize("seed", [11, 13, 17])
def test_all_training_rows_decide_which_values_are_point_masses(seed):
    """Five per cent of all rows share one value, and of those that a tree keeps another one."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[:9, 0] = X[8:18, 1] = 0.5
    tree = HiddenChowLiuDensity(n_latent_states=2, max_iter=2, point_masses="frequent")
    members = [("tree", tree), ("network", WMISPNDensity(point_masses="frequent"))]
    density = StackingDensity(members, random_state=seed).fit(X)
    assert np.isfinite(density.score_samples(X)).all()
    for member in density.estimators_:
        assert member.circuit_.plan.massive_variables == {1}


def test_members_warn_once_although_they_are_fitted_twice():
    X = np.random.default_rng(0).normal(size=(60, 2))
    members = [("a", GaussianMixtureDensity(n_components=2, max_iter=1, tol=0.0))]
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        StackingDensity(members, random_state=0).fit(X)
    assert ["a__max_iter" in str(warning.message) for warning in record] == [True]
