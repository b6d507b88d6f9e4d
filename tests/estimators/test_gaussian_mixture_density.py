import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split

from skcircuits import GaussianMixtureDensity
from skcircuits.circuits import FactorGaussian, MultivariateGaussian


def two_groups(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) @ [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 1.0]]
    X[: n_rows // 2] += [6.0, -6.0, 0.0]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def mixed_frame(n_rows=300, seed=0):
    X = two_groups(n_rows, seed)
    label = np.where(np.nan_to_num(X[:, 0], nan=0.0) > 3.0, "high", "low").astype(object)
    label[::7] = None
    return pd.DataFrame({"a": X[:, 0], "label": label, "b": X[:, 2]})


@pytest.mark.parametrize("covariance_type", ["full", "shrunk", "tied", "factor", "diag"])
def test_the_circuit_is_the_mixture_of_the_attributes(covariance_type):
    X = two_groups()
    density = GaussianMixtureDensity(
        n_components=2, n_factors=1, pool=2, covariance_type=covariance_type, random_state=0
    ).fit(X)
    assert density.n_components_ == 4 and density.converged_
    scores = density.score_samples(X)
    for i in range(20):
        seen = ~np.isnan(X[i])
        value = 0.0
        for weight, mean, covariance in zip(
            density.weights_, density.means_, density.covariances_, strict=True
        ):
            if covariance_type == "diag":
                covariance = np.diag(covariance)
            marginal = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
            value += weight * (marginal.pdf(X[i, seen]) if seen.any() else 1.0)
        np.testing.assert_allclose(scores[i], np.log(value), rtol=1e-10)


def test_bic_counts_the_parameters_of_scikit_learn():
    X = np.nan_to_num(two_groups())
    for covariance_type in ["full", "diag"]:
        density = GaussianMixtureDensity(
            n_components=2, covariance_type=covariance_type, tol=1e-8, random_state=0
        ).fit(X)
        by_bic = GaussianMixtureDensity(
            n_components="bic",
            max_components=4,
            covariance_type=covariance_type,
            tol=1e-8,
            random_state=0,
        ).fit(X)
        peer = GaussianMixture(2, covariance_type=covariance_type, tol=1e-8, random_state=0).fit(X)
        assert density.circuit_.n_parameters == density._n_parameters() == peer._n_parameters()
        np.testing.assert_allclose(density.bic(X), by_bic.bic_[2], rtol=1e-3)
        assert by_bic.n_components_ == min(by_bic.bic_, key=by_bic.bic_.get)


def test_mixed_frames():
    X = mixed_frame()
    density = GaussianMixtureDensity(random_state=0).fit(X)
    assert density.means_.shape == (density.n_components_, 2)
    assert density.category_log_probs_[0] is None and density.category_log_probs_[2] is None
    tables = np.exp(density.category_log_probs_[1])
    np.testing.assert_allclose(tables.sum(axis=1), 1.0)
    # the density of a row without its label is the sum over labels
    row = X.iloc[[1]]
    rows = pd.concat([row.assign(label=label) for label in [None, "high", "low"]])
    total, high, low = np.exp(density.score_samples(rows))
    np.testing.assert_allclose(total, high + low, rtol=1e-12)
    assert density.probability({"label": "high"}, given={"a": (8.0, None)}) > 0.95
    sample = density.sample(50, random_state=0)
    assert list(sample.columns) == ["a", "label", "b"]
    assert set(sample["label"]) <= {"high", "low"}


def test_scores_integrate_to_one_and_boxes_agree():
    X = two_groups()[:, :1]
    X = X[~np.isnan(X[:, 0])]
    density = GaussianMixtureDensity(n_components=2, random_state=0).fit(X)
    mass, _ = quad(lambda x: np.exp(density.score_samples([[x]])[0]), -30.0, 30.0, points=[0, 6])
    np.testing.assert_allclose(mass, 1.0, rtol=1e-8)
    part, _ = quad(lambda x: np.exp(density.score_samples([[x]])[0]), 1.0, 4.0)
    np.testing.assert_allclose(density.probability({0: (1.0, 4.0)}), part, rtol=1e-8)


def test_a_held_out_score_no_worse_than_on_the_complete_peer():
    X = load_diabetes().data[:, [0, 2, 3, 4, 5]]
    train, test = train_test_split(X, test_size=0.3, random_state=0)
    density = GaussianMixtureDensity(random_state=0).fit(train)
    peers = [GaussianMixture(k, random_state=0).fit(train) for k in range(1, 5)]
    best = min(peers, key=lambda peer: peer.bic(train))
    assert density.score(test) > best.score(test) - 0.05


def test_the_fit_is_reproducible_and_the_number_of_candidates_bounded():
    X = two_groups()
    first, second = (GaussianMixtureDensity(random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.means_, second.means_)
    assert set(GaussianMixtureDensity(n_components="bic", max_components=1).fit(X).bic_) == {1}
    assert GaussianMixtureDensity().fit(X[:1]).n_components_ == 1


def test_degenerate_columns_and_rows():
    X = np.column_stack([two_groups()[:, 0], np.full(300, 5.0), np.full(300, np.nan)])
    X[3] = np.nan
    density = GaussianMixtureDensity(random_state=0).fit(X)
    scores = density.score_samples(X)
    assert np.isfinite(scores).all() and abs(scores[3]) < 1e-12
    np.testing.assert_allclose(density.means_[:, 1], 5.0)
    standard_normal = density.score_samples([[np.nan, np.nan, 0.0]])
    np.testing.assert_allclose(standard_normal, -0.5 * np.log(2.0 * np.pi), rtol=1e-6)


def test_no_convergence_is_said_once():
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 ") as record:
        density = GaussianMixtureDensity(n_components=3, max_iter=1, tol=0.0, random_state=0)
        density.fit(two_groups())
    assert len(record) == 1 and not density.converged_ and density.n_iter_ == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianMixtureDensity(n_components=2, random_state=0).fit(two_groups())


def test_an_interruption_keeps_the_best_so_far(monkeypatch):
    from skcircuits.learning.gaussian_mixture import _learner as gaussian_mixture

    steps = iter(range(30))
    step = gaussian_mixture._step

    def interrupted(*args):
        if next(steps) == 29:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(gaussian_mixture, "_step", interrupted)
    density = GaussianMixtureDensity(n_components="bic", random_state=0)
    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        density.fit(two_groups())
    assert np.isfinite(density.score(two_groups()))


def test_the_selection_is_told():
    density = GaussianMixtureDensity(random_state=0).fit(two_groups())
    chosen = [row for row in density.selection_ if row["pool"]]
    assert sum(row["pool"] * row["n_components"] for row in chosen) == density.n_components_
    assert density.selection_[: len(chosen)] == chosen
    assert {row["covariance_type"] for row in density.selection_} >= {"tied", "factor", "shrunk"}
    assert all(np.isfinite(row["loss"]) for row in density.selection_)
    given = GaussianMixtureDensity(n_components=2, covariance_type="tied").fit(two_groups())
    assert [row["pool"] for row in given.selection_] == [1]
    assert "loss" not in given.selection_[0]


def test_categories_that_follow_numbers():
    wine = load_wine()
    X = np.column_stack([wine.data, wine.target])
    train, test = train_test_split(X, test_size=0.4, random_state=0, stratify=wine.target)
    density = GaussianMixtureDensity(
        selection="cells", categorical_features=[13], random_state=0
    ).fit(train)
    asked = test.copy()
    asked[:, 13] = np.nan
    classes = density.circuit_.marginals(asked)[13].argmax(axis=1)
    assert np.mean(classes == test[:, 13]) >= 0.95


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_no_pooled_restart_loses_the_class(covariance_type, seed):
    rng = np.random.default_rng(seed)
    label = np.repeat([0.0, 1.0], 200)
    X = np.column_stack([4.0 * label + rng.normal(size=400), rng.normal(size=400), label])
    X[::2, 0] = np.nan
    density = GaussianMixtureDensity(
        n_components=2,
        covariance_type=covariance_type,
        pool=6,
        categorical_features=[2],
        random_state=0,
    ).fit(X)
    means = density.expectation([[np.nan, np.nan, 0.0], [np.nan, np.nan, 1.0]])[:, 0]
    # one of six whose classes have the same mean takes .6 of the difference
    assert np.diff(means)[0] == pytest.approx(4.0, abs=0.4)


def test_weights_stand_for_repeated_rows():
    X = two_groups(120)
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    settings = {"n_components": 2, "covariance_type": "shrunk", "random_state": 0}
    weighted = GaussianMixtureDensity(**settings).fit(X, sample_weight=counts)
    repeated = GaussianMixtureDensity(**settings).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.score(X), repeated.score(X), rtol=1e-6)


def test_a_clone_may_keep_what_was_chosen():
    X = two_groups()
    density = GaussianMixtureDensity(random_state=0).fit(X)
    kept = density._clone_for_draw().fit(X[:200])
    assert kept.n_components_ == density.n_components_
    assert not any("loss" in row for row in kept.selection_)
    # a second fit of the density itself chooses again
    assert any("loss" in row for row in density.fit(X[:200]).selection_)


def regression_slopes(density):
    """Of the last column on the others, under one Gaussian."""
    covariance = density.covariances_[0]
    return np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])


def test_draws_of_parameters_are_not_biased_by_the_prior():
    # Half of the cells are missing: what draws covariances to their diagonal counts several times
    rng = np.random.default_rng(0)
    slopes = np.array([1.0, -0.5, 0.5])
    errors = {"fit": [], "draw": []}
    for _ in range(8):
        x = 0.6 * rng.normal(size=(200, 1)) + 0.8 * rng.normal(size=(200, 3))
        X = np.column_stack([x, x @ slopes + rng.normal(size=200)])
        X[rng.random(X.shape) < [0.5, 0.5, 0.0, 0.5]] = np.nan
        density = GaussianMixtureDensity(n_components=1, covariance_type="tied").fit(X)
        errors["fit"].append(regression_slopes(density) - slopes)
        errors["draw"].append(regression_slopes(density._clone_for_draw().fit(X)) - slopes)
    biases = {name: np.abs(np.mean(own, axis=0)).max() for name, own in errors.items()}
    assert biases["draw"] < min(0.12, 0.6 * biases["fit"])


def test_draws_of_parameters_have_covariances_without_structure():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1)) + rng.normal(size=(100, 4))
    density = GaussianMixtureDensity(n_components=1, n_factors=1).fit(X)
    draw = density._clone_for_draw().fit(X)
    assert [row["covariance_type"] for row in draw.selection_ if row["pool"]] == ["tied"]
    asked = GaussianMixtureDensity(n_components=1, n_factors=1, covariance_type="factor").fit(X)
    assert asked._clone_for_draw().fit(X).selection_[0]["covariance_type"] == "factor"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("n_factors", "unit"), [(2, FactorGaussian), (3, MultivariateGaussian)])
def test_many_factors_are_evaluated_as_dense_covariances(n_factors, unit):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5))
    X[rng.random(X.shape) < 0.2] = np.nan
    density = GaussianMixtureDensity(
        n_components=1, covariance_type="factor", n_factors=n_factors, max_iter=5, random_state=0
    )
    circuit = density.fit(X).circuit_
    assert type(circuit.root) is unit
    np.testing.assert_allclose(circuit.root.covariance, density.covariances_[0], rtol=1e-9)


def test_verbose_lines_tell_log_posteriors_under_one_prior(capsys):
    """Priors that are still being learned have posteriors that cannot be compared."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4))
    settings = {"n_components": 3, "covariance_type": "shrunk", "pool": 1, "random_state": 0}
    density = GaussianMixtureDensity(**settings, max_iter=60, tol=0.0, verbose=2)
    with pytest.warns(UserWarning, match="converge"):
        density.fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[GaussianMixtureDensity] iteration 1: log likelihood -")
    bounds = [float(line.split("log posterior ")[1].split()[0]) for line in lines[30:]]
    assert len(bounds) == 30 and np.diff(bounds).min() >= 0.0
    assert "posterior" not in lines[10]


def test_batches_of_complete_rows_average_their_moments():
    """Statistics of complete rows under one component do not depend on its parameters."""
    rng = np.random.default_rng(0)
    batches = [rng.normal(loc, 1.0, size=(n, 2)) for loc, n in ((0.0, 40), (1.0, 100), (3.0, 7))]
    density = GaussianMixtureDensity(n_components=1, covariance_type="diag")
    total, mean = 0, np.zeros(2)
    for batch in batches:
        density.partial_fit(batch)
        step = len(batch) * (2 * total + len(batch)) / (total + len(batch)) ** 2
        mean += step * (batch.mean(axis=0) - mean)
        total += len(batch)
        np.testing.assert_allclose(density.means_[0], mean, rtol=1e-10)
    np.testing.assert_allclose(density.expectation(), mean, rtol=1e-10)


@pytest.mark.parametrize(
    "parameters",
    [
        {"covariance_type": "full", "n_components": 2},
        {"covariance_type": "shrunk", "n_components": 2},
        {"covariance_type": "tied", "n_components": 2, "pool": 2},
        {"covariance_type": "factor", "n_factors": 1, "n_components": 2},
        {"covariance_type": "diag", "n_components": 2},
        {"covariance_type": "tied", "n_components": 1, "location_model": True},
        {"n_components": "bic", "max_components": 2},
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_teach_most_of_what_the_whole_table_does(parameters):
    table, unseen = mixed_frame(4000), mixed_frame(2000, seed=1)
    table = table.sample(frac=1.0, random_state=0)
    unseen.loc[3, "label"] = "another"
    first = table.iloc[:100]
    own = {"random_state": 0, **parameters}
    least, most = (GaussianMixtureDensity(**own).fit(rows).score(unseen) for rows in (first, table))
    density = GaussianMixtureDensity(**own)
    for start in range(0, 4000, 100):
        density.partial_fit(table.iloc[start : start + 100])
    assert density.score(unseen) > 0.5 * (least + most)
    np.testing.assert_allclose(density.weights_.sum(), 1.0)


def test_a_first_batch_that_cannot_set_units_is_refused():
    X = two_groups()
    with pytest.raises(ValueError, match="at least 20 rows, 10 for each component; got n_samples"):
        GaussianMixtureDensity(n_components=2).partial_fit(X[:19])
    density = GaussianMixtureDensity(n_components=2, random_state=0).partial_fit(X[::10])
    assert density.partial_fit(X[:1]).score(X) > -20.0


def test_further_rows_too_far_for_floats_are_refused_by_column():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 2)), columns=["near", "far"])
    density = GaussianMixtureDensity(n_components=1, random_state=0).fit(table)
    known = density.score_samples(table)
    away = table.copy()
    away.loc[3, "far"] = 4e18
    with pytest.raises(ValueError, match=r"column 'far' must lie within .* got cell=4e[+]18"):
        density.partial_fit(away)
    np.testing.assert_array_equal(density.score_samples(table), known)
    away.loc[3, "far"] = 4e6
    assert np.isfinite(density.partial_fit(away).score_samples(table)).all()


def test_a_fit_goes_on_with_further_rows_and_survives_those_that_it_refuses():
    X = two_groups()
    density = GaussianMixtureDensity(n_components=2, random_state=0).fit(X)
    before = density.score_samples(X)
    for refused, message in (
        (X[:, :2], "features"),
        (np.full((2, 3), np.nan), "have an observed cell"),
        (np.full((2, 3), np.inf), "infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            density.partial_fit(refused)
    np.testing.assert_array_equal(density.score_samples(X), before)
    shifted = X + np.array([10.0, 0.0, 0.0])
    unexpected = density.score(shifted)
    assert density.partial_fit(shifted).score(shifted) > unexpected + 1.0
    weighted = GaussianMixtureDensity(n_components=2, random_state=0).fit(X)
    twice = np.repeat(shifted, 2, axis=0)
    weighted.partial_fit(shifted, sample_weight=np.full(len(X), 2.0))
    density = GaussianMixtureDensity(n_components=2, random_state=0).fit(X).partial_fit(twice)
    np.testing.assert_allclose(weighted.score_samples(X), density.score_samples(X), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 3, 10])
def test_few_iterations_of_many_rows(max_iter):
    """Where some of the rows give the start, all rows have the iterations that were asked for."""
    X = np.random.default_rng(0).normal(size=(6000, 2))
    density = GaussianMixtureDensity(
        n_components=2, covariance_type="full", max_iter=max_iter, tol=0
    )
    assert density.fit(X).n_iter_ == max_iter


def debts_frame(n_rows=400, seed=0):
    """Debts of zero, which depend on the other columns, and missing cells."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["cook", "nurse"], size=n_rows)
    debts = np.where(
        rng.random(n_rows) < np.where(job == "cook", 0.8, 0.3), 0.0, rng.gamma(2.0, size=n_rows)
    )
    wage = rng.normal(np.where(debts == 0, 3.0, -3.0))
    frame = pd.DataFrame({"job": job, "debts": debts, "wage": wage, "age": rng.normal(wage)})
    return frame.mask(rng.random(frame.shape) < 0.1)


@pytest.mark.parametrize("covariance_type", ["full", "shrunk", "tied", "factor", "diag", "auto"])
def test_frequent_values_have_probabilities(covariance_type):
    frame = debts_frame()
    density = GaussianMixtureDensity(
        n_components=4, covariance_type=covariance_type, point_masses="frequent", random_state=0
    ).fit(frame)
    assert [len(own) for own in density.point_masses_] == [0, 1, 0, 0]
    assert density.means_.shape[1] == 2
    assert density.category_log_probs_[1] is None
    seen = frame["debts"].dropna()
    for query in ("debts == 0", "debts <= 0", "debts > 0", "debts > 2"):
        frequency = len(seen.to_frame().query(query)) / len(seen)
        assert density.probability(query) == pytest.approx(frequency, abs=0.03)
    complete = frame.dropna()
    for job in ("cook", "nurse"):
        own = complete[complete["job"] == job]
        expected = (own["debts"] == 0).mean()
        found = density.probability("debts == 0", given={"job": job})
        assert found == pytest.approx(expected, abs=0.1)
    means = density.expectation([{"debts": 0.0}, "debts > 0"], columns="wage")
    np.testing.assert_allclose(np.ravel(means), [3.0, -3.0], atol=0.4)
    # A mass and a density of one column: together, they have integral one
    step = 0.004
    grid = pd.DataFrame({"debts": np.arange(-40.0, 60.0, step) + step / 3})
    grid = grid.reindex(columns=frame.columns).astype({"job": object})
    integral = np.exp(density.score_samples(grid)).sum() * step
    zero = pd.DataFrame({"debts": [0.0]}).reindex(columns=frame.columns).astype({"job": object})
    mass = np.exp(density.score_samples(zero))[0]
    assert mass == pytest.approx(density.probability("debts == 0"), rel=1e-9)
    assert integral + mass == pytest.approx(1.0, abs=2e-3)


def test_batches_keep_the_point_masses_of_the_first():
    density = GaussianMixtureDensity(n_components=2, point_masses="frequent", random_state=0)
    density.partial_fit(debts_frame())
    later = debts_frame(2000, seed=1)
    later["debts"] *= 0.0
    before = density.probability("debts == 0")
    density.partial_fit(later)
    assert density.probability("debts == 0") > before + 0.1
    assert np.isfinite(density.score_samples(debts_frame(50, seed=2) * 1)).all()


@pytest.mark.parametrize("n_components", [1, 3, "bic", "rows", "auto"])
def test_tables_whose_numbers_all_have_point_masses(n_components):
    frame = pd.DataFrame({"debts": debts_frame()["debts"], "level": np.arange(400) % 3})
    density = GaussianMixtureDensity(
        n_components=n_components, point_masses="frequent", random_state=0
    ).fit(frame)
    assert density.means_.shape[1] == 0
    assert density.probability("level == 1") == pytest.approx(1 / 3, abs=0.02)
    restored = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(restored.score_samples(frame), density.score_samples(frame))


def test_distributions_within_groups_are_counted_once():
    frame = debts_frame()[["debts"]]
    two, three = (
        GaussianMixtureDensity(
            n_components=k, covariance_type="diag", point_masses="frequent", random_state=0
        ).fit(frame)
        for k in (2, 3)
    )
    n_groups = two._grouped[0].n_groups
    # A component more: its weight, and probabilities of the groups
    assert three._n_parameters() - two._n_parameters() == 1 + n_groups - 1
    assert two._n_parameters() < two.circuit_.n_parameters
    assert np.isfinite(two.bic(frame))


def test_queries_on_frequent_values_without_point_masses_warn_once():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "fee": np.where(rng.random(300) < 0.4, 0.0, rng.exponential(size=300)),
            "level": 5.0 * rng.integers(0, 2, 300),
            "constant": 7.0,
            "x": rng.normal(size=300),
        }
    )
    density = GaussianMixtureDensity(n_components=2, random_state=0).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        density.probability("x > 0 and constant == 7")
    with pytest.warns(UserWarning, match="column 'fee'.* cells are 0, and Gaussians .* 0[)]"):
        density.probability("fee <= 0")
    with pytest.warns(UserWarning, match="column 'level'"):
        density.probability("x > 0", given="level == 5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        density.quantile(0.9, "fee")
        density.set_params(point_masses="frequent").fit(frame).probability("fee <= 0")


def test_one_warning_names_all_columns_of_a_question_that_are_far_from_normal():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((200, 3)) < 0.4, 0.0, rng.exponential(size=(200, 3)))
    density = GaussianMixtureDensity(n_components=1).fit(X)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        density.probability("x0 > 0.5 and x1 > 0.5")
        density.quantile([0.2, 0.5, 0.8], 0, given="x1 > 0.5")
    (message,) = [str(warning.message) for warning in record]
    assert "column 0 (" in message
    assert "column 1 (" in message
    assert "column 2 (" not in message
    with pytest.warns(UserWarning, match="^Conditions on column 2 "):
        density.probability("x2 > 0.5")


def test_one_outlier_takes_one_component_and_leaves_the_others_as_they_are():
    rng = np.random.default_rng(0)
    X, held_out = rng.normal(size=(2, 200, 2)) + np.repeat([-3.0, 3.0], 100)[:, None]
    settings = {"covariance_type": "full", "random_state": 0}
    clean = GaussianMixtureDensity(n_components=2, **settings).fit(X)
    with_outlier = np.vstack([X, [1e6, 0.0]])
    found = GaussianMixtureDensity(n_components=3, **settings).fit(with_outlier)
    # The prior had its mean and its variance: 5 nats a row
    assert found.score(held_out) > clean.score(held_out) - 0.05
    assert found.score_samples(with_outlier[-1:])[0] > -60.0


def test_one_gaussian_is_the_same_from_every_seed():
    X = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 2000)
    scores = [
        GaussianMixtureDensity(n_components=1, random_state=seed).fit(X).score_samples(X)
        for seed in range(3)
    ]
    np.testing.assert_allclose(scores[1:], [scores[0]] * 2, rtol=1e-9)
