"""Rows whose observed cells are impossible: queries on them are answered without these."""

import warnings

import numpy as np

from skcircuits.exceptions import ZeroProbabilityError


def with_possible_evidence(answer, X, is_impossible, consequence):
    """Answer a query about rows; impossible ones are answered as if nothing was observed.

    Parameters
    ----------
    answer : callable
        ``answer(X)`` raises ZeroProbabilityError if it cannot answer for impossible rows.
    X : ndarray of shape (n, d)
        Encoded rows.
    is_impossible : callable
        ``is_impossible(X)``, of shape (n,): which rows `answer` cannot answer for.
    consequence : str
        What becomes of such rows, for the warning.

    Returns
    -------
    answer : object
        The answer.
    impossible : ndarray of int
        Positions of the rows that were answered without their observed cells.

    Warns
    -----
    UserWarning
        If there are such rows.
    """
    try:
        return answer(X), np.empty(0, dtype=np.int64)
    except ZeroProbabilityError:
        impossible = np.flatnonzero(is_impossible(X))
    relaxed = X.copy()
    relaxed[impossible] = np.nan
    found = answer(relaxed)
    if len(impossible):
        warnings.warn(
            # The cells and not the position: rows come in chunks
            f"The observed cells of {len(impossible)} rows have probability zero under the "
            f"density (for example {X[impossible[0]]}); {consequence}.",
            stacklevel=3,
        )
    return found, impossible


def completed_or_marginal(complete, X, circuit):
    """Complete rows; impossible ones from the marginal distribution, observed cells kept.

    Parameters
    ----------
    complete : callable
        ``complete(X)``, of shape (..., n, d), completes the missing cells of rows.
    X : ndarray of shape (n, d)
        Encoded rows.
    circuit : Circuit
        Tells which rows are impossible.

    Returns
    -------
    ndarray of shape (..., n, d)
        The completed rows.

    Warns
    -----
    UserWarning
        If some rows are impossible.
    """

    def is_impossible(rows):
        return np.isneginf(circuit.log_prob(rows))

    consequence = "their missing cells are completed from the marginal distribution"
    completed, rows = with_possible_evidence(complete, X, is_impossible, consequence)
    if len(rows):
        observed = ~np.isnan(X[rows])
        completed[..., rows, :] = np.where(observed, X[rows], completed[..., rows, :])
    return completed
