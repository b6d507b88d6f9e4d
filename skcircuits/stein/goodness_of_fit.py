"""Goodness of fit by the Stein discrepancy, calibrated by the wild bootstrap."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must, require_count
from skcircuits.kernels import RBF, Hamming
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import FloatArray
from skcircuits.stein._targets import is_continuous, log_probabilities, without_other_columns
from skcircuits.stein.gram import distinct_gram

# Rows whose distances choose the width of a kernel: those of all pairs are held in memory.
_MAX_WIDTH_ROWS = 1000


class SteinTestResult(NamedTuple):
    """Outcome of :func:`stein_test`.

    Attributes
    ----------
    statistic : float
        Squared Stein discrepancy of the sample, its U-statistic.
    pvalue : float
        Fraction of bootstrap statistics at least as large; small where X is not from p, and
        zero where p excludes a sample.

    Examples
    --------
    >>> from skcircuits.stein import SteinTestResult
    >>> statistic, pvalue = SteinTestResult(statistic=0.02, pvalue=0.31)
    """

    statistic: float
    pvalue: float


def stein_test(
    X: ArrayLike,
    target: Any,
    kernel: Any = None,
    *,
    operator: str | None = None,
    n_bootstrap: int = 1000,
    change_probability: float = 0.5,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> SteinTestResult:
    """Test whether samples come from a target whose normaliser may be unknown.

    The U-statistic of the Stein kernel is degenerate under the null; its distribution is
    found by multiplying the samples with random signs (Liu, Lee and Jordan 2016;
    Chwialkowski, Strathmann and Gretton 2016).

    Parameters
    ----------
    X : array-like of shape (n, d)
        Samples, at least two.
    target : object
        A categorical or a continuous target.
    kernel : kernel object, default=None
        ``Hamming(scale=d)``, or ``RBF`` with the median heuristic.
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" or "langevin", by the kind of target. P-values
        of "difference" need hundreds of samples, more the more rugged the target is: its
        kernel has heavy tails, and from too few the test rejects the target's own samples.
    n_bootstrap : int, default=1000
        Bootstrap statistics.
    change_probability : float, default=0.5
        Probability that the sign changes from one row to the next. 0.5 is right for
        independent rows; take less for the successive states of a chain.
    n_jobs : int, default=None
        Workers for the Gram matrix; the result is the same for any.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the signs.

    Returns
    -------
    SteinTestResult
        ``statistic`` and ``pvalue``.

    Warns
    -----
    UserWarning
        Where the target is zero next to the samples: the test does not see what lies beyond.

    Notes
    -----
    A large p-value says that the samples are right where they are. Their number in each of several
    modes, or parts of the support that moves of one variable do not connect, may be wrong, and
    modes that no sample has visited are not missed: compare chains from different starts.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.stein import stein_test
    >>> model = IsingModel.grid(2, 2, couplings=0.4)
    >>> good, bad = model.sample(200, random_state=0), model.soften(0.9).sample(200, random_state=0)
    >>> stein_test(good, model, random_state=0).pvalue > 0.05
    True
    >>> stein_test(bad, model, random_state=0).pvalue < 0.01
    True
    """
    rows = check_test_arguments(X, target, n_bootstrap, change_probability)
    if kernel is None:
        kernel = default_kernel(rows, target)
    # A U-statistic: without the diagonal its mean under the null is zero.
    K, which = distinct_gram(rows, target, kernel, operator=operator, n_jobs=n_jobs)
    statistic = float(off_diagonal_means(K, which, np.ones((1, len(rows))))[0])
    # A sample that the target excludes settles the question, however few there are.
    if not is_continuous(target) and np.isneginf(log_probabilities(target, rows)).any():
        return SteinTestResult(statistic, 0.0)
    signs = sign_chains(n_bootstrap, len(rows), change_probability, as_generator(random_state))
    bootstrap = off_diagonal_means(K, which, signs)
    # The sample itself counts as one of the draws: no bootstrap gives a p-value of zero.
    pvalue = (1 + np.count_nonzero(bootstrap >= statistic)) / (1 + n_bootstrap)
    return SteinTestResult(statistic, float(pvalue))


def check_test_arguments(
    X: ArrayLike, target: Any, n_bootstrap: int, change_probability: float
) -> FloatArray:
    """Give the samples of a test as numbers, and refuse arguments that mean nothing."""
    rows = float_array(X, "X")
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(must("X", "have at least two rows", shape=rows.shape))
    if not (isinstance(change_probability, Real) and 0 < change_probability <= 0.5):
        raise ValueError(
            must("change_probability", "be in (0, 0.5]", change_probability=change_probability)
        )
    require_count(1, n_bootstrap=n_bootstrap)
    return without_other_columns(target, rows)


def default_kernel(rows: FloatArray, target: Any) -> Any:
    """Give the kernel of tests: narrow enough to see many functions."""
    return RBF(median_gamma(rows)) if is_continuous(target) else Hamming(rows.shape[1])


def median_gamma(X: FloatArray) -> float:
    """Choose the width of an RBF kernel: the median squared distance becomes 1 / gamma."""
    # Evenly spread rows: successive states of a chain are too much alike.
    chosen = X[np.linspace(0, len(X) - 1, min(len(X), _MAX_WIDTH_ROWS)).astype(int)]
    squared = ((chosen[:, None] - chosen[None]) ** 2).sum(axis=-1)
    median = float(np.median(squared[np.triu_indices(len(chosen), 1)])) if len(chosen) > 1 else 0.0
    return 1.0 / median if median > 0 else 1.0


def sign_chains(
    n_chains: int, length: int, change_probability: float, rng: np.random.Generator
) -> FloatArray:
    """Draw chains of signs that keep their sign with a fixed probability."""
    changes = rng.random((n_chains, length)) < change_probability
    # The first sign is fair; later ones keep it with the given probability.
    changes[:, 0] = rng.random(n_chains) < 0.5
    return 1.0 - 2.0 * (changes.cumsum(axis=1) % 2)


def off_diagonal_means(K: FloatArray, which: np.ndarray, signs: FloatArray) -> FloatArray:
    """Mean of ``s_i s_j K_ij`` over i != j, for each row of signs."""
    n_rows = len(which)
    # Signs of equal rows add up, so the matrix of the distinct rows is enough.
    totals = np.stack([np.bincount(which, weights=s, minlength=len(K)) for s in signs])
    squares = ((totals @ K) * totals).sum(axis=1)
    return (squares - K.diagonal()[which].sum()) / (n_rows * (n_rows - 1))
