import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, MoATDensity, StrudelDensity
from skcircuits.circuits import Bernoulli, Circuit
from skcircuits.inspection import (
    CircuitDisplay,
    DensityDisplay,
    EdgeMarginalsDisplay,
    LossCurveDisplay,
    describe_density,
)

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def headless():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def density():
    X = pd.DataFrame(np.random.default_rng(0).integers(2, size=(80, 4)), columns=list("abcd"))
    return MoATDensity(n_components=2, max_iter=3, random_state=0).fit(X)


def test_curves(density):
    display = LossCurveDisplay.from_estimator(density)
    assert [line.get_label() for line in display.lines_] == ["training", "validation"]
    np.testing.assert_allclose(display.lines_[0].get_ydata(), -np.array(density.loss_curve_))
    np.testing.assert_array_equal(display.lines_[1].get_xdata(), [1, 2, 3])


def test_no_validation_no_curve():
    assert len(LossCurveDisplay([1.0, 0.5]).plot().lines_) == 1


@pytest.mark.parametrize("kind", ["heatmap", "graph"])
def test_edges(density, kind):
    _, ax = plt.subplots()
    display = EdgeMarginalsDisplay.from_estimator(density, kind=kind, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert display.edge_marginals.sum() == pytest.approx(6)
    assert display.feature_names == list("abcd")


def test_a_misspelt_kind_draws_nothing(density):
    with pytest.raises(ValueError, match="kind must be 'heatmap' or 'graph'; got kind='grahp'"):
        EdgeMarginalsDisplay.from_estimator(density, kind="grahp")
    with pytest.raises(ValueError, match="kind must be"):
        EdgeMarginalsDisplay(np.zeros((2, 2)), ["a", "b"]).plot("tree")
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    "inspect", [describe_density, lambda density: DensityDisplay(density, ["a"]).plot()]
)
def test_densities_without_a_circuit_name_the_way_out(density, inspect):
    with pytest.raises(ValueError, match=r"have circuit_ after fit; .*to_circuit\(\)"):
        inspect(density)
    CircuitDisplay.from_circuit(density.to_circuit(2, random_state=0))


@pytest.mark.parametrize("display", [EdgeMarginalsDisplay, LossCurveDisplay])
def test_other_estimators_name_the_way_out(display):
    tree = ChowLiuDensity().fit(np.random.default_rng(0).integers(2, size=(20, 3)))
    way_out = r"have \w+_ after fit; got .*(MoATDensity|mixtures of all trees)"
    with pytest.raises(ValueError, match=way_out):
        display.from_estimator(tree)
    tree.best_estimator_ = None
    with pytest.raises(ValueError, match="best_estimator_ of the search"):
        display.from_estimator(tree)


@pytest.mark.parametrize(
    "learner, step",
    [
        (HiddenChowLiuDensity(n_latent_states=2, max_iter=3, random_state=0), "pass over the rows"),
        (StrudelDensity(max_iter=3, random_state=0), "split"),
    ],
)
def test_estimators_with_validation_scores_alone(learner, step):
    learner.fit(np.random.default_rng(0).integers(2, size=(80, 4)))
    display = LossCurveDisplay.from_estimator(learner)
    (line,) = display.lines_
    assert line.get_label() == "validation"
    np.testing.assert_array_equal(line.get_ydata(), learner.validation_scores_)
    assert display.ax_.get_xlabel() == step


def test_unfitted():
    with pytest.raises(NotFittedError):
        LossCurveDisplay.from_estimator(MoATDensity())


def test_without_matplotlib(density, monkeypatch):
    original = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"skcircuits\[plot\]"):
        LossCurveDisplay.from_estimator(density)
    with pytest.raises(ImportError, match=r"skcircuits\[plot\]"):
        CircuitDisplay.from_circuit(Circuit(Bernoulli(0, 0.5)))


def test_keywords_style_what_is_drawn(density):
    curves = LossCurveDisplay.from_estimator(density, linewidth=5.0)
    assert [line.get_linewidth() for line in curves.lines_] == [5.0, 5.0]
    heat_map = EdgeMarginalsDisplay.from_estimator(density, cmap="Reds")
    assert heat_map.ax_.images[0].get_cmap().name == "Reds"
    graph = EdgeMarginalsDisplay.from_estimator(density, kind="graph", color="red")
    assert {line.get_color() for line in graph.ax_.lines} == {"red"}


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="loss_curve must hold a loss per pass"):
        LossCurveDisplay([])
    with pytest.raises(ValueError, match=r"edge_marginals must .* 3 columns; got shape=\(2, 2\)"):
        EdgeMarginalsDisplay(np.zeros((2, 2)), ["a", "b", "c"])
