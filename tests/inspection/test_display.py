"""What all displays have in common: errors that name the way out, and where they draw."""

import builtins

import numpy as np
import pytest

from skcircuits import ChowLiuDensity
from skcircuits.circuits import Bernoulli, Circuit
from skcircuits.inspection import (
    CircuitDisplay,
    DensityDisplay,
    EdgeMarginalsDisplay,
    LossCurveDisplay,
    describe_density,
)

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("headless")


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


def test_what_cannot_be_drawn_leaves_no_figure(density):
    with pytest.raises(ValueError, match="have circuit_ after fit"):
        DensityDisplay(density, ["a"]).plot()
    assert not plt.get_fignums()


def test_keywords_style_the_edges_of_circuits():
    circuit = Circuit(0.5 * Bernoulli(0, 0.5) + 0.5 * Bernoulli(0, 0.1))
    display = CircuitDisplay(circuit).plot(color="red")
    assert [line.get_color() for line in display.ax_.lines] == ["red", "red"]
