"""What all densities share, seen through a density of independent columns."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skcircuits import (
    ChowLiuDensity,
    CircuitImputer,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StrudelDensity,
    WMISPNDensity,
)
from skcircuits.circuits import Circuit, Gaussian, Indicator
from skcircuits.estimators.shared._completion import completed_or_marginal
from skcircuits.exceptions import ZeroProbabilityError


@pytest.fixture
def frame():
    generator = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame(
        {
            "age": generator.integers(20, 60, n),
            "income": generator.normal(10.0, 2.0, n).astype(np.float32),
            "job": generator.choice(["cook", "nurse", "pilot"], n, p=[0.5, 0.3, 0.2]),
            "member": generator.random(n) < 0.7,
        }
    )
    table.loc[::7, "job"] = None
    return table


@pytest.fixture
def fitted(independent_density, frame):
    return independent_density.fit(frame)


def test_score_samples_is_the_sum_of_columns(fitted, frame):
    income = frame["income"].to_numpy(float)
    alone = pd.DataFrame({"age": np.nan, "income": income, "job": None, "member": None})
    mean, std = income.mean(), np.sqrt(income.var() + 1e-6)
    np.testing.assert_allclose(fitted.score_samples(alone), norm.logpdf(income, mean, std))


def test_missing_cells_are_marginalised(fitted, frame):
    rows = frame.iloc[:5].astype(object)
    rows.loc[:, :] = None
    np.testing.assert_allclose(fitted.score_samples(rows), 0.0, atol=1e-12)


def test_masked_cells_are_missing(independent_density):
    labels = np.ma.masked_array(
        [["a", 1.0], ["b", 2.0], ["b", 9.0]], [[0, 0], [1, 0], [0, 1]], object
    )
    numbers = np.ma.masked_array([[0, 1], [7, 2], [1, 9]], [[0, 0], [1, 0], [0, 1]])
    for masked in (labels, numbers):
        scores = clone(independent_density).fit(masked).score_samples(masked)
        filled = np.where(masked.mask, None, masked.data)
        np.testing.assert_array_equal(
            scores, clone(independent_density).fit(filled).score_samples(filled)
        )


def test_masked_cells_are_missing_in_queries_and_circuits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    density = GaussianMixtureDensity(n_components=1).fit(X)
    masked = np.ma.masked_array([[9.0, 1.0], [0.5, 9.0]], [[1, 0], [0, 1]])
    rows = [[np.nan, 1.0], [0.5, np.nan]]
    for query in (density.expectation, density.mpe, density.covariance):
        np.testing.assert_array_equal(query(given=masked), query(given=np.array(rows)))
        np.testing.assert_array_equal(query(given=masked[0]), query(given=np.array(rows[0])))
    circuit = density.circuit_
    for query in (circuit.log_prob, circuit.expectation, circuit.variance):
        np.testing.assert_array_equal(query(masked), query(rows))


def test_score_is_the_mean_and_criteria_count_parameters(fitted, frame):
    log_density = fitted.score_samples(frame)
    assert fitted.score(frame) == pytest.approx(log_density.mean())
    n_parameters = 2 + 2 + 2 + 1
    assert fitted.bic(frame) == pytest.approx(
        -2 * log_density.sum() + n_parameters * np.log(len(frame))
    )
    assert fitted.aic(frame) == pytest.approx(-2 * log_density.sum() + 2 * n_parameters)


def test_weights_act_like_repeated_rows(independent_density, frame):
    weight = np.random.default_rng(1).integers(0, 3, len(frame))
    weighted = clone(independent_density).fit(frame, sample_weight=weight)
    repeated = clone(independent_density).fit(frame.iloc[np.repeat(np.arange(len(frame)), weight)])
    np.testing.assert_allclose(weighted.score_samples(frame), repeated.score_samples(frame))


@pytest.mark.parametrize(
    "density",
    [
        ChowLiuDensity(),
        GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0),
        HiddenChowLiuDensity(n_latent_states=2, random_state=0),
        MoATDensity(max_iter=2, random_state=0),
        StrudelDensity(max_iter=3, random_state=0),
        WMISPNDensity(),
    ],
    ids=lambda density: type(density).__name__,
)
def test_rows_too_light_for_sums_are_absent(density):
    X = np.random.default_rng(0).normal(size=(60, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    weight = np.where(np.arange(60) < 40, 1.0, 1e-17)
    weighed = clone(density).fit(X, sample_weight=weight).score_samples(X[:40])
    np.testing.assert_array_equal(weighed, clone(density).fit(X[:40]).score_samples(X[:40]))


def test_subnormal_weights_keep_their_digits():
    # Variances were zero: moments were differences of numbers with three digits
    X = np.random.default_rng(0).normal(size=(60, 2))
    first, second = (
        GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0)
        .partial_fit(X[:30], sample_weight=weight)
        .partial_fit(X[30:], sample_weight=weight)
        for weight in (1e-200, 1e-320)
    )
    np.testing.assert_allclose(second.score_samples(X), first.score_samples(X), rtol=1e-9)


def test_weights_of_many_orders_are_learned_from():
    # The rows of a group had no weight next to that of all, and were divided by it
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1)) + 0.4 * rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    weight = 10.0 ** np.random.default_rng(1).uniform(-12, 8, 60)
    assert np.isfinite(WMISPNDensity().fit(X, sample_weight=weight).score_samples(X)).all()


@pytest.mark.parametrize("bad", [np.zeros(300), -np.ones(300), np.ones(3)])
def test_bad_weights_are_refused(independent_density, frame, bad):
    with pytest.raises(ValueError, match="weight"):
        independent_density.fit(frame, sample_weight=bad)


def test_samples_are_tables_of_the_fitted_kind(independent_density, fitted, frame):
    drawn = fitted.sample(2000, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert drawn["age"].dtype == frame["age"].dtype
    assert drawn["income"].dtype == np.float32
    assert drawn["member"].dtype == bool
    assert drawn["job"].dtype == frame["job"].dtype
    assert abs(drawn["income"].mean() - frame["income"].mean()) < 0.2
    fractions = drawn["job"].value_counts(normalize=True)
    assert fractions["cook"] == pytest.approx(
        frame["job"].value_counts(normalize=True)["cook"], abs=0.04
    )

    numbers = pl.DataFrame(
        {"income": frame["income"].to_numpy(), "member": frame["member"].to_numpy()}
    )
    as_polars = clone(independent_density).fit(numbers).sample(3, random_state=0)
    assert isinstance(as_polars, pl.DataFrame)
    assert as_polars.schema["income"] == pl.Float32
    array = clone(independent_density).fit(np.eye(4)).sample(random_state=0)
    assert array.shape == (1, 4)


def test_draws_of_whole_numbers_are_what_queries_count(fitted, frame):
    drawn = fitted.sample(20_000, random_state=0)
    fraction = (drawn["age"] == 40).mean()
    assert fraction == pytest.approx(fitted.probability({"age": 40}), abs=0.005)
    # Observed cells stay as they are, whole or not
    rows = frame.iloc[:2].assign(age=[30.5, np.nan])
    completed = fitted.sample(50, random_state=0, X=rows)[:, :, 0].astype(float)
    assert (completed[:, 0] == 30.5).all()
    assert (completed[:, 1] == np.round(completed[:, 1])).all()


def test_sampling_is_reproducible(fitted):
    first, again = (fitted.sample(5, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert not fitted.sample(5, random_state=4).equals(first)


def test_completions_keep_observed_cells(fitted, frame):
    completed = fitted.sample(50, random_state=0, X=frame.iloc[:14])
    assert completed.shape == (50, 14, 4)
    is_missing = frame["job"].iloc[:14].isna().to_numpy()
    assert (completed[:, ~is_missing, 2] == frame["job"].to_numpy()[:14][~is_missing]).all()
    assert set(completed[:, is_missing, 2].ravel()) <= {"cook", "nurse", "pilot"}
    assert (completed[:, :, 0].astype(float) == frame["age"].to_numpy()[:14]).all()


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, "two"])
def test_number_of_samples_is_checked(fitted, n_samples):
    with pytest.raises((ValueError, TypeError), match="n_samples"):
        fitted.sample(n_samples)


def test_probabilities_of_queries(fitted, frame):
    drawn = fitted.sample(40_000, random_state=0)
    query = {"income": (9, 12), "job": {"nurse", "pilot"}, "age": (None, 45)}
    hits = drawn["income"].between(9, 12) & (drawn["job"] != "cook") & (drawn["age"] <= 45)
    assert fitted.probability(query) == pytest.approx(hits.mean(), abs=0.01)
    assert fitted.probability({}) == pytest.approx(1.0, abs=1e-12)
    both = fitted.probabilities([query, {"member": True}])
    assert both.shape == (2,)
    assert both[0] == fitted.probability(query)
    assert fitted.probabilities([]).shape == (0,)


@pytest.mark.parametrize(
    "density",
    [
        ChowLiuDensity(pseudo_count=0.1),
        HiddenChowLiuDensity(n_latent_states=2, validation_fraction=None, random_state=0),
        GaussianMixtureDensity(n_components=1, random_state=0),
        WMISPNDensity(),
        MoATDensity(max_iter=1, random_state=0),
    ],
    ids=lambda density: type(density).__name__,
)
def test_the_same_question_has_the_same_answer_in_every_form(density, frame):
    frame["debt"] = frame["income"].where(frame["income"] > 10.0, 0.0)
    density = clone(density).fit(frame[["age", "debt", "job"]])
    ages = ["age == 30", {"age": 30}, {"age": (30, 30)}, {"age": (29.5, 30.5)}, "29 < age < 31"]
    probabilities = density.probabilities(ages)
    assert probabilities[0] > 0
    np.testing.assert_allclose(probabilities, probabilities[0], rtol=1e-10)
    assert density.probability({"age": 30.5}) == density.probability("age == 30.5") == 0.0
    no_debt = density.probabilities(["debt == 0", {"debt": 0}, {"debt": (0, 0)}])
    has_point_masses = not isinstance(density, GaussianMixtureDensity)
    expected = (frame["debt"] == 0).mean() if has_point_masses else 0.0
    np.testing.assert_allclose(no_debt, expected, atol=0.01)
    condition = {"given": {"age": 30}}
    assert density.probability("age == 30", **condition) == 1.0
    assert density.probability({"age": (31, None)}, **condition) == 0.0


def test_conditional_probabilities(fitted):
    given = {"income": (9, None)}
    joint = fitted.probability({"income": (9, 12), "job": "nurse"})
    expected = joint / fitted.probability(given)
    query = {"income": (None, 12), "job": "nurse"}
    assert fitted.probability(query, given=given) == pytest.approx(expected, rel=1e-12)
    assert fitted.probability({"income": (1, 2)}, given=given) == 0.0
    assert fitted.probability(given, given=given) == 1.0


def test_impossible_conditions_are_errors(fitted):
    with pytest.raises(ZeroProbabilityError, match=r"given=\{'job': set\(\)\}"):
        fitted.probability({"age": (30, 40)}, given={"job": set()})


@pytest.mark.parametrize(
    "ask",
    [
        lambda density: density.score_samples([[1.0]]),
        lambda density: density.sample(),
        lambda density: density.probability({0: (0, 1)}),
    ],
)
def test_unfitted_densities_say_so(independent_density, ask):
    with pytest.raises(NotFittedError):
        ask(independent_density)


def test_fitted_densities_survive_pickling(fitted, frame):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(frame), fitted.score_samples(frame))
    pd.testing.assert_frame_equal(again.sample(3, random_state=0), fitted.sample(3, random_state=0))


def test_impossible_evidence_falls_back_to_the_marginal():
    circuit = Circuit(
        0.5 * Indicator(0, 0, 2) * Gaussian(1, -5.0, 1.0)
        + 0.5 * Indicator(0, 1, 2) * Gaussian(1, 5.0, 1.0)
    )
    X = np.array([[0.0, np.nan], [2.0, np.nan], [1.0, np.nan], [7.0, 3.0]])
    with pytest.warns(UserWarning, match=r"cells of 2 rows have probability zero.*example \[ ?2"):
        completed = completed_or_marginal(circuit.expectation, X, circuit)
    np.testing.assert_allclose(completed, [[0, -5], [2, 0], [1, 5], [7, 3]])


LEARNERS = {
    "mixture": GaussianMixtureDensity(random_state=0),
    "tree": ChowLiuDensity(),
    "strudel": StrudelDensity(max_iter=3, random_state=0),
    "hidden": HiddenChowLiuDensity(max_iter=3, random_state=0),
    "moat": MoATDensity(max_iter=3, random_state=0),
    "polynomial": WMISPNDensity(),
    "histogram": WMISPNDensity(leaf="histogram"),
    "joint": WMISPNDensity(leaf="multivariate"),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


@every_learner
@pytest.mark.parametrize("scale", [1e-155, 1e-200, 1e-310])
def test_columns_of_a_tiny_range_are_refused_by_name(name, scale):
    X = np.random.default_rng(0).normal(size=(100, 2)) * [1.0, scale]
    with pytest.raises(ValueError, match="Numbers of column 'b' must be all the same or differ"):
        clone(LEARNERS[name]).fit(pd.DataFrame(X, columns=["a", "b"]))


@every_learner
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_extreme_numbers_give_no_nan(name):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(200, 5))
    # At both ends of what is accepted, small numbers beside one that is not, many magnitudes
    X = numbers * [2e-150, 1e149, 1e-200, 1e-312, 1.0]
    X[0, 2:4] = 1.0
    X[:, 4] = 10.0 ** rng.uniform(-322.0, 0.0, 200)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[0, 2:4] = 1.0
    density = clone(LEARNERS[name]).fit(X)
    assert not np.isnan(density.score_samples(X)).any()
    assert not np.isnan(density.sample(20, random_state=0)).any()
    assert not np.isnan(density.sample(2, X=X[:20], random_state=0)).any()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_small_numbers_are_imputed_or_refused():
    X = np.random.default_rng(0).normal(size=(100, 3))
    X[::5, 0] = np.nan
    assert not np.isnan(CircuitImputer().fit_transform(X * 1e-149)).any()
    with pytest.raises(ValueError, match="Numbers of column 0 must be all the same or differ"):
        CircuitImputer().fit(X * 1e-155)


def test_new_categories_are_less_likely_than_known_ones_and_tell_nothing_else():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"kind": rng.choice(["a", "b", "c"], 60), "x": rng.normal(size=60)})
    table.loc[0, "kind"] = "once"
    density = GaussianMixtureDensity(n_components=1, random_state=0).fit(table)
    rows = pd.DataFrame({"kind": ["a", "new", None], "x": 0.5})
    known, new, missing = density.score_samples(rows)
    assert new < known < missing
    # one category of 60 rows was seen once: (1 + 1/2) / (60 + 1)
    assert new - missing == pytest.approx(np.log(1.5 / 61.0))


def test_lists_of_labels_are_scored_like_arrays():
    table = np.array([["x", "u"], ["y", "u"], ["x", "v"], ["y", "v"]] * 5, dtype=object)
    density = ChowLiuDensity().fit(table)
    np.testing.assert_array_equal(
        density.score_samples(table[:3].tolist()), density.score_samples(table[:3])
    )
    # A label that fit has not seen has its own mass, whatever holds it
    assert density.score_samples([["new", "u"]]) < density.score_samples([["x", "u"]])


@pytest.mark.parametrize(
    "density",
    [
        GaussianMixtureDensity(n_components=2, covariance_type="full"),
        HiddenChowLiuDensity(n_latent_states=2),
    ],
    ids=lambda density: type(density).__name__,
)
def test_rows_of_weight_zero_are_absent_but_for_their_categories(density, frame):
    density, frame = density.set_params(random_state=0), frame[:120]
    weight = np.r_[np.ones(120), np.zeros(10)]
    strange = frame[:10].assign(age=1e4, income=-1e6)
    known = clone(density).fit(pd.concat([frame, strange]), sample_weight=weight)
    expected = clone(density).fit(frame).score_samples(frame)
    np.testing.assert_allclose(known.score_samples(frame), expected, rtol=1e-9)
    new = clone(density).fit(pd.concat([frame, strange.assign(job="mason")]), sample_weight=weight)
    masons = new.score_samples(frame[:3].assign(job="mason"))
    assert (masons < new.score_samples(frame[:3].assign(job="cook"))).all()
    assert np.isfinite(masons).all()
