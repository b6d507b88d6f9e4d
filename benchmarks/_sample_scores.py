"""Errors of weighted samples of a categorical model against its exact answers."""

import itertools

import numpy as np

__all__ = ["FUNCTIONS", "Scores"]

# Models with more joint states than this are scored by their single marginals only.
MAX_STATES = 2**16


def _sine(states, model):
    """A wave along a direction in which every variable counts differently."""
    direction = np.cos(np.arange(1.0, states.shape[1] + 1.0))
    return np.sin(np.pi * states @ direction / np.linalg.norm(direction))


def _magnetisation(states, model):
    """Mean spin of binary variables, between -1 and 1."""
    return 2.0 * states.mean(axis=1) - 1.0


def _distance_to_mean(states, model):
    center = np.mean([p[1] for p in model.marginals()])
    return np.abs(states.mean(axis=1) - center)


# Stated before any run that is reported: smooth and rough, local and global ones.
FUNCTIONS = {
    "energy": lambda states, model: -model.log_prob_unnormalized(states),
    "m²": lambda states, model: _magnetisation(states, model) ** 2,
    "|m|": lambda states, model: np.abs(_magnetisation(states, model)),
    "|m - E m|": _distance_to_mean,
    "first four equal": lambda states, model: np.ptp(states[:, :4], axis=1) == 0,
    "sine": _sine,
}


class Scores:
    """Errors of single marginals, and where all states can be listed also of others.

    Parameters
    ----------
    model : FactorGraph
        The target, over binary variables.

    Attributes
    ----------
    names : list of str
        "single" and "pairwise", mean Hellinger distances of the marginals, and the names of
        ``FUNCTIONS``, errors of their means in standard deviations of the function.
    """

    def __init__(self, model):
        self.model = model
        self.marginals = model.marginals()
        self.names = ["single"]
        if np.prod(model.cardinalities.astype(float)) <= MAX_STATES:
            self.names += ["pairwise", *FUNCTIONS]
            states = np.array(list(itertools.product(*map(range, model.cardinalities))), float)
            p = np.exp(model.log_prob_unnormalized(states) - model.log_partition())
            values = self._values(states)
            self.means = p @ values
            self.deviations = np.sqrt(p @ (values - self.means) ** 2)

    def __call__(self, weighter, weights):
        """Errors of one set of weighted samples, shape (n_names,); NaN where unknown."""
        found = weighter.marginals(weights)
        errors = np.full(len(self.names), np.nan)
        errors[0] = np.mean([_hellinger(p, q) for p, q in zip(found, self.marginals)])
        if len(self.names) > 1 and hasattr(weighter, "expectation"):
            means = weighter.expectation(self._values, weights)
            pairs = _hellinger(self._pair_tables(means), self._pair_tables(self.means))
            off = np.abs(means - self.means) / self.deviations
            errors[1:] = [pairs.mean(), *off[-len(FUNCTIONS) :]]
        return errors

    def _values(self, states):
        """The binary variables, their products, and the functions."""
        first, second = np.triu_indices(states.shape[1], 1)
        functions = [function(states, self.model) for function in FUNCTIONS.values()]
        return np.column_stack([states, states[:, first] * states[:, second], *functions])

    def _pair_tables(self, means):
        """Tables of all pairs of binary variables from their first and second moments."""
        first, second = np.triu_indices(len(self.marginals), 1)
        a, b = means[first], means[second]
        both = means[len(self.marginals) : -len(FUNCTIONS)]
        return np.stack([both, a - both, b - both, 1 - a - b + both], axis=-1)


def _hellinger(p, q):
    """Distance along the last axis."""
    roots = np.sqrt(np.maximum(p, 0)) - np.sqrt(np.maximum(q, 0))
    return np.sqrt((roots**2).sum(axis=-1) / 2)
