"""Base classes of estimators that use the circuit of a density of their rows, and its columns.

The density is a parameter: "auto", the name of one, a density estimator (cloned, then fitted on
the rows) or a ready circuit.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_memory

from skcircuits.circuits import Circuit
from skcircuits.estimators._base import HasMethods, StrOptions, TableMixin, check_is_fitted
from skcircuits.estimators.automatic.density import AutomaticDensity, is_small
from skcircuits.estimators.chow_liu import ChowLiuDensity, HiddenChowLiuDensity
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.estimators.shared._density import BaseDensity
from skcircuits.estimators.shared._fitting import inner_fit, weights_in_rows, whole_fit
from skcircuits.estimators.strudel import StrudelDensity
from skcircuits.estimators.wmispn import WMISPNDensity
from skcircuits.exceptions import invalid, warn
from skcircuits.numerics._arrays import float_array
from skcircuits.tabular import TableSchema
from skcircuits.tabular._frames import append_columns, with_constant_columns

# To density="auto", a column of at most that many integers, each with that many cells on
# average, is discrete
_MAX_INTEGERS = 10
_MIN_REPETITIONS = 10
_MAX_ROWS = 200_000  # that density="auto" learns from: memory does not grow with further ones

# Meaning of density="..."; choices are made by the errors on held-out cells
_NAMED = {
    "gaussian_mixture": lambda: GaussianMixtureDensity(selection="cells"),
    "latent_tree": HiddenChowLiuDensity,
    "wmispn": WMISPNDensity,
    "chow_liu": ChowLiuDensity,
    "strudel": StrudelDensity,
}

# Attributes of a density that say for whom it is fitted; clones have parameters alone
_SETTINGS_OF_INNER = {"_convergence_way_out", "_may_transform"}

DENSITY_CONSTRAINTS = {
    "density": [StrOptions({"auto", *_NAMED}), HasMethods(["fit", "score_samples"]), Circuit]
}


class InnerDensityMixin(CallbackSupportMixin, TableMixin):
    """Learn a density of the rows and keep its circuit.

    Uses the parameters ``density``, ``random_state``, ``memory`` (where the estimator has it:
    caches the fitted density) and those of `TableMixin`.

    Attributes
    ----------
    density_ : density estimator or None
        The fitted density, None if a circuit was given.
    circuit_ : Circuit
        The circuit of the density, over the original units and the codes of ``categories_``.
    """

    # Whether density="auto" may mix families: kernels between incomplete rows need one structure
    _mixes_families = False
    # Whether columns without any observed value in fit become constants, also of later tables:
    # models would learn from what a density guesses there
    _fills_empty_columns = False

    def _check_table(self, X, *, reset):
        return with_constant_columns(super()._check_table(X, reset=reset), self._constant)

    def _learn_table(self, X, missing_value=np.nan, sample_weight=None):
        """Learn the schema of X, and which columns have no value in rows that count; encode X."""
        self._constant = []
        encoded = super()._learn_table(X, missing_value)
        is_unknown = np.isnan(encoded)
        if sample_weight is not None:
            is_unknown |= (sample_weight == 0)[:, None]
        self._empty = np.flatnonzero(is_unknown.all(axis=0)).tolist()
        if self._empty and self._fills_empty_columns:
            self._constant = self._empty
            # Again: constants are neither categories nor dates
            encoded = super()._learn_table(X, missing_value)
        return encoded

    def _learn_density(self, X, missing_value=np.nan, sample_weight=None):
        """Learn schema and density of X, return X encoded, shape (n, d)."""
        encoded = self._learn_table(X, missing_value, sample_weight)
        learned = self._schema
        if isinstance(self.density, Circuit):
            self.density_, self.circuit_ = None, self.density
            self._set_schema(_schema_for_circuit(learned, self.circuit_))
        else:
            rows, weights = self._enough_rows(encoded, weights_in_rows(sample_weight))
            # Rows of zero weight are ignored in the choice, too
            self.density_ = self._make_density(rows if weights is None else rows[weights > 0])
            with whole_fit(self, 1) as fit:
                task = fit.subcontext(task_name="density")
                with inner_fit(self, self.density_, task):
                    self._fit_density(rows, weights)
            del rows
            self.circuit_ = _circuit_of(self.density_)
        if self._schema is learned:
            return encoded
        # The circuit has changed the codes
        return self._schema.encode(self._check_table(X, reset=False))

    def _enough_rows(self, encoded, sample_weight):
        """Rows for the density, with their weights; a subset suffices for an automatic choice."""
        if not isinstance(self.density, str) or self.density != "auto":
            return encoded, sample_weight
        is_used = np.ones(len(encoded), dtype=bool) if sample_weight is None else sample_weight > 0
        used = np.flatnonzero(is_used)
        if len(used) <= _MAX_ROWS:
            return encoded, sample_weight
        # A density that is asked for is fitted to all rows, one that is chosen here need not be
        generator = check_random_state(self.random_state)
        chosen = np.sort(generator.choice(used, _MAX_ROWS, replace=False))
        return encoded[chosen], None if sample_weight is None else sample_weight[chosen]

    def _warn_of_empty_columns(self, consequence):
        """Warn of columns without any observed value; a fit may read its table several times."""
        if self._empty:
            names = [self._schema.names[j] for j in self._empty]
            warn(f"Columns {names} have no observed value in fit: {consequence}.")

    def _as_known(self, encoded):
        """Treat numbers that are new, or far off, like unknown categories, as missing; (n, d)."""
        fitted = best_density(self.density_)
        return fitted._evidence(encoded) if isinstance(fitted, BaseDensity) else encoded

    def _choose_categorical(self):
        """Both sides share one schema: a choice made on the density counts for both."""
        own = super()._choose_categorical()
        if isinstance(own, str):
            return getattr(self.density, "categorical_features", own)
        return own

    def _make_density(self, encoded):
        """Clone the density, seeded from this estimator where it has no seed."""
        if isinstance(self.density, str):
            density = self._named_density(encoded)
            density.set_params(verbose=self.verbose)
            name = type(density).__name__
            density._convergence_way_out = f"Pass density={name}(max_iter=...) with more of them."
        else:
            density = clone(self.density)
            if isinstance(density, BaseDensity):
                density._convergence_way_out = "Increase density__max_iter or density__tol."
                density._may_transform = self._mixes_families
        parameters = density.get_params(deep=False)
        # Otherwise two fits with one seed of this estimator would differ
        if "random_state" in parameters and parameters["random_state"] is None:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            density.set_params(random_state=seed)
        return density

    def _named_density(self, encoded):
        """The density of a given name."""
        if self.density == "auto":
            return self._automatic_density(encoded)
        return _NAMED[self.density]()

    def _automatic_density(self, encoded):
        """Choose a density: latent trees for discrete tables, the best families for others."""
        # Predictions of categories are averaged, too: mixtures know what trees do not, above all
        # from few rows. Small integers stay with trees, whose draws are numbers that were seen.
        numbers = encoded[:, ~self._schema.is_categorical]
        is_discrete = all(_is_discrete(column[~np.isnan(column)]) for column in numbers.T)
        has_numbers = numbers.shape[1] > 0
        if is_discrete and (
            has_numbers or not self._mixes_families or not is_small(*encoded.shape, "cells")
        ):
            return HiddenChowLiuDensity()
        if not self._mixes_families:
            return GaussianMixtureDensity(selection="cells")
        families = "all" if has_numbers else ["latent_tree", "gaussian_mixture"]
        n_jobs = getattr(self, "n_jobs", None)
        return AutomaticDensity(families=families, selection="cells", n_jobs=n_jobs)

    def set_params(self, **params):
        """Set parameters, also of a density that is an estimator.

        Parameters
        ----------
        **params : dict
            Parameters; ``density__<name>`` are those of the density.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        ValueError
            If a parameter of the density is set while the density is a name.
        """
        density = params.get("density", self.density)
        inner = {key: value for key, value in params.items() if key.startswith("density__")}
        if inner and isinstance(density, str):
            key, value = next(iter(inner.items()))
            name = key.removeprefix("density__")
            example = f"density=GaussianMixtureDensity({name}={value!r})"
            condition = "be an estimator"
            way_out = f"Write {example}, for example."
            raise invalid("A density whose parameters are set", condition, way_out, density=density)
        return super().set_params(**params)

    def _fit_density(self, encoded, sample_weight):
        """Fit the density; both sides then share one schema."""
        if isinstance(self.density_, BaseDensity):
            if getattr(self, "memory", None) is None:
                self.density_._fit_encoded(encoded, self._schema, sample_weight)
            else:
                fitted = check_memory(self.memory).cache(_fitted_density)
                density = clone(self.density_)  # callbacks cannot be cached
                for name in _SETTINGS_OF_INNER.intersection(vars(self.density_)):
                    setattr(density, name, getattr(self.density_, name))
                self.density_ = fitted(density, encoded, self._schema, sample_weight)
            return
        # A search over densities or a frozen density reads tables itself
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.density_.fit(self._schema.decode(encoded), None, **weights)
        fitted = best_density(self.density_)
        schema = getattr(fitted, "_schema", self._schema)
        # From the user's table: the decoded one may have lost the dtypes of missing values
        own = {name: getattr(self._schema, name) for name in ("missing_value", "prototype")}
        self._set_schema(replace(schema, **own))


class IndicatorMixin:
    """Append an indicator of missing values for each column that has some in fit."""

    # Precedes `InnerDensityMixin`, so that density and model see the same columns; attributes of
    # the estimator refer to the columns that the user passed

    def _check_table(self, X, *, reset):
        X = super()._check_table(X, reset=reset)
        if not self.add_indicator:
            return X
        if reset:
            self._own_schema = TableSchema.learn(X, super()._choose_categorical())
        missing = np.isnan(self._own_schema.encode(X, self.handle_unknown))
        if reset:
            self._indicated = np.flatnonzero(missing.any(axis=0))
        names = [f"missingindicator_{self._own_schema.names[j]}" for j in self._indicated]
        return append_columns(X, names, missing[:, self._indicated].astype(np.float64))

    def _choose_categorical(self):
        if not self.add_indicator:
            return super()._choose_categorical()
        # Indicators are categories, whatever their dtype
        return np.append(self._own_schema.is_categorical, np.ones(len(self._indicated), bool))

    def _set_schema(self, schema):
        super()._set_schema(schema)
        self.is_categorical_ = self.is_categorical_[: self.n_features_in_]
        self.categories_ = self.categories_[: self.n_features_in_]


class MeasuringMixin:
    """Values of missing cells of tables, from those of encoded rows.

    A subclass defines ``_values_of_cells(encoded)``: the values (n, d) of the cells of incomplete
    rows.
    """

    def value_of_measuring(self, X, costs=None):
        """Compute by how much measuring each missing value would reduce the uncertainty.

        The value with the largest result is the best one to measure next (active feature
        acquisition).

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        costs : array-like of shape (n_features,), dict or Series, default=None
            Cost of measuring each column, by position, or by name (``{"age": 1, "blood": 5}``; by
            index for arrays). The result is divided by it.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Expected reduction of the variance of the prediction (regressors, in squared standard
            deviations of the target, summed over the targets), or of the entropy of the class in
            nats (classifiers); 0 for observed values. It is exact for predictions in closed form
            under Gaussian mixtures, and estimated from 1024 draws otherwise, also where sums over
            several classes and many components would be long (a warning states the standard error,
            ``method="exact"`` sums them).
        """
        check_is_fitted(self)
        encoded = self._read_table(X)
        values, missing = np.zeros(encoded.shape), np.isnan(encoded)
        incomplete = np.flatnonzero(missing.any(axis=1))
        if len(incomplete):
            found = self._values_of_cells(encoded[incomplete])
            # Cells that the density does not know are missing for it alone
            values[incomplete] = np.where(missing[incomplete], found, 0.0)
        values = values[:, : self.n_features_in_]
        return values if costs is None else values / self._check_costs(costs)

    def _check_costs(self, costs):
        """Give the costs of the columns that the user passed, shape (n,)."""
        names = self._schema.names[: self.n_features_in_]
        if hasattr(costs, "keys"):  # a mapping or a Series, whose names may repeat
            given = Counter(costs.keys())
            kinds = {
                "unknown": given.keys() - set(names),
                "missing": set(names) - given.keys(),
                "repeated": [name for name, times in given.items() if times > 1],
            }
            wrong = {kind: sorted(own, key=str) for kind, own in kinds.items() if own}
            if wrong:
                raise invalid("Names in costs", f"be the columns {names}", **wrong)
            costs = [costs[name] for name in names]
        costs = float_array(costs, "costs")
        if costs.shape != (len(names),) or not (np.isfinite(costs) & (costs > 0)).all():
            raise invalid("costs", f"be {len(names)} positive numbers", costs=costs.tolist())
        return costs


def _is_discrete(numbers):
    """Whether a numerical column has few values, integers that come often."""
    values = np.unique(numbers)
    most = min(_MAX_INTEGERS, len(numbers) / _MIN_REPETITIONS)
    return len(values) <= most and (values == np.floor(values)).all()


def _fitted_density(density, encoded, schema, sample_weight):
    """Fit a density; a function of its own so that it can be cached."""
    return density._fit_encoded(encoded, schema, sample_weight)


def best_density(density):
    """The best estimator of a search, or the density itself."""
    return getattr(density, "best_estimator_", density)


def _circuit_of(density):
    """Give the circuit of a fitted density."""
    fitted = best_density(density)
    circuit = getattr(fitted, "circuit_", None)
    if circuit is None:
        way_out = "Pass a density that learns a circuit, or a Circuit itself."
        if hasattr(fitted, "to_circuit"):
            way_out = "Fit it alone and pass what its to_circuit() gives."
        raise invalid("A density", "have a circuit_ after fit", way_out, density=density)
    return circuit


def _schema_for_circuit(schema, circuit):
    """Match the columns of a table with the variables of a ready circuit."""
    n_columns = len(schema.columns)
    # A ready circuit knows columns by their index alone
    if circuit.variables != tuple(range(n_columns)):
        condition = f"have one variable per column, {n_columns} in all"
        way_out = "Variables are indices of columns, counted from 0."
        raise invalid("A circuit as density", condition, way_out, variables=circuit.variables)
    columns = [
        _column_for_circuit(column, circuit.cardinalities.get(j, 0))
        for j, column in enumerate(schema.columns)
    ]
    return replace(schema, columns=tuple(columns))


def _column_for_circuit(column, n_states):
    """Match a column with a variable of n_states states, 0 for a continuous one."""
    if column.categories is None and n_states:
        # A numerical column holds the codes of the variable themselves
        return replace(column, categories=np.arange(n_states))
    if column.cardinality != n_states:
        condition = f"have {column.cardinality} states, one per label (0: a continuous one)"
        way_out = "Declare all labels, for example with a pandas Categorical."
        raise invalid(
            f"The variable of column {column.name!r}", condition, way_out, n_states=n_states
        )
    return column
