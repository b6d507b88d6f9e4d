"""Warnings about particles: wrong graphs, shrunk variances, wrong moments and missed modes."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcircuits.particles._cloud import scores_at
from skcircuits.particles._diagnosis import nodes_outside_blankets
from skcircuits.stein._forms import separate_parts
from skcircuits.stein._ridge import spread_rows

# Modes are searched for from at most MAX_SEEN particles and N_AROUND points around them, spread by
# WIDTH of their standard deviations.
MAX_SEEN, N_AROUND, WIDTH = 100, 50, 3.0


def warn_of_wrong_graph(problem, start, rng):
    """Warn where a score depends on more than its blanket."""
    if problem.neighbors is None:
        return
    outside = nodes_outside_blankets(problem.target.grad_log_prob, problem.graph, start, rng)
    if outside.size:
        warnings.warn(
            "The score of some nodes depends on more than their neighbors "
            f"(nodes {outside[:10].tolist()}); kernels over the wrong blankets do not match "
            "the conditional distributions.",
            stacklevel=5,
        )


def warn_of_shrinkage(problem, n_particles):
    """Warn where kernels depend on so many coordinates that the repulsion of particles vanishes.

    On standard normal targets the variance of n particles comes out below about three
    quarters once a kernel sees n / 2 coordinates, or n with the linear term.
    """
    if problem.kernel == "graphical":
        n_seen = problem.graph.scope_sizes.max()
    elif problem.kernel == "random":
        n_seen = problem.n_neighbors * problem.n_coordinates / problem.graph.n_nodes
    else:
        n_seen = problem.n_coordinates
    n_bearable = n_particles if problem.linear_weight else n_particles / 2
    if n_particles > 1 and n_seen > n_bearable:
        warnings.warn(
            f"{n_particles} particles are few for kernels over {n_seen:.0f} coordinates: the "
            "variances will be too small. Use more particles, or kernel='random'.",
            stacklevel=5,
        )


def warn_of_faults(diagnosis, estimator, is_corrected):
    """Warn where moments of the particles contradict the target; return whether they do."""
    where = diagnosis.doubtful
    if is_corrected:
        # Chains that have not mixed improve the particles, but do not reach the target.
        where &= diagnosis.unmixed
    faults = diagnosis.faults(where)
    if not faults:
        return False
    if is_corrected:
        outcome = "They were moved towards the target, but the chains have not mixed there"
        way_out = "reparametrise the target, or take more particles from closer to it"
    else:
        outcome = "Expectations cannot be trusted"
        way_out = "set correction=True, reparametrise the target, or start closer to it"
    warnings.warn(
        f"{type(estimator).__name__}: by Hamiltonian Monte Carlo chains from the particles, "
        f"{'; '.join(faults)}. {outcome}: {way_out}.",
        ConvergenceWarning,
        stacklevel=5,
    )
    return True


def warn_of_missed_modes(problem, particles, estimator):
    """Warn where the density has modes around the particles that no particle belongs to."""
    particles = np.asarray(particles, dtype=np.float64)
    center, scale = particles.mean(axis=0), particles.std(axis=0)
    scale[scale == 0] = 1.0
    chosen = (particles[spread_rows(len(particles), MAX_SEEN)] - center) / scale
    # Draws of its own: equal particles have equal faults.
    around = WIDTH * np.random.default_rng(0).standard_normal((N_AROUND, particles.shape[1]))

    def score(Z):
        return scale * scores_at(problem.target.grad_log_prob, center + scale * Z)

    parts = separate_parts(score, np.concatenate([chosen, around]), MAX_SEEN + N_AROUND)
    missed = np.setdiff1d(parts, parts[: len(chosen)])
    if missed.size:
        warnings.warn(
            f"{type(estimator).__name__}: the density has further modes without particles "
            f"({missed.size} were found). Means and variances are those of the modes with "
            "particles. Start from particles in all modes, or set annealing.",
            ConvergenceWarning,
            stacklevel=5,
        )
