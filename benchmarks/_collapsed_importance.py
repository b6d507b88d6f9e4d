"""Online collapsed importance sampling on factor graphs (Friedman and Van den Broeck 2018).

Factors are added one by one. When the circuit of the factors added so far exceeds a bound, a
variable is drawn from its exact marginal in this partial model, and the circuit is conditioned on
it. Variables that are not drawn are summed out. The importance weight corrects for the factors
that are added later; black-box weights of the same samples do not need it.
"""

import numpy as np

from skcircuits.graphical import FactorGraph

__all__ = ["CollapsedSamples", "draw_collapsed_samples"]


class CollapsedSamples:
    """Weighted rows with NaN where variables are summed out.

    Parameters
    ----------
    model : FactorGraph
        The target.
    rows : ndarray of shape (n, d)
        Drawn states.
    log_weights : ndarray of shape (n,)
        Unnormalised importance weights.
    """

    def __init__(self, model, rows, log_weights):
        self.model = model
        self.rows = rows
        weights = np.exp(log_weights - log_weights.max())
        self.weights = weights / weights.sum()

    @property
    def summed_out(self):
        """Variables that no sample has a state of."""
        return np.flatnonzero(np.isnan(self.rows[0]))

    def marginals(self, weights):
        """Weighted mean of the exact conditional distributions."""
        return [weights @ table for table in self.model.conditional_marginals(self.rows)]


def draw_collapsed_samples(model, n_samples, max_edges, rng):
    """Draw samples whose remaining variables have a circuit of bounded size.

    Parameters
    ----------
    model : FactorGraph
        The target.
    n_samples : int
        Samples, drawn side by side: which variables are drawn is the same for all, as the
        circuits of the first sample ask for it.
    max_edges : int
        Edges that the circuit of the variables not drawn may have.
    rng : Generator
        Source of randomness.

    Returns
    -------
    CollapsedSamples
        Rows and weights.
    """
    rows = np.full((n_samples, len(model.cardinalities)), np.nan)
    log_proposal = np.zeros(n_samples)
    taken = []
    for factor in model.factors:
        taken.append(factor)
        partial = FactorGraph(taken, model.cardinalities)
        while not _fits(partial, rows[0], max_edges):
            variable = _busiest(partial, np.isnan(rows[0]))
            table = partial.conditional_marginals(rows)[variable]
            thresholds = rng.random((n_samples, 1)) * table.sum(axis=1, keepdims=True)
            states = (thresholds >= table.cumsum(axis=1)[:, :-1]).sum(axis=1)
            log_proposal += np.log(table[np.arange(n_samples), states])
            rows[:, variable] = states
    return CollapsedSamples(model, rows, model.log_prob_unnormalized(rows) - log_proposal)


def _fits(model, evidence, max_edges):
    """Whether the circuit given the evidence is small enough."""
    try:
        return model.compile(evidence, max_edges=max_edges).n_edges <= max_edges
    except MemoryError:
        return False


def _busiest(graph, free):
    """The free variable with most free neighbours."""
    degrees = [free[neighbors].sum() for neighbors in graph.neighbors]
    return int(np.argmax(np.where(free, degrees, -1)))
