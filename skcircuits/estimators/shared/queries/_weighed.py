"""Conditions weighed by a density: disjoint boxes, each with its probability."""

from dataclasses import dataclass, replace

import numpy as np

from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.tabular.queries._conditions import Conditions


@dataclass(frozen=True)
class Weighed:
    """Possible boxes of conditions, around integers, as a density sees them.

    `log_mass` (n_boxes,) are their log probabilities (densities of observed cells), `log_total`
    (n_conditions,) those of the conditions.
    """

    conditions: Conditions
    log_mass: np.ndarray
    log_total: np.ndarray

    def __len__(self):
        """Count the conditions."""
        return len(self.conditions)

    @property
    def condition_of(self):
        """Which condition each box belongs to, (n_boxes,)."""
        return self.conditions.boxes.query

    @property
    def weights(self):
        """Probability of each box given its condition, (n_boxes,)."""
        return np.exp(self.log_mass - self.log_total[self.condition_of])

    def average(self, values):
        """Average values (n_boxes, ...) over the boxes of each condition."""
        weights = self.weights.reshape(-1, *[1] * (values.ndim - 1))
        totals = np.zeros((len(self), *values.shape[1:]))
        np.add.at(totals, self.condition_of, weights * values)
        return totals


def weigh(conditions, log_evidence, is_integral, may_be_exact=None):
    """Weigh conditions by the log probabilities of their boxes.

    ``conditions``: of any form; ``log_evidence``: ``log_evidence(boxes, observed)``, of shape
    (n_boxes,); ``is_integral`` (d,): columns whose intervals cover what rounds to the integers
    inside; ``may_be_exact`` (d,): columns where a single number, of probability zero, counts by its
    density. Impossible boxes are left out.
    """
    numbered = replace(conditions.boxes, query=np.arange(len(conditions.boxes)))
    rounded = numbered.around_integers(is_integral)
    boxes = replace(rounded, query=conditions.boxes.query[rounded.query])
    observed = conditions.observed[rounded.query]
    log_mass = log_evidence(boxes, observed) if len(boxes) else np.empty(0)
    if may_be_exact is not None:
        found = _at_points(boxes, observed, log_mass, log_evidence, may_be_exact)
        boxes, observed, log_mass = found
    kept = np.flatnonzero(~np.isneginf(log_mass))
    result = replace(conditions, boxes=boxes.take(kept), observed=observed[kept])
    return Weighed(result, log_mass[kept], log_totals(boxes, log_mass))


def _at_points(boxes, observed, log_mass, log_evidence, may_be_exact):
    """Observe single numbers in conditions that have no probability otherwise."""
    totals = log_totals(boxes, log_mass)
    is_point = may_be_exact & (boxes.lower == boxes.upper)
    doubtful = np.isneginf(totals)[boxes.query] & is_point.any(axis=1)
    chosen = np.flatnonzero(doubtful)
    if len(chosen) == 0:
        return boxes, observed, log_mass
    points = is_point[chosen]
    observed, log_mass = observed.copy(), log_mass.copy()
    lower, upper = boxes.lower.copy(), boxes.upper.copy()
    observed[chosen] = np.where(points, boxes.lower[chosen], observed[chosen])
    lower[chosen] = np.where(points, np.nan, lower[chosen])
    upper[chosen] = np.where(points, np.nan, upper[chosen])
    boxes = replace(boxes, lower=lower, upper=upper)
    log_mass[chosen] = log_evidence(boxes.take(chosen), observed[chosen])
    # Beside a line a point has no mass: of one condition, only boxes with fewest points count
    n_points = np.full(len(boxes), len(may_be_exact) + 1)
    n_points[chosen] = np.where(np.isneginf(log_mass[chosen]), n_points[chosen], points.sum(axis=1))
    fewest = np.full(boxes.n_queries, len(may_be_exact) + 1)
    np.minimum.at(fewest, boxes.query, n_points)
    log_mass[doubtful & (n_points > fewest[boxes.query])] = -np.inf
    return boxes, observed, log_mass


def log_totals(boxes, log_mass):
    """Log probability of each union of boxes, shape (n_queries,)."""
    totals = np.full(boxes.n_queries, -np.inf)
    np.logaddexp.at(totals, boxes.query, log_mass)
    return totals


def require_possible(weighed, given):
    """Refuse conditions of probability zero."""
    impossible = np.flatnonzero(np.isneginf(weighed.log_total)).tolist()
    if impossible:
        which = {} if weighed.conditions.is_single else {"rows": impossible[:10]}
        shown = {"given": given} if weighed.conditions.is_single else {}
        raise ZeroProbabilityError(
            must(
                "A condition",
                "have positive probability",
                "Widen its intervals or sets.",
                **shown,
                **which,
            ),
            impossible,
        )
