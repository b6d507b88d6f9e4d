"""A target learned from the samples themselves, where none is given."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.estimators.targets._column_units import ColumnUnits
from skcircuits.estimators.targets._sparse_field import learn_sparse_field
from skcircuits.exceptions import must
from skcircuits.graphical import FactorGraph
from skcircuits.trees import StateLayout, chow_liu_tree

__all__ = ["StandardizedTarget", "learn_target"]


@dataclass(frozen=True)
class StandardizedTarget:
    """A continuous target in standardised coordinates."""

    target: Any
    units: ColumnUnits

    def grad_log_prob(self, Z):
        """Compute the score in these coordinates."""
        return self.units.standard_deviation * self.target.grad_log_prob(
            self.units.inverse_transform(Z)
        )


def learn_target(samples, is_categorical, cardinalities):
    """Learn a sparse Gaussian field of numbers, a Chow-Liu tree of labels."""
    if not is_categorical.any():
        return learn_sparse_field(samples)
    if not is_categorical.all():
        raise ValueError(
            must(
                "columns",
                "be all numeric or all categorical",
                "Pass a target for mixed tables.",
                n_categorical=int(is_categorical.sum()),
            )
        )
    return _tree_graph(chow_liu_tree(samples.astype(np.int64), StateLayout(cardinalities)))


def _tree_graph(tree):
    """Write a tree distribution as factors: ``p(root) prod p(child | parent)``."""
    # As factors rather than as a circuit: collapsed samples need the graph.
    factors = []
    for child, parent in enumerate(tree.parents.tolist()):
        own = _states_of(tree.layout, child)
        if parent < 0:
            factors.append(((child,), tree.statistics.nodes[own]))
            continue
        above = _states_of(tree.layout, parent)
        # The pseudo-count keeps every state of the parent possible.
        joint = tree.statistics.pairs[above, own]
        factors.append(((parent, child), joint / tree.statistics.nodes[above][:, None]))
    return FactorGraph(factors, tree.layout.cardinalities)


def _states_of(layout, variable):
    start = layout.offsets[variable]
    return slice(start, start + layout.cardinalities[variable])
