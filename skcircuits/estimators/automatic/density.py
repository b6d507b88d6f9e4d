"""A density that chooses among families, and mixes those that are better together."""

from functools import partial
from typing import ClassVar

import numpy as np

from skcircuits.circuits import Circuit, Sum
from skcircuits.estimators._base import CATEGORICAL_CONSTRAINTS, StrOptions
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.hidden_chow_liu import HiddenChowLiuDensity
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.estimators.wmispn import WMISPNDensity
from skcircuits.exceptions import must
from skcircuits.learning.gaussian_mixture._candidates import (
    Candidate,
    CandidateSpace,
    Comparison,
    Peer,
    choose_peers,
    choose_pool,
)
from skcircuits.learning.gaussian_mixture._learner import EMSettings
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.learning.univariate._columns import FEW_VALUES

__all__ = ["AutomaticDensity"]

_FAMILIES = ("gaussian_mixture", "latent_tree", "wmispn")
_LATENT_STATES = (8, 16)
_MANY_ROWS = 2000  # from here on trees with more states are tried
_MAX_CELLS = 400_000  # tables of more are left to Gaussian mixtures
_MAX_PEER_COLUMNS = 60  # trees over more columns take longer than they gain


class AutomaticDensity(CircuitDensity):
    """Density that chooses itself: Gaussian mixtures, latent trees and sum-product networks.

    Candidates of three families are fitted to a part of the rows and compared on the others:
    Gaussian mixtures of several shapes and sizes (`GaussianMixtureDensity`), latent Chow-Liu
    trees (`HiddenChowLiuDensity`) and sum-product networks (`WMISPNDensity`), whose numbers have
    densities without point masses here. Those that predict held-out rows best together are
    fitted to all rows and become one mixture [1]_, whose every query is exact.

    Parameters
    ----------
    families : "all" or list of {"gaussian_mixture", "latent_tree", "wmispn"}, default="all"
        The families to choose from.
    selection : {"log_likelihood", "cells"}, default="log_likelihood"
        What candidates are compared by in held-out rows: their log density, or how well
        hidden cells are predicted (squared errors and log losses, each relative to a column's
        own mean and frequencies).
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns are categorical: by dtype, none, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        What a category that fit has not seen counts as.
    random_state : int, RandomState or None, default=None
        Source of the starts and of the held-out rows.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture, in original units and codes of categories.
    densities_ : list of density
        What was fitted to all rows.
    weights_ : ndarray of shape (len(densities_),)
        Weights of the densities in the mixture.
    selection_ : list of dict
        One row per candidate that was tried, the chosen ones first: its ``family``; of Gaussian
        mixtures ``covariance_type``, ``n_factors`` and ``n_components``, of latent trees
        ``n_latent_states``; the mean held-out ``loss`` with its ``standard_error``, and the
        number of restarts in the ``pool``.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the categorical columns.
    categories_ : list of ndarray or None
        Categories per column in the order of their codes, None for numerical ones.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    GaussianMixtureDensity : Gaussian mixtures alone.
    CircuitImputer : Completes missing cells by such a density, with ``density="auto"``.

    References
    ----------
    .. [1] Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble Selection from Libraries of
       Models", ICML 2004; Smyth and Wolpert, "Linearly Combining Density Estimators via
       Stacking", Machine Learning 36, 1999.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skcircuits import AutomaticDensity
    >>> rng = np.random.default_rng(0)
    >>> job = rng.choice(["cook", "nurse"], size=200)
    >>> wage = rng.normal(np.where(job == "nurse", 30.0, 20.0), 2.0)
    >>> table = pd.DataFrame({"job": job, "wage": wage})
    >>> density = AutomaticDensity(random_state=0).fit(table)
    >>> bool(density.probability("wage > 25", given={"job": "nurse"}) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "families": [StrOptions({"all"}), list, tuple],
        "selection": [StrOptions({"log_likelihood", "cells"})],
        **CATEGORICAL_CONSTRAINTS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    _given_pool = None  # what an earlier fit chose, in clones that are to keep it

    def __init__(
        self,
        *,
        families="all",
        selection="log_likelihood",
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.families = families
        self.selection = selection
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        table = MixtureTable.prepare(rows.X, self._schema.cardinalities, rows.weight)
        seed = int(generator.integers(np.iinfo(np.int32).max))
        settings = EMSettings()
        comparison = Comparison(table, self.selection, settings, seed, rows.X)
        pool = self._given_pool or self._choose(table, comparison)
        self._pool = pool
        self.selection_ = comparison.report(pool)
        seeds = iter(generator.integers(np.iinfo(np.int32).max, size=sum(pool.values())).tolist())
        members = _members(pool, seeds, comparison.fits)
        self._fit_members([density for density, _ in members], rows)
        self.densities_ = [density for density, _ in members]
        self.weights_ = np.array([times for _, times in members]) / sum(pool.values())
        self.circuit_ = _mixed([d.circuit_ for d in self.densities_], self.weights_)

    def _fit_members(self, densities, rows):
        """Fit what was chosen to all rows, each as a task of its own for callbacks."""
        fit = self._init_callback_context(max_subtasks=len(densities))
        fit.call_on_fit_task_begin(estimator=self)
        for density in densities:
            task = fit.subcontext(task_name=type(density).__name__)
            with task.propagate_callback_context(density):
                task.call_on_fit_task_begin(estimator=self)
                density.set_params(verbose=self.verbose)
                density._fit_encoded(rows.X, self._schema, rows.weight)
                task.call_on_fit_task_end(estimator=self)
        fit.call_on_fit_task_end(estimator=self)

    def _clone_chosen(self):
        cloned = super()._clone_chosen()
        cloned._given_pool = getattr(self, "_pool", None)
        return cloned

    def _choose(self, table, comparison):
        """What to fit to all rows."""
        families = self._checked_families()
        factor = 2 if len(table.weights) >= _MANY_ROWS else 1
        sizes = {"latent_tree": [factor * n for n in _LATENT_STATES], "wmispn": [0]}
        peers = tuple(
            Peer(family, size, partial(_learn_circuit, family, size, self._schema))
            for family in sizes
            if family in families
            for size in sizes[family]
        )
        if "gaussian_mixture" not in families:
            return choose_peers(table, comparison, peers)
        if not _suits_peers(table):
            peers = ()
        return choose_pool(table, CandidateSpace(), comparison, peers)

    def _checked_families(self):
        if isinstance(self.families, str):
            return _FAMILIES
        unknown = sorted(set(self.families) - set(_FAMILIES), key=str)
        if unknown or not self.families:
            raise ValueError(
                must(
                    "families",
                    f"be some of {', '.join(map(repr, _FAMILIES))}",
                    'Or pass "all".',
                    families=self.families,
                )
            )
        return tuple(self.families)


def _suits_peers(table):
    """Whether other families than Gaussian mixtures are worth their time: on mixed tables."""
    n_columns = len(table.cardinalities)
    if table.n_cells > _MAX_CELLS or not 1 < n_columns <= _MAX_PEER_COLUMNS:
        return False
    n_values = [len(np.unique(column[~np.isnan(column)])) for column in table.numbers.T]
    return bool(table.category_counts.any()) or min(n_values) <= FEW_VALUES


def _learn_circuit(family, size, schema, X, weights, seed):
    """The circuit of a density of another family, learned of some rows."""
    return _new_density(family, size, seed)._fit_encoded(X, schema, weights).circuit_


def _new_density(family, size, seed):
    """A density of another family, without point masses."""
    if family == "wmispn":
        return WMISPNDensity(point_masses=False, random_state=seed)
    return HiddenChowLiuDensity(
        n_latent_states=size, point_masses=False, validation_fraction=None, random_state=seed
    )


def _members(pool, seeds, fits):
    """Densities to fit to all rows, and how often each was chosen."""
    members = []
    mixtures = {c: times for c, times in pool.items() if isinstance(c, Candidate)}
    if mixtures:
        density = GaussianMixtureDensity(random_state=next(seeds))
        density._given_pool, density._given_fits = mixtures, fits
        members.append((density, sum(mixtures.values())))
    for peer, times in pool.items():
        if isinstance(peer, Peer):
            # a sum-product network has no restarts: it counts more often
            n_restarts = 1 if peer.family == "wmispn" else times
            restarts = [
                _new_density(peer.family, peer.size, next(seeds)) for _ in range(n_restarts)
            ]
            members += [(density, times / n_restarts) for density in restarts]
    return members


def _mixed(circuits, weights):
    """One circuit that mixes some."""
    if len(circuits) == 1:
        return circuits[0]
    return Circuit(Sum([circuit.root for circuit in circuits], weights=weights))
