"""Draws from ArviZ in, draws with weights out; summaries beside the raw ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits import BBISWeighter, GraphicalSVGDSampler
from skcircuits.graphical import GaussianMRF, IsingModel
from skcircuits.targets import from_function
from skcircuits.targets.functions import SiteTarget

NORMAL = GaussianMRF(np.eye(3), np.zeros(3))


@pytest.fixture
def data():
    """Two chains of fifty draws of a number and a pair, both too wide and off centre."""
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    return arviz.from_dict(
        posterior={
            "a": rng.normal(0.4, 1.2, size=(2, 50)),
            "pair": rng.normal(0.4, 1.2, size=(2, 50, 2)),
        },
        coords={"side": ["left", "right"]},
        dims={"pair": ["side"]},
    )


def test_summaries_stand_beside_the_raw_ones(data):
    weighter = BBISWeighter(target=NORMAL).fit(data)
    summary = weighter.summary(quantiles=(0.5,))
    assert list(summary.index) == ["a", "pair[left]", "pair[right]"]
    assert list(summary.columns) == ["mean", "sd", "50%", "raw_mean", "raw_sd", "raw_50%"]
    pairs = data.posterior["pair"].to_numpy().reshape(100, 2)
    assert_allclose(summary.loc["pair[right]", "raw_mean"], pairs[:, 1].mean())
    assert_allclose(summary.loc["pair[right]", "mean"], weighter.weights_ @ pairs[:, 1])
    assert_allclose(summary.loc["a", "raw_sd"], data.posterior["a"].to_numpy().std())
    assert summary["mean"].abs().max() < 0.3 * summary["raw_mean"].abs().max()
    # Half of the weight lies below the weighted median.
    below = weighter.weights_[pairs[:, 0] <= summary.loc["pair[left]", "50%"]].sum()
    assert 0.5 <= below < 0.5 + 2 * weighter.weights_.max()


def test_weights_go_back_by_chain_and_draw(data):
    weighter = BBISWeighter(target=NORMAL).fit(data)
    result = weighter.to_arviz()
    weights = result["sample_stats"]["weight"]
    assert weights.dims == ("chain", "draw") and weights.shape == (2, 50)
    assert_array_equal(weights.to_numpy().ravel(), weighter.weights_)
    assert_array_equal(result["posterior"]["pair"], data.posterior["pair"])
    assert list(result["posterior"]["pair"].coords["side"].to_numpy()) == ["left", "right"]
    # What comes out goes in, the dataset of draws alone as well.
    for again in (result, result["posterior"]):
        assert_allclose(BBISWeighter(target=NORMAL).fit(again).weights_, weighter.weights_)


def test_trees_of_datasets_are_read_too(data):
    xarray = pytest.importorskip("xarray")
    if not hasattr(xarray, "DataTree"):
        pytest.skip("this xarray has no DataTree")
    tree = xarray.DataTree.from_dict(
        {"posterior": data.posterior.to_dataset()}
        if hasattr(data.posterior, "to_dataset")
        else {"posterior": data.posterior}
    )
    expected = BBISWeighter(target=NORMAL).fit(data).weights_
    assert_array_equal(BBISWeighter(target=NORMAL).fit(tree).weights_, expected)


def positive():
    """A log-normal variable s, in the coordinate log s."""
    normal = from_function(lambda X: -0.5 * (X**2).sum(axis=1), lambda X: -X)
    return SiteTarget(
        normal.log_prob_unnormalized,
        normal.grad_log_prob,
        1,
        lambda X: {"s": np.exp(X[:, 0])},
        lambda values: np.log(values["s"])[:, None],
    )


def test_sites_of_models_are_read_and_written_constrained():
    arviz = pytest.importorskip("arviz")
    logs = np.random.default_rng(0).normal(0.3, 1.0, size=(1, 80))
    chain = arviz.from_dict(posterior={"s": np.exp(logs), "other": logs})
    weighter = BBISWeighter(target=positive()).fit(chain)
    assert_allclose(weighter.samples_[:, 0], logs[0])
    # The generated quantity is summarised too, though the model has no such site.
    assert list(weighter.summary().index) == ["s", "other"]
    resampled = weighter.fit_resample(chain, n_samples=20)
    assert resampled.shape == (20, 1)
    start = np.random.default_rng(0).normal(size=(30, 1))
    particles = GraphicalSVGDSampler(target=positive(), random_state=0, max_iter=50).fit(start)
    written = particles.to_arviz()["posterior"]["s"]
    assert written.shape == (1, 30) and (written > 0).all()


def test_tables_have_summaries_by_column():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=list("abc"))
    weighter = BBISWeighter(target=NORMAL).fit(X)
    assert list(weighter.summary().index) == ["a", "b", "c"]
    model = IsingModel.grid(1, 3, couplings=0.3)
    states = np.random.default_rng(0).integers(2, size=(30, 3))
    collapsed = BBISWeighter(target=model, collapse=[0]).fit(states)
    with pytest.raises(ValueError, match="samples must be complete"):
        collapsed.summary()
