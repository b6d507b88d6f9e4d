"""Trees of fitted models as arrays: sums of trees over features that are columns each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from skcircuits.predictions._closed_forms import NoClosedFormError
from skcircuits.protocols import BoolArray, FloatArray, IntArray

MODELS = (
    BaggingClassifier,
    BaggingRegressor,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)


@dataclass(frozen=True, eq=False)
class Trees:
    """A sum of trees; nodes of all trees stand in one list.

    `roots` (n_trees,): first node of each tree; `left`, `right` (n_nodes,): children, -1 at leaves;
    `feature` (n_nodes,): feature that an inner node looks at; `threshold` (n_nodes,): features up
    to it go to the left; `value` (n_nodes, k): what a leaf adds to the sum; `single_precision`:
    whether features are rounded to single precision before they are compared.
    """

    roots: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: FloatArray
    value: FloatArray
    single_precision: bool

    @classmethod
    def joined(cls, parts: Sequence[Trees], factor: float = 1.0) -> Trees:
        """Join sums of trees, all leaves multiplied by a factor."""
        sizes = [len(part.left) for part in parts]
        shifts = np.cumsum([0, *sizes[:-1]])

        def children(name: str) -> IntArray:
            moved = [
                np.where(getattr(part, name) < 0, -1, getattr(part, name) + shift)
                for part, shift in zip(parts, shifts)
            ]
            return np.concatenate(moved)

        return cls(
            np.concatenate([part.roots + shift for part, shift in zip(parts, shifts)]),
            children("left"),
            children("right"),
            np.concatenate([part.feature for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.value for part in parts]) * factor,
            parts[0].single_precision,
        )

    def goes_left(self, nodes: IntArray, rows: IntArray, features: FloatArray) -> BoolArray:
        """Tell where rows of features go at inner nodes."""
        cells = features[rows, self.feature[nodes]]
        if self.single_precision:
            cells = cells.astype(np.float32)
        return np.asarray(cells <= self.threshold[nodes])

    def __call__(self, features: FloatArray) -> FloatArray:
        """Sum of the leaves that rows of features reach, shape (n, k)."""
        n_rows = len(features)
        rows = np.repeat(np.arange(n_rows), len(self.roots))
        nodes = np.tile(self.roots, n_rows)
        active = np.flatnonzero(self.left[nodes] >= 0)
        while len(active):
            own = nodes[active]
            to_left = self.goes_left(own, rows[active], features)
            nodes[active] = np.where(to_left, self.left[own], self.right[own])
            active = active[self.left[nodes[active]] >= 0]
        return self.value[nodes].reshape(n_rows, len(self.roots), -1).sum(axis=1)


@singledispatch
def trees_of(model: Any, method: str) -> Trees:
    """Read the trees of a fitted model; their sum is its answer but for a constant."""
    raise NoClosedFormError(f"{type(model).__name__} is no sum of trees")


@trees_of.register(DecisionTreeRegressor)
@trees_of.register(DecisionTreeClassifier)
def _of_tree(model: Any, method: str) -> Trees:
    tree = model.tree_
    # Classes of several targets are padded to one number
    n_classes = np.atleast_1d(getattr(model, "n_classes_", 1))
    parts = [
        tree.value[:, output, :n]
        for output, n in enumerate(np.broadcast_to(n_classes, tree.n_outputs))
    ]
    if method == "predict_proba":
        parts = [part / part.sum(axis=1, keepdims=True) for part in parts]
    return Trees(
        np.zeros(1, dtype=np.int64),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        np.maximum(tree.feature, 0).astype(np.int64),
        tree.threshold.astype(np.float64),
        np.hstack(parts).astype(np.float64),
        single_precision=True,
    )


@trees_of.register(RandomForestRegressor)
@trees_of.register(RandomForestClassifier)
@trees_of.register(ExtraTreesRegressor)
@trees_of.register(ExtraTreesClassifier)
def _of_forest(model: Any, method: str) -> Trees:
    parts = [trees_of(tree, method) for tree in model.estimators_]
    return Trees.joined(parts, 1.0 / len(parts))


@trees_of.register(BaggingRegressor)
@trees_of.register(BaggingClassifier)
def _of_bagging(model: Any, method: str) -> Trees:
    parts = []
    for tree, features in zip(model.estimators_, model.estimators_features_):
        own = trees_of(tree, method)
        renamed = np.asarray(features, dtype=np.int64)[own.feature]
        parts.append(_replaced(own, feature=renamed))
    return Trees.joined(parts, 1.0 / len(parts))


@trees_of.register(GradientBoostingRegressor)
@trees_of.register(GradientBoostingClassifier)
def _of_boosting(model: Any, method: str) -> Trees:
    if method == "predict_proba":
        raise NoClosedFormError("the link of boosted probabilities mixes the trees")
    parts = []
    for stage in model.estimators_:
        for output, tree in enumerate(stage):
            own = trees_of(tree, "predict")
            value = np.zeros((len(own.left), len(stage)))
            value[:, output] = model.learning_rate * own.value[:, 0]
            parts.append(_replaced(own, value=value))
    return Trees.joined(parts)


@trees_of.register(HistGradientBoostingRegressor)
@trees_of.register(HistGradientBoostingClassifier)
def _of_histogram_boosting(model: Any, method: str) -> Trees:
    if method == "predict_proba":
        raise NoClosedFormError("the link of boosted probabilities mixes the trees")
    if model.is_categorical_ is not None:
        raise NoClosedFormError("splits of histogram boosting on categories are not taken apart")
    parts = []
    for stage in model._predictors:
        for output, predictor in enumerate(stage):
            nodes = predictor.nodes
            is_leaf = nodes["is_leaf"].astype(bool)
            value = np.zeros((len(nodes), len(stage)))
            value[:, output] = nodes["value"]
            parts.append(
                Trees(
                    np.zeros(1, dtype=np.int64),
                    np.where(is_leaf, -1, nodes["left"].astype(np.int64)),
                    np.where(is_leaf, -1, nodes["right"].astype(np.int64)),
                    np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.int64),
                    nodes["num_threshold"].astype(np.float64),
                    value,
                    single_precision=False,
                )
            )
    return Trees.joined(parts)


def _replaced(trees: Trees, **changes: Any) -> Trees:
    fields = {name: getattr(trees, name) for name in trees.__dataclass_fields__}
    return Trees(**(fields | changes))
