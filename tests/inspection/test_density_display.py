"""Drawings of densities: curves integrate, kinds of columns, errors."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

from skcircuits import WMISPNDensity
from skcircuits.inspection import DensityDisplay, describe_density


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    job = rng.choice(["cook", "nurse"], 300)
    wage = rng.normal(np.where(job == "nurse", 30.0, 20.0), 2.0)
    gain = np.where(rng.random(300) < 0.6, 0.0, rng.gamma(2.0, size=300))
    return pd.DataFrame({"job": job, "wage": wage, "gain": gain, "left": rng.random(300) < 0.5})


@pytest.fixture(scope="module")
def density(table):
    return WMISPNDensity().fit(table)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_curve_is_the_density(density, table):
    display = DensityDisplay.from_estimator(density, table, columns=["wage"])
    x, heights = display.ax_.lines[0].get_data()
    assert np.trapezoid(heights, x) == pytest.approx(1.0, abs=0.01)
    assert display.ax_.get_xlabel() == "wage"


def test_conditional_curve(density, table):
    both = DensityDisplay.from_estimator(density, table, columns=["wage"], given={"job": "nurse"})
    x, heights = both.ax_.lines[0].get_data()
    mean = np.trapezoid(x * heights, x) / np.trapezoid(heights, x)
    assert mean == pytest.approx(30.0, abs=0.7)


def test_point_masses_are_stems(density, table):
    display = DensityDisplay.from_estimator(density, table, columns=["gain"])
    stems = display.figure_.axes[1]
    assert stems.get_ylabel() == "point mass"
    assert stems.lines[0].get_ydata()[0] == pytest.approx(0.6, abs=0.07)


@pytest.mark.parametrize(
    "columns", [["job"], ["job", "wage"], ["wage", "job"], ["wage", "gain"], ["job", "left"]]
)
def test_every_pair_of_kinds(density, columns):
    ax = plt.subplots()[1]
    display = DensityDisplay.from_estimator(density, columns=columns, ax=ax)
    assert display.ax_ is ax
    labels = {display.ax_.get_xlabel(), display.ax_.get_ylabel()}
    assert labels & set(columns)


def test_colours_have_a_scale(density):
    contours = DensityDisplay.from_estimator(density, columns=["wage", "gain"])
    labels = [ax.get_ylabel() for ax in contours.figure_.axes]
    assert labels == ["gain", "density per unit of wage and of gain"]
    heat_map = DensityDisplay.from_estimator(density, columns=["job", "left"])
    assert heat_map.figure_.axes[1].get_ylabel() == "probability"
    # Probabilities of all pairs of categories
    assert heat_map.ax_.images[0].get_array().sum() == pytest.approx(1.0)


def test_errors(density):
    with pytest.raises(ValueError, match=r"wages.*'wage'"):
        DensityDisplay.from_estimator(density, columns=["wages"])
    with pytest.raises(ValueError, match="be one or two"):
        DensityDisplay.from_estimator(density, columns=["job", "wage", "gain"])


def test_a_column_is_not_drawn_against_itself(density):
    with pytest.raises(ValueError, match=r"columns must be distinct.*\['wage', 'wage'\]"):
        DensityDisplay.from_estimator(density, columns=["wage", "wage"])


def test_searches_and_foreign_densities(density, table):
    search = GridSearchCV(WMISPNDensity(), {"alpha": [0.01]}, cv=2).fit(table)
    with pytest.raises(ValueError, match="best_estimator_ of the search"):
        describe_density(search)
    foreign = KernelDensity().fit(table[["wage"]])
    with pytest.raises(ValueError, match="a density that learns a circuit"):
        describe_density(foreign)
    foreign.circuit_ = density.circuit_
    with pytest.raises(ValueError, match="with CircuitDisplay"):
        describe_density(foreign)


def test_description(density):
    text = describe_density(density)
    assert "independent groups of columns" in text
    assert "job, wage: mixture of 2" in text
    assert "PiecewisePolynomial" in text and "Categorical" in text


def test_conditions_are_those_of_the_queries(density):
    given = "job == 'nurse' and not left"
    display = DensityDisplay.from_estimator(density, columns="wage", given=given)
    x, heights = display.ax_.lines[0].get_data()
    mean = density.expectation(given=given, columns=["wage"])
    assert np.trapezoid(x * heights, x) == pytest.approx(np.squeeze(mean), abs=0.1)


@pytest.mark.parametrize(
    "columns, style, drawn",
    [
        (["wage"], {"color": "red"}, lambda ax: ax.lines[0].get_color() == "red"),
        (["job"], {"hatch": "/"}, lambda ax: ax.patches[0].get_hatch() == "/"),
        (["job", "wage"], {"linestyle": ":"}, lambda ax: ax.lines[0].get_linestyle() == ":"),
        (["job", "left"], {"vmax": 2.0}, lambda ax: ax.images[0].get_clim() == (0, 2)),
        (["wage", "gain"], {"alpha": 0.5}, lambda ax: ax.collections[0].get_alpha() == 0.5),
    ],
)
def test_keywords_style_what_is_drawn(density, columns, style, drawn):
    assert drawn(DensityDisplay.from_estimator(density, columns=columns, **style).ax_)


def test_axes_are_axes(density):
    display = DensityDisplay(density, ["wage"])
    for ax in (plt.figure(), plt.subplots(1, 2)[1]):
        with pytest.raises(TypeError, match=r"ax must be matplotlib Axes.*pass a single one"):
            display.plot(ax)
