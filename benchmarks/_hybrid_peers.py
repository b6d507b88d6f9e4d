"""LearnSPN of other packages, converted to circuits of this package for a common score."""

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Gaussian, PiecewisePolynomial, Product, Sum

__all__ = ["PEERS"]

# Candidates of the peers' most important parameter; the validation rows choose.
MIN_ROWS = (256, 64, 30)
OUTSIDE = np.finfo(float).eps


def deeprob_circuits(X, cardinalities):
    """deeprob-kit's LearnSPN with Gaussian and categorical leaves."""
    from deeprob.spn.learning.wrappers import learn_estimator
    from deeprob.spn.structure import leaf, node

    def convert(unit):
        if isinstance(unit, node.Sum):
            weights = np.asarray(unit.weights, dtype=float)
            return Sum(map(convert, unit.children), weights=weights / weights.sum())
        if isinstance(unit, node.Product):
            return Product(map(convert, unit.children))
        (variable,) = unit.scope
        if isinstance(unit, leaf.Gaussian):
            return Gaussian(variable, float(unit.mean), float(unit.stddev))
        masses = np.asarray(unit.probabilities, dtype=float)
        return Categorical(variable, masses / masses.sum())

    families = [leaf.Categorical if k else leaf.Gaussian for k in cardinalities]
    domains = [
        list(range(k)) if k else (float(column.min()), float(column.max()))
        for column, k in zip(X.T, cardinalities)
    ]
    for split_rows in ("kmeans", "gmm"):
        for min_rows in MIN_ROWS:
            try:
                root = learn_estimator(
                    X.astype(np.float32),
                    families,
                    domains,
                    min_rows_slice=min_rows,
                    split_rows=split_rows,
                    random_state=0,
                    verbose=False,
                )
            except ValueError:  # its Gaussian mixtures fail on columns with ties
                continue
            yield Circuit(convert(root))


def spflow_circuits(X, cardinalities):
    """SPFlow's (0.0.x) mixed sum-product networks with histogram leaves."""
    from spn.algorithms.LearningWrappers import learn_mspn
    from spn.structure.Base import Context
    from spn.structure.Base import Product as PeerProduct
    from spn.structure.Base import Sum as PeerSum
    from spn.structure.StatisticalTypes import MetaType

    def convert(unit):
        if isinstance(unit, PeerSum):
            weights = np.asarray(unit.weights, dtype=float)
            return Sum(map(convert, unit.children), weights=weights / weights.sum())
        if isinstance(unit, PeerProduct):
            return Product(map(convert, unit.children))
        (variable,) = unit.scope
        breaks, densities = np.asarray(unit.breaks, float), np.asarray(unit.densities, float)
        if cardinalities[variable]:
            # Bins around the codes
            masses = np.full(cardinalities[variable], 1e-9)
            codes = np.floor((breaks[:-1] + breaks[1:]) / 2).astype(int)
            inside = (codes >= 0) & (codes < len(masses))
            masses[codes[inside]] += (densities * np.diff(breaks))[inside]
            return Categorical(variable, masses / masses.sum())
        masses = densities * np.diff(breaks)
        # Outside its bins the package takes a density of the order of 1e-16
        masses *= (1.0 - 2 * OUTSIDE) / masses.sum()
        return PiecewisePolynomial(variable, breaks, masses, tail_masses=[OUTSIDE] * 2)

    kinds = [MetaType.DISCRETE if k else MetaType.REAL for k in cardinalities]
    for min_rows in MIN_ROWS:
        context = Context(meta_types=kinds).add_domains(X)
        yield Circuit(convert(learn_mspn(X, context, min_instances_slice=min_rows)))


PEERS = {"deeprob-kit": deeprob_circuits, "SPFlow MSPN": spflow_circuits}
