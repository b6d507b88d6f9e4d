"""Particles in blocks with halos on Dask workers: what one process gives, bit for bit."""

from itertools import pairwise
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from scipy import sparse

from skcircuits import GraphicalSVGDSampler
from skcircuits.graphical import GaussianMRF
from skcircuits.parallel import dask_client
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._problem import SVGDProblem, cut
from skcircuits.particles._steps import StepSchedule


def random_field(d, seed=0):
    """A Gaussian field on an irregular graph: one hub, some coordinates alone."""
    rng = np.random.default_rng(seed)
    links = sparse.random_array((d, d), density=1.2 / d, rng=rng).toarray() > 0
    links[0, : d // 3] = True
    links |= links.T
    np.fill_diagonal(links, False)
    return GaussianMRF(np.diag(links.sum(axis=1) + 1.0) - 0.8 * links, rng.normal(size=d))


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["in", "out"]
)
def client(request):
    """Workers in threads of this process, or in processes."""
    distributed = pytest.importorskip("dask.distributed")
    options = {"threads_per_worker": 1, "dashboard_address": None}
    n_workers = 2 if request.param else 3
    with distributed.Client(n_workers=n_workers, processes=request.param, **options) as client:
        yield client


def run(problem, start, client=None):
    return list(problem.steps(start, 0, client=client))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_workers_give_the_particles_of_one_process(client, dtype):
    field = random_field(53)
    start = np.random.default_rng(1).normal(size=(12, 53)).astype(dtype)
    # Steps so long that some are taken back.
    schedule = StepSchedule(step_size=3.0, max_iter=20, annealing=0.1)
    problem = SVGDProblem(
        field, 53, neighbors=field.neighbors, linear_weight=0.1, optimizer="sgd", schedule=schedule
    )
    # Discrepancies are measured when they are asked for, and workers have only the latest.
    alone, together = (
        list(zip(*((s, s.discrepancy) for s in problem.steps(start, 0, client=c))))
        for c in (None, client)
    )
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(together[1], alone[1], rtol=tolerance)
    alone, together = alone[0], together[0]
    assert any(b.force == a.force for a, b in pairwise(alone))
    np.testing.assert_array_equal(together[-1].particles, alone[-1].particles)
    assert together[-1].particles.dtype == dtype
    assert together[-1].variance_change == alone[-1].variance_change
    ours, theirs = ([state.force for state in states] for states in (together, alone))
    np.testing.assert_allclose(ours, theirs, rtol=tolerance)


def test_blocks_of_coordinates_stay_together(client):
    field = random_field(20)
    groups = np.array_split(np.arange(20), 7)
    owner = np.repeat(np.arange(7), [group.size for group in groups])
    neighbors = [
        np.unique(owner[np.concatenate([field.neighbors[i] for i in group])]) for group in groups
    ]
    problem = SVGDProblem(
        field, 20, neighbors=neighbors, blocks=groups, schedule=StepSchedule(max_iter=5)
    )
    start = np.random.default_rng(1).normal(size=(9, 20))
    alone, together = run(problem, start), run(problem, start, client)
    np.testing.assert_array_equal(together[-1].particles, alone[-1].particles)


def test_a_state_is_what_it_was_until_the_next_but_one(client):
    field = random_field(10)
    problem = SVGDProblem(field, 10, neighbors=field.neighbors)
    start = np.random.default_rng(0).normal(size=(5, 10))
    steps = problem.steps(start, 0, client=client)
    first, alone = next(steps), next(problem.steps(start, 0))
    next(steps)
    np.testing.assert_array_equal(first.particles, alone.particles)


def test_errors_of_a_target_come_back(client):
    target = SimpleNamespace(grad_log_prob=lambda X: np.where(np.arange(6) == 4, np.nan, -X))
    neighbors = [[j for j in (i - 1, i + 1) if 0 <= j < 6] for i in range(6)]
    with pytest.raises(ValueError, match=r"finite at every particle.*coordinate=4"):
        run(SVGDProblem(target, 6, neighbors=neighbors), np.zeros((3, 6)), client)


def test_the_sampler_takes_large_clouds_to_the_client(client, monkeypatch):
    field = random_field(30)
    sampler = GraphicalSVGDSampler(
        target=field, n_particles=15, preconditioner=None, max_iter=10, tol=9.0, random_state=0
    )
    alone = sampler.fit().particles_
    monkeypatch.setattr("skcircuits.estimators.graphical_svgd.MIN_SENT", 1)
    asked = []
    monkeypatch.setattr(
        "skcircuits.estimators.graphical_svgd.dask_client", lambda: asked.append(1) or dask_client()
    )
    with joblib.parallel_config("dask"):
        assert dask_client() is client
        np.testing.assert_array_equal(sampler.fit().particles_, alone)
    assert asked and dask_client() is None


@pytest.mark.parametrize("n_blocks", [1, 2, 5, 100])
def test_cuts_cover_every_kernel_once_and_are_short(n_blocks):
    chain = [[j for j in (i - 1, i + 1) if 0 <= j < 47] for i in range(47)]
    shuffled = np.random.default_rng(0).permutation(47)
    place = np.argsort(shuffled)
    graph = Neighborhoods.from_graph([shuffled[chain[place[i]]] for i in range(47)])
    blocks = cut(graph, n_blocks)
    kernels = [np.concatenate([bucket.kernels for bucket in block]) for block in blocks]
    assert sorted(np.concatenate(kernels)) == list(range(graph.n_kernels))
    sizes = [block.size for block in kernels]
    assert len(blocks) == min(n_blocks, graph.n_kernels) and max(sizes) - min(sizes) <= 1
    for block in blocks:
        local, _ = graph.part(block)
        n_moved = sum(bucket.owned.size for bucket in block)
        assert len(local) - n_moved <= 4  # ends see one neighbour on either side
