import numpy as np
import pytest

from skcircuits.numerics._patterns import k_means, nearest_centres


def lloyd(points, centres, n_steps, weights, observed):
    """The definition, point by point."""
    for _ in range(n_steps):
        squares = (points[:, None] - centres) ** 2 * observed[:, None]
        nearest = squares.sum(axis=2).argmin(axis=1)
        for k, j in np.ndindex(centres.shape):
            own = weights * observed[:, j] * (nearest == k)
            if own.sum() > 0:
                centres[k, j] = own @ points[:, j] / own.sum()
    return centres


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_centres_are_means_of_the_nearest_points(missing):
    rng = np.random.default_rng(0)
    observed = (rng.random((60, 4)) >= missing).astype(float)
    points = rng.normal(size=(60, 4)) * observed
    # The last centre is far from everything: it stays where it is.
    centres = np.vstack([points[:3], np.full((1, 4), 50.0)])
    weights = rng.random(60)
    given = {} if missing == 0 else {"observed": observed}
    moved = k_means(points, centres, 5, weights=weights, **given)
    np.testing.assert_allclose(moved, lloyd(points, centres.copy(), 5, weights, observed))
    np.testing.assert_array_equal(moved[-1], centres[-1])
    squares = ((points[:, None] - moved) ** 2 * observed[:, None]).sum(axis=2)
    np.testing.assert_array_equal(
        nearest_centres(points, moved, *given.values()), squares.argmin(1)
    )


def test_single_precision_stays():
    points = np.eye(3, dtype=np.float32)
    assert k_means(points, points[:2], 3).dtype == np.float32
