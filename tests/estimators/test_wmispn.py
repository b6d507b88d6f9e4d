"""WMISPNDensity: exact queries, integers, missing cells, and what it learns."""

import importlib

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from skcircuits import WMISPNDensity
from skcircuits.exceptions import ZeroProbabilityError


def people(n=600, seed=0):
    rng = np.random.default_rng(seed)
    nurse = rng.random(n) < 0.4
    age = rng.integers(20, 66, n)
    wage = rng.normal(20.0 + 10.0 * nurse + 0.2 * age, 3.0)
    gain = np.where(rng.random(n) < 0.7, 0.0, rng.gamma(2.0, 400.0, n))
    smokes = rng.random(n) < np.where(nurse, 0.2, 0.5)
    job = np.where(nurse, "nurse", rng.choice(["cook", "smith"], n))
    table = {"job": job, "age": age, "wage": wage, "gain": gain, "smokes": smokes}
    return pd.DataFrame(table)


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.fixture(scope="module")
def density(table):
    return WMISPNDensity().fit(table)


def random_query(rng):
    low, high = np.sort(rng.uniform(15, 50, 2)).round(2)
    youngest, oldest = np.sort(rng.integers(18, 70, 2))
    atoms = [
        f"{low} < wage <= {high}",
        f"{youngest} <= age < {oldest}",
        f"age == {youngest}",
        "gain == 0",
        f"gain > {low * 10}",
        "job in ('nurse', 'cook')",
        "not smokes",
    ]
    first, second, third = rng.choice(atoms, 3, replace=False)
    return f"({first} {rng.choice(['and', 'or'])} {second}) {rng.choice(['and', 'or'])} {third}"


def test_fits_are_the_same_bit_by_bit_in_any_order_of_the_rows():
    # A rounding error may flip thresholds of the trees that complete rows with it
    rng = np.random.default_rng(0)
    z = rng.normal(size=150)
    table = pd.DataFrame(
        {"a": np.exp(z), "b": z + 0.3 * rng.normal(size=150), "c": np.where(z > 0, "u", "v")}
    )
    table = table.mask(rng.random(table.shape) < 0.1)
    first, second = WMISPNDensity().fit(table), WMISPNDensity().fit(table.iloc[::-1])
    np.testing.assert_array_equal(first.score_samples(table), second.score_samples(table))


@pytest.mark.parametrize("seed", range(15))
def test_complements_and_inclusion_exclusion(density, seed):
    rng = np.random.default_rng(seed)
    a, b = random_query(rng), random_query(rng)
    queries = [a, f"not ({a})", b, f"({a}) and ({b})", f"({a}) or ({b})"]
    p_a, p_not_a, p_b, p_both, p_any = density.probabilities(queries)
    assert p_a + p_not_a == pytest.approx(1.0, abs=1e-10)
    assert p_any == pytest.approx(p_a + p_b - p_both, abs=1e-10)


@pytest.mark.parametrize(
    "n", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_queries_agree_with_the_own_sampler(density, n):
    draws = density.sample(n, random_state=0)
    assert draws["age"].dtype == np.int64 and draws["smokes"].dtype == bool
    rng = np.random.default_rng(1)
    for _ in range(12):
        query = random_query(rng)
        fraction = draws.eval(query).mean()
        expected = density.probability(query)
        assert abs(fraction - expected) < 4 * np.sqrt(expected * (1 - expected) / n) + 1e-12


@pytest.mark.slow
def test_conditional_queries_agree_with_the_own_sampler(density):
    draws = density.sample(100_000, random_state=1)
    rng = np.random.default_rng(2)
    for _ in range(8):
        query, given = random_query(rng), random_query(rng)
        kept = draws[draws.eval(given)]
        if len(kept) < 100:
            # Too few for a comparison under this condition, which has to be rare
            assert density.probability(given) < 2e-3
            continue
        fraction = kept.eval(query).mean()
        expected = density.probability(query, given=given)
        assert abs(fraction - expected) < 4 * np.sqrt(expected * (1 - expected) / len(kept)) + 1e-12


def integrate(density, function, frame, column, low=-np.inf, high=np.inf):
    """Integrate a function of rows over one column by quadrature between the knots."""
    layers = [layer for _, layer in density.circuit_.plan.inputs if hasattr(layer, "pieces")]
    knots = {knot for layer in layers for own in layer.pieces.breakpoints for knot in own}
    ends = max(low, -400.0), min(high, 400.0)
    cuts = [ends[0], *(knot for knot in sorted(knots) if ends[0] < knot < ends[1]), ends[1]]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    starts, widths = np.array(cuts[:-1]), np.diff(cuts)
    # Tails take more points than polynomials
    points = (starts[:, None] + widths[:, None] * np.linspace(0, 1, 33)[:-1]).ravel()
    step = np.repeat(widths / 32, 32)
    x = (points[:, None] + step[:, None] * (nodes + 1) / 2).ravel()
    rows = frame.take(np.zeros(len(x), int)).reset_index(drop=True).assign(**{column: x})
    return float((step[:, None] * weights / 2).ravel() @ function(rows, x))


@pytest.fixture(scope="module")
def small_density():
    return WMISPNDensity().fit(people(300)[["job", "wage"]])


@pytest.mark.parametrize("given", [(25.0, 33.0), (30.0, 30.5), (38.0, 60.0)])
def test_conditioning_agrees_with_quadrature(small_density, given):
    def height(rows, x):
        return np.exp(small_density.score_samples(rows))

    def mass(job, low, high):
        return integrate(small_density, height, pd.DataFrame({"job": [job]}), "wage", low, high)

    jobs = ["cook", "nurse", "smith"]
    evidence = sum(mass(job, *given) for job in jobs)
    condition = {"wage": given}
    assert small_density.probability(condition) == pytest.approx(evidence, rel=1e-9)
    middle = sum(given) / 2
    for job in jobs:
        # P(A | B) for a set, an interval, and both
        expected = mass(job, *given) / evidence
        assert small_density.probability({"job": job}, condition) == pytest.approx(expected)
        expected = mass(job, given[0], middle) / evidence
        query = {"job": job, "wage": (None, middle)}
        assert small_density.probability(query, condition) == pytest.approx(expected, rel=1e-9)
    # The density given an interval is the joint density over the probability of the interval
    expected = sum(mass(job, middle, middle + 0.01) for job in jobs) / evidence
    thin = {"wage": (middle, middle + 0.01)}
    assert small_density.probability(thin, condition) == pytest.approx(expected, rel=1e-9)


def test_expectations_given_labels_agree_with_quadrature(small_density):
    def height(rows, x):
        return np.exp(small_density.score_samples(rows))

    for code, job in enumerate(["cook", "nurse", "smith"]):
        frame = pd.DataFrame({"job": [job]})
        total = integrate(small_density, height, frame, "wage")
        first = integrate(small_density, lambda rows, x: x * height(rows, x), frame, "wage")
        row = np.array([[float(code), np.nan]])
        assert small_density.circuit_.expectation(row)[0, 1] == pytest.approx(
            first / total, rel=1e-8
        )


def test_a_two_dimensional_mixed_model_integrates_to_one(small_density):
    def height(rows, x):
        return np.exp(small_density.score_samples(rows))

    jobs = ("cook", "nurse", "smith")
    frames = [pd.DataFrame({"job": [job]}) for job in jobs]
    total = sum(integrate(small_density, height, frame, "wage") for frame in frames)
    assert total == pytest.approx(1.0, abs=1e-7)


def test_conditioning_on_intervals_is_bayes(density):
    given = "30 <= age <= 40 and wage > 28"
    for query in ("job == 'nurse'", "gain > 500 or smokes", {"wage": (None, 31.0)}):
        joint = (
            density.probability({**query}, given=given) * density.probability(given)
            if isinstance(query, dict)
            else density.probability(f"({query}) and {given}")
        )
        expected = joint / density.probability(given)
        assert density.probability(query, given=given) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ZeroProbabilityError, match="positive probability"):
        density.probability("smokes", given="job == 'cook' and job == 'nurse'")


def test_whole_numbers_mean_what_rounds_to_them(density):
    every_age = [f"age == {age}" for age in range(18, 69)]
    inside = density.probability("18 <= age < 69")
    assert density.probabilities(every_age).sum() == pytest.approx(inside, rel=1e-10)
    assert density.probability({"age": (30, 30)}) == pytest.approx(
        density.probability("age == 30"), rel=1e-12
    )
    assert density.probability("29.2 < age < 29.8") == 0.0
    assert density.is_integer_.tolist() == [False, True, False, False, False]


def test_integer_features_can_be_overridden(table):
    for chosen in (None, [], ["gain"], [3], np.array([False, False, False, True, False])):
        density = WMISPNDensity(integer_features=chosen, min_samples_split=0.5).fit(table)
        expected = [False] * 5
        if chosen is not None and len(chosen):
            expected[3] = True
        assert density.is_integer_.tolist() == expected
    with pytest.raises(ValueError, match="integer_features must be 'auto', None, a boolean mask"):
        WMISPNDensity(integer_features=[7]).fit(table)
    with pytest.raises(ValueError, match=r"Names in integer_features must be columns.*'wage'"):
        WMISPNDensity(integer_features=["wages"]).fit(table)


def test_point_masses_are_masses(density, table):
    np.testing.assert_array_equal(density.point_masses_[3], [0.0])
    fraction = (table["gain"] == 0).mean()
    assert density.probability("gain == 0") == pytest.approx(fraction, abs=0.01)
    assert density.probability("-1e-9 <= gain <= 1e-9") == pytest.approx(fraction, abs=0.01)


def test_components_add_up_to_the_score(density, table):
    log_density, log_mass = density.score_components(table)
    np.testing.assert_allclose(log_density + log_mass, density.score_samples(table), rtol=1e-12)
    assert (log_mass <= 1e-12).all()
    categories = table.assign(age=np.nan, wage=np.nan, gain=np.nan)
    zero = density.score_components(categories)
    np.testing.assert_allclose(zero[0], 0.0, atol=1e-12)


def test_dependence_is_learned(density, table):
    independent = WMISPNDensity(alpha=0.0).fit(table)
    fresh = people(500, seed=9)
    assert density.score(fresh) > independent.score(fresh) + 0.3
    assert independent.circuit_.n_units == 6
    low = density.probability("wage > 35", given={"job": "cook"})
    assert density.probability("wage > 35", given={"job": "nurse"}) > 2 * low


def test_scores_are_finite_far_from_the_data(density):
    far = people(3).assign(age=[-500, 0, 4000], wage=[-1e6, 30.0, 1e6], gain=[-1.0, 5e5, 0.5])
    assert np.isfinite(density.score_samples(far)).all()


@pytest.mark.parametrize("leaf", ["histogram", "gaussian", "multivariate"])
def test_other_leaves(leaf, table):
    density = WMISPNDensity(leaf=leaf).fit(table)
    families = {type(unit).__name__ for unit in density.circuit_.plan.units}
    expected = {"gaussian": "Gaussian", "multivariate": "MultivariateGaussian"}
    assert expected.get(leaf, "PiecewisePolynomial") in families
    p = density.probabilities(["wage > 30", "not wage > 30"])
    assert p.sum() == pytest.approx(1.0, abs=1e-10)


def test_joint_leaves_win_where_columns_depend_linearly():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) @ rng.normal(size=(4, 4))
    joint = WMISPNDensity(leaf="multivariate").fit(X[:400])
    apart = WMISPNDensity().fit(X[:400])
    assert joint.score(X[400:]) > apart.score(X[400:]) + 0.5


def test_missing_values_in_fit_and_score(table):
    incomplete = table.astype({"age": float}).mask(
        np.random.default_rng(0).random(table.shape) < 0.2
    )
    density = WMISPNDensity().fit(incomplete)
    complete = WMISPNDensity().fit(table)
    fresh = people(400, seed=3)
    assert density.score(fresh) > complete.score(fresh) - 0.5
    assert np.isfinite(density.score_samples(incomplete)).all()


@pytest.mark.parametrize(
    ("function", "after"),
    [
        ("_sum_product.split_rows", 2),
        ("_sum_product.Region", 4),
        ("_polynomials.fit_polynomials", 0),
        ("_sum_product.PiecewisePolynomial", 2),
    ],
    ids=["cutting", "between parts", "choosing polynomials", "building leaves"],
)
def test_interrupt_keeps_the_groups_so_far(monkeypatch, table, function, after):
    target = f"skcircuits.learning.{function}"
    module, _, name = target.rpartition(".")
    original = getattr(importlib.import_module(module), name)
    calls = []

    def interrupted_once(*args, **kwargs):
        calls.append(1)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(target, interrupted_once)
    density = WMISPNDensity()
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        density.fit(table)
    assert np.isfinite(density.score(table))
    assert np.exp(density.circuit_.log_partition) == pytest.approx(1.0)


def test_iris_beats_its_factorised_model():
    X = load_iris(as_frame=True).data.assign(species=load_iris().target.astype(str))
    train, test = X[::2], X[1::2]
    density = WMISPNDensity().fit(train)
    assert density.score(test) > WMISPNDensity(alpha=0.0).fit(train).score(test) + 1.5


@pytest.mark.parametrize("missing", ["by chance", "by another column"])
def test_missing_cells_do_not_bias_the_dependence(missing):
    rng = np.random.default_rng(3)
    a = rng.random(4000) < 0.4
    c = rng.random(4000) < np.where(a, 0.7, 0.2)
    X = np.column_stack([a, c]).astype(float)
    if missing == "by chance":
        X[rng.random(X.shape) < 0.3] = np.nan
    else:
        X[a & (rng.random(4000) < 0.7), 1] = np.nan
    density = WMISPNDensity(categorical_features=[0, 1]).fit(X)
    assert density.probability({1: 1}, given={0: 1}) == pytest.approx(0.7, abs=0.04)
    assert density.probability({1: 1}, given={0: 0}) == pytest.approx(0.2, abs=0.03)
    assert density.probability({1: 1}) == pytest.approx(0.4, abs=0.03)


def test_the_level_of_the_tests_is_chosen_on_held_out_rows():
    iris = load_iris()
    X = np.column_stack([iris.data, iris.target])
    train, test = X[::2], X[1::2]
    fixed = WMISPNDensity(alpha=0.01, categorical_features=[4]).fit(train)
    chosen = WMISPNDensity(alpha="auto", categorical_features=[4], random_state=0).fit(train)
    assert fixed.alpha_ == 0.01
    assert WMISPNDensity(leaf="histogram").fit(train).alpha_ == 0.05
    assert chosen.alpha_ in (0.01, 0.1, 0.5)
    same = WMISPNDensity(alpha=chosen.alpha_, categorical_features=[4]).fit(train)
    np.testing.assert_array_equal(chosen.score_samples(test), same.score_samples(test))
    assert chosen.score(test) >= fixed.score(test)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 2001])
def test_an_automatic_level_needs_no_rows_to_spare(n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 2))
    density = WMISPNDensity(alpha="auto", leaf="histogram").fit(X)
    assert density.alpha_ == 0.01 or n_rows == 3
    assert np.isfinite(density.score_samples(X)).all()


def test_thresholds_of_a_number_that_decide_a_category_stay_sharp():
    rng = np.random.default_rng(0)
    weight = np.round(rng.normal(3000.0, 700.0, size=200))
    frame = pd.DataFrame(
        {
            "low": np.where(weight < 2500.0, "yes", "no"),
            "weight": weight,
            "smokes": rng.choice(["yes", "no"], size=200),
        }
    )
    density = WMISPNDensity().fit(frame)
    assert density.probability({"low": "yes"}, given={"weight": (None, 2499.0)}) > 0.97
    assert density.probability({"low": "yes"}, given={"weight": (2500.0, None)}) < 0.02
