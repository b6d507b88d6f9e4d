"""Density estimation by Chow-Liu trees, their mixtures, and latent Chow-Liu trees."""

import itertools
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    Interval,
    StrOptions,
    inherit_documentation,
)
from skcircuits.estimators.shared._completion import without_others
from skcircuits.estimators.shared._density import (
    MAX_SCORED_ROWS,
    CircuitDensity,
    DiscreteDensity,
    StatesMixin,
)
from skcircuits.estimators.shared._fitting import ValidationMixin, drive, stages
from skcircuits.learning._columns import FEW_VALUES, describe_column
from skcircuits.learning.latent_tree._emissions import LatentRows, collinear_columns
from skcircuits.learning.latent_tree._learner import LatentSchedule, learn_latent_tree
from skcircuits.trees._chow_liu import (
    TreeMixture,
    complete_rows,
    learn_tree_mixture,
    mixture_circuit,
    observed_tree,
)


@inherit_documentation
class ChowLiuDensity(DiscreteDensity):
    """Chow-Liu tree (the tree distribution of largest likelihood), or a mixture of such trees.

    Parameters
    ----------
    n_components : int, default=1
        Number of trees. Several trees are learned by expectation maximisation, each with its own
        structure.
    pseudo_count : float, default=1.0
        Weight of the uniform rows added to the tables of each tree.
    max_iter : int, default=100
        Maximum number of iterations of expectation maximisation.
    tol : float, default=1e-3
        Iterations stop when the mean log probability improves by less than this value.
    random_state : int, RandomState or None, default=None
        Controls the randomness of mixtures. A single tree does not depend on it.

    Attributes
    ----------
    circuit_ : Circuit
        The density in original units; deterministic and structured-decomposable for one tree.
    parents_ : ndarray of shape (n_components, n_features_in_)
        Parent of each column in each tree, -1 at the root.
    weights_ : ndarray of shape (n_components,)
        Mixture weights.
    log_likelihood_ : float
        Mean log likelihood of the training rows (of 1000 of them, if there are more).
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    HiddenChowLiuDensity : Tree over latent variables, one for each column.
    MoATDensity : The mixture of all trees.

    Notes
    -----
    In columns of at most 32 distinct integers, every value is a state. Other numerical columns are
    divided into quantile bins with a uniform density, the outermost further where the density
    falls, so that scores are densities in the original units. On each side of the observed range
    lies an exponential tail whose probability is about 1 / (n_rows + 1), so that no number is
    impossible. A value that many rows have, such as zero in a column of debts, is a further state:
    a point mass, which enters scores with its probability instead of a density. Integers that did
    not occur in `fit` are treated as new categories.

    If cells are missing, the tree is learned from the pairs of cells that are observed together,
    and its tables by expectation maximisation, which starts from them. The trees of a mixture are
    learned from the probable completions of each row by a Chow-Liu tree, each with its probability,
    and all tables from the incomplete rows themselves.

    References
    ----------
    .. [1] Chow and Liu, "Approximating Discrete Probability Distributions with Dependence
       Trees", IEEE Transactions on Information Theory, 1968.
    .. [2] Meila and Jordan, "Learning with Mixtures of Trees", JMLR 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import ChowLiuDensity
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
    >>> density = ChowLiuDensity(pseudo_count=1e-9).fit(X)
    >>> np.exp(density.score_samples(X)).round(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        **TABLE_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_components=1,
        pseudo_count=1.0,
        max_iter=100,
        tol=1e-3,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.pseudo_count = pseudo_count
        self.max_iter = max_iter
        self.tol = tol
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        with stages(self, "structure", "parameters") as (structure, parameters):
            mixture, self.n_iter_ = self._learn_trees(rows, generator, structure)
            scored = rows.evenly_spaced(MAX_SCORED_ROWS)
            if (rows.codes >= 0).all():
                self.circuit_ = mixture_circuit(mixture, self._states.input_maker())
                log_prob = mixture.log_prob(scored.codes)
            else:
                # The structure is learned from pairs or completions, parameters from observed cells
                circuit = self._refine_states(mixture_circuit(mixture), rows, parameters)
                self.circuit_ = self._states.in_original_units(circuit)
                log_prob = circuit.log_prob(scored.states)
        self.parents_ = np.stack([tree.parents for tree in mixture.trees])
        self.weights_ = np.exp(mixture.log_weights)
        # To compile the circuit in original units for this would take a third of the fit
        log_density = log_prob - self._states.discretizer.log_volume(scored.X)
        self.log_likelihood_ = float(np.average(log_density, weights=scored.weight))

    def _learn_trees(self, rows, generator, context):
        """The mixture and the number of steps it took."""
        layout = self._states.layout
        settings = {"sample_weight": rows.weight, "pseudo_count": self.pseudo_count}
        if self.n_components == 1:
            return TreeMixture(np.zeros(1), [observed_tree(rows.codes, layout, **settings)]), 1
        (completions,) = complete_rows([rows.codes], layout, **settings)
        complete, weight = completions.codes, completions.totals(rows.weight)
        settings["sample_weight"] = weight
        result = drive(
            self,
            learn_tree_mixture(complete, layout, self.n_components, generator, **settings),
            max_iter=self.max_iter,
            score=lambda mixture: np.average(mixture.log_prob(complete), weights=weight),
            tol=self.tol,
            n_iter_no_change=1,
            attributes=lambda mixture: {
                "circuit_": self._states.in_original_units(mixture_circuit(mixture))
            },
            X=rows.X,
            context=context,
        )
        return result.state, result.n_iter


_N_STATES = (16, 32, 64, 128, 256)
_MAX_CHOICE_ROWS = 10_000
_TRIAL_PART = 6  # of the passes: a sixth of them shows which candidate is best
_LEAST_GAIN = 0.01  # nats per row for which twice as many states are worth their time
# Probabilities of boxes are exact in so many joint columns
_BOX_COLUMNS = 3


@inherit_documentation
class HiddenChowLiuDensity(ValidationMixin, StatesMixin, CircuitDensity):
    """Hidden Chow-Liu tree (HCLT): a tree of latent variables, one for each column.

    The tree is the Chow-Liu tree of the columns. Each of its vertices is replaced by a latent
    variable with `n_latent_states` states that emits the column. The parameters are learned by
    on-line expectation maximisation, initialised by clusters of the rows. The circuit is dense:
    every query takes a few matrix products per column, so that these models are fast for their
    size.

    Parameters
    ----------
    n_latent_states : "auto" or int, default="auto"
        Number of states of each latent variable. ``"auto"`` doubles it, from 16 to 256, as long as
        it is less than the number of training rows and the likelihood of the validation rows
        increases by more than 0.01 nats per row, after a sixth of the iterations over at most
        10,000 rows. It is 16 if no rows are held out.
    pseudo_count : float, default=0.5
        Weight of the prior of every transition and emission. If a number determines a category,
        0.05 follows the threshold more closely.
    max_iter : int, default=60
        Maximum number of iterations over the rows. The step size decreases, and the last three
        iterations use all rows at once.
    tol : float, default=1e-4
        Minimum improvement of the validation score that counts for `n_iter_no_change`.
    n_iter_no_change : int, default=8
        Number of iterations without improvement after which the fit is stopped.
    max_joint_columns : int, default=8
        Maximum number of numerical columns that share a latent variable and have a joint normal
        distribution in each of its states. Such groups consist of columns that explain at least
        half of each other's variance. The likelihood of the validation rows decides between such
        groups, groups of at most three columns, and no groups. Probabilities of boxes are exact if
        at most three columns of a group are bounded, which always holds for 3. With 1 there are no
        groups. Columns with point masses are not grouped, except for columns on fine grids, which
        then have densities.
    point_masses : bool or "frequent", default=True
        Whether single numbers may have a positive probability. These are the values of columns of
        few evenly spaced integers (which are treated as categories), all points of the grid on
        which a column was recorded (integers, multiples of .005) if there are at most 256 points
        with at least ten rows each on average, and values of other columns that are repeated very
        often. With ``"frequent"``, points of grids have densities, and if False, every number has.
        All rows decide, also those that are held out. Only densities with equal `point_masses` can
        be compared and mixed.

    Attributes
    ----------
    circuit_ : Circuit
        The density in original units; smooth and structured-decomposable.
    parents_ : ndarray of shape (n_features_in_,)
        The tree: parent of each column, -1 at the root.
    joint_columns_ : tuple of tuple of int
        Groups of columns with joint normal distributions. The first column of a group represents it
        in the tree and is the parent of the others.
    validation_scores_ : list of float
        Mean log probability of the cells of the validation rows after each iteration (for joint
        columns, the log density in standardised units).
    n_iter_ : int
        Number of iterations.
    n_latent_states_ : int
        Number of states of each latent variable.
    bin_edges_ : tuple of ndarray or None
        Bin edges of numerical columns, which are used only for the tree and the initialisation;
        None for columns whose values are the states.

    See Also
    --------
    ChowLiuDensity : The tree without latent variables.
    StrudelDensity : Deterministic circuits, for exact most probable completions.

    Notes
    -----
    Categories, and up to twelve evenly spaced integers, have categorical emissions; integers that
    did not occur in `fit` are treated as new categories. Other numerical columns have histograms on
    quantiles of the column, with exponential tails and with point masses at values that are
    repeated very often, or joint normal distributions with similar columns. The likelihood of a
    number is the probability of the interval in which it was recorded, so that frequent values do
    not lead to an unbounded density. The smoothing of counts over neighbouring intervals is chosen
    by leaving out each row of a latent state. Counts are not smoothed across values at which the
    frequencies of a category change abruptly.

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
        "point_masses": ["boolean", StrOptions({"frequent"})],
        **TABLE_CONSTRAINTS,
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

    def _prepare_rows(self, rows, groups=None):
        super()._prepare_rows(rows, groups)
        # Of all rows: those that are held out may not decide which values have point masses
        self._facts = {
            j: describe_column(j, rows.X[:, j], rows.weight, 0, self.point_masses)
            for j in np.flatnonzero(~self._has_categories).tolist()
        }

    def _fit_rows(self, rows, generator):
        layout = self._states.layout
        latent = LatentRows(
            self._cells(rows),
            rows.weight,
            rows.codes,
            layout,
            self._has_categories,
            self._facts,
        )
        # Training rows are the more likely the more parameters there are
        can_choose = rows.validation.X is not rows.X
        # A state for each row describes them all, and few held-out rows decide by chance
        n_rows = len(rows.X) if can_choose else 0
        numbers = tuple(n for n in _N_STATES if n == _N_STATES[0] or n // 2 < n_rows)
        if self.n_latent_states != "auto":
            numbers = (int(self.n_latent_states),)
        # As many as allowed, as many as boxes are exact in, and none: held-out rows choose
        sizes = {self.max_joint_columns, min(self.max_joint_columns, _BOX_COLUMNS), 1}
        shapes = [()]
        if can_choose:
            found = [collinear_columns(latent, size) for size in sorted(sizes, reverse=True)]
            shapes = list(dict.fromkeys(found))
        if len(numbers) == len(shapes) == 1:
            result = self._learn(latent, *numbers, rows, generator, self.max_iter)
            self.n_latent_states_, self.joint_columns_ = *numbers, ()
        else:
            result = self._choose(latent, shapes, numbers, rows, generator)
        self.validation_scores_ = result.scores
        self.n_iter_ = result.n_iter
        vars(self).update(self._attributes(result.state))

    def _choose(self, latent, shapes, numbers, rows, generator):
        """The best pass, with and without joint columns, and with the best number of states."""
        # With many rows, a subset shows which candidates are worth their time
        tried, shown = latent, rows
        if len(rows.X) > _MAX_CHOICE_ROWS:
            tried = latent.take(generator.permutation(len(rows.X))[:_MAX_CHOICE_ROWS])
            some = generator.permutation(len(rows.validation.X))[:_MAX_CHOICE_ROWS]
            shown = replace(rows, validation=rows.validation.take(some))
        held_out = self._cells(shown.validation)
        n_trial = -(-self.max_iter // _TRIAL_PART)
        best, best_density = None, -np.inf
        names = [f"{n} states" for n in numbers] * len(shapes)
        with stages(self, *names, "all rows") as (*contexts, last):
            context_of = dict(zip(itertools.product(shapes, numbers), contexts, strict=True))
            for joint in shapes:
                reached = -np.inf
                for n_states in numbers:
                    shaped = tried.with_joint_columns(joint)
                    context = context_of[joint, n_states]
                    result = self._learn(
                        shaped, n_states, shown, generator, n_trial, context=context
                    )
                    # Probabilities of cells and densities of joint columns cannot be compared
                    density = (
                        result.state.mean_log_density(held_out, shown.validation.weight)
                        if len(shapes) > 1
                        else max(result.scores)
                    )
                    is_worth = density > reached + _LEAST_GAIN
                    if best is None or (is_worth and density > best_density):
                        best, best_density = result, density
                        self.n_latent_states_, self.joint_columns_ = n_states, joint
                    if not result.converged:  # Ctrl-C, or a callback that wants no more
                        return best
                    # Other groups may overtake with more states
                    if not is_worth:
                        break
                    reached = density
                # without joint columns more states are needed, not fewer
                numbers = [n for n in numbers if n >= self.n_latent_states_]
            # Trees of most rows are like those of all; bins of numbers depend on the rows
            is_known = len(latent.X) <= 2 * len(tried.X) and not latent.numerical
            start = best.state if tried is latent or is_known else None
            latent = latent.with_joint_columns(self.joint_columns_)
            settings = self.n_latent_states_, rows, generator, self.max_iter
            return self._learn(latent, *settings, start, last)

    def _learn(self, latent, n_states, rows, generator, n_passes, start=None, context=None):
        """The best of some passes with a number of latent states."""
        validation = rows.validation
        held_out = self._cells(validation)
        return drive(
            self,
            learn_latent_tree(
                latent,
                n_states,
                generator,
                pseudo_count=self.pseudo_count,
                schedule=LatentSchedule(n_epochs=n_passes),
                start=start,
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
        if self.point_masses is not True:
            return self.is_categorical_
        values = self._states.discretizer.values
        return np.array([known is not None and _are_even(known) for known in values])

    def _numbers_as_states(self, rows):
        numbers = {j: own.atoms for j, own in self._facts.items() if len(own.atoms)}
        known = self._states.numbers(self._schema.is_categorical)
        numbers |= {j: own for j, own in known.items() if self._has_categories[j]}
        return without_others(numbers, rows.X)

    def _known(self, X):
        return self._new_states.known(X)

    def _attributes(self, step):
        """The fitted attributes after a pass."""
        return {
            "circuit_": self._states.in_original_units(step.circuit),
            "parents_": step.tree.parents,
        }


def _are_even(values):
    """Tell whether increasing values are evenly spaced, as codes and levels of a scale are."""
    return len(values) <= 2 or bool(np.ptp(np.diff(values)) == 0.0)
