"""Stein discrepancies per variable, which show the parts of a model that samples misrepresent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import as_generator
from skcircuits.parallel import Parallel, delayed
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._targets import own_columns
from skcircuits.stein.discrepancy import (
    check_test_arguments,
    default_kernel,
    off_diagonal_means,
    sign_chains,
)
from skcircuits.stein.gram import prepare, symmetric_gram
from skcircuits.stein.langevin import ScoredPoints


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
        raise ValueError(must("X", "be complete", way_out, n_missing=int(np.isnan(samples).sum())))
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
        raise ValueError(must("parts", "be a dict of names and variables", parts=parts))
    chosen = {str(name): np.atleast_1d(np.asarray(own)) for name, own in parts.items()}
    for name, own in chosen.items():
        is_index = own.ndim == 1 and own.size and np.issubdtype(own.dtype, np.integer)
        if not is_index or own.min() < 0 or own.max() >= n_columns:
            raise ValueError(
                must(f"variables of part {name!r}", f"be indices below {n_columns}", variables=own)
            )
    return chosen
