"""Mutual information: a sum over states, a closed form for Gaussians, an average over draws."""

from itertools import chain

import numpy as np

from skcircuits.exceptions import CircuitPropertyError, must

__all__ = ["estimate_information", "gaussian_information", "mutual_information"]

# Joint states that are summed over
MAX_STATES = 2**20


def mutual_information(weighed, groups, cardinalities, log_evidence):
    """Mutual information in nats of two groups of columns under one weighed condition.

    `cardinalities` maps discrete columns to their numbers of states.
    """
    columns = list(chain(*groups))
    continuous = [column for column in columns if column not in cardinalities]
    if continuous:
        raise CircuitPropertyError(
            must(
                "columns of a mutual information",
                "be categorical, or integers with few values",
                "Pass method='estimate' for an average over draws.",
                columns=continuous,
            )
        )
    shape = [cardinalities[column] for column in columns]
    n_states = int(np.prod(shape, dtype=float))
    if n_states * len(weighed.log_mass) > MAX_STATES:
        raise CircuitPropertyError(
            must(
                "columns of a mutual information",
                f"have at most {MAX_STATES} joint states",
                "Ask for fewer columns, or pass method='estimate'.",
                n_states=n_states,
            )
        )
    joint = _joint(weighed, columns, shape, log_evidence)
    n_first = int(np.prod(shape[: len(groups[0])]))
    table = joint.reshape(n_first, -1)
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    seen = table > 0.0
    return max(0.0, float((table[seen] * np.log(table[seen] / independent[seen])).sum()))


def _joint(weighed, columns, shape, log_evidence):
    """Probability of every joint state, (n_states,)."""
    states = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
    boxes, observed = weighed.conditions.boxes, weighed.conditions.observed
    n_boxes, n_states = len(boxes), len(states)
    cells = np.repeat(observed, n_states, axis=0)
    wanted = np.tile(states, (n_boxes, 1)).astype(float)
    known = cells[:, columns]
    agree = (np.isnan(known) | (known == wanted)).all(axis=1)
    cells[:, columns] = wanted
    log_mass = log_evidence(boxes.take(np.repeat(np.arange(n_boxes), n_states)), cells)
    log_mass = np.where(agree, log_mass, -np.inf) - weighed.log_total[0]
    return np.exp(log_mass).reshape(n_boxes, n_states).sum(axis=0)


def gaussian_information(covariance, n_first):
    """Mutual information of the first variables of a Gaussian and the others."""
    parts = covariance, covariance[:n_first, :n_first], covariance[n_first:, n_first:]
    joint, first, second = (np.linalg.slogdet(part)[1] for part in parts)
    return max(0.0, float(first + second - joint) / 2.0)


def estimate_information(joint, first, second, n_samples, random_state):
    """Average of the log ratio of densities over draws, and its standard error."""
    drawn = joint.sample(n_samples, random_state)
    ratios, start = joint.score_samples(drawn), 0
    for density in (first, second):
        stop = start + density.n_features_in_
        names = list(density.feature_names_in_)
        own = drawn[names] if hasattr(drawn, "columns") else drawn[:, start:stop]
        ratios, start = ratios - density.score_samples(own), stop
    return float(ratios.mean()), float(ratios.std(ddof=1) / np.sqrt(n_samples))
