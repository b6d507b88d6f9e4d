"""Density estimation by continuous mixtures of trees."""

from functools import cached_property
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.circuits import Circuit, Sum
from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    Interval,
    StrOptions,
    inherit_documentation,
)
from skcircuits.estimators.shared._density import DiscreteDensity
from skcircuits.estimators.shared._fitting import ValidationMixin, drive, stages
from skcircuits.learning._continuous_mixture import (
    ContinuousSchedule,
    complete_by_latent_tree,
    learn_continuous_mixture,
)
from skcircuits.learning.expectation_maximization import likeliest_weights
from skcircuits.learning.latent_tree._emissions import LatentRows
from skcircuits.learning.latent_tree._learner import LatentSchedule, learn_latent_tree


@inherit_documentation
class ContinuousMixtureDensity(ValidationMixin, DiscreteDensity):
    """Continuous mixture of trees, with tables that a network computes from latent points.

    All components share one tree, by default the Chow-Liu tree of the columns. Their tables are not
    learned separately. Instead, a decoder maps a normally distributed latent point to the tables of
    the tree, and the density is the integral over the latent points, approximated by `n_components`
    quasi-random points [1]_. The result is an ordinary mixture circuit, which does not need the
    decoder. Its hundreds of components can represent smooth variation between rows that a few
    components with free parameters cannot.

    With `n_latent_states`, a latent tree is learned from the same rows and added to the mixture. It
    represents the dependence between neighbouring columns, whereas the shared latent points
    represent what all columns have in common, so that both together often have a higher likelihood
    than either.

    Parameters
    ----------
    n_components : int, default=256
        Number of points of the integral, preferably a power of two. More points give a higher
        likelihood. Even thousands of points cost little in `fit`, whose steps use at most
        `n_step_components`, and in scores; the size of the circuit for other queries is
        proportional to this number.
    n_latent_dimensions : int, default=4
        Dimension of the latent points.
    n_latent_states : int, default=None
        If given, a latent Chow-Liu tree with this number of states per variable is learned as well,
        as in `HiddenChowLiuDensity`. Its weight maximises the likelihood of the validation rows.
    tree : {"chow_liu", "conditional"}, default="chow_liu"
        The tree of the components. ``"chow_liu"`` is the Chow-Liu tree of the columns.
        ``"conditional"`` connects the columns that depend most on each other given the latent
        point, after a short fit with the Chow-Liu tree. It takes a quarter longer and often has a
        higher likelihood, since much of what two columns have in common is shared by many columns
        and represented by the latent point.
    n_step_components : int, default=512
        Maximum number of points per step of the fit. Fits of larger numbers take longer in
        proportion. With many latent dimensions, several thousand give a higher likelihood.
    n_hidden_units : int, default=128
        Number of units in each of the two hidden layers of the decoder.
    learning_rate : float, default=0.003
        Initial learning rate of Adam, which follows a cosine schedule over `max_iter` iterations.
    batch_size : int, default=256
        Number of rows per step.
    pseudo_count : float, default=1.0
        Weight of uniform pseudo-counts for the estimation of the tree.
    max_iter : int, default=60
        Maximum number of iterations over the rows.
    tol : float, default=1e-4
        Minimum improvement of the validation score that counts for `n_iter_no_change`.
    n_iter_no_change : int, default=10
        Number of iterations without improvement after which the fit is stopped.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture in original units; smooth and (without latent tree) structured-decomposable. It
        is built on first access.
    latent_tree_weight_ : float
        Weight of the latent tree; 0 if there is none.
    parents_ : ndarray of shape (n_features_in_,)
        The tree: parent of each column, -1 at the root.
    validation_scores_ : list of float
        Mean log probability of the states of the validation rows after each iteration, without the
        latent tree.
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    HiddenChowLiuDensity : Latent variables with few states, one for each column.
    ChowLiuDensity : Few trees with separate tables.

    Notes
    -----
    In columns of at most 32 distinct integers, every value is a state. Other numerical columns are
    divided into quantile bins with a uniform density, the outermost further where the density
    falls, so that scores are densities in the original units. On each side of the observed range
    lies an exponential tail whose probability is about 1 / (n_rows + 1), so that no number is
    impossible. A value that many rows have, such as zero in a column of debts, is a further state:
    a point mass, which enters scores with its probability instead of a density. Integers that did
    not occur in `fit` are treated as new categories.

    Missing cells of training and validation rows are completed by draws from a latent tree. Those
    of training rows are drawn again from the mixture after one third and two thirds of the
    iterations. The learned circuit marginalises missing cells exactly.

    Since the learning rate is annealed over `max_iter` iterations, running all of them is the
    regular end of a fit, and does not issue a warning.

    References
    ----------
    .. [1] Correia, Gala, Quaeghebeur, de Campos and Peharz, "Continuous Mixtures of Tractable
       Probabilistic Models", AAAI 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import ContinuousMixtureDensity
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 1)) + 0.3 * rng.normal(size=(500, 4)) > 0.5).astype(float)
    >>> density = ContinuousMixtureDensity(n_components=16, max_iter=20, random_state=0).fit(X)
    >>> bool(density.score(X) > np.log(1 / 16))
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **ValidationMixin._validation_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_latent_dimensions": [Interval(Integral, 1, 64, closed="both")],
        "n_latent_states": [Interval(Integral, 1, None, closed="left"), None],
        "tree": [StrOptions({"chow_liu", "conditional"})],
        "n_step_components": [Interval(Integral, 1, None, closed="left")],
        "n_hidden_units": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        **TABLE_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_components=256,
        n_latent_dimensions=4,
        n_latent_states=None,
        tree="chow_liu",
        n_step_components=512,
        n_hidden_units=128,
        learning_rate=0.003,
        batch_size=256,
        pseudo_count=1.0,
        max_iter=60,
        tol=1e-4,
        n_iter_no_change=10,
        validation_fraction=0.1,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.n_latent_dimensions = n_latent_dimensions
        self.n_latent_states = n_latent_states
        self.tree = tree
        self.n_step_components = n_step_components
        self.n_hidden_units = n_hidden_units
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.pseudo_count = pseudo_count
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        validation = rows.validation
        # Validation rows have zero weight: they are completed by what was learned from others.
        codes = complete_by_latent_tree(
            np.concatenate([rows.codes, validation.codes]),
            np.concatenate([rows.weight, np.zeros(len(validation.X))]),
            self._states.layout,
            generator,
        )
        codes, held_out = np.split(codes, [len(rows.X)])
        if self.n_latent_states is None:
            result = self._learn_mixture(rows, codes, held_out, generator)
            learned = self._attributes(result.state)
        else:
            with stages(self, "continuous mixture", "latent tree") as (first, second):
                result = self._learn_mixture(rows, codes, held_out, generator, first)
                learned = self._add_latent_tree(result.state, rows, codes, generator, second)
        self.validation_scores_ = result.scores
        self.n_iter_ = result.n_iter
        vars(self).update(learned)
        vars(self).pop("circuit_", None)  # of an earlier fit

    def _learn_mixture(self, rows, codes, held_out, generator, context=None):
        """The best pass of the continuous mixture."""
        steps = learn_continuous_mixture(
            codes,
            rows.codes < 0,
            self._states.layout,
            self.n_components,
            generator,
            sample_weight=rows.weight,
            schedule=ContinuousSchedule(
                self.n_latent_dimensions,
                self.n_hidden_units,
                self.learning_rate,
                self.batch_size,
                self.max_iter,
                self.pseudo_count,
                self.n_step_components,
                self.tree == "conditional",
            ),
        )
        return drive(
            self,
            steps,
            max_iter=self.max_iter,
            # Held-out rows decide which pass is kept: later ones may fit the training rows alone
            score=lambda step: np.average(
                step.mixture.log_prob(held_out), weights=rows.validation.weight
            ),
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            attributes=self._attributes,
            X=rows.X,
            context=context,
        )

    def _add_latent_tree(self, mixture_step, rows, codes, generator, context):
        """The fitted attributes with the best pass of a latent tree mixed in."""
        layout, validation = self._states.layout, rows.validation
        is_categorical = np.ones(layout.n_variables, dtype=bool)
        latent = LatentRows(rows.states, rows.weight, codes, layout, is_categorical)
        tree = drive(
            self,
            learn_latent_tree(
                latent,
                self.n_latent_states,
                generator,
                pseudo_count=self.pseudo_count,
                schedule=LatentSchedule(n_epochs=self.max_iter),
            ),
            max_iter=self.max_iter,
            score=lambda step: step.mean_log_prob(validation.states, validation.weight),
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            X=rows.X,
            context=context,
        ).state.circuit
        # Held-out rows decide on the fraction of each model
        scores = mixture_step.mixture.log_prob(validation.codes), tree.log_prob(validation.states)
        weights = likeliest_weights(np.column_stack(scores), validation.weight)
        return self._attributes(mixture_step, tree, float(weights[1]))

    @cached_property
    def circuit_(self):
        """The mixture as a circuit. It is built on first access, because scores do not need it."""
        circuit = self._mixture.circuit()
        if self._latent_tree is not None:
            weights = [1.0 - self.latent_tree_weight_, self.latent_tree_weight_]
            circuit = Circuit(Sum([circuit.root, self._latent_tree.root], weights=weights))
        return self._states.in_original_units(circuit)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_mixture")

    def __getstate__(self):
        # A pickle carries the network, not the circuit that is built from it
        state = super().__getstate__()
        state.pop("circuit_", None)
        return state

    def _add_new_integers(self, rows):
        """Keep the states: scores do without the circuit."""

    def _log_density(self, X):
        # Over all components at once, which the circuit holds as units of their own; density
        # inside bins is the circuit's.
        if any(edges is not None for edges in self.bin_edges_):
            return super()._log_density(X)
        states = self._states.discretizer.encode(X)
        log_mass = self._mixture.log_prob(np.nan_to_num(states, nan=-1).astype(np.int64))
        if self._latent_tree is not None:
            other, weight = self._latent_tree.log_prob(states), self.latent_tree_weight_
            log_mass = np.logaddexp(log_mass + np.log1p(-weight), other + np.log(weight))
        return log_mass - self._states.discretizer.log_volume(X)

    def _attributes(self, step, latent_tree=None, weight=0.0):
        """The fitted attributes after a pass."""
        return {
            # Learned in single precision, which sums over many components would round
            "_mixture": step.mixture.in_double_precision(),
            "_latent_tree": latent_tree,
            "latent_tree_weight_": weight,
            "parents_": step.mixture.features.parents,
        }
