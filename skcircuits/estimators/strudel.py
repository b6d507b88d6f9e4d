"""Density estimation by Strudel: deterministic, structured-decomposable circuits."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import TABLE_CONSTRAINTS, Interval, inherit_documentation
from skcircuits.estimators.shared._density import DiscreteDensity
from skcircuits.estimators.shared._fitting import ValidationMixin, drive, stages
from skcircuits.exceptions import invalid
from skcircuits.learning._strudel import (
    GrowthLimits,
    StrudelLearner,
    StrudelStep,
    grow,
    learn_mixture,
)
from skcircuits.trees._chow_liu import complete_rows


@inherit_documentation
class StrudelDensity(ValidationMixin, DiscreteDensity):
    """Strudel: a deterministic circuit that is grown from a Chow-Liu tree by splitting edges.

    Each split replaces one product of the circuit by one copy per state of a column. It uses the
    product that most rows use (eFLOW), and the column with the largest mutual information with the
    other columns on these rows (vMI). The circuit remains deterministic and
    structured-decomposable. Its weights are therefore relative counts, its most probable
    completions are exact, and products and divergences of such circuits are tractable.

    Parameters
    ----------
    n_components : int, default=1
        Number of components, which share one structure. Several components are learned by
        expectation maximisation. A mixture is not deterministic.
    max_iter : int, default=500
        Maximum number of splits.
    patience : int, default=50
        Number of splits without improvement of the validation score after which the fit is stopped.
    max_parameters : int, default=100_000
        The fit is stopped when the circuit has more free parameters than this number.
    pseudo_count : float, default=1.0
        Weight of the prior at each sum unit. The prior of a single circuit is uniform, and the
        prior of the components of a mixture is the single circuit.
    validation_fraction : float or None, default=0.1
        Fraction of the rows that are held out to choose the number of splits, unless validation
        rows are passed to `fit`. Equal rows that chance hardly explains, as in continuous columns,
        are drawn together, and rows whose weights are no integers one by one, whatever they weigh.
        If None, or if the table is too small, the training rows are used instead.
    warm_start : bool, default=False
        Whether to continue splitting where the previous fit to the same rows ended. The best
        circuit of all these fits is kept. The rows are stored.

    Attributes
    ----------
    circuit_ : Circuit
        The density in original units.
    n_splits_ : int
        Number of splits of the circuit.
    validation_scores_ : list of float
        Mean log probability of the states of the validation rows: that of the Chow-Liu tree, then
        after each split, then after each iteration of the mixture.
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    HiddenChowLiuDensity : Usually has a higher likelihood; not deterministic.
    ChowLiuDensity : The initial circuit.

    Notes
    -----
    In columns of at most 32 distinct integers, every value is a state. Other numerical columns are
    divided into quantile bins with a uniform density, the outermost further where the density
    falls, so that scores are densities in the original units. On each side of the observed range
    lies an exponential tail whose probability is about 1 / (n_rows + 1), so that no number is
    impossible. A value that many rows have, such as zero in a column of debts, is a further state:
    a point mass, which enters scores with its probability instead of a density. Integers that did
    not occur in `fit` are treated as new categories.

    For the growth of the structure, every incomplete row counts as its probable completions by a
    Chow-Liu tree, each with its probability. The parameters are then learned from the incomplete
    rows by expectation maximisation.

    References
    ----------
    .. [1] Dang, Vergari and Van den Broeck, "Strudel: Learning Structured-Decomposable
       Probabilistic Circuits", PGM 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import StrudelDensity
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 1)) + 0.3 * rng.normal(size=(500, 4)) > 0.5).astype(float)
    >>> density = StrudelDensity(max_iter=20, random_state=0).fit(X)
    >>> density.circuit_.mpe([[1.0, np.nan, np.nan, 1.0]])
    array([[1., 1., 1., 1.]])
    """

    _parameter_constraints: ClassVar[dict] = {
        **ValidationMixin._validation_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "max_parameters": [Interval(Integral, 1, None, closed="left")],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        **TABLE_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_components=1,
        max_iter=500,
        patience=50,
        max_parameters=100_000,
        pseudo_count=1.0,
        validation_fraction=0.1,
        warm_start=False,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.max_iter = max_iter
        self.patience = patience
        self.max_parameters = max_parameters
        self.pseudo_count = pseudo_count
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def __getstate__(self):
        # A pickle carries the model, not the rows it could grow on
        state = super().__getstate__()
        for name in ("_learner", "_best", "_training_states"):
            state.pop(name, None)
        return state

    _grown_in_place = ("_learner", "_best")

    def _fit_rows(self, rows, generator):
        if not self.warm_start:
            self._forget_learner()
        learner = self._make_learner(rows)
        # By the number of components, of this fit and of those that it goes on from
        best = dict(getattr(self, "_best", {}))
        with stages(self, "structure", "parameters") as (structure, parameters):
            result = drive(
                self,
                self._steps(learner, generator, best),
                score=_validation_score,
                attributes=lambda step: {"circuit_": self._states.in_original_units(step.circuit)},
                X=rows.X,
                context=structure,
            )
            earlier = [best[k] for k in (self.n_components, 1) if k in best]
            # A fit that goes on may have had its best before
            model = max(result.state, *earlier, key=_validation_score)
            circuit = self._refine_states(model.circuit, rows, parameters)
        self.validation_scores_ = result.scores
        self.n_iter_ = result.n_iter
        # All components of a mixture have the structure of one circuit
        single = model if isinstance(model, StrudelStep) else model.structure.step
        self.n_splits_ = single.n_splits
        self.circuit_ = self._states.in_original_units(circuit)
        # Ctrl-C may have left a split half done
        self._forget_learner()
        if self.warm_start and result.converged:
            self._learner = learner
            self._best = {**best, self.n_components: model}

    def _forget_learner(self):
        for name in ("_learner", "_best"):
            vars(self).pop(name, None)

    def _steps(self, learner, generator, best):
        """Grow the structure, then learn a mixture on the best one."""
        limits = GrowthLimits(self.max_iter, self.patience, self.max_parameters)
        for step in grow(learner, limits):
            if 1 not in best or _validation_score(step) > _validation_score(best[1]):
                best[1] = step
            yield step
        if self.n_components > 1:
            yield from learn_mixture(
                best[1], self.n_components, generator, shrinkage=self.pseudo_count
            )

    def _make_learner(self, rows):
        """Make the learner of these rows, or take that of the previous fit."""
        if hasattr(self, "_learner"):
            self._check_same_rows(rows)
            return self._learner
        self._training_states = rows.states if self.warm_start else None
        training, held_out = complete_rows(
            [rows.codes, rows.validation.codes],
            self._states.layout,
            sample_weight=rows.weight,
            pseudo_count=self.pseudo_count,
        )
        return StrudelLearner(
            training.codes,
            self._states.layout,
            held_out.codes,
            weight=training.totals(rows.weight),
            validation_weight=held_out.totals(rows.validation.weight),
            pseudo_count=self.pseudo_count,
        )

    def _check_same_rows(self, rows):
        if not np.array_equal(self._training_states, rows.states, equal_nan=True):
            condition = "be those of the previous fit, with the same split"
            way_out = "Set random_state to an integer, or warm_start=False to start again."
            raise invalid("rows with warm_start=True", condition, way_out, n_rows=len(rows.X))


def _validation_score(model):
    return model.validation_log_density
