"""The bars of a Stein diagnosis."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from skcircuits import BBISWeighter
from skcircuits.graphical import BayesianNetwork, GaussianMRF
from skcircuits.inspection import SteinDiagnosisDisplay


def test_it_marks_what_has_not_mixed():
    field = GaussianMRF(np.eye(3), np.zeros(3))
    X = np.random.default_rng(0).normal(size=(150, 3)) * [1.0, 0.3, 1.0]
    weighter = BBISWeighter(target=field).fit(X)
    display = SteinDiagnosisDisplay.from_estimator(weighter, random_state=0)
    assert display.ax_.get_yticklabels()[0].get_text() == "1"
    red, *others = [bar.get_facecolor() for bar in display.bars_]
    assert red not in others
    assert "p = 0.00" in display.ax_.get_title()
    parts = {"first": [0], "others": [1, 2]}
    grouped = SteinDiagnosisDisplay.from_samples(X, field, parts=parts, random_state=0)
    assert len(grouped.bars_) == 2
    with pytest.raises(ValueError, match="have target_ and samples_ or particles_"):
        SteinDiagnosisDisplay.from_estimator(BBISWeighter(), random_state=0)


def test_parts_without_moves_are_doubtful():
    network = BayesianNetwork([[], [0]], [[0.5, 0.5], np.eye(2)])
    rows = np.array([[0, 0], [1, 1]] * 5)
    with pytest.warns(UserWarning, match="the target is zero next to the samples"):
        display = SteinDiagnosisDisplay.from_samples(rows, network, n_bootstrap=5)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["0 ?", "1 ?"]
