"""The quadratic form that Stein weights minimise, from samples, a target and a kernel.

Where the probabilities of the states of a categorical target are known, weights are compared with
them: of all states where they are few, and otherwise of the most probable ones.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from scipy.special import softmax

from skcircuits.estimators.targets._targets import (
    GivenGradients,
    Whitening,
    are_divided,
    column_units,
)
from skcircuits.estimators.targets._weighted_samples import (
    collapsed_discrepancy,
    complete_rows,
    possible_rows,
    systematic_rows,
)
from skcircuits.kernels import Hamming
from skcircuits.numerics._arrays import scores_at, spread_rows
from skcircuits.numerics._optimization import separate_parts
from skcircuits.numerics._patterns import unique_rows
from skcircuits.particles._neighborhoods import index_lists
from skcircuits.particles._problem import SVGDProblem
from skcircuits.protocols import MAX_CELL
from skcircuits.stein import InverseMultiquadric, stein_discrepancy
from skcircuits.stein._ridge import (
    MAX_ROWS,
    FunctionModel,
    coordinate_functions,
    learn_model,
    reach,
    reliance,
    squared_change,
    state_functions,
)
from skcircuits.stein._targets import (
    error_of_marginals,
    is_continuous,
    known_marginals,
    log_probabilities,
    meets_zeros,
    own_columns,
    state_counts,
    without_other_columns,
)
from skcircuits.stein.discrepancy import median_gamma
from skcircuits.stein.gram import distinct_gram
from skcircuits.stein.simplex import (
    DenseForm,
    SteinColumns,
    energy_residuals,
    estimate_discrepancy,
    low_rank_form,
    scaled_features,
)

# Ridge if the samples do not determine it, before the fraction of collapsed variables.
PRIOR_RIDGE = 0.3
# Number of completions of collapsed samples in a score.
MAX_SCORED_ROWS = 4000
# Weight of Stein's identity for moments (that for the kernel has weight one), and the number of
# columns beyond which correlations cost more than they help.
MOMENT_WEIGHT, MAX_WHITENED = 2.0, 1000
# Weight of preserving the fractions of parts that are separated by valleys: dominant for weights,
# comparable with the other errors in a score.
PART_WEIGHT, SCORED_PART_WEIGHT = 10.0, 0.3
# Part of the discrepancy of states without weights that weights should at least take away.
STUCK_PART = 0.5
# Standard errors by which an error of Stein's identity is clear, and one of a known marginal: of
# many, one is always larger than usual.
CLEAR_ERROR, MARGINAL_ERRORS = 1.5, 3.0
# Number of chains that weighted samples are compared with, as one per particle elsewhere.
N_CHAINS = 100
# Distinct samples beyond which the Gram matrix is approximated, and its rank then.
MAX_DENSE_ROWS, AUTOMATIC_RANK = 5000, 300
# States that are listed
MAX_STATES = 2**12


@dataclass(frozen=True)
class WeighedSamples:
    """Weights, and their squared discrepancies in the coordinates of the kernel."""

    weights: np.ndarray  # (n,), on the simplex
    discrepancy: float
    uniform_discrepancy: float
    regularization: float
    n_distinct: int
    # Expected squared error of means by these weights alone, in variances, and how much of uniform
    # weights was mixed in therefore; both zero where the ridge was given.
    error: float
    uniform_fraction: float
    # As many samples of equal weight have the same sum of squared weights, before and after.
    size_alone: float
    effective_sample_size: float
    # As many independent samples would be as far from the target, where weights hardly bring the
    # samples closer to it; infinity where they do.
    n_equivalent: float = np.inf
    # Largest error of a weighted single marginal, where all states of the target are known.
    marginal_error: float = 0.0
    # Largest error of Stein's identity for variances: of numbers, relative where they are normal.
    variance_error: float = 0.0


@dataclass(frozen=True)
class WeighingProblem:
    """Samples, (n, d), NaN where collapsed, with all that their weights depend on."""

    target: Any
    samples: np.ndarray
    kernel: Any = "auto"  # or a kernel object
    operator: str | None = None
    regularization: float | str = "auto"
    n_components: int | str | None = "auto"
    n_jobs: int | None = None
    # Any kernel compares standardised columns then: the target has the units of the samples.
    is_learned: bool = False

    @property
    def is_automatic(self):
        """Whether the kernel is chosen here."""
        return isinstance(self.kernel, str)

    @property
    def is_continuous(self):
        """Whether samples are numbers."""
        return is_continuous(self.target)

    @property
    def chooses_states(self):
        """Whether samples are states whose weights are not set by a given ridge."""
        return not self.is_continuous and isinstance(self.regularization, str)

    @cached_property
    def units(self):
        """Coordinates in which the automatic kernel compares samples; None for their own."""
        if not self.is_continuous:
            return None
        if self.is_automatic and self._can_whiten:
            return self._whitening
        return column_units(self.samples) if self.is_learned or self.is_automatic else None

    @property
    def _can_whiten(self):
        n_columns = self.samples.shape[1]
        return len(own_columns(self.target, n_columns)) == n_columns <= MAX_WHITENED

    @cached_property
    def _whitening(self):
        """Coordinates in which samples do not correlate; None too far from the target."""
        # Scores of samples that are astronomically far have squares that are no numbers
        whitening = Whitening.of(self.samples)
        scores = whitening.pull(self._scores)
        return whitening if np.abs(scores).max() < MAX_CELL else None

    @cached_property
    def _scores(self):
        """Scores of all samples, (n, d), which are evaluated once."""
        return scores_at(self.target.grad_log_prob, self.samples)

    def _in_units(self):
        """Give the possible samples and the target in the coordinates of the kernel."""
        samples = self.samples[self.possible]
        if self.units is None:
            return samples, self.target
        points = self.units.transform(samples)
        scores = self.units.pull(self._scores[self.possible])
        return points, GivenGradients(points, scores)

    @cached_property
    def base_kernel(self):
        """The kernel in use."""
        if not self.is_automatic:
            return self.kernel
        points = self.samples if self.units is None else self.units.transform(self.samples)
        return automatic_kernel(self.target, points)

    @cached_property
    def possible(self):
        """Rows that may have a weight."""
        return possible_rows(self.target, self.samples)

    @cached_property
    def columns(self):
        """Columns of the Gram matrix of the distinct possible samples."""
        samples, target = self._in_units()
        return SteinColumns.of(
            samples, target, self.base_kernel, operator=self.operator, n_jobs=self.n_jobs
        )

    def distinct_rows(self, which):
        """Samples that are the rows of the Gram matrix, by position."""
        return self.possible[np.unique(which, return_index=True)[1]]

    def solve(self):
        """Find the weights."""
        form, gram, which = self._form()
        # Equal samples are one point of the problem and divide its weight.
        counts = np.bincount(which)
        rows = self.distinct_rows(which)
        distinct = self.samples[rows]
        minimised = self._with_identities(form, rows, counts)
        states = ListedStates.of(self.target, distinct) if self.chooses_states else None
        # Whether no other state is possible than those of the samples
        if states is not None and not np.delete(states.probabilities, states.held).any():
            # A ridge would keep the weights from the probabilities, which minimise the form.
            model, totals = FunctionModel(0.0), states.nearest()
        else:
            model = self._learn_model(minimised, counts, distinct)
            totals = minimised.minimise(counts, model.ridge)
        uniform = counts / len(which)
        scale = float(minimised.diagonal().mean()) or 1.0
        value = minimised.value(totals) / scale
        error, fraction = self._trust(model, value, totals, counts, distinct)
        size_alone, n_equivalent, marginal_error = _effective_size(totals, counts), np.inf, 0.0
        if self.chooses_states and value > STUCK_PART * minimised.value(uniform) / scale:
            n_equivalent = 1.0 / value
        totals = totals + fraction * (uniform - totals)
        if states is not None:
            tables = self._tables(states.rows)
            totals, marginal_error = states.improve(totals, tables, self._neighbors)
            # The error is known: nothing else tells more.
            error, size_alone, n_equivalent = 0.0, np.inf, np.inf
        elif self.chooses_states:
            marginal_error = self._marginal_error(distinct, totals, uniform)
        weights = np.zeros(len(self.samples))
        weights[self.possible] = (totals / counts)[which]
        return WeighedSamples(
            weights,
            form.value(totals) if gram is None else estimate_discrepancy(gram, totals, _fixed()),
            form.value(uniform),
            model.ridge,
            len(counts),
            error,
            fraction,
            size_alone,
            _effective_size(totals, counts),
            n_equivalent,
            marginal_error,
            self._variance_error(rows, totals),
        )

    def _marginal_error(self, distinct, totals, uniform):
        """Largest error of a weighted single marginal, as far as those of the target are known."""
        # Errors that as many draws of the target would have, too, do not count where weights do not
        # increase the errors: in squares, or in Hellinger distances, which count rare states more
        exact = known_marginals(self.target, distinct.shape[1])
        if not exact:
            is_collapsed = np.isnan(distinct).any()
            return 0.0 if is_collapsed else error_of_marginals(self.target, distinct, totals)
        tables = self._tables(distinct)
        found, before = (
            [weights @ tables[variable] for variable in exact] for weights in (totals, uniform)
        )
        own = list(exact.values())
        # Beyond rounding: weights may be uniform ones
        is_worse = np.any(_distances(found, own) > (1.0 + 1e-9) * _distances(before, own))
        errors, known = np.abs(np.concatenate(found) - np.concatenate(own)), np.concatenate(own)
        noise = MARGINAL_ERRORS * np.sqrt(known * (1.0 - known) / len(self.samples))
        return float(errors.max() if is_worse else errors[errors > noise].max(initial=0.0))

    def _trust(self, model, value, totals, counts, distinct):
        """Expected error of weights, and the fraction of uniform weights that it calls for."""
        n_samples = int(counts.sum())
        if model.is_broken:
            return value, 1.0 - reach(value, n_samples)
        error = model.error(value, totals, counts)
        change = squared_change(distinct, totals, counts) if self.is_continuous else None
        return error, 1.0 - reliance(error, change, n_samples)

    def _variance_error(self, rows, totals):
        """By how much Stein's identity for variances fails, for the column where it does most."""
        # Samples that do not reach where the target has mass cannot make it hold. Errors that the
        # noise of so many samples explains do not count. Zero where `diagnose` tells more.
        if not (isinstance(self.target, GivenGradients) and self._can_whiten and self._whitening):
            return 0.0
        arguments = self.samples[rows], self._scores[rows], totals
        errors, noise = self._whitening.variance_errors(*arguments)
        clear = np.abs(errors) > CLEAR_ERROR * noise
        return float(np.abs(errors[clear]).max(initial=0.0))

    def is_divided(self, weights):
        """Tell whether given gradients leave the weights of two parts of the samples open."""
        if not (isinstance(self.target, GivenGradients) and self._can_whiten and self._whitening):
            return False
        points = self._whitening.transform(self.samples)
        scores = self._whitening.pull(self._scores)
        return are_divided(points, scores, weights)

    def diagnose(self, weights):
        """Compare weighted samples of a density with chains from them, or draws from all modes."""
        # None where the target is known at the samples alone. Weights make Stein's identity hold
        # for functions of the kernel and for moments, so that it tells little of what remains
        # wrong.
        if isinstance(self.target, GivenGradients) or not (self.is_continuous and self._can_whiten):
            return None
        chosen = systematic_rows(weights, N_CHAINS, _fixed())
        # Samples may be anywhere, and fourth powers of the largest are no numbers
        with np.errstate(all="ignore"):
            found = self.searched.diagnose(self.samples[chosen], None, is_thorough=False)
        if found.draws is None and (found.states == self.samples[chosen]).all():
            raise ValueError("no chain leaves its sample")
        is_known = np.isfinite(found.moments.variance).all()
        return found.of_weighted(self.samples, weights) if is_known else None

    @cached_property
    def searched(self):
        """The target as a density that is evaluated away from the samples."""
        graph = {
            name: index_lists(getattr(self.target, name), name)
            for name in ("neighbors", "blocks")
            if getattr(self.target, name, None) is not None
        }
        return SVGDProblem(
            self.target, self.samples.shape[1], **graph, may_fail=not self.is_learned
        )

    def measure(self, weights):
        """Squared discrepancy of the weighted samples under a reference fixed for searches."""
        if np.isnan(self.samples).any() and len(self.samples) <= MAX_DENSE_ROWS // 2:
            reference = automatic_kernel(self.target, self.samples)
            arguments = self.target, reference, self.samples, weights
            return collapsed_discrepancy(*arguments, n_jobs=self.n_jobs)
        if self.is_continuous:
            is_reference = self.is_automatic and isinstance(self.regularization, str)
            other = self if is_reference else replace(self, kernel="auto", regularization="auto")
            return other._measure_numbers(weights)
        rows, probabilities = complete_rows(
            self.target, self.samples, weights, max_rows=MAX_SCORED_ROWS
        )
        reference = automatic_kernel(self.target, rows)
        if len(rows) <= MAX_DENSE_ROWS:
            return stein_discrepancy(
                rows, self.target, reference, probabilities, n_jobs=self.n_jobs
            )
        gram = SteinColumns.of(rows, self.target, reference, n_jobs=self.n_jobs)
        return estimate_discrepancy(gram, np.bincount(gram.which, probabilities), _fixed())

    def _measure_numbers(self, weights):
        """Measure by default coordinates, kernel, identities and ridge."""
        form, gram, which = self._form()
        totals, counts = np.bincount(which, weights[self.possible]), np.bincount(which)
        rows = self.distinct_rows(which)
        distinct = self.samples[rows]
        whole = self._with_identities(form, rows, counts, SCORED_PART_WEIGHT)
        # Variance that the kernel does not explain is noise, so that concentrated weights
        # are penalised under every kernel.
        ridge = self._learn_model(whole, counts, distinct).ridge
        noise = ridge * float(whole.diagonal().mean()) * float((totals**2 / counts).sum())
        if gram is None:
            return whole.value(totals) + noise
        moments = whole.value(totals) - form.value(totals)
        return estimate_discrepancy(gram, totals, _fixed()) + moments + noise

    def _form(self):
        """Give the form of the distinct possible samples, and the distinct row of each sample."""
        # Where the Gram matrix is not held as a whole, its columns between them are
        samples, target = self._in_units()
        rank = self.n_components
        if rank == "auto":
            rank = AUTOMATIC_RANK if len(unique_rows(samples)[0]) > MAX_DENSE_ROWS else None
        if rank is None:
            options = {"operator": self.operator, "n_jobs": self.n_jobs}
            K, which = distinct_gram(samples, target, self.base_kernel, **options)
            return DenseForm(K), None, which
        return low_rank_form(self.columns, rank, _fixed()), self.columns, self.columns.which

    def _learn_model(self, form, counts, distinct):
        """Choose the ridge by the variance of functions of the samples that is not explained."""
        if not isinstance(self.regularization, str):
            return FunctionModel(float(self.regularization))
        # Variables that are summed out exactly have no noise.
        fraction_sampled = float(1.0 - np.isnan(distinct).mean())
        prior = max(PRIOR_RIDGE * fraction_sampled**4, 1e-6)
        rows = spread_rows(len(distinct), MAX_ROWS)
        seen = distinct[rows]
        return learn_model(
            form.matrix(rows),
            counts[rows],
            self._functions(seen),
            prior=prior,
            is_smooth=self.is_continuous,
            is_broken=not self.is_continuous and meets_zeros(self.target, seen),
        )

    def _functions(self, distinct):
        """The functions that weights are mostly used for: moments, single and pair marginals."""
        if self.is_continuous:
            return coordinate_functions(distinct)
        return state_functions(self._tables(distinct), self._neighbors)

    @property
    def _neighbors(self):
        return getattr(self.target, "neighbors", ())

    def _tables(self, rows):
        """Probabilities of the states of every variable in each row, (n_rows, k_j)."""
        if np.isnan(rows).any():
            return self.target.conditional_marginals(rows)
        counts = state_counts(self.target, rows.shape[1])
        rows = without_other_columns(self.target, rows)
        return [np.eye(k)[rows[:, j].astype(int)] for j, k in enumerate(counts)]

    def _with_identities(self, form, rows, counts, part_weight=PART_WEIGHT):
        """Add terms that a wide kernel hardly resolves: energies of states, moments of numbers."""
        if not self.is_automatic or self.operator == "difference":
            return form
        distinct = self.samples[rows]
        if not self.is_continuous:
            residuals = energy_residuals(self.target, distinct)
            features = scaled_features(form.diagonal(), residuals, counts)
        elif isinstance(self.units, Whitening):
            residuals = self.units.moment_residuals(distinct, self._scores[rows])
            features = scaled_features(form.diagonal(), residuals, counts, MOMENT_WEIGHT)
            form = self._with_parts(form, distinct, counts, part_weight)
        else:
            return form
        return form if features is None else form.with_features(features)

    def _with_parts(self, form, distinct, counts, weight):
        """Preserve the fractions of parts of a density that Stein's identity cannot compare."""
        if isinstance(self.target, GivenGradients):
            return form
        # A Gaussian has a single part, which its Hessian tells sooner than ascents
        if self.searched.gaussian(distinct) is not None:
            return form

        def score(Z):
            return self.units.pull(self.searched.score(self.units.inverse_transform(Z)))

        parts = separate_parts(score, self.units.transform(distinct))
        excess = np.eye(parts.max() + 1)[parts]
        excess -= counts @ excess / counts.sum()
        features = scaled_features(form.diagonal(), excess, counts, weight)
        return form if features is None else form.with_features(features)


def automatic_kernel(target, samples):
    """Choose a kernel for samples in its coordinates."""
    if is_continuous(target):
        # Heavy tails: points far from all others still count (Gorham and Mackey 2017).
        return InverseMultiquadric(scale=median_gamma(samples) ** -0.5)
    # Wide kernels have few degrees of freedom that matter, so few samples pin them.
    return Hamming(scale=16.0 * samples.shape[1])


def _effective_size(totals, counts):
    return float(1.0 / (totals**2 / counts).sum())


def _fixed():
    """Give random numbers that are the same in every fit: approximations repeat."""
    return np.random.default_rng(0)


@dataclass(frozen=True)
class ListedStates:
    """All states of a target with their probabilities, and those that distinct samples hold."""

    rows: np.ndarray  # (n_states, d), NaN where collapsed, possible ones instead of others
    probabilities: np.ndarray  # (n_states,)
    shape: tuple  # numbers of states of the variables that have several
    held: np.ndarray  # (n_samples,), positions of the samples among the states

    @classmethod
    def of(cls, target, samples):
        """List the states; None if they are many or the samples are collapsed differently."""
        hidden = np.isnan(samples)
        counts = np.where(hidden[0], 1, state_counts(target, samples.shape[1]))
        n_states = prod(counts.tolist())
        if n_states > MAX_STATES or (hidden != hidden[0]).any():
            return None
        moving = counts > 1
        shape = tuple(counts[moving].tolist())
        rows = np.zeros((n_states, len(counts)))
        rows[:, moving] = np.indices(shape).reshape(len(shape), n_states).T
        rows[:, hidden[0]] = np.nan
        log_prob = log_probabilities(target, rows)
        # Impossible states count nowhere, but tables of them could not be computed.
        rows[np.isneginf(log_prob)] = rows[log_prob.argmax()]
        codes = without_other_columns(target, samples)[:, moving].astype(np.int64)
        steps = n_states // np.cumprod(shape, dtype=np.int64)
        return cls(rows, softmax(log_prob), shape, codes @ steps)

    def nearest(self):
        """Give each sample its probability and that of the states nearest to it, (n_samples,)."""
        # A state that no sample holds passes its probability to its neighbours on the shortest ways
        # to samples, in equal parts, so that most variables keep their states
        mass = self.probabilities.reshape(self.shape)
        reached = np.bincount(self.held, minlength=mass.size).reshape(self.shape)
        rings = [reached]
        while not reached.all():
            rings.append((_around(reached) > 0) & (reached == 0))
            reached = reached + rings[-1]
        for inner, outer in zip(rings[-2::-1], rings[:0:-1]):
            passed = np.where(outer, mass / np.maximum(_around(inner), 1), 0.0)
            mass = mass + np.where(inner, _around(passed), 0.0)
        return mass.ravel()[self.held]

    def improve(self, weights, tables, neighbors):
        """Average weights with `nearest` for the best marginals, and give their largest error."""
        # The fraction is that for which single and pairwise marginals have the least squared error.
        # `tables`: per variable probabilities of its states in each row, (n_states, k_j)
        families = state_functions(tables, neighbors)
        nearest = self.nearest()
        own, other = (
            np.concatenate([self._errors(w, f) / np.sqrt(f.shape[1]) for f in families])
            for w in (weights, nearest)
        )
        change = own - other
        fraction = -(other @ change) / max(change @ change, np.finfo(float).tiny)
        improved = nearest + np.clip(fraction, 0.0, 1.0) * (weights - nearest)
        return improved, max(np.abs(self._errors(improved, table)).max() for table in tables)

    def _errors(self, weights, functions):
        """Errors of weighted means of functions of the states, (n_states, m) -> (m,)."""
        return weights @ functions[self.held] - self.probabilities @ functions


def _distances(marginals, exact):
    """Mean squared error and mean Hellinger distance of some distributions, (2,)."""
    pairs = list(zip(marginals, exact))
    squares = [((p - q) ** 2).sum() for p, q in pairs]
    hellinger = [np.sqrt(((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2) for p, q in pairs]
    return np.mean([squares, hellinger], axis=1)


def _around(values):
    """Sum over all states that differ in one variable."""
    sums = (values.sum(axis=j, keepdims=True) - values for j in range(values.ndim))
    return sum(sums, np.zeros(values.shape))
