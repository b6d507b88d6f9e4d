"""Base classes of all estimators: scikit-learn's private tools, safe fits, reading of tables.

Every private scikit-learn import of the package is in this file. `TableMixin` reads the
tables that users pass; densities build on `skcircuits.estimators.shared._density`, fit loops run
in `skcircuits.estimators.shared._fitting`.
"""

import inspect
import re
from contextvars import ContextVar
from functools import wraps
from numbers import Integral, Number

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, check_consistent_length, check_random_state
from sklearn.utils._metadata_requests import _routing_enabled
from sklearn.utils._param_validation import HasMethods, Options, RealNotInt, StrOptions
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.multiclass import _ovr_decision_function as ovr_decision_function
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_sample_weight,
    _num_samples,
    check_array,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from skcircuits.exceptions import MAX_COUNT, invalid
from skcircuits.kernels.families.base import KernelFamily
from skcircuits.numerics._arrays import float_array, without_mask
from skcircuits.numerics._random import as_generator
from skcircuits.protocols import MAX_CELL
from skcircuits.tabular import TableSchema
from skcircuits.tabular._frames import (
    column_names,
    is_frame,
    require_unique_names,
    with_index_of,
)

__all__ = [
    "TABLE_CONSTRAINTS",
    "BaseComposition",
    "HasMethods",
    "Interval",
    "Options",
    "RealNotInt",
    "StrOptions",
    "TableMixin",
    "check_is_fitted",
    "check_weights",
    "feature_names",
    "fit_context",
    "inherit_documentation",
    "is_inner_fit",
    "make_generator",
    "ovr_decision_function",
    "route_fit_parameters",
]


class Interval(_Interval):
    """An interval of numbers: of those that arrays can count, without booleans."""

    def __init__(self, type, left, right, *, closed):
        if type is Integral and right is None:
            right, closed = MAX_COUNT, "both"
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val):
        """Whether a value is a number of the interval."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)


# Parameter constraints of all estimators of tables
TABLE_CONSTRAINTS = {
    "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
    "handle_unknown": [StrOptions({"missing", "error"})],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


# Weights count rows: beyond this a pseudo-row, or a small part of one, is lost in rounding.
_MAX_TOTAL = 1e12
_MIN_LARGEST = 1e-280  # weights are scaled up if the largest one is smaller
MEMORY_ADVICE = (
    "Fit fewer rows, fewer components or states, or with n_jobs=1; "
    "sklearn.set_config(working_memory=...) bounds what temporary arrays take."
)


# The fits that run within each other: each is the set of what it has done, {"read"} with its table
_fits = ContextVar("_fits", default=())


def is_inner_fit():
    """Whether a fit runs within a fit of another estimator."""
    return len(_fits.get()) > 1


def is_first_table():
    """Whether the fit that a user calls reads its first table, which is then read."""
    fits = _fits.get()
    if len(fits) > 1 or any("read" in done for done in fits):
        return False
    for done in fits:
        done.add("read")
    return True


def fit_context(fit):
    """Decorate a fit: it validates parameters, and succeeds or leaves the estimator as it was."""
    # What a fit grows in place (`_grown_in_place`, names of attributes) is dropped if it fails.
    # Where memory ends, the error has a note that says what would need less.
    checked = _fit_context(prefer_skip_nested_validation=True)(with_callbacks(fit))

    @wraps(fit)
    def fit_or_restore(self, *args, **kwargs):
        before = dict(vars(self))
        outside = _fits.set((*_fits.get(), set()))
        try:
            return checked(self, *args, **kwargs)
        except BaseException as error:
            vars(self).clear()
            half_done = getattr(self, "_grown_in_place", ())
            vars(self).update({name: v for name, v in before.items() if name not in half_done})
            # Once, although densities are fitted within other fits
            if isinstance(error, MemoryError) and not getattr(error, "__notes__", None):
                error.add_note(MEMORY_ADVICE)
            raise
        finally:
            _fits.reset(outside)

    return fit_or_restore


def check_weights(sample_weight, X):
    """Weights of the rows X as floats of shape (n,): finite, some positive. None stays None."""
    if sample_weight is None:
        return None
    given = float_array(sample_weight, "sample_weight")
    n_rows = _num_samples(X)
    if given.shape != (n_rows,):
        if not isinstance(sample_weight, Number):  # one weight for all rows
            raise invalid("sample_weight", "have one weight per row", shape=given.shape)
        given = np.full(n_rows, float(given))
    weights = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.max() < _MAX_TOTAL / len(weights):
        condition = f"sum to less than {_MAX_TOTAL:g}"
        way_out = "Divide all weights by the largest."
        raise invalid("sample_weight", condition, way_out, largest=float(weights.max()))
    # Subnormal numbers have few digits. Next to a prior, weights that are scaled up still vanish
    weights = weights * max(1.0, _MIN_LARGEST / max(weights.max(), np.nextafter(0.0, 1.0)))
    # Sums of all rows do not see lighter ones, but sums of these alone would divide by them
    return np.where(weights > np.finfo(np.float64).eps * weights.max(), weights, 0.0)


def feature_names(estimator, input_features=None):
    """Names of the input columns: those of fit, else `input_features`, else x0, x1, ..."""
    return _check_feature_names_in(estimator, input_features)


def make_generator(random_state):
    """Turn scikit-learn's `random_state` into a NumPy generator."""
    return as_generator(check_random_state(random_state))


def route_fit_parameters(router, estimator, sample_weight, parameters):
    """Route fit parameters to an inner estimator (all except X and y)."""
    if _routing_enabled():
        if sample_weight is not None:
            parameters = {**parameters, "sample_weight": sample_weight}
        return process_routing(router, "fit", **parameters).get("estimator", Bunch(fit={})).fit
    if sample_weight is None:
        return parameters
    # Without routing scikit-learn passes weights to whoever takes them
    weights = _weight_parameter(estimator)
    if weights is None:
        condition = "be None, as the estimator cannot take weights"
        way_out = "Use an estimator whose fit has sample_weight."
        raise invalid("sample_weight", condition, way_out, estimator=estimator)
    return {weights: sample_weight, **parameters}


def _weight_parameter(estimator):
    """Name under which the fit of an estimator takes weights of rows, None if it does not."""
    if isinstance(estimator, Pipeline):
        # Weights are those of the model; its transformers get them by metadata routing only
        name, last = estimator.steps[-1]
        inner = _weight_parameter(last) if hasattr(last, "fit") else None
        return inner and f"{name}__{inner}"
    if has_fit_parameter(estimator, "sample_weight"):
        return "sample_weight"
    parameters = inspect.signature(estimator.fit).parameters.values()
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        return None
    # Searches and transformed targets pass parameters on as they are, to a Pipeline, too
    inner = getattr(estimator, "regressor", getattr(estimator, "estimator", None))
    is_passed_on = hasattr(inner, "fit") and not isinstance(estimator, FrozenEstimator)
    return _weight_parameter(inner) if is_passed_on else "sample_weight"


class TableMixin:
    """Read dataframes and arrays with labels and missing cells as float arrays.

    Parameters
    ----------
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Categorical columns. ``"from_dtype"`` selects strings, booleans, categories and enumerations
        of a dataframe or object array; otherwise none, or a mask, indices or names.
    handle_unknown : {"missing", "error"}, default="missing"
        Whether a category that did not occur in `fit` is treated as missing or raises an error.

    Attributes
    ----------
    is_categorical_ : ndarray of shape (n_features_in_,)
        Mask of the categorical columns.
    categories_ : list of ndarray or None
        Categories of each column in the order of their codes, None for numerical columns.
    n_features_in_ : int
        Number of columns seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns seen during `fit`, if all of them are strings.
    """

    _doc_link_module = "skcircuits"
    _doc_link_template = (
        "https://skcircuits.readthedocs.io/en/latest/api/skcircuits.{estimator_name}.html"
    )

    def _learn_table(self, X, missing_value=np.nan):
        """Learn the schema of X and encode it, shape (n, d)."""
        self._reset()
        # Width and names come first: other checks name columns
        X = self._check_table(X, reset=True)
        chosen = self._choose_categorical()
        schema, encoded = TableSchema.learn_and_encode(X, chosen, missing_value)
        # Once: densities within see the same columns, perhaps without names
        if is_first_table():
            schema.warn_of_identifiers(encoded)
        self._set_schema(schema)
        return encoded

    def _reset(self):
        """Drop the attributes of the last fit: not every fit sets all of them."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _choose_categorical(self):
        return getattr(self, "categorical_features", "from_dtype")

    def _set_schema(self, schema):
        self._schema = schema
        self.is_categorical_ = schema.is_categorical
        self.categories_ = schema.categories

    def _read_table(self, X):
        """Encode a table by the schema learned in fit, shape (n, d)."""
        check_is_fitted(self)
        return self._encode_table(X)

    def _encode_table(self, X):
        """Encode a table by the schema, also before the fit has ended."""
        return self._encode_checked(self._check_table(X, reset=False))

    def _encode_checked(self, table):
        return self._schema.encode(table, getattr(self, "handle_unknown", "missing"))

    def _write_table(self, codes, schema, X, unseen=None):
        """Give the output of `transform` for X: an array, or what ``set_output`` asks for."""
        # `unseen`: per column, rows and cells of categories that have no code
        if self._container == "default":
            return schema.decode_array(codes, unseen)
        # The names of arrays and indicators may repeat
        require_unique_names(schema.names)
        return with_index_of(schema.decode(codes, self._container, unseen), X)

    @property
    def _container(self):
        """Library of the tables that ``set_output`` asks for, or "default" for arrays."""
        return _get_output_config("transform", self)["dense"]

    def _check_table(self, X, *, reset):
        """Check width and names; keep a dataframe as it is, since its dtypes matter."""
        if is_frame(X):
            names = column_names(X)  # repeated ones are refused by name
            validate_data(self, X, reset=reset, skip_check_array=True)
            _check_not_empty(X)
            known = getattr(self, "feature_names_in_", None)
            if not reset and known is not None and names != list(known):
                # Names that are not strings are matched by position; inner estimators need names
                X = X.set_axis(known, axis=1)
            return X
        X = without_mask(X)
        array = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        if array.dtype.kind in "US" and not hasattr(X, "dtype"):
            # NumPy turns the numbers of a mixed list into strings
            return check_array(X, dtype=object, ensure_all_finite=False)
        return array

    def _check_target(self, y, X, *, multi_output=False, numeric=True):
        """Validate a target, shape (n,) or, where several are allowed, (n, k)."""
        y = without_mask(y)
        if numeric and y is not None and getattr(y, "dtype", None) in (None, np.dtype(object)):
            y = float_array(y, "y")
        y = validate_data(self, y=y, multi_output=multi_output, y_numeric=numeric)
        is_frame(X)  # refuses lazy ones, which have no length
        check_consistent_length(X, y)
        return _as_numbers(y) if numeric else y

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # As in HistGradientBoosting, categories are an option: arrays hold numbers by default
        tags.input_tags.allow_nan = True
        return tags


def _as_numbers(y):
    """Target as floats whose squares are floats, too."""
    if y.dtype.kind in "mM":
        way_out = "Convert dates and durations to numbers."
        raise invalid("y", "hold numbers", way_out, dtype=str(y.dtype))
    y = y.astype(np.float64, copy=False)
    largest = float(np.abs(y).max(initial=0.0))
    if largest > MAX_CELL:
        raise invalid("y", f"be at most {MAX_CELL:g} in magnitude", "Rescale it.", largest=largest)
    return y


def _check_not_empty(frame):
    n_rows, n_columns = frame.shape
    if n_rows == 0 or n_columns == 0:
        # The words of scikit-learn's own check, which its common tests look for
        raise ValueError(
            f"Found array with {n_rows} sample(s) and {n_columns} feature(s) "
            f"(shape={frame.shape}) while a minimum of 1 is required."
        )


def inherit_documentation(cls):
    """Add to a class's docstring the parameters and attributes that its bases describe."""
    if cls.__doc__ is None:  # python -OO
        return cls
    documents = [inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in cls.__mro__]
    described = _documented_entries(documents, "Parameters")
    # In the order of the signature, without those that a subclass does not take
    parameters = {name: described[name] for name in inspect.signature(cls).parameters}
    attributes = _documented_entries(documents, "Attributes")
    before, after = _section("(?:Parameters|Attributes)").split(documents[0], maxsplit=1)[::2]
    after = _section("Attributes").sub("", after).lstrip("\n")
    sections = [f"Parameters\n----------\n{_joined(parameters)}"]
    if attributes:
        sections.append(f"Attributes\n----------\n{_joined(attributes)}")
    # A last line break, as before closing quotes
    cls.__doc__ = "\n".join([before.rstrip("\n") + "\n", *sections, f"{after}\n"])
    return cls


def _joined(entries):
    # One entry may describe several names
    return "".join(f"{entry}\n" for entry in dict.fromkeys(entries.values()))


def _section(name):
    """Pattern of a section of a numpydoc docstring, up to the next; its text is the first group."""
    return re.compile(rf"^{name}\n-+\n((?:(?!\S.*\n-+\n).*\n)*)", re.M)


def _documented_entries(documents, section):
    """Entries of a section by name, each in the words of the first document that has it."""
    entries = {}
    for document in documents:
        found = _section(section).search(f"{document}\n")
        for entry in re.findall(r"^\S.*\n(?:(?: .*)?\n)*", found[1], re.M) if found else []:
            for name in entry.split(" :", 1)[0].split(", "):
                entries.setdefault(name, entry.rstrip("\n"))
    return entries


class KernelParametersMixin:
    """Set parameters such as ``kernel__gamma`` by new kernels, so that searches can choose them."""

    def set_params(self, **params):
        """Set parameters of the estimator, and of estimators and kernels inside it."""
        of_kernel = {name for name in params if name.startswith("kernel__")}
        # The kernel itself first: the others may be meant for a new one
        super().set_params(**{name: params[name] for name in params if name not in of_kernel})
        if not of_kernel:
            return self
        if not isinstance(self.kernel, KernelFamily):
            condition = f"be a single kernel object to set {sorted(of_kernel)}"
            raise invalid("kernel", condition, "Set kernel itself.", kernel=self.kernel)
        self.kernel = self.kernel.with_params(
            **{name.removeprefix("kernel__"): params[name] for name in of_kernel}
        )
        return self
