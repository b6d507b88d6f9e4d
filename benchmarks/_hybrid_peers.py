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
    """SPFlow's (1.1) LearnSPN with Gaussian and categorical leaves."""
    import torch
    from spflow.learn.learn_spn import learn_spn
    from spflow.modules.leaves import Categorical as PeerCategorical
    from spflow.modules.leaves import Normal
    from spflow.modules.ops.cat import Cat
    from spflow.modules.products import Product as PeerProduct
    from spflow.modules.sums import Sum as PeerSum

    def of_states(n_states):
        """Categorical leaves that need not be told their number of states, as it makes them."""

        class OfStates(PeerCategorical):
            def __init__(self, scope, out_channels=1):
                super().__init__(scope, out_channels, K=n_states)

        return OfStates

    def features(module):
        """A unit per feature of a module of one channel."""
        if isinstance(module, PeerSum):
            terms = module.inputs
            terms = terms.inputs if isinstance(terms, Cat) and terms.dim == 2 else [terms]
            weights = module.weights.detach().numpy()[0, :, 0, 0].astype(float)
            return [Sum([features(term)[0] for term in terms], weights=weights / weights.sum())]
        if isinstance(module, PeerProduct):
            factors = features(module.inputs)
            return [Product(factors)] if len(factors) > 1 else factors
        if isinstance(module, Cat):
            return [unit for part in module.inputs for unit in features(part)]
        variables = module.scope.query
        if isinstance(module, Normal):
            parameters = (p.detach().numpy()[:, 0, 0] for p in (module.loc, module.scale))
            return [Gaussian(v, float(m), float(s)) for v, m, s in zip(variables, *parameters)]
        masses = module.probs.detach().numpy()[:, 0, 0].astype(float)
        return [Categorical(v, m / m.sum()) for v, m in zip(variables, masses)]

    torch.set_num_threads(1)
    leaves = []
    for n_states in np.unique(cardinalities).tolist():
        variables = np.flatnonzero(cardinalities == n_states).tolist()
        leaves.append((of_states(n_states) if n_states else Normal)(variables))
    rows = torch.tensor(X, dtype=torch.get_default_dtype())
    for min_rows in MIN_ROWS:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 (its clusters start from this generator)
        try:
            root = learn_spn(rows, leaves, min_instances_slice=min_rows)
            yield Circuit(features(root)[0])
        except (ValueError, RuntimeError):  # on clusters of one row, and on constant columns
            continue


def mspn_circuits(X, cardinalities):
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


PEERS = {
    "deeprob-kit": deeprob_circuits,
    "SPFlow 1.1": spflow_circuits,
    "SPFlow MSPN": mspn_circuits,
}
