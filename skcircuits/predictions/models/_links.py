r"""Functions of linear scores: links, softmax, hidden layers and random Fourier features.

f(x) = Σ_h c_h g(s_h(x)) + b with additive scores s_h. Given the observed cells, a score is a
mixture of Gaussians, so that the expectation of every g(s_h) is an integral over a line.

Softmax and normalised logistic links depend on several scores. Along an axis of these
a component is x = m + a z with z standard normal. A softmax has no pole
while the phases of its exponentials lie within a half plane, so that it is analytic for
\|Im z\| < t = π / D, D being the largest difference of two entries of a. Logistic functions of the
scores that are divided by their sum have none while the phases of the scores are below π / 2, for
t = π / D with D twice the largest entry of a: the real parts of all of them are positive there. The
error of the trapezoidal sum with step h is then about exp(t²/2 - 2πt/h), the smallest such bound of
all smaller t: see Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM
Review 56 (2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, softmax
from sklearn.kernel_approximation import RBFSampler
from sklearn.neural_network import MLPRegressor

from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    BLOCK_BYTES,
    N_TRIALS,
    TINY,
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    WeightedSum,
    closed_form,
    dense,
    features_of,
    is_plainly_missing,
    last_step,
    steps_of,
)
from skcircuits.predictions._components import (
    MAX_COMBINATIONS,
    NEGLIGIBLE,
    AdditiveFunction,
    ConditionedRows,
    GaussianComponents,
    ScoreParts,
    few_combinations,
    probe,
    score_parts,
)
from skcircuits.predictions.models._piecewise import (
    CUTS,
    N_PANELS,
    WIDTH,
    PiecewiseFunction,
    approximate,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Narrow Gaussians: Gauss-Hermite nodes. Wide ones: the difference of the link from a step
# function is integrated over the score, where the Gaussian is smooth.
NARROW = 1.2
N_HERMITE = 48
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(N_HERMITE)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / np.sqrt(2.0 * np.pi)
PANELS = (0.0, 2.0, 5.0, 10.0, 20.0, 40.0)
N_LEGENDRE = 14
MAX_LOG = 700.0
# Most that the tails beyond the cuts of a Gaussian may add, relative to typical values, and the
# probability of these tails
TAIL, BEYOND = 1e-11, 1.3e-15

Moments = tuple[FloatArray, FloatArray]
RANGE = 6.8  # beyond it is a normal number with probability 1e-11
LOG_ERROR = np.log(1e-10)
MAX_NODES = 2**14  # per component and combination of missing categories


@dataclass(frozen=True)
class Link:
    """A function g of a score."""

    value: Callable[[FloatArray], FloatArray]  # g itself
    moments: Callable[[FloatArray, FloatArray], Moments]  # E g(s), E g(s)², by means and stds
    n_nodes: int = 4  # values per score that this takes
    covers: Callable[[FloatArray, FloatArray], BoolArray] | None = None


@dataclass(frozen=True, eq=False)
class LinkForm:
    """Moments of Σ_h c_h g(s_h(x)) + b, with `additive` scores (H,), c (H, k) and b (k,)."""

    link: Link
    additive: AdditiveFunction
    components: GaussianComponents
    coefficients: FloatArray
    shift: FloatArray
    name: str
    rounds_integers: bool = False

    @classmethod
    def checked(
        cls,
        link: Link,
        score: Callable[[FloatArray], FloatArray],
        single: Problem,
        weights: tuple[FloatArray, FloatArray],
        name: str,
    ) -> LinkForm:
        """Build the form of a model of scores, given c and b; it must agree with the model."""
        additive = probe(score, single)
        components = GaussianComponents.of(single.circuit)
        form = cls(link, additive, components, *weights, name)
        trials = single.trial_rows()
        answers = form.link.value(additive(trials)) @ form.coefficients + form.shift
        single.check(answers, single.ask(single.response, trials), f"a {name}")
        return form

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, nodes excluded."""
        n_scores = len(self.coefficients)
        scores = 8 * len(self.components) * n_scores * (4 + 2 * MAX_COMBINATIONS)
        return scores + self.components.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and whose scores the link covers."""
        # The variance of a sum needs the covariances of its terms
        if with_variance and (np.count_nonzero(self.coefficients, axis=0) > 1).any():
            return np.zeros(len(rows), dtype=bool)
        covered = is_plainly_missing(rows) & few_combinations(self.components, rows.evidence)
        if self.link.covers is not None:
            chosen = np.flatnonzero(covered)
            for part in score_parts(self.additive, self.components, rows.evidence[chosen]):
                fits = self.link.covers(part.means, np.sqrt(part.variances))
                covered[chosen[part.rows]] = fits.all(axis=(0, 1, 3))
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        mean, square = np.zeros((2, len(rows), len(self.coefficients)))
        for part in score_parts(self.additive, self.components, rows.evidence):
            per_row = 8 * self.link.n_nodes * part.means[:, :, 0].size
            at_most = max(1, BLOCK_BYTES // per_row)
            for chunk in memory_bound_chunks(len(part.rows), per_row, at_most=at_most):
                means = part.means[:, :, chunk]
                stds = np.broadcast_to(np.sqrt(part.variances[:, :, chunk]), means.shape)
                first, second = self.link.moments(means, stds)
                weights, own = part.weights[:, :, chunk, None], part.rows[chunk]
                mean[own] = (weights * first).sum(axis=(0, 1))
                square[own] = (weights * second).sum(axis=(0, 1))
        variance = (square - mean**2) @ self.coefficients**2 if with_variance else None
        return Expectation.exact(mean @ self.coefficients + self.shift, variance)


def logistic_normal_moments(means: FloatArray, stds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[σ(s)] and E[σ(s)²] for normal scores s, to 1e-10; σ is the logistic function."""
    first, second = np.empty(means.shape), np.empty(means.shape)
    narrow = stds < NARROW
    nodes = expit(means[narrow][..., None] + stds[narrow][..., None] * HERMITE_NODES)
    first[narrow], second[narrow] = nodes @ HERMITE_WEIGHTS, nodes**2 @ HERMITE_WEIGHTS
    m, s = means[~narrow], stds[~narrow]
    scores, weights = _score_nodes()
    density = np.exp(-0.5 * ((scores - m[..., None]) / s[..., None]) ** 2)
    density *= weights / (np.sqrt(2.0 * np.pi) * s[..., None])
    # The link less a step vanishes beyond the panels; the step itself has a closed form, Φ(m / s)
    step = (scores > 0).astype(np.float64)
    above = ndtr(m / s)
    first[~narrow] = above + density @ (expit(scores) - step)
    second[~narrow] = above + density @ (expit(scores) ** 2 - step)
    return first, second


def _score_nodes() -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on panels around zero."""
    nodes, weights = np.polynomial.legendre.leggauss(N_LEGENDRE)
    lower, upper = np.array(PANELS[:-1])[:, None], np.array(PANELS[1:])[:, None]
    half = (upper - lower) / 2.0
    positive = ((lower + upper) / 2.0 + half * nodes).ravel()
    scaled = (half * weights).ravel()
    return np.concatenate([-positive, positive]), np.concatenate([scaled, scaled])


def exponential_normal_moments(means: FloatArray, stds: FloatArray) -> Moments:
    """E[e^s] and E[e^2s] of normal scores, by their moment-generating function."""
    first = np.exp(means + stds**2 / 2)
    return first, first**2 * np.exp(stds**2)


def _exponential_covers(means: FloatArray, stds: FloatArray) -> BoolArray:
    # Beyond, second moments overflow, and draws seldom do
    return np.asarray(means + stds**2 < MAX_LOG / 2.0)


def rectified_normal_moments(means: FloatArray, stds: FloatArray) -> Moments:
    """E[max(s, 0)] and E[max(s, 0)²] of normal scores."""
    ratio = means / np.maximum(stds, TINY)
    above = ndtr(ratio)
    # Nothing is left of the density at 40 standard deviations
    density = stds * np.exp(-0.5 * np.clip(ratio, -40.0, 40.0) ** 2) / np.sqrt(2.0 * np.pi)
    return means * above + density, (means**2 + stds**2) * above + means * density


def cosine_normal_moments(means: FloatArray, stds: FloatArray) -> Moments:
    """E[cos s] and E[cos² s] of normal scores, by their characteristic function."""
    first = np.exp(-0.5 * stds**2) * np.cos(means)
    return first, 0.5 * (1.0 + np.exp(-2.0 * stds**2) * np.cos(2.0 * means))


def tanh_normal_moments(means: FloatArray, stds: FloatArray) -> Moments:
    """E[tanh s] and E[tanh² s] of normal scores: tanh s = 2 σ(2 s) - 1."""
    first, second = logistic_normal_moments(2.0 * means, 2.0 * stds)
    return 2.0 * first - 1.0, 4.0 * (second - first) + 1.0


LOGISTIC = Link(expit, logistic_normal_moments, 10 * N_LEGENDRE)
EXPONENTIAL = Link(np.exp, exponential_normal_moments, covers=_exponential_covers)
COSINE = Link(np.cos, cosine_normal_moments)
HIDDEN_LAYERS = {
    "logistic": LOGISTIC,
    "relu": Link(partial(np.maximum, 0.0), rectified_normal_moments),
    "tanh": Link(np.tanh, tanh_normal_moments, 10 * N_LEGENDRE),
}
# Both probabilities, from that of the second class
BOTH = np.array([[-1.0, 1.0]]), np.array([1.0, 0.0])


def score_form(single: Problem, score: Callable[[FloatArray], FloatArray]) -> LinkForm:
    """Build the form of a model that is any function of one additive score."""
    if single.bounds is not None:
        raise NoClosedFormError("the model has no answers for some numbers")
    additive = probe(score, single)
    components = GaussianComponents.of(single.circuit)
    link = _response_to(additive, single)
    nothing = np.full((1, single.n_columns), np.nan)
    centre, variance = additive.moments(components, nothing, with_variance=True)
    assert variance is not None
    location, scale = float(centre[0, 0]), float(np.sqrt(variance[0, 0]))
    weights = BOTH if single.response.method == "predict_proba" else (np.eye(1), np.zeros(1))
    try:
        rate, factor, constant = _exponential(link(location + scale * np.arange(-1.0, 2.0)), scale)
        return LinkForm.checked(
            EXPONENTIAL,
            lambda X: rate * (score(X) - location),
            single,
            (factor * weights[0], constant * weights[0][0] + weights[1]),
            "exponential function of a linear model",
        )
    except NoClosedFormError:
        pass
    scores = additive(single.trial_rows())[:, 0]
    approximated, constant = _approximate_link(link, scores, location, scale)
    weights = weights[0], constant * weights[0][0] + weights[1]
    return LinkForm.checked(approximated, score, single, weights, "function of a linear model")


def _approximate_link(
    link: Callable[[FloatArray], FloatArray], scores: FloatArray, location: float, scale: float
) -> tuple[Link, float]:
    """Link by Chebyshev polynomials, less its value at the location, and this value."""
    ends = min(location - WIDTH * scale, scores.min()), max(location + WIDTH * scale, scores.max())
    edges = np.sort(np.concatenate([np.linspace(*ends, N_PANELS + 1), scores]))[:, None]
    # Those of the density, which are the first
    typical = np.abs(link(scores[:N_TRIALS])).mean()
    # Beside one answer: a large constant would drown the variance in rounding
    (constant,) = link(np.array([location]))
    variation = np.fmin(np.abs(link(edges[:, 0]) - constant).max(), typical)
    size = typical * np.array([1.0, variation])
    with np.errstate(all="ignore"):  # links may overflow far from the data, where rows are drawn
        approximation = approximate(
            lambda _, values: (link(values) - constant)[:, None] ** np.array([1.0, 2.0]),
            np.zeros(1, dtype=np.intp),
            edges,
            size,
        )[0]
    return _Approximation(approximation, size).link, constant


def _response_to(additive: AdditiveFunction, single: Problem) -> Callable[[FloatArray], FloatArray]:
    """Give the last output of a model as a function of its score, along a line of rows."""
    if additive.slopes.shape[1] != 1 or not additive.slopes.any():
        raise NoClosedFormError("the model does not depend on one score of the numerical columns")
    base = single.location
    base[list(single.circuit.cardinalities)] = 0.0
    # In units of the columns, so that no row is farther from the data than its score
    direction = np.square(single.scale) * additive.slopes[:, 0]
    direction /= direction @ additive.slopes[:, 0]
    start = additive(base[None])[0, 0]

    def link(scores: FloatArray) -> FloatArray:
        rows = base + (scores - start)[:, None] * direction
        return single.ask(single.response, rows)[:, -1]

    return link


def _exponential(values: FloatArray, step: float) -> tuple[float, float, float]:
    """Rate, factor and constant of an exponential function, from three equidistant values."""
    first, second = np.diff(values)
    with np.errstate(all="ignore"):
        rate = np.log(second / first) / step
        factor = first / (1.0 - np.exp(-rate * step))
    if not np.isfinite([rate, factor]).all() or abs(rate) * step < 1e-6:
        raise NoClosedFormError("the link is not exponential")
    return float(rate), float(factor), float(values[1] - factor)


@dataclass(frozen=True, eq=False)
class _Approximation:
    """A link whose value and square, of typical `size` (2,), are approximated by polynomials."""

    # Methods make the link, not functions within a function: estimators are pickled

    function: PiecewiseFunction
    size: FloatArray

    @property
    def link(self) -> Link:
        return Link(self.value, self.moments, len(CUTS) * 12 * 6, self.covers)

    def value(self, scores: FloatArray) -> FloatArray:
        """The link itself."""
        return self.function.at(scores)[..., 0]

    def moments(self, means: FloatArray, stds: FloatArray) -> Moments:
        """Its expectation and that of its square, by means and standard deviations."""
        found = self.function.normal_means(means.ravel(), stds.ravel())
        return found[:, 0].reshape(means.shape), found[:, 1].reshape(means.shape)

    def covers(self, means: FloatArray, stds: FloatArray) -> BoolArray:
        """Tell for which scores the approximation is good enough."""
        edges, reach = self.function.edges, CUTS[-1] * stds
        inside = (means - reach >= edges[0]) & (means + reach <= edges[-1])
        # Beyond the cuts, functions must not grow faster than the density falls
        far = np.maximum(self._size_at(means - reach), self._size_at(means + reach))
        typical = self.size + self._size_at(means)
        return np.asarray(inside & (BEYOND * far <= TAIL * typical).all(axis=-1))

    def _size_at(self, scores: FloatArray) -> FloatArray:
        """Absolute value and square, those of the ends beyond them."""
        return np.abs(self.function.at(np.clip(scores, *self.function.edges[[0, -1]])))


@dataclass(frozen=True, eq=False)
class SoftmaxForm:
    """Probabilities of several classes: the softmax of scores, or normalised logistic functions."""

    additive: AdditiveFunction
    components: GaussianComponents
    is_one_versus_rest: bool = False
    rounds_integers: bool = False

    @property
    def name(self) -> str:
        """Description of the form, and of the rows that it covers."""
        link = "normalised logistic" if self.is_one_versus_rest else "softmax"
        return f"{link} link of a linear model where sums are short, draws elsewhere"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, sums excluded."""
        n_classes = len(self.additive.constant)
        return 8 * len(self.components) * n_classes * (n_classes + 4 * MAX_COMBINATIONS)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and whose scores vary in few directions."""
        return np.isfinite(self.n_terms(rows, with_variance=with_variance))

    def n_terms(self, rows: IncompleteRows, *, with_variance: bool) -> FloatArray:
        """Number of answers, nodes times classes, of all components and combinations."""
        result = np.full(len(rows), np.inf)
        covered = is_plainly_missing(rows) & few_combinations(self.components, rows.evidence)
        chosen = np.flatnonzero(covered)
        for part in self._parts(rows.evidence[chosen]):
            n_nodes = self._n_nodes(part.variances[:, 0]).prod(axis=-1, dtype=float)
            n_cases = (part.weights > NEGLIGIBLE).sum(axis=1)
            # The number of nodes grows exponentially with the directions
            fits = (n_nodes * part.means.shape[1] <= MAX_NODES).all(axis=0)
            n_terms = part.means.shape[-1] * (n_nodes * n_cases).sum(axis=0)
            result[chosen[part.rows]] = np.where(fits, n_terms, np.inf)
        return result

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of all probabilities."""
        shape = len(rows), len(self.additive.constant)
        mean, square = np.zeros(shape), np.zeros(shape)
        for part in self._parts(rows.evidence):
            first, second = self._moments(part)
            mean[part.rows], square[part.rows] = first, second
        # Components of negligible probability were left out
        mean /= mean.sum(axis=1, keepdims=True)
        return Expectation.exact(mean, square - mean**2)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        return score_parts(self.additive, self.components, X, self._axes)

    def _moments(self, part: ScoreParts) -> tuple[FloatArray, FloatArray]:
        """First and second moments of the probabilities of some rows, shape (n, k)."""
        n_components, n_combinations, n_rows = part.weights.shape
        axes = part.variances[:, 0]
        n_nodes = np.broadcast_to(
            self._n_nodes(axes)[:, None], (n_components, n_combinations, n_rows, axes.shape[2])
        )
        cases = np.argwhere(part.weights > NEGLIGIBLE)
        counts = n_nodes[tuple(cases.T)]
        sums = np.zeros((2, n_rows, part.means.shape[-1]))
        # Cases with equally many nodes share a grid
        kinds, kind = np.unique(counts, axis=0, return_inverse=True)
        for number, sizes in enumerate(kinds):
            nodes, masses = _grid(sizes)
            own = cases[kind.ravel() == number]
            for chunk in memory_bound_chunks(len(own), 8 * 4 * len(nodes) * sums.shape[2]):
                k, s, n = own[chunk].T
                # Classes come first: reductions over few entries of the last axis are slow
                along = np.moveaxis(axes[k, n], -1, 0) @ nodes.T
                answers = self.link(part.means[k, s, n].T[:, :, None] + along)
                for moment, values in zip(sums, (answers, answers**2)):
                    np.add.at(moment, n, part.weights[k, s, n][:, None] * (values @ masses).T)
        return sums[0], sums[1]

    def link(self, scores: FloatArray) -> FloatArray:
        """Probabilities of the classes, shape (k, ...)."""
        if not self.is_one_versus_rest:
            return np.asarray(softmax(scores, axis=0))
        positive = expit(scores)
        return np.asarray(positive / positive.sum(axis=0))

    def _axes(self, conditioned: ConditionedRows, slopes: FloatArray) -> FloatArray:
        """Axes of the scores, the longest first, (K, n, a, k)."""
        if not self.is_one_versus_rest:
            # A softmax is invariant to a constant that is added to all scores
            slopes = slopes - slopes.mean(axis=1, keepdims=True)
        return conditioned.projected_axes(slopes)

    def _n_nodes(self, axes: FloatArray) -> IntArray:
        """Number of nodes along each axis, 1 or a power of two and one, shape (..., a)."""
        spread = np.ptp(axes, axis=-1)
        if self.is_one_versus_rest:
            spread = 2.0 * np.abs(axes).max(axis=-1)
        with np.errstate(divide="ignore"):
            # The module's bound, solved for h: at the second width h is largest
            strip = np.minimum(np.pi / spread, np.sqrt(-2.0 * LOG_ERROR))
        step = 2.0 * np.pi * strip / (strip**2 / 2.0 - LOG_ERROR)
        # Powers of two: many cases then have the same grid
        n_steps = 2 ** np.ceil(np.log2(2.0 * RANGE / step)).astype(np.int64)
        # Leaving out a short axis costs less than the square of its length
        return np.where(spread > 1e-5, n_steps + 1, 1)


def one_versus_rest_form(
    single: Problem, score: Callable[[FloatArray], FloatArray], thing: str
) -> SoftmaxForm:
    """Build the form of logistic functions of scores that are divided by their sum."""
    components = GaussianComponents.of(single.circuit)
    form = SoftmaxForm(probe(score, single), components, is_one_versus_rest=True)
    trials = single.trial_rows()
    probabilities = form.link(form.additive(trials).T).T
    single.check(probabilities, single.ask(single.response, trials), thing)
    return form


def _grid(sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Nodes (g, a) and masses (g,) of the product of trapezoidal sums."""
    nodes, masses = np.zeros((1, 0)), np.ones(1)
    for size in sizes:
        own = np.linspace(-RANGE, RANGE, size) if size > 1 else np.zeros(1)
        weights = np.exp(-0.5 * own**2)
        weights /= weights.sum()
        # The last axis varies fastest
        nodes = np.hstack([np.repeat(nodes, size, axis=0), np.tile(own, len(nodes))[:, None]])
        masses = np.repeat(masses, size) * np.tile(weights, len(masses))
    return nodes, masses


@closed_form.register
def _of_hidden_layer(model: MLPRegressor, problem: Problem) -> ClosedForm:
    return WeightedSum.average(problem, _build_hidden_layer)


def _build_hidden_layer(single: Problem) -> ClosedForm:
    (whole,) = single.response.models
    model, n_steps = last_step(whole), len(steps_of(whole))
    if len(model.coefs_) != 2 or model.activation not in HIDDEN_LAYERS:
        raise NoClosedFormError(
            "only networks with one hidden layer that is logistic, tanh or relu have a closed form"
        )
    inner, outer = model.coefs_
    return LinkForm.checked(
        HIDDEN_LAYERS[model.activation],
        lambda X: features_of(single, X, n_steps) @ inner + model.intercepts_[0],
        single,
        (outer, model.intercepts_[1]),
        "hidden layer of linear scores",
    )


def build_fourier(single: Problem) -> ClosedForm:
    """Build the form of a linear model on random Fourier features."""
    (whole,) = single.response.models
    steps, last = steps_of(whole), last_step(whole)
    is_fourier = steps and isinstance(steps[-1], RBFSampler) and hasattr(last, "coef_")
    if not is_fourier or single.response.method == "predict_proba":
        raise NoClosedFormError("the model is not a linear function of Fourier features")
    sampler: Any = steps[-1]
    slopes = dense(last.coef_).reshape(-1, sampler.random_weights_.shape[1])
    amplitude = np.sqrt(2.0 / slopes.shape[1])
    return LinkForm.checked(
        COSINE,
        lambda X: (
            features_of(single, X, len(steps) - 1) @ sampler.random_weights_
            + sampler.random_offset_
        ),
        single,
        (amplitude * slopes.T, np.broadcast_to(last.intercept_, len(slopes))),
        "sum of random Fourier features",
    )
