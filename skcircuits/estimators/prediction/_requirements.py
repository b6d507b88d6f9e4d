"""What a model requires of rows: checks before it is fitted, its fit, and what it fails for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import QuantileRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import InputTags, Tags, TargetTags, get_tags

from skcircuits.exceptions import invalid, must
from skcircuits.protocols import BoolArray, FloatArray
from skcircuits.tabular import TableSchema
from skcircuits.tabular._frames import columns_of_categories

N_CORNERS = 64  # beyond the range of the rows, at which models are tried
_LOSSES = ("loss", "criterion", "objective", "loss_function")  # the last two in other libraries
_OF_MEDIANS = {"absolute_error", "reg:absoluteerror"}
_OF_MEDIANS |= {"mean_absolute_error", "mae", "regression_l1", "l1"}  # in LightGBM and CatBoost
# Transformers that accept only numbers; the tags of others are less permissive than they are
_OF_NUMBERS = ("sklearn.preprocessing._data", "sklearn.decomposition", "sklearn.kernel_approx")


def tags_of(model: Any) -> Tags:
    """Give the tags of a model; classes that do not derive from BaseEstimator have none."""
    try:
        return get_tags(model)
    except AttributeError:
        return Tags(None, TargetTags(required=True), input_tags=InputTags())


def check_kind(model: Any, kind: str) -> None:
    """Refuse models that cannot be cloned or have no `predict`, or are of another known kind."""
    if not hasattr(model, "get_params"):
        way_out = (
            "Derive its class from sklearn.base.BaseEstimator, or pass a fitted model as "
            "FrozenEstimator(estimator)."
        )
        raise TypeError(must("estimator", "have get_params", way_out, estimator=model))
    # Some have the method only once they are fitted
    if not (hasattr(model, "predict") or hasattr(type(model), "predict")):
        raise TypeError(
            must("estimator", "have predict", "Pass a model or a Pipeline.", estimator=model)
        )
    # Outlier detectors and clusterers have predict as well, but no target
    given = tags_of(model).estimator_type
    if given not in (None, kind):
        raise TypeError(
            must(
                "estimator",
                f"be a {kind}",
                f"Use ExpectedPrediction{given.capitalize()} for a {given}."
                if given in ("classifier", "regressor")
                else "Pass a model that predicts a target.",
                estimator=model,
            )
        )


def check_reads_columns(model: Any, schema: TableSchema) -> None:
    """Refuse models that cannot read the categories or the dates of a table."""
    words, dates = _columns_without_numbers(schema)
    _check_reads_texts(model, schema, words)
    kinds = ("categories", words, "OneHotEncoder()"), ("dates", dates, "FunctionTransformer(...)")
    for kind, columns, encoder in kinds:
        if columns and not _may_read(model, kind):
            condition = f"read {kind}, which columns {columns} hold"
            way_out = (
                "Put an encoder in front: make_pipeline(make_column_transformer("
                f"({encoder}, columns), remainder='passthrough'), estimator)."
            )
            raise invalid("estimator", condition, way_out, estimator=model)


def fit_model(model: Any, table: Any, y: Any, schema: TableSchema, fit_params: Any) -> Any:
    """Fit a clone of a model; errors have a note on columns that models of numbers cannot read."""
    fitted = clone(model)
    try:
        fitted.fit(table, y, **fit_params)  # which need not return the model
    except (TypeError, ValueError) as error:
        words, dates = _columns_without_numbers(schema)
        kinds = {"categories": words, "dates": dates}
        shown = " and ".join(f"{kind} in columns {own}" for kind, own in kinds.items() if own)
        if shown:
            error.add_note(
                f"The table has {shown}. An encoder in front of the estimator must turn them "
                "into numbers, unless the estimator reads them."
            )
        raise
    return fitted


def _columns_without_numbers(schema: TableSchema) -> tuple[list[Any], list[Any]]:
    """Names of the columns of categories that are no numbers, and of those of dates."""
    # Categories that are numbers can be read by every model; words and dates cannot
    words = [
        column.name
        for column in schema.columns
        if column.categories is not None and column.categories.dtype.kind == "O"
    ]
    return words, [column.name for column in schema.columns if column.has_dates]


def _check_reads_texts(model: Any, schema: TableSchema, words: list[Any]) -> None:
    """Refuse texts for histogram gradient boosting that reads columns declared as categories."""
    if getattr(model, "categorical_features", None) != "from_dtype":
        return
    texts = words
    if schema.prototype is not None:
        declared = columns_of_categories(schema.prototype)
        texts = [name for name in words if name not in declared]
    if texts:
        condition = f"read categories by their dtype, which columns {texts} do not have"
        way_out = "Convert these columns to categories, as by X.astype('category')."
        raise invalid("estimator", condition, way_out, estimator=model)


def _may_read(model: Any, kind: str) -> bool:
    """Tell whether a model may support categories or dates, as far as is known before fit."""
    if isinstance(model, Pipeline):
        # An encoder may be hidden in any other first step, which is given the benefit of the
        # doubt
        first = model.steps[0][1]
        of_numbers = type(first).__module__.startswith(_OF_NUMBERS)
        return _may_read(first, kind) if of_numbers or isinstance(first, Pipeline) else True
    parameters = model.get_params(deep=False)
    # A model of other libraries, or one that wraps another, tells only when it is fitted
    has_models = any(hasattr(v, "fit") or isinstance(v, list) for v in parameters.values())
    module = type(model).__module__
    if not module.startswith("sklearn.") or module == "sklearn.dummy" or has_models:
        return True
    if kind == "dates":
        return False
    tags = tags_of(model).input_tags
    return tags.categorical or tags.string or "categorical_features" in parameters


def refuses_negative_values(model: Any) -> bool:
    """Tell whether a model, or one inside of it, refuses values that a density may draw."""
    parts = [model, *model.get_params(deep=True).values()]
    return any(
        tags_of(part).input_tags.positive_only
        for part in parts
        if hasattr(part, "fit") and not isinstance(part, type)
    )


def predicts_quantile(model: Any) -> bool:
    """Tell whether a model, or one inside of it, predicts a quantile of the target."""
    parts = model, *model.get_params(deep=True).values()
    return any(isinstance(part, QuantileRegressor) for part in parts) or any(
        "quantile" in loss for loss in _losses_of(model)
    )


def predicts_median(model: Any) -> bool:
    """Tell whether a model, or one inside of it, minimises absolute errors."""
    return any(loss in _OF_MEDIANS for loss in _losses_of(model))


def _losses_of(model: Any) -> list[str]:
    """Names of the losses of a model and of those inside of it, in lower case."""
    return [
        str(value).lower()
        for name, value in model.get_params(deep=True).items()
        if name.rpartition("__")[2] in _LOSSES
    ]


def fails_outside(
    predict: Callable[[FloatArray], Any], rows: FloatArray, is_number: BoolArray
) -> bool:
    """Tell whether a model answers for rows, but not for numbers beyond their range."""
    # Logarithms and Box-Cox transformations are not defined there, where densities may draw
    least, largest = rows.min(axis=0), rows.max(axis=0)
    ends = np.stack([2.0 * least - largest, 2.0 * largest - least])
    # A function of several columns may fail at some corners of their ranges only
    corners = np.random.default_rng(0).integers(2, size=(N_CORNERS, len(least)))
    corners[:2] = [[0], [1]]
    beyond = np.take_along_axis(ends, corners, axis=0)
    beyond = np.where(is_number, beyond, rows[0])
    return _fails(predict, beyond) and not _fails(predict, rows)


def unread_categories(
    predict: Callable[[FloatArray], Any], encoded: FloatArray, schema: TableSchema
) -> dict[int, FloatArray]:
    """Codes to read, by column, for categories that a dtype declares and the model fails for."""
    # Encoders of a model know the categories of its rows only: others are read as the most frequent
    counts = {
        j: np.bincount(own[~np.isnan(own)].astype(int), minlength=schema.columns[j].cardinality)
        for j, own in enumerate(encoded.T)
        if schema.columns[j].categories is not None
    }
    partial = {j: own for j, own in counts.items() if own.any() and not own.all()}
    if not partial:
        return {}
    row = with_typical_values(encoded)[:1]
    if _fails(predict, row):
        return {}
    found: dict[int, FloatArray] = {}
    for j, own in partial.items():
        unseen = np.flatnonzero(own == 0)
        trials = np.repeat(row, len(unseen), axis=0)
        trials[:, j] = unseen
        if _fails(predict, trials):
            found[j] = np.where(own > 0, np.arange(len(own)), own.argmax()).astype(np.float64)
    return found


def with_typical_values(rows: FloatArray) -> FloatArray:
    """Put values that occur, medians of numbers, where values are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        typical = np.nanquantile(rows, 0.5, axis=0, method="lower")
    return np.where(np.isnan(rows), np.nan_to_num(typical), rows)


def _fails(predict: Callable[[FloatArray], Any], rows: FloatArray) -> bool:
    try:
        # What becomes NaN in a transformer may not fail in a model that reads missing values
        with np.errstate(divide="raise", invalid="raise"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = np.asarray(predict(rows))
    except Exception:
        return True
    return answers.dtype.kind == "f" and not bool(np.isfinite(answers).all())
