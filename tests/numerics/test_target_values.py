"""Values of targets at points, evaluated by their own functions."""

import numpy as np

from skcircuits.numerics._arrays import log_probs_at, scores_at


def test_targets_are_not_evaluated_at_no_points():
    def refuse(points):
        raise AssertionError(f"called with {len(points)} rows")

    points = np.empty((0, 3))
    assert scores_at(refuse, points).shape == (0, 3)
    assert log_probs_at(refuse, points).shape == (0,)
