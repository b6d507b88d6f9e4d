import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skcircuits import HiddenChowLiuDensity, MoATDensity, StrudelDensity
from skcircuits.inspection import LossCurveDisplay

pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("headless")


def test_curves(density):
    display = LossCurveDisplay.from_estimator(density)
    assert [line.get_label() for line in display.lines_] == ["training", "validation"]
    np.testing.assert_allclose(display.lines_[0].get_ydata(), -np.array(density.loss_curve_))
    np.testing.assert_array_equal(display.lines_[1].get_xdata(), [1, 2, 3])


def test_no_validation_no_curve():
    assert len(LossCurveDisplay([1.0, 0.5]).plot().lines_) == 1


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


def test_keywords_style_the_curves(density):
    curves = LossCurveDisplay.from_estimator(density, linewidth=5.0)
    assert [line.get_linewidth() for line in curves.lines_] == [5.0, 5.0]


def test_curves_need_a_point():
    with pytest.raises(ValueError, match="loss_curve must hold a loss per pass"):
        LossCurveDisplay([])
