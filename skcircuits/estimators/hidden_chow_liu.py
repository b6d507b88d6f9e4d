"""Density estimation by latent Chow-Liu trees."""

import itertools
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import CATEGORICAL_CONSTRAINTS, Interval, StrOptions
from skcircuits.estimators.shared._discrete import DiscreteDensity
from skcircuits.estimators.shared._fitting import drive
from skcircuits.estimators.shared._rows import ValidationMixin
from skcircuits.learning import LatentRows, LatentSchedule, learn_latent_tree
from skcircuits.learning.latent_tree._joint_normals import collinear_columns
from skcircuits.learning.univariate._columns import FEW_VALUES
from skcircuits.trees import complete_rows

_N_STATES = (16, 32, 64, 128, 256)
_MAX_CHOICE_ROWS = 10_000
# Probabilities of boxes are exact in so many joint columns
_BOX_COLUMNS = 3


class HiddenChowLiuDensity(ValidationMixin, DiscreteDensity):
    """Hidden Chow-Liu tree (HCLT): a tree of latent variables, one above each column.

    The tree is the Chow-Liu tree of the columns; each of its vertices becomes a hidden
    variable with `n_latent_states` states that emits the column. Online expectation
    maximisation starts from clusters of the rows. The circuit is dense: a few matrix
    products per column answer any query, so these models are fast for their size.

    Parameters
    ----------
    n_latent_states : "auto" or int, default="auto"
        States of each latent variable. ``"auto"`` doubles them, from 16 to 256, as long as the
        validation rows become more likely, learning from at most 10,000 rows; 16 where no rows
        are held out.
    pseudo_count : float, default=0.5
        Weight of the prior on every transition and emission. Where a number decides a category,
        0.05 follows the threshold more closely.
    max_iter : int, default=60
        Number of passes over the rows. Steps fall along the way; the last three passes use
        all rows at once.
    tol : float, default=1e-4
        Least improvement of the validation score that counts for `n_iter_no_change`.
    n_iter_no_change : int, default=8
        Stop after that many passes without improvement.
    validation_fraction : float or None, default=0.1
        Fraction of the rows held out to choose the best pass and to stop early, unless `fit`
        gets validation rows. None, and tables too small to spare a row: the training rows.
    max_joint_columns : int, default=8
        Numbers that explain at least half of each other's variance may share a latent variable,
        so many at most, and have a joint normal distribution in each of its states: validation
        rows decide between such groups, groups of at most three and none. Probabilities of boxes
        are exact as long as no more than three columns of a group are bounded; with 3 all are. 1:
        no groups. Columns of which some numbers have a probability of their own stay apart, but
        for fine grids, which then have densities.
    point_masses : bool, default=True
        Whether numbers may have a probability of their own: those of columns of a few evenly
        spaced integers, which then count as categories, all points of the grid that a column
        was recorded on (integers, multiples of .005) where there are at most 256, with ten
        rows each on average, and elsewhere those that repeat heavily. With False every number
        has a density, as a Gaussian mixture gives it, and the two can be compared and mixed.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns are categorical: by dtype, none, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        What a category that fit has not seen counts as.
    random_state : int, RandomState or None, default=None
        Source of randomness.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    circuit_ : Circuit
        Smooth and structured-decomposable, in original units.
    parents_ : ndarray of shape (n_features_in_,)
        The tree: parent of each column, -1 at the root.
    joint_columns_ : tuple of tuple of int
        Groups of columns with joint normal distributions. Their first column stands for all in
        the tree; it is the parent of the others.
    validation_scores_ : list of float
        Mean log probability of the cells of the validation rows after each pass; of joint
        columns the log density in standard units.
    n_iter_ : int
        Number of passes.
    n_latent_states_ : int
        States of each latent variable.
    bin_edges_ : tuple of ndarray or None
        Bins of numerical columns, which serve the tree and the start only; None where the
        values themselves are states.
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the categorical columns.
    categories_ : list of ndarray or None
        Categories per column in the order of their codes, None for numbers.
    n_features_in_ : int
        Number of columns in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns in fit, where all are strings.

    See Also
    --------
    ChowLiuDensity : The tree without latent variables.
    StrudelDensity : Deterministic circuits, for exact most probable completions.

    Notes
    -----
    Categories, and up to twelve evenly spaced integers, have categorical emissions; integers
    that are no state in fit count as missing. Other numerical columns have histograms on
    quantiles of the column, with exponential tails and point masses where values repeat
    heavily, or with their like joint normal distributions. Numbers count with the probability
    of the interval that they were recorded in, so that values of many rows earn no unbounded
    density; how far counts spread to neighbouring intervals is chosen by leaving out each row
    of a latent state. Nothing spreads beyond numbers at which the frequencies of a category jump.

    References
    ----------
    .. [1] Liu and Van den Broeck, "Tractable Regularization of Probabilistic Circuits",
       NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import HiddenChowLiuDensity
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 1)) + 0.3 * rng.normal(size=(500, 4)) > 0.5).astype(float)
    >>> density = HiddenChowLiuDensity(n_latent_states=4, random_state=0).fit(X)
    >>> bool(density.score(X) > np.log(1 / 16))
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **ValidationMixin._validation_constraints,
        "n_latent_states": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "max_joint_columns": [Interval(Integral, 1, None, closed="left")],
        "point_masses": ["boolean"],
        **CATEGORICAL_CONSTRAINTS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        n_latent_states="auto",
        pseudo_count=0.5,
        max_iter=60,
        tol=1e-4,
        n_iter_no_change=8,
        validation_fraction=0.1,
        max_joint_columns=8,
        point_masses=True,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_latent_states = n_latent_states
        self.pseudo_count = pseudo_count
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.max_joint_columns = max_joint_columns
        self.point_masses = point_masses
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    _max_categories = FEW_VALUES
    _has_integer_states = True  # not where others have to give the same numbers point masses

    def _fit_rows(self, rows, generator):
        layout = self._states.layout
        complete = complete_rows(rows.codes, layout, generator, sample_weight=rows.weight)
        latent = LatentRows(
            self._cells(rows),
            rows.weight,
            complete,
            layout,
            self._has_categories,
            self.point_masses,
        )
        # Training rows are the more likely the more parameters there are
        can_choose = rows.validation.X is not rows.X
        numbers = _N_STATES if can_choose else _N_STATES[:1]
        if self.n_latent_states != "auto":
            numbers = (int(self.n_latent_states),)
        sizes = {self.max_joint_columns, min(self.max_joint_columns, _BOX_COLUMNS), 1}
        shapes = [collinear_columns(latent, size) for size in sorted(sizes, reverse=True)]
        shapes = list(dict.fromkeys(shapes)) if can_choose else [()]
        if len(numbers) == len(shapes) == 1:
            result = self._learn(latent, *numbers, rows, generator)
            self.n_latent_states_, self.joint_columns_ = *numbers, ()
        else:
            result = self._choose(latent, shapes, numbers, rows, generator)
        self.validation_scores_ = result.scores
        self.n_iter_ = result.n_iter
        vars(self).update(self._attributes(result.state))

    def _choose(self, latent, shapes, numbers, rows, generator):
        """The best pass, with and without joint columns, and with the best number of states."""
        # Of many rows, some tell what is worth its time
        tried, shown = latent, rows
        if len(rows.X) > _MAX_CHOICE_ROWS:
            tried = latent.take(generator.permutation(len(rows.X))[:_MAX_CHOICE_ROWS])
            some = generator.permutation(len(rows.validation.X))[:_MAX_CHOICE_ROWS]
            shown = replace(rows, validation=rows.validation.take(some))
        held_out = self._cells(shown.validation)
        best, best_density = None, -np.inf
        names = [f"{n} states" for n in numbers] * len(shapes)
        with self._stages(*names, "all rows") as (*contexts, last):
            stages = dict(zip(itertools.product(shapes, numbers), contexts, strict=True))
            for joint in shapes:
                reached = -np.inf
                for n_states in numbers:
                    shaped = replace(tried, joint_columns=joint)
                    context = stages[joint, n_states]
                    result = self._learn(shaped, n_states, shown, generator, context)
                    # Probabilities of cells and densities of joint columns cannot be compared
                    density = (
                        result.state.mean_log_density(held_out, shown.validation.weight)
                        if len(shapes) > 1
                        else max(result.scores)
                    )
                    if best is None or density > best_density:
                        best, best_density = result, density
                        self.n_latent_states_, self.joint_columns_ = n_states, joint
                    if not result.converged:  # Ctrl-C, or a callback that wants no more
                        return best
                    # Other groups may overtake with more states
                    if density <= reached:
                        break
                    reached = density
                # without joint columns more states are needed, not fewer
                numbers = [n for n in numbers if n >= self.n_latent_states_]
            if tried is not latent:
                latent = replace(latent, joint_columns=self.joint_columns_)
                best = self._learn(latent, self.n_latent_states_, rows, generator, last)
        return best

    def _learn(self, latent, n_states, rows, generator, context=None):
        """The best pass with a number of latent states."""
        validation = rows.validation
        held_out = self._cells(validation)
        schedule = LatentSchedule(n_epochs=self.max_iter)
        return drive(
            self,
            learn_latent_tree(
                latent, n_states, generator, pseudo_count=self.pseudo_count, schedule=schedule
            ),
            max_iter=self.max_iter,
            score=lambda step: step.mean_log_prob(held_out, validation.weight),
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            attributes=self._attributes,
            X=rows.X,
            context=context,
        )

    def _cells(self, rows):
        """States where emissions are categorical, numbers elsewhere."""
        return np.where(self._has_categories, rows.states, rows.X)

    @property
    def _has_categories(self):
        """Mask of the columns with categorical emissions: categories, few even integers."""
        if not (self.point_masses and self._has_integer_states):
            return self.is_categorical_
        values = self._states.discretizer.values
        return np.array([known is not None and _are_even(known) for known in values])

    def _known(self, X):
        return np.where(self._has_categories, super()._known(X), X)

    def _attributes(self, step):
        """The fitted attributes after a pass."""
        return {
            "circuit_": self._states.in_original_units(step.circuit),
            "parents_": step.tree.parents,
        }


def _are_even(values):
    """Tell whether increasing values are evenly spaced, as codes and levels of a scale are."""
    return len(values) <= 2 or bool(np.ptp(np.diff(values)) == 0.0)
