"""What held-out rows show of densities: weights of their average, and how they are distributed.

Log densities of whole rows hardly show how single columns and pairs under a density differ from
those of rows: where columns nearly determine one another, they are largest for densities that know
this, whatever the shapes of the columns are, and a density that models numbers well may still miss
how they depend on categories.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

from skcircuits.learning.gaussian_mixture._candidates import TransformedMixture
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorGaussians
from skcircuits.learning.gaussian_mixture._held_out import LEAST_PROBABILITY, Answers
from skcircuits.learning.gaussian_mixture._learner import MixtureState

# Weight of the prior, in held-out cells: few cells cannot distinguish densities, and equal
# weights are hard to beat by chance
PRIOR_CELLS = 10.0
_PRIOR_NUMBERS = 5.0  # of one column, whose errors are in units of their own variance
_LEAST_VARIANCE = 1e-10  # of errors of cells, in standard units
N_DRAWS = 2000  # of a density whose pairs of columns are compared with those of rows
_QUANTILES = (0.25, 0.5, 0.75)
_PRIOR_ROWS = 0.5  # spread evenly over the cells of a pair
_LEAST_ROWS = 20  # rows with both cells of a pair observed, for a misfit to count
_LEVELS = np.arange(1, 32) / 32.0  # of the quantiles at which distributions are compared


def stacking_weights(parts, prior=PRIOR_CELLS, centre=None):
    """Weights (K,) on the simplex that minimise the loss of the average.

    Squared errors of the average mean plus log losses of the average likelihood are convex in the
    weights, and so is a Dirichlet prior: the result does not depend on the start (Breiman, 1996,
    "Stacked Regressions"; Yao et al., 2018, "Using Stacking to Average Bayesian Predictive
    Distributions").

    `parts`: answers to the cells of each split, `Answers` of the same K densities; `prior`: cells
    that the prior weighs; `centre` (K,): positive weights around which it is, None for equal ones.
    """
    means, truth, number_weights, likelihoods, log_weights = (
        np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    )
    # Weights have sum one, so that errors are averaged as means are, and nothing cancels
    errors = means - truth[:, None]
    quadratic = (errors * number_weights[:, None]).T @ errors
    n_members = means.shape[1]
    own_prior = prior * (np.full(n_members, 1.0 / n_members) if centre is None else centre)
    scale = 1.0 / (len(truth) + len(log_weights) + prior)

    def objective(logits):
        weights = np.exp(logits - logits.max())
        weights = np.maximum(weights / weights.sum(), 1e-300)
        average = likelihoods @ weights
        loss = weights @ quadratic @ weights
        loss -= log_weights @ np.log(average) + own_prior @ np.log(weights)
        gradient = 2.0 * (quadratic @ weights)
        gradient -= (log_weights / average) @ likelihoods
        # by the logits; the prior's part is written out, where a weight may vanish
        slopes = weights * (gradient - weights @ gradient) - own_prior + prior * weights
        return scale * loss, scale * slopes

    found = minimize(objective, np.log(own_prior / prior), jac=True, method="L-BFGS-B")
    weights = np.exp(found.x - found.x.max())
    return weights / weights.sum()


def _in_units_of_errors(answers, weights, sinh_map):
    """Answers about a number whose squared errors count relative to their variance.

    The variance is the smallest mean square of a density, or of their average with some `weights`:
    small errors distinguish densities that nearly know a number. In skewed columns, errors grow
    with the number, and a few large ones would decide. They are weighed as if they had equal
    variances where `sinh_map` makes the column nearly normal, by its slope at the average
    prediction. Such weights depend on predictions alone, so that the best average is still a mean.
    """
    if not len(answers.truth):
        return answers
    average = answers.means @ weights
    slopes = np.exp(sinh_map.log_slopes(average[:, None]))
    own = answers.number_weights * np.square(slopes)
    least = least_square(answers.means, answers.truth, own, weights) / answers.number_weights.sum()
    # As in a Gaussian log likelihood
    return answers._replace(number_weights=own / (2.0 * max(least, _LEAST_VARIANCE)))


def least_square(means, truth, row_weights, weights):
    """Smallest sum of squared errors of one of `means` (n, K) or of their average by `weights`."""
    predicted = np.column_stack([means, means @ weights])
    return float((row_weights @ np.square(predicted - truth[:, None])).min())


def answers_about_column(asked, column, weights, maps):
    """All answers about a column; errors of numbers are in units of those by some weights (K,)."""
    parts = [turn.of_column(answers, column) for turn, answers in asked]
    own = Answers(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    return _in_units_of_errors(own, weights, maps[column]) if column in maps else own


def prior_of_column(column, maps):
    """Weight of the prior of the weights for a column, in cells."""
    return _PRIOR_NUMBERS if column in maps else PRIOR_CELLS


def beside_forests(turn, answers, column_weights, forests, completed):
    """Answers of two: of experts averaged by weights (K, d), and of forests as far as they know."""
    table, is_missing = turn.table, turn.is_missing
    is_number, ranks, found = table.cardinalities == 0, forests.ranks(completed), []
    # Forests answer by one mean of a number, and by as many probabilities as there are categories
    for hidden, columns, each, places in (
        (turn.hidden_numbers, np.flatnonzero(is_number), answers.means, None),
        (turn.hidden_codes, np.flatnonzero(~is_number), answers.likelihoods, table.codes),
    ):
        average = np.einsum("lk,kl->l", each, column_weights[:, columns[np.nonzero(hidden)[1]]])
        both = np.zeros(hidden.shape)
        both[hidden] = average
        for index, j in enumerate(columns.tolist()):
            rows = np.flatnonzero(hidden[:, index])
            if j in forests.trees and len(rows):
                own, known = forests.answers(j, ranks[rows], is_missing[rows])
                own = own[np.arange(len(rows)), 0 if places is None else places[rows, index]]
                if places is None:
                    own = (own - table.location[index]) / table.scale[index]
                both[rows, index] += known * (own - both[rows, index])
        found.append(np.column_stack([average, both[hidden]]))
    means, likelihoods = found
    return answers._replace(means=means, likelihoods=np.maximum(likelihoods, LEAST_PROBABILITY))


def are_misfit(weighed, table, X, n_rows):
    """Whether the marginal distribution of a number differs by more than chance from the rows.

    `weighed`: fits with their weights in a mixture, to `n_rows` rows of `X` (n, d), from which
    `table` was prepared. The largest difference of distribution functions, of which the standard
    error is at most half as large, is compared with 1 / sqrt(`n_rows`); that of rows drawn from a
    fitted distribution rarely reaches it (Lilliefors, 1967, "On the Kolmogorov-Smirnov Test for
    Normality with Mean and Variance Unknown").
    """
    numerical = np.flatnonzero(table.cardinalities == 0)
    limits = np.full((len(numerical), len(_LEVELS)), np.nan)
    frequencies = np.full(limits.shape, np.nan)
    for i, column in enumerate(X[:, numerical].T):
        cells = np.sort(column[~np.isnan(column)])
        if len(cells):
            limits[i] = np.quantile(cells, _LEVELS, method="inverted_cdf")
            # Half of the cells that are equal: densities spread them around their value
            ranks = [np.searchsorted(cells, limits[i], side=side) for side in ("left", "right")]
            frequencies[i] = np.mean(ranks, axis=0) / len(cells)
    found = sum(weight * _below(fit, table, numerical, limits) for fit, weight in weighed)
    return bool(np.nanmax(np.abs(found - frequencies), initial=0.0) > n_rows**-0.5)


def _below(fit, table, numerical, limits):
    """Probabilities (c, L) that each number lies below its limits (c, L)."""
    if isinstance(fit, (MixtureState, TransformedMixture)):
        weights, below = below_in_components(fit, table, limits)
        return np.einsum("k,kcl->cl", weights, below)
    upper = np.full((limits.size, len(table.cardinalities)), np.nan)
    upper[np.arange(limits.size), np.repeat(numerical, limits.shape[1])] = limits.ravel()
    log_prob = fit.circuit_.log_prob_box(np.full(upper.shape, np.nan), upper)
    return np.exp(log_prob).reshape(limits.shape)


def below_in_components(fit, table, limits):
    """Weights (K,) of components, and probabilities (K, c, L) of numbers below limits (c, L)."""
    if not isinstance(fit, TransformedMixture):
        return fit.weights, _below_in_normals(fit, table, limits)
    columns = np.flatnonzero(table.cardinalities == 0)
    is_normal = fit.units.cardinalities[columns] == 0
    below = np.empty((fit.state.n_components, *limits.shape))
    own = limits[is_normal]
    if fit.sinh_map is not None:
        own = fit.sinh_map.normal(own.T).T
    below[:, is_normal] = _below_in_normals(fit.state, fit.units, own)
    for i in np.flatnonzero(~is_normal):
        cells = fit.grouped[columns[i]].cells
        below[:, i] = fit.cell_probabilities(columns[i]) @ cells.below(limits[i])
    return fit.state.weights, below


def _below_in_normals(state, table, limits):
    means, variances = _normal_marginals(state, table)
    return ndtr((limits - means[:, :, None]) / np.sqrt(variances)[:, :, None])


def _normal_marginals(state, table):
    """Means and variances (K, c) of the numbers in each component, in the units of the table."""
    units = table.location, table.scale
    if isinstance(state.gaussians, FactorGaussians):
        means, loadings, noise = state.gaussians.in_units(*units)
        return means, np.square(loadings).sum(axis=2) + noise
    means, covariances = state.gaussians.in_units(*units)
    return means, np.diagonal(covariances, axis1=1, axis2=2)


class PairTables:
    """Tables of category columns, of `cardinalities` (d,), by the quarters of numerical ones."""

    def __init__(self, rows, cardinalities):
        self.categorical = np.flatnonzero(cardinalities)
        numbers = np.flatnonzero(cardinalities == 0)
        self._is_known = ~np.isnan(rows[:, numbers]).all(axis=0)
        self.numerical = numbers[self._is_known].tolist()
        self.sizes = cardinalities[self.categorical]
        self.edges = [
            np.quantile(own[~np.isnan(own)], _QUANTILES) for own in rows[:, self.numerical].T
        ]

    @property
    def n_pairs(self):
        """Number of pairs of columns."""
        return len(self.categorical) * len(self.numerical)

    def counts(self, rows):
        """Counts (n_categories, 4) of each pair, over the rows that have both cells."""
        labels = [
            rows[:, j, None] == np.arange(k)
            for j, k in zip(self.categorical, self.sizes, strict=True)
        ]
        quarters = []
        for j, edges in zip(self.numerical, self.edges, strict=True):
            place = np.searchsorted(edges, rows[:, j], side="right")
            here = place[:, None] == np.arange(len(edges) + 1)
            quarters.append(here & ~np.isnan(rows[:, j, None]))
        first, second = (np.hstack(own).astype(np.float64) for own in (labels, quarters))
        tables = first.T @ second
        return [
            tables[start : start + size, part : part + 4]
            for start, size in zip(np.cumsum(self.sizes) - self.sizes, self.sizes, strict=True)
            for part in range(0, 4 * len(self.numerical), 4)
        ]

    def probabilities(self, draws):
        """Probabilities of the cells of all pairs under a density, from its draws."""
        return [_smoothed(own) for own in self.counts(draws)]

    def probabilities_by(self, mixture, table):
        """Those under a mixture of Gaussians over the columns of a table, which are exact."""
        limits = np.full((len(self._is_known), len(_QUANTILES)), np.nan)
        limits[self._is_known] = self.edges
        weights, below = below_in_components(mixture, table, limits)
        ends = np.zeros((*below.shape[:2], 1))
        quarters = np.diff(np.concatenate([ends, below, 1.0 + ends], axis=2), axis=2)
        quarters = quarters[:, self._is_known] * weights[:, None, None]
        if isinstance(mixture, TransformedMixture):
            known = mixture.category_tables
            log_tables = [known[j] for j in self.categorical.tolist()]
        else:
            log_tables = mixture.categories.log_probabilities
        return [
            _smoothed(N_DRAWS * own)
            for logs in log_tables
            for own in np.einsum("ka,kcq->caq", np.exp(logs), quarters)
        ]

    def answers(self, rows, probabilities):
        """Likelihoods of pairs of cells under K densities; all pairs of a row count as one cell."""
        counts = np.concatenate([own.ravel() for own in self.counts(rows)])
        likelihoods = [np.concatenate([own.ravel() for own in tables]) for tables in probabilities]
        nothing = np.zeros((0, len(probabilities)))
        return Answers(
            nothing,
            np.zeros(0),
            np.zeros(0),
            np.stack(likelihoods, axis=1),
            # A row with many pairs must not weigh more than its cells
            counts / max(1, self.n_pairs),
        )

    def largest_misfit(self, rows, probabilities):
        """Largest difference of a frequency in some rows from its probability."""
        misfits = [
            np.abs(own / own.sum() - expected).max()
            for own, expected in zip(self.counts(rows), probabilities, strict=True)
            if own.sum() >= _LEAST_ROWS
        ]
        return float(max(misfits, default=0.0))


def _smoothed(counts):
    """Probabilities of the cells of a pair from counts of draws."""
    counts = counts + _PRIOR_ROWS / counts.size
    return counts / counts.sum()
