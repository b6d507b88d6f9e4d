"""Mixtures of several densities, with weights that are learned from held-out rows."""

from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import Bunch

from skcircuits.estimators._base import (
    TABLE_CONSTRAINTS,
    BaseComposition,
    inherit_documentation,
)
from skcircuits.estimators.automatic.density import mixed
from skcircuits.estimators.shared._completion import NewStates, numbers_with_masses
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.estimators.shared._fitting import ValidationMixin, inner_fit, whole_fit
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.learning.expectation_maximization import likeliest_weights
from skcircuits.parallel import Parallel, delayed

# Of the prior at equal weights. On small tables few rows are held out, and a density that happened
# to explain them best would be the only one
_PRIOR_ROWS = 1.0


@inherit_documentation
class StackingDensity(ValidationMixin, CircuitDensity, BaseComposition):
    """Mixture of several densities, with weights that are learned by stacking.

    The densities are fitted to a part of the rows. The weights of the mixture maximise the
    likelihood of the other rows [1]_, with a prior of one row at equal weights, which is a concave
    problem. Afterwards, the densities are fitted to all rows. The mixture is a circuit, so that all
    queries are exact.

    Parameters
    ----------
    estimators : list of (str, density)
        Names and densities that learn a circuit. They are cloned. A density that is set to "drop"
        (by `set_params`) is left out.
    validation_fraction : float or None, default=0.1
        Fraction of the rows that are held out to learn the weights, unless validation rows are
        passed to `fit`. If None, or if the table is too small, the training rows are used instead.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Categorical columns: those with a categorical dtype, none, or a mask, indices or names. This
        choice holds for all densities, whatever their own parameters are.
    random_state : int, RandomState or None, default=None
        Controls the choice of the held-out rows, and the randomness of densities whose own
        ``random_state`` is None.
    n_jobs : int, default=None
        Number of parallel jobs over densities; the result does not depend on it.
    verbose : int, default=0
        Print the weights. Densities print by their own ``verbose``.

    Attributes
    ----------
    circuit_ : Circuit
        The mixture, over the original units and the codes of ``categories_``.
    estimators_ : list of density
        The fitted densities, without those that are dropped.
    named_estimators_ : Bunch
        The fitted densities by name; "drop" for those that are dropped.
    weights_ : ndarray of shape (len(estimators_),)
        Weights of the densities in the mixture.

    See Also
    --------
    AutomaticDensity : Chooses the densities as well.

    Notes
    -----
    Validation rows that are passed to `fit` are also those of densities that use some. The
    densities are then fitted once, to X. Otherwise, densities that need validation rows hold out
    their own.

    All densities must represent a column in the same way: by densities, by probabilities of its
    values, or by point masses beside a density. Otherwise, their log densities are not comparable,
    and an error names the column.

    References
    ----------
    .. [1] Smyth and Wolpert, "Linearly Combining Density Estimators via Stacking", Machine
       Learning 36, 1999.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, StackingDensity
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((500, 1)) + 0.3 * rng.normal(size=(500, 4)) > 0.5).astype(float)
    >>> members = [("tree", ChowLiuDensity()), ("latent", HiddenChowLiuDensity(n_latent_states=2))]
    >>> density = StackingDensity(members, random_state=0).fit(X)
    >>> density.weights_.shape
    (2,)
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimators": [list],
        **ValidationMixin._validation_constraints,
        **TABLE_CONSTRAINTS,
        "n_jobs": [Integral, None],
    }

    _given = None  # fitted densities and weights of an earlier fit, in clones that keep them

    def __init__(
        self,
        estimators,
        *,
        validation_fraction=0.1,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.estimators = estimators
        self.validation_fraction = validation_fraction
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def get_params(self, deep=True):
        """Get the parameters, with ``deep`` also the densities by name and their parameters."""
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params):
        """Set parameters; ``<name>`` is a density or "drop", ``<name>__<parameter>`` its own."""
        return self._set_params("estimators", **params)

    def _learn_rows(self, X, sample_weight, validation=None, groups=None):
        self._check_estimators()
        return super()._learn_rows(X, sample_weight, validation, groups)

    def _view_rows(self, rows):
        return rows.in_canonical_order()

    def _add_validation(self, rows, validation, generator):
        # Without given ones, all rows are learned from in the end: `_fit_rows` holds some out
        return super(ValidationMixin, self)._add_validation(rows, validation, generator)

    def _fit_rows(self, rows, generator):
        seeds = generator.integers(2**31 - 1, size=len(self.estimators)).tolist()
        holds_out = rows.validation is None and self._given is None
        part = rows.hold_out(self.validation_fraction, generator) if holds_out else rows
        refits = len(part.X) < len(rows.X)
        with whole_fit(self, len(self._members(seeds)) * (1 + refits)) as fit:
            # Only the last fits say that they need more iterations
            members = self._members(seeds, is_last=not refits)
            self.estimators_ = self._fit_members(members, part, rows.validation, fit)
            self.weights_ = self._learn_weights(part) if self._given is None else self._given[1]
            if refits:
                self.estimators_ = self._fit_members(self._members(seeds), rows, None, fit)
        self.circuit_ = self._mixture(self.weights_)
        fitted = iter(self.estimators_)
        self.named_estimators_ = Bunch(
            **{name: e if _is_dropped(e) else next(fitted) for name, e in self.estimators}
        )

    def _add_new_integers(self, rows):
        # The densities have them already
        self._n_given = sum(member._n_given for member in self.estimators_)

    def _members(self, seeds, is_last=True):
        """Unfitted copies of the densities, seeded where they have no seed."""
        if self._given is not None:
            return [member._clone_for_draw() for member in self._given[0]]
        members = []
        for (name, given), seed in zip(self.estimators, seeds, strict=True):
            if not _is_dropped(given):
                member = clone(given)
                way_out = f"Increase {name}__max_iter or {name}__tol."
                member._convergence_way_out = way_out if is_last else None
                if member.get_params(deep=False).get("random_state", seed) is None:
                    member.set_params(random_state=seed)
                members.append(member)
        return members

    def _fit_members(self, members, rows, validation, fit):
        """Fit densities, each as a task for callbacks."""
        given = None if validation is None else validation.X
        return Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_member)(
                self, member, fit.subcontext(task_name=type(member).__name__), rows, given
            )
            for member in members
        )

    def _learn_weights(self, part):
        """Weights under which rows are likeliest, from densities that were not fitted to them."""
        members, rows = self.estimators_, part.validation
        # Before more time is spent
        whole = self._mixture(np.full(len(members), 1.0 / len(members)))
        numbers = numbers_with_masses(whole, part.X, self._schema.is_categorical)
        X = NewStates({}, numbers).known(rows.X)
        circuits = [member.circuit_ for member in members]
        layers = [layer for _, layer in whole.plan.inputs]
        if any(len(layer.massive_variables) for layer in layers if not layer.is_discrete):
            # Where one density has a point mass, the others are no densities in the mixture
            circuits = [self._mixture(own) for own in np.eye(len(members))]
        log_prob = [circuit.log_prob(X) for circuit in circuits]
        weights = likeliest_weights(np.column_stack(log_prob), rows.weight, _PRIOR_ROWS)
        if self.verbose:
            print(f"[StackingDensity] weights {weights.round(3).tolist()}")
        return weights

    def _mixture(self, weights):
        """Mix the densities; refuse columns in which one has probabilities and another none."""
        try:
            circuit = mixed([member.circuit_ for member in self.estimators_], weights)
            circuit.plan  # noqa: B018 whether the units of each column are of one kind
            return circuit
        except CircuitPropertyError as error:
            massive = [member.circuit_.plan.massive_variables for member in self.estimators_]
            some, all_of_them = set.union(*massive), set.intersection(*massive)
            # Categories and point masses are both probabilities, of different kinds of units
            columns = sorted(some - all_of_them or some)
            names = [self._schema.names[j] for j in columns if not self._schema.is_categorical[j]]
            condition = "have point masses in the same columns"
            way_out = (
                'Set point_masses="frequent", or False, in all that have the parameter; densities '
                "over bins cannot be mixed with others on such tables."
            )
            message = must("Estimators", condition, way_out, columns=names)
            raise CircuitPropertyError(message) from error

    def _clone_for_draw(self):
        cloned = super()._clone_for_draw()
        cloned._given = self.estimators_, self.weights_
        return cloned

    def _check_estimators(self):
        """Refuse what cannot be mixed before anything is fitted."""
        try:
            names, members = zip(*self.estimators, strict=True)
        except (TypeError, ValueError):
            names = members = ()
        if all(map(_is_dropped, members)):
            condition = "be a list of (name, density), not all of them dropped"
            raise invalid("estimators", condition, estimators=self.estimators)
        self._validate_names(names)
        for name, member in zip(names, members, strict=True):
            if _is_dropped(member):
                continue
            if not isinstance(member, CircuitDensity):
                condition = "be a density that learns a circuit"
                raise invalid(f"Estimator {name!r}", condition, estimator=member)
            try:
                member._validate_params()
            except ValueError as error:
                raise ValueError(f"Estimator {name!r}: {error}") from error


def _is_dropped(member):
    return isinstance(member, str) and member == "drop"


def _fit_member(stack, member, task, rows, validation):
    """Fit one density as a task of the fit of all."""
    with inner_fit(stack, member, task):
        member._fit_encoded(rows.X, stack._schema, rows.weight, validation)
    return member
