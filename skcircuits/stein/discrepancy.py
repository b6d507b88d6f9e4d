"""Squared Stein discrepancies of weighted samples and of circuits: values, tests, and thinning.

Discrepancies per variable show the parts of a model that samples misrepresent (`stein_diagnosis`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist

from skcircuits.circuits import (
    Circuit,
    cyclic_shift,
    divide,
    is_deterministic,
    multiply,
)
from skcircuits.circuits.structure.units import Sum, fold
from skcircuits.exceptions import CircuitPropertyError, invalid, must, require_count
from skcircuits.kernels import RBF, Hamming, expected_kernel
from skcircuits.kernels.families.base import Kernel
from skcircuits.numerics._arrays import float_array, spread_rows
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import as_generator
from skcircuits.parallel import Parallel, delayed
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._targets import (
    is_continuous,
    log_probabilities,
    own_columns,
    without_other_columns,
)
from skcircuits.stein.gram import collapse_cells, distinct_gram, prepare, symmetric_gram
from skcircuits.stein.langevin import ScoredPoints
from skcircuits.stein.simplex import DenseForm, SteinColumns, square_matrix

# Rows whose distances choose the width of a kernel: those of all pairs are held in memory.
_MAX_WIDTH_ROWS = 1000


def kdsd(q: Circuit, p: Circuit, kernel: Kernel, *, n_jobs: int | None = None) -> float:
    """Compute the kernelized discrete Stein discrepancy of two circuits exactly.

    With ``u_i = q r_i - q∘¬_i`` and ``r_i = (p∘¬_i) / p``, where ¬_i shifts variable i to its next
    state, the discrepancy is ``sum_i <u_i, K u_i>``. It is the expectation of the Stein kernel of
    the published difference operator under two independent draws of q (Li et al. 2021, Corollary
    4.7).

    Parameters
    ----------
    q : Circuit
        The distribution that is compared with the target.
    p : Circuit
        The target: categorical, deterministic and positive everywhere, compatible with q
        and with itself.
    kernel : Kernel
        The base kernel.
    n_jobs : int, default=None
        Number of workers over the variables; the result does not depend on it.

    Returns
    -------
    float
        The squared discrepancy, zero where q equals p.

    Raises
    ------
    CircuitPropertyError
        If p is not deterministic, has zeros, lacks states of q, or is not compatible with q.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta
    >>> from skcircuits.stein import kdsd
    >>> fair, loaded = Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.8))
    >>> round(kdsd(fair, fair, Delta()), 9), round(kdsd(loaded, fair, Delta()), 9)
    (0.0, 0.72)
    """
    for circuit in (q, p):
        if not isinstance(circuit, Circuit):
            way_out = "Graphical models have compile()."
            raise TypeError(
                must("q and p of kdsd", "be circuits", way_out, kind=type(circuit).__name__)
            )
    # Each term is <u, K u> for u = forward - moved, by bilinearity of M_k.
    _check_positive(p)
    _check_states(q, p)
    terms = Parallel(n_jobs=n_jobs)(
        delayed(_moved_term)(q, p, kernel, variable) for variable in p.variables
    )
    # If q is close to p, terms cancel up to rounding errors, which may be negative.
    return max(0.0, sum(terms))


def _moved_term(q: Circuit, p: Circuit, kernel: Kernel, variable: int) -> float:
    """``<u_i, K u_i>`` of one variable."""
    forward = multiply(q, divide(cyclic_shift(p, variable), p))
    # With the cycle of p, of which q may have only some states
    moved = cyclic_shift(q, variable, n_states=p.cardinalities[variable])
    return (
        expected_kernel(forward, forward, kernel)
        - 2.0 * expected_kernel(forward, moved, kernel)
        + expected_kernel(moved, moved, kernel)
    )


def _check_positive(p: Circuit) -> None:
    """Compare the size of the support with the number of states."""
    if len(p.cardinalities) < len(p.variables):
        raise CircuitPropertyError(
            must("target of kdsd", "be over categorical variables", variables=p.variables)
        )
    n_states = prod(p.cardinalities.values())
    # Others are refused when they are divided
    if is_deterministic(p) and _support_size(p) < n_states:
        condition = "be positive everywhere"
        way_out = "The ratios p(¬x) / p(x) are not defined otherwise: smooth its parameters."
        raise CircuitPropertyError(must("target of kdsd", condition, way_out, n_states=n_states))


def _support_size(p: Circuit) -> int:
    """Number of possible states of a deterministic circuit, exact however many there are."""

    def of_sum(unit: Sum, below: list[int]) -> int:
        return sum(n for n, w in zip(below, unit.weights, strict=True) if w > 0)

    return fold(
        p.root,
        of_sum,
        lambda below: prod(below),
        lambda leaf: int(np.count_nonzero(leaf.probabilities)),
    )


def _check_states(q: Circuit, p: Circuit) -> None:
    """The ratios of p are defined for its own states only."""
    wider = [v for v, k in q.cardinalities.items() if k > p.cardinalities.get(v, k)]
    if wider:
        condition = "have no more states than its target"
        way_out = "Give the target a positive probability of each of them."
        raise CircuitPropertyError(must("q of kdsd", condition, way_out, variables=wider))


def stein_discrepancy(
    X: ArrayLike,
    target: Any,
    kernel: Any,
    weights: ArrayLike | None = None,
    *,
    operator: str | None = None,
    collapse: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the squared Stein discrepancy of weighted samples.

    It is the V-statistic ``sum_ij w_i w_j k_p(x_i, x_j)``, which is never negative.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Samples, with NaN for collapsed variables.
    target : object
        The target.
    kernel : kernel object
        The base kernel.
    weights : array-like of shape (n,), default=None
        Weights of the samples; equal by default.
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" for categorical and "langevin" for continuous
        targets.
    collapse : array-like, default=None
        Variables that are summed out, as in :func:`stein_gram`.
    n_jobs : int, default=None
        Number of workers for blocks of the Gram matrix; the result does not depend on it.

    Returns
    -------
    float
        The squared discrepancy.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.kernels import Hamming
    >>> from skcircuits.stein import stein_discrepancy
    >>> model = IsingModel.grid(1, 2, couplings=0.5)
    >>> samples = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0)), 3)
    0.017
    >>> p = [0.3656, 0.1344, 0.1344, 0.3656]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0), p), 3)
    0.0
    """
    rows = collapse_cells(X, collapse)
    if not len(rows):
        raise invalid("X", "have at least one row", shape=rows.shape)
    w = np.full(len(rows), 1 / len(rows)) if weights is None else float_array(weights, "weights")
    if w.shape != (len(rows),) or not np.isfinite(w).all():
        raise invalid("weights", f"be {len(rows)} finite numbers", shape=w.shape)
    K, which = distinct_gram(rows, target, kernel, operator=operator, n_jobs=n_jobs)
    # Rows that are equal act as one with the sum of their weights.
    totals = np.bincount(which, weights=w, minlength=len(K))
    return max(0.0, float(totals @ K @ totals))


class SteinTestResult(NamedTuple):
    """Outcome of :func:`stein_test`.

    Attributes
    ----------
    statistic : float
        U-statistic of the squared Stein discrepancy of the sample.
    pvalue : float
        Fraction of bootstrap statistics that are at least as large. It is small if X is not from p,
        and zero if a sample has probability zero.

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
    """Test whether samples come from a target whose normalising constant may be unknown.

    The U-statistic of the Stein kernel is degenerate under the null hypothesis. Its distribution is
    approximated by multiplying the samples with random signs (Liu, Lee and Jordan 2016;
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
        The Stein operator; by default "barker" for categorical and "langevin" for continuous
        targets. P-values of "difference" need hundreds of samples, and more if probabilities vary
        strongly between neighbouring states: its kernel has heavy tails, and with too few samples
        the test rejects samples of the target itself.
    n_bootstrap : int, default=1000
        Number of bootstrap statistics.
    change_probability : float, default=0.5
        Probability that the sign changes from one row to the next. Use 0.5 for independent rows,
        and a smaller value for the successive states of a Markov chain.
    n_jobs : int, default=None
        Number of workers for the Gram matrix; the result does not depend on it.
    random_state : int, Generator, RandomState or None, default=None
        Controls the random signs of the bootstrap.

    Returns
    -------
    SteinTestResult
        ``statistic`` and ``pvalue``.

    Warns
    -----
    UserWarning
        If the target is zero next to the samples, because the test does not detect differences
        beyond these zeros.

    Notes
    -----
    A large p-value means that the samples are consistent with the target locally. The fractions of
    the samples in several modes, or in parts of the support that are not connected by changes of a
    single variable, may still be wrong, and modes without samples are not detected. Compare chains
    from different starts.

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
    return SteinTestResult(statistic, _pvalue(bootstrap, statistic))


def check_test_arguments(
    X: ArrayLike, target: Any, n_bootstrap: int, change_probability: float
) -> FloatArray:
    """Give the samples of a test as numbers, and refuse arguments that mean nothing."""
    rows = float_array(X, "X")
    if rows.ndim != 2 or len(rows) < 2:
        raise invalid("X", "have at least two rows", shape=rows.shape)
    if not (isinstance(change_probability, Real) and 0 < change_probability <= 0.5):
        raise invalid("change_probability", "be in (0, 0.5]", change_probability=change_probability)
    require_count(1, n_bootstrap=n_bootstrap)
    return without_other_columns(target, rows)


def default_kernel(rows: FloatArray, target: Any) -> Any:
    """Give the kernel of tests, narrow enough for its space to contain many functions."""
    return RBF(median_gamma(rows)) if is_continuous(target) else Hamming(rows.shape[1])


def median_gamma(X: FloatArray) -> float:
    """Choose the width of an RBF kernel: the median squared distance becomes 1 / gamma."""
    # Evenly spread rows: successive states of a chain are too much alike.
    chosen = X[spread_rows(len(X), _MAX_WIDTH_ROWS)]
    median = float(np.median(pdist(chosen, "sqeuclidean"))) if len(chosen) > 1 else 0.0
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


# Central differences of scores: the cube root of the rounding error, in units of each coordinate.
_STEP = 1e-5


def stein_thinning(
    K: ArrayLike,
    n_samples: int,
    *,
    log_prob: ArrayLike | None = None,
    curvature: ArrayLike | None = None,
) -> IntArray:
    """Select samples greedily such that their Stein discrepancy is small.

    Each step adds the sample that minimises the discrepancy of the equally weighted selected
    samples. A sample may be selected more than once (Riabiz et al. 2022). With `log_prob`, the
    selection is regularised (Bénard, Staber and Da Veiga 2023), because the discrepancy alone may
    prefer saddle points and other points of low probability where scores vanish, and does not
    determine the relative probability of distant modes.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Stein Gram matrix.
    n_samples : int
        Number of samples to select.
    log_prob : array-like of shape (n,), default=None
        Log density of the samples up to a constant. Its mean over the selected samples is rewarded,
        with one over `n_samples` as weight.
    curvature : array-like of shape (n,), default=None
        With `log_prob`, the sum of the positive second derivatives of the log density, which
        penalises its valleys; zero by default.

    Returns
    -------
    ndarray of int of shape (n_samples,)
        Indices of the samples, in the order of their selection.

    Examples
    --------
    >>> from skcircuits.stein import stein_thinning
    >>> stein_thinning([[1.0, 0.9, -0.9], [0.9, 2.0, 0.0], [-0.9, 0.0, 2.0]], 2)
    array([0, 2])
    """
    gram = DenseForm(square_matrix(K))
    return thin_columns(gram, n_samples, log_prob=log_prob, curvature=curvature)


def thin_columns(
    gram: SteinColumns | DenseForm,
    n_samples: int,
    *,
    log_prob: ArrayLike | None = None,
    curvature: ArrayLike | None = None,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Choose as `stein_thinning` does, without the whole matrix, from a drawn ``batch_size`` of
    samples per step (Teymur, Gorham, Riabiz and Oates 2021) if given.
    """
    require_count(1, n_samples=n_samples)
    if batch_size is not None:
        require_count(1, batch_size=batch_size)
    n = len(gram)
    reward = _vector(log_prob, n, "log_prob") / n_samples
    # Adding i changes the sum over pairs by K_ii + 2 sum_j K_ij over the chosen j.
    alone = gram.diagonal() + _vector(curvature, n, "curvature")
    chosen = np.empty(n_samples, dtype=np.int64)
    is_batched = batch_size is not None and batch_size < n
    rng = np.random.default_rng(0) if rng is None else rng
    for step in range(n_samples):
        if is_batched:
            batch = rng.choice(n, batch_size, replace=False)
            increase = alone[batch]
            if step:
                increase += 2.0 * gram.columns(chosen[:step], batch).sum(axis=1)
            chosen[step] = batch[np.argmin(increase - (step + 1) * reward[batch])]
        else:
            # The sum over pairs grows with the square of their number, the reward with the number.
            chosen[step] = np.argmin(alone - (step + 1) * reward)
            alone += 2.0 * gram.columns(chosen[step : step + 1])[:, 0]
    return chosen


def positive_curvatures(target: Any, X: FloatArray, axes: FloatArray) -> FloatArray:
    """Sums of positive second derivatives at rows along axes (d, d), by differences of scores."""
    total = np.zeros(len(X))
    for axis in axes.T:
        # In units of the samples: steps are as fine for all coordinates.
        length = float((X @ axis).std()) / float(axis @ axis)
        step = _STEP * (length if length > 0 else 1.0)
        ahead, behind = X + step * axis, X - step * axis
        change = target.grad_log_prob(ahead) - target.grad_log_prob(behind)
        total += np.maximum(change @ axis / (2.0 * step), 0.0)
    return total


def _vector(values: ArrayLike | None, n: int, name: str) -> FloatArray:
    """Read one finite number per sample; zeros for None."""
    if values is None:
        return np.zeros(n)
    vector = float_array(values, name)
    if vector.shape != (n,) or not np.isfinite(vector).all():
        raise invalid(name, f"be {n} finite numbers", shape=vector.shape)
    return vector


@dataclass(frozen=True)
class SteinDiagnosis:
    """Outcome of :func:`stein_diagnosis`, one entry per part of the model.

    Attributes
    ----------
    names : tuple of str
        Names of the parts.
    statistics : ndarray of shape (n_parts,)
        U-statistics of the squared Stein discrepancy of the sample for changes of each part.
    excess : ndarray of shape (n_parts,)
        The statistics in standard deviations of the bootstrap.
    pvalues : ndarray of shape (n_parts,)
        P-values, adjusted for the number of parts.
    pvalue : float
        P-value of the whole model, with all parts together.
    unmoved : tuple of str
        Parts that cannot change in any sample. Their p-values are not informative.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.stein import stein_diagnosis
    >>> model = IsingModel.grid(1, 3, couplings=0.4)
    >>> stein_diagnosis(model.sample(100, random_state=0), model, random_state=0).names
    ('0', '1', '2')
    """

    names: tuple[str, ...]
    statistics: FloatArray
    excess: FloatArray
    pvalues: FloatArray
    pvalue: float
    unmoved: tuple[str, ...] = ()


def stein_diagnosis(
    X: ArrayLike,
    target: Any,
    kernel: Any = None,
    *,
    parts: Mapping[str, ArrayLike] | None = None,
    operator: str | None = None,
    n_bootstrap: int = 500,
    change_probability: float = 0.5,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> SteinDiagnosis:
    """Test Stein's identity for changes of each variable, to find variables that have not mixed.

    The Stein kernel is a sum over the variables, and each term of the sum has mean zero under the
    target. P-values are computed by a wild bootstrap with the same signs for all parts, so that
    they can be adjusted by the distribution of the largest excess (Westfall and Young 1993).

    Parameters
    ----------
    X : array-like of shape (n, d)
        Complete samples, at least two.
    target : object
        A categorical or a continuous target.
    kernel : kernel object, default=None
        As in :func:`stein_test`.
    parts : dict, default=None
        Names of parts and the variables of each part, such as the sites of a probabilistic program.
        By default, each variable is a part, named by ``variable_names`` of the target.
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" for categorical and "langevin" for continuous
        targets.
    n_bootstrap : int, default=500
        Number of bootstrap statistics.
    change_probability : float, default=0.5
        As in :func:`stein_test`: 0.5 for independent rows, less for states of a Markov chain.
    n_jobs : int, default=None
        Number of workers over the parts; the result does not depend on it.
    random_state : int, Generator, RandomState or None, default=None
        Controls the random signs of the bootstrap.

    Returns
    -------
    SteinDiagnosis
        Discrepancies and p-values by part.

    Notes
    -----
    All changes are local. These statistics do not detect that samples miss a mode, or a part of the
    support that cannot be reached by changes of a single variable.

    References
    ----------
    P. Westfall, S. Young (1993). Resampling-based multiple testing. Wiley.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.stein import stein_diagnosis
    >>> model = IsingModel.grid(1, 3, couplings=0.4)
    >>> X = model.sample(300, random_state=0)
    >>> X[:100, 2] = 1
    >>> found = stein_diagnosis(X, model, random_state=0)
    >>> found.names[found.pvalues.argmin()]
    '2'
    """
    samples = check_test_arguments(X, target, n_bootstrap, change_probability)
    if np.isnan(samples).any():
        way_out = "Collapsed variables have no moves to test."
        raise invalid("X", "be complete", way_out, n_missing=int(np.isnan(samples).sum()))
    chosen = _check_parts(parts, target, samples.shape[1])
    if kernel is None:
        kernel = default_kernel(samples, target)
    first, which = unique_rows(samples)
    distinct = samples[first]
    block, rows = prepare(distinct, target, kernel, operator)
    rng = as_generator(random_state)
    signs = sign_chains(n_bootstrap, len(samples), change_probability, rng)
    # The sample itself first: signs that are all one.
    signs = np.concatenate([np.ones((1, len(samples))), signs])
    means = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_signed_means)(*part, distinct, which, signs)
        for part in _parts(block, rows, chosen, own_columns(target, samples.shape[1]))
    )
    return _summarize(tuple(chosen), np.array(means))


def _summarize(names: tuple[str, ...], values: FloatArray) -> SteinDiagnosis:
    """Compare statistics with their bootstrap, (n_parts, 1 + n_bootstrap), the sample's first."""
    scales = values[:, 1:].std(axis=1, keepdims=True)
    excess = np.divide(values, scales, out=np.zeros_like(values), where=scales > 0)
    largest = excess[:, 1:].max(axis=0)
    total = values.sum(axis=0)
    return SteinDiagnosis(
        names,
        values[:, 0],
        excess[:, 0],
        np.array([_pvalue(largest, observed) for observed in excess[:, 0]]),
        _pvalue(total[1:], total[0]),
        # Without a move the term of a variable is zero whatever the samples are.
        tuple(name for name, bootstrap in zip(names, values) if not bootstrap.any()),
    )


def _parts(
    block: Any, rows: Any, chosen: dict[str, IntArray], columns: IntArray
) -> Iterator[tuple[Any, Any]]:
    """For each part, the function that computes its terms of the Stein kernel, and arguments."""
    for own in chosen.values():
        if isinstance(rows, ScoredPoints):
            # Prepared points have the columns of the target only.
            yield partial(block, columns=np.searchsorted(columns, own)), rows
        else:
            yield block, rows.of_variables(own)


def _signed_means(
    block: Any, rows: Any, X: FloatArray, which: IntArray, signs: FloatArray
) -> FloatArray:
    """Mean of ``s_i s_j K_ij`` over i != j per row of signs, K of one part of the variables."""
    return off_diagonal_means(symmetric_gram(block, rows, X), which, signs)


def _pvalue(bootstrap: FloatArray, observed: float) -> float:
    # The sample itself counts as one of the draws: no bootstrap gives a p-value of zero.
    return float((1 + np.count_nonzero(bootstrap >= observed)) / (1 + len(bootstrap)))


def _check_parts(
    parts: Mapping[str, ArrayLike] | None, target: Any, n_columns: int
) -> dict[str, IntArray]:
    """Give the variables of each part."""
    if parts is None:
        names = getattr(target, "variable_names", None)
        label: Iterable[Any] = range(n_columns) if names is None else names
        labels = [str(name) for name in label]
        return {labels[v]: np.array([v]) for v in own_columns(target, n_columns).tolist()}
    if not isinstance(parts, Mapping) or not parts:
        raise invalid("parts", "be a dict of names and variables", parts=parts)
    chosen = {str(name): np.atleast_1d(np.asarray(own)) for name, own in parts.items()}
    for name, own in chosen.items():
        is_index = own.ndim == 1 and own.size and np.issubdtype(own.dtype, np.integer)
        if not is_index or own.min() < 0 or own.max() >= n_columns:
            raise invalid(
                f"variables of part {name!r}", f"be indices below {n_columns}", variables=own
            )
    return chosen
