"""Expected kernels of a univariate Gaussian difference, in closed form."""

from __future__ import annotations

import numpy as np
from scipy.special import erfc, erfcx

from skcircuits.protocols import FloatArray

__all__ = ["expected_laplacian", "expected_rbf"]


def expected_rbf(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """E[exp(-γ D²)] for D ~ N(mean, std²): (1 + 2γσ²)^(-1/2) exp(-γμ² / (1 + 2γσ²)).

    Parameters
    ----------
    mean, std : ndarray
        Broadcast arrays; std is not negative.
    gamma : float
        Scale of the kernel.

    Returns
    -------
    ndarray
        Expected values in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels.integrals._gaussian_univariate import expected_rbf
    >>> expected_rbf(np.array(0.0), np.array(2.0), 0.375)
    np.float64(0.5)
    """
    spread = 1.0 + 2.0 * gamma * np.square(std)
    return np.exp(-gamma * np.square(mean) / spread) / np.sqrt(spread)


def expected_laplacian(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """E[exp(-γ |D|)] for D ~ N(mean, std²), stable in both tails.

    With z± = (γσ² ± μ) / (√2 σ) the value is ½ Σ± exp(γ²σ²/2 ± γμ) erfc(z±), and each term
    equals exp(-μ²/2σ²) erfcx(z±), which cannot overflow where z± is not negative.

    Parameters
    ----------
    mean, std : ndarray
        Broadcast arrays; std is positive.
    gamma : float
        Scale of the kernel.

    Returns
    -------
    ndarray
        Expected values in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels.integrals._gaussian_univariate import expected_laplacian
    >>> expected_laplacian(np.array(0.0), np.array(1.0), 1.0).round(4)
    np.float64(0.5232)
    """
    mean, std = np.broadcast_arrays(mean, std)
    return 0.5 * (_one_side(mean, std, gamma) + _one_side(-mean, std, gamma))


def _one_side(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """exp(γ²σ²/2 + γμ) erfc((γσ² + μ) / (√2 σ))."""
    z = (gamma * std + mean / std) / np.sqrt(2.0)
    right = z >= 0
    # Each branch is only evaluated where it is safe.
    scaled = np.exp(-0.5 * np.square(mean / std)) * erfcx(np.where(right, z, 0.0))
    exponent = np.where(right, 0.0, 0.5 * np.square(gamma * std) + gamma * mean)
    return np.where(right, scaled, np.exp(exponent) * erfc(np.where(right, 0.0, z)))
