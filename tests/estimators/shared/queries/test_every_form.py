"""Every density, every method, every form of a condition: the forms agree, the answers are right.

Right means within four and a half standard errors of the draws that meet the condition.
"""

import numpy as np
import pandas as pd
import pytest

from skcircuits import (
    AutomaticDensity,
    ChowLiuDensity,
    CircuitImputer,
    ContinuousMixtureDensity,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StackingDensity,
    StrudelDensity,
    WMISPNDensity,
    col,
)
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError

DENSITIES = {
    "gaussian_mixture": GaussianMixtureDensity(n_components=2, random_state=0),
    "latent_tree": HiddenChowLiuDensity(n_latent_states=3, max_iter=3, random_state=0),
    "strudel": StrudelDensity(max_iter=5, random_state=0),
    "polynomials": WMISPNDensity(),
    "all_trees": MoATDensity(max_iter=2, random_state=0),
    "chow_liu": ChowLiuDensity(),
    "continuous_mixture": ContinuousMixtureDensity(max_iter=2, random_state=0),
    "automatic": AutomaticDensity(random_state=0),
    "stacking": StackingDensity(
        [("one", ChowLiuDensity()), ("two", ChowLiuDensity(n_components=2))], random_state=0
    ),
}
ABOVE = float(np.nextafter(-0.5, 1.0))
# The same condition in every form that can say it
BOX = {
    "text": "job in ('cook', 'nurse') and k >= 1 and x > -0.5 and `is member` and size >= 'M'",
    "signs": "(job == 'cook' | job == 'nurse') & ~(k < 1) & -0.5 < x & `is member` "
    "& size in {'M', 'L'}",
    "dict": {
        "job": {"cook", "nurse"},
        "k": (1, None),
        "x": (ABOVE, None),
        "is member": True,
        "size": ["M", "L"],
    },
    "object": col("job").isin(["cook", "nurse"])
    & (col("k") >= 1)
    & (col("x") > -0.5)
    & col("is member")
    & (col("size") >= "M"),
    "negated": ~(
        (col("job") == "pilot") | (col("k") < 1) | ~(col("x") > -0.5)
        | (col("is member") == False) | (col("size") == "S")  # noqa: E712
    ),
}  # fmt: skip
BOX["frame"] = pd.DataFrame({name: [cell] for name, cell in BOX["dict"].items()})
ROW = {
    "dict": {"job": "nurse", "x": 1.25, "is member": True},
    "text": "job == 'nurse' and x == 1.25 and `is member`",
    "missing": "job == 'nurse' and x == 1.25 and `is member` and size is missing",
    "object": (col("job") == "nurse") & (col("x") == 1.25) & col("is member"),
    "row": np.array(["nurse", None, np.nan, 1.25, True], dtype=object),
    "frame": pd.DataFrame({"x": [1.25], "job": ["nurse"], "is member": [True]}),
}
BOUNDS = {
    "frame": pd.DataFrame({("k", "lower"): [1], ("x", "lower"): [-1.0], ("x", "upper"): [2.0]}),
    "text": "k >= 1 and -1 <= x <= 2",
    "dict": {"k": (1, None), "x": (-1.0, 2.0)},
    "object": (col("k") >= 1) & col("x").between(-1, 2),
}
METHODS = {
    "probability": lambda d, given: d.probability("x > 1 or k == 2", given=given),
    "probabilities": lambda d, given: d.probabilities(["x > 1", {"k": 2}], given=given),
    "expectation": lambda d, given: d.expectation(given=given, columns=["x", "job", "k"]),
    "covariance": lambda d, given: d.covariance(given=given, columns=["x", "k"]),
    "quantile": lambda d, given: d.quantile([0.2, 0.5], "k", given=given),
    "interval": lambda d, given: d.interval(0.8, "size", given=given),
    "highest": lambda d, given: d.interval(0.8, "k", given=given, kind="highest_density"),
    "marginal": lambda d, given: d.marginal(["k", "job"], given=given).expectation("k < 3", "job"),
    "sample": lambda d, given: d.sample(3, given=given, random_state=0),
    "mpe": lambda d, given: d.mpe(given=given),
    "information": lambda d, given: d.mutual_information("job", ["size"], given=given),
    "estimated information": lambda d, given: d.mutual_information(
        "job", ["x", "k"], given=given, method="estimate", n_samples=50, random_state=0
    ),
    "bounds": lambda d, given: d.probability("x > 1", given=given, method="bounds"),
    "estimate": lambda d, given: d.probability(
        "x > 1", given=given, method="estimate", n_samples=50, random_state=0
    ),
}
# Answers that a mixture of all trees, which is no circuit, leaves to one
NO_ANSWER = {("all_trees", "covariance")}
OF_ONE_CONDITION = ("marginal", "information", "estimated information", "bounds", "estimate")
N_DRAWS = 20_000


def make_table():
    rng = np.random.default_rng(0)
    n = 300
    job = rng.choice(["cook", "nurse", "pilot"], n, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=n) + 2 * (job == "nurse")
    table = pd.DataFrame({"job": job})
    table["size"] = pd.Categorical(rng.choice(list("SML"), n), list("SML"), ordered=True)
    table["k"] = rng.integers(0, 4, n) + (x > 1)
    table["x"], table["is member"] = x, rng.random(n) < 0.3 + 0.4 * (x > 0)
    return table


# The others take the same ways, and longer
FEW = ("latent_tree", "polynomials", "chow_liu")
PARAMS = [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in DENSITIES]


@pytest.fixture(scope="module", params=PARAMS)
def named(request):
    return request.param, DENSITIES[request.param].fit(make_table())


def parts(answer):
    """Numbers of an answer, and its categories; the axis of one condition is left out."""
    cells = np.asarray(answer, dtype=object).reshape(-1).tolist()
    words = [cell for cell in cells if isinstance(cell, str)]
    return np.array([cell for cell in cells if not isinstance(cell, str)], dtype=float), words


def assert_same(answer, expected):
    (numbers, words), (wanted, others) = parts(answer), parts(expected)
    assert words == others
    np.testing.assert_allclose(numbers, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("forms", [BOX, ROW, BOUNDS], ids=["box", "row", "bounds"])
def test_forms_agree(named, method, forms):
    name, density = named
    ask = METHODS[method]
    if (name, method) in NO_ANSWER:
        with pytest.raises(CircuitPropertyError, match="of draws"):
            ask(density, forms["dict"])
        return
    answers = {form: _single(ask, density, given) for form, given in forms.items()}
    for answer in answers.values():
        assert_same(answer, answers["text"])
    if method in OF_ONE_CONDITION or method == "sample":  # draws depend on other conditions
        return
    dicts = ask(density, [forms["dict"], None, forms["dict"]])
    first = dicts.iloc[:1] if hasattr(dicts, "iloc") else np.asarray(dicts, dtype=object)[:1]
    assert_same(first, answers["text"])


def _single(ask, density, given):
    """Ask under one condition; a dataframe of one row is a list of one."""
    try:
        return ask(density, given)
    except ValueError as error:
        if "be a single condition" not in str(error):
            raise
        return ask(
            density, given.iloc[0].to_dict() if given.columns.nlevels == 1 else BOUNDS["dict"]
        )


def test_answers_agree_with_draws(named):
    name, density = named
    drawn = density.sample(N_DRAWS, random_state=0)
    given = BOX["text"]
    kept = drawn.query("job != 'pilot' and k >= 1 and x > -0.5 and `is member` and size != 'S'")
    n = len(kept)

    def close(found, expected, deviation, n=n):
        assert abs(found - expected) < 4.5 * deviation / np.sqrt(n) + 1e-9

    p = n / N_DRAWS
    close(density.probability(given), p, np.sqrt(p * (1 - p)), N_DRAWS)
    both = density.probability("x > 1 and k == 2", given=given)
    close(both, ((kept.x > 1) & (kept.k == 2)).mean(), 0.5)
    means = density.expectation(given, columns=["x", "job"])
    close(means["x"][0], kept.x.mean(), kept.x.std())
    close(means["job_cook"][0], (kept.job == "cook").mean(), 0.5)
    median = density.quantile(0.5, "x", given=given)
    close((kept.x <= median).mean(), 0.5, 0.5)
    low, high = density.interval(0.8, "x", given=given)
    close(kept.x.between(low, high).mean(), 0.8, 0.4)
    under = density.sample(2000, given=given, random_state=1)
    assert len(under.query("x > -0.5 and k >= 1 and size >= 'M'")) == 2000
    assert abs(under.x.mean() - kept.x.mean()) < 4.5 * kept.x.std() * np.sqrt(1 / n + 1 / 2000)
    if (name, "covariance") not in NO_ANSWER:
        covariance = density.covariance(given, columns=["x"]).iloc[0, 0]
        assert covariance == pytest.approx(kept.x.var(), rel=0.15)


@pytest.mark.parametrize("given", ["x > 1 and x < 0", {"job": set()}, "k in ()"], ids=str)
def test_impossible_conditions_raise(named, given):
    _, density = named
    for method in ("expectation", "mpe", "sample", "covariance"):
        with pytest.raises(ZeroProbabilityError, match="positive probability"):
            getattr(density, method)(given=given)


def test_unknown_names_get_the_nearest(named):
    _, density = named
    with pytest.raises(ValueError, match="'job'"):
        density.expectation("jobb == 'cook'")
    with pytest.raises(ValueError, match="'nurse'"):
        density.sample(1, given={"job": "nurs"})


def test_missing_cells_say_nothing(named):
    _, density = named
    nothing = [None, {}, {"x": np.nan, "job": None}, "x is missing", np.full(5, np.nan)]
    expected = density.expectation(columns=["x", "k"]).to_numpy()
    for given in nothing:
        found = density.expectation(given, columns=["x", "k"]).to_numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_huge_numbers_and_far_conditions(named):
    _, density = named
    assert density.probability("x < 1e300 and x > -1e300") == pytest.approx(1.0)
    assert density.probability({"x": (-1e300, 1e300)}, given="x > -1e308") == pytest.approx(1.0)
    assert density.probability("x > 1e300") == pytest.approx(0.0, abs=1e-12)


def test_densities_within_estimators_answer():
    table = make_table()
    table.loc[::5, "x"] = np.nan
    imputer = CircuitImputer(density=ChowLiuDensity()).fit(table)
    model = ExpectedPredictionRegressor(
        density=GaussianMixtureDensity(n_components=1, random_state=0)
    ).fit(table[["x", "k"]].to_numpy(), np.arange(len(table)))
    for density, given in ((imputer.density_, BOX["text"]), (model.density_, "x0 > 0 and x1 >= 1")):
        assert 0.0 < density.probability(given) < 1.0
        for ask in (density.expectation, density.mpe, density.covariance):
            assert not pd.isna(np.asarray(ask(given=given), dtype=object)).any()
        assert len(density.sample(5, given=given, random_state=0)) == 5
