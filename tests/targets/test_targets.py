import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits import BBISWeighter, GraphicalSVGDSampler
from skcircuits.targets import (
    find_neighbors,
    from_bridgestan,
    from_function,
    from_jax,
    from_numpyro,
    from_pymc,
    from_torch,
)
from skcircuits.targets.functions import padded_length

PRECISION = np.array([[2.0, -0.9, 0.0], [-0.9, 2.0, -0.9], [0.0, -0.9, 2.0]])
NEIGHBORS = [[1], [0, 2], [1]]
X = np.random.default_rng(0).normal(size=(40, 3))


def log_prob(rows):
    return -0.5 * np.einsum("ni,ij,nj->n", rows, PRECISION, rows)


def by_hand():
    return from_function(log_prob, lambda rows: -rows @ PRECISION, neighbors=NEIGHBORS)


def by_differences():
    return from_function(log_prob, finite_differences=True)


def by_jax():
    pytest.importorskip("jax")
    return from_jax(lambda x: -0.5 * x @ PRECISION @ x, neighbors=NEIGHBORS)


def by_torch():
    torch = pytest.importorskip("torch")
    precision = torch.as_tensor(PRECISION)
    return from_torch(lambda x: -0.5 * ((x @ precision) * x).sum(dim=1))


def test_rows_are_padded_to_few_numbers_of_rows():
    lengths = np.array([padded_length(n) for n in range(2000)])
    wanted = np.arange(2000)
    assert (lengths >= wanted).all() and lengths[0] == 0
    assert (lengths[33:] <= 1.25 * wanted[33:]).all()
    assert len(set(lengths)) < 30


def test_jax_compiles_for_few_numbers_of_rows():
    pytest.importorskip("jax")
    compiled = []

    def log_density(x):
        compiled.append(x)
        return -0.5 * x @ PRECISION @ x

    target = from_jax(log_density)
    for n in range(len(X) + 1):
        assert_allclose(target.grad_log_prob(X[:n]), -X[:n] @ PRECISION, atol=1e-12)
    assert len(compiled) < 10


@pytest.mark.parametrize("make", [by_hand, by_differences, by_jax, by_torch])
def test_gradients_are_those_of_the_density(make):
    target = make()
    np.testing.assert_allclose(target.log_prob_unnormalized(X), log_prob(X), rtol=1e-12)
    np.testing.assert_allclose(target.grad_log_prob(X), -X @ PRECISION, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: -0.5 * (x**2).sum(),
        lambda x: -0.5 * (x**2).sum(dim=1, keepdim=True),
        lambda x: -0.5 * (x**2),
        lambda x: -0.5 * (x.detach() ** 2).sum(dim=1),
        lambda x: (x > 0).sum(dim=1),
        lambda x: [0.0] * len(x),
    ],
)
def test_densities_of_torch_without_a_gradient_per_row_are_refused(wrong):
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"^the log density must be a"):
        from_torch(wrong).grad_log_prob(X)


@pytest.mark.parametrize("estimator", [BBISWeighter(), GraphicalSVGDSampler(max_iter=5)])
def test_rows_that_depend_on_each_other_are_told(estimator):
    centered = from_function(
        lambda rows: log_prob(rows - rows.mean(axis=0)),
        lambda rows: -(rows - rows.mean(axis=0)) @ PRECISION,
    )
    rng = np.random.default_rng(0)
    noisy = from_function(log_prob, lambda rows: -rows @ PRECISION + rng.normal(size=rows.shape))
    single = from_function(
        log_prob, lambda rows: -rows.astype(np.float32) @ PRECISION.astype(np.float32)
    )
    messages = []
    for target in (centered, noisy, single):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.set_params(target=target).fit(X + 1.0)
        messages.append("; ".join(str(warning.message) for warning in caught))
    assert ["other rows are evaluated" in message for message in messages] == [True, False, False]


@pytest.mark.parametrize("make", [by_hand, by_jax, by_torch])
def test_samplers_take_them(make):
    target = make()
    sampler = GraphicalSVGDSampler(target=target, random_state=0).fit(X)
    variances = np.diag(np.linalg.inv(PRECISION))
    np.testing.assert_allclose(sampler.particles_.var(axis=0) / variances, 1.0, atol=0.1)
    samples = np.random.default_rng(0).normal(size=(200, 3))
    weighter = BBISWeighter(target=target).fit(samples)
    covariance = np.linalg.inv(PRECISION)[0, 1]
    weighted = weighter.expectation(lambda rows: rows[:, 0] * rows[:, 1])
    plain = (samples[:, 0] * samples[:, 1]).mean()
    assert abs(weighted - covariance) < 0.5 * abs(plain - covariance)


def test_a_gradient_is_not_made_up():
    with pytest.raises(ValueError, match="finite_differences=True"):
        from_function(log_prob)
    with pytest.raises(ValueError, match=r"gradient must have shape \(40, 3\)"):
        from_function(log_prob, lambda rows: rows[0]).grad_log_prob(X)


def test_sites_of_a_numpyro_model_come_back_constrained():
    numpyro = pytest.importorskip("numpyro")
    distributions = pytest.importorskip("numpyro.distributions")
    data = np.random.default_rng(1).normal(3.0, 2.0, size=50)

    def model(y):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 10.0))
        scale = numpyro.sample("scale", distributions.HalfNormal(5.0))
        numpyro.sample("y", distributions.Normal(mean, scale), obs=y)

    target = from_numpyro(model, data)
    start = target.draw_start(100, np.random.default_rng(0))
    sampler = GraphicalSVGDSampler(target=target, random_state=0).fit(start)
    sites = target.to_sites(sampler.particles_)
    assert set(sites) >= {"mean", "scale"} and (sites["scale"] > 0).all()
    assert abs(sites["mean"].mean() - data.mean()) < 0.1
    assert abs(sites["scale"].mean() - data.std()) < 0.15
    np.testing.assert_allclose(sites["mean"].std(), data.std() / np.sqrt(50), rtol=0.15)


@pytest.mark.parametrize("make", [by_hand, by_differences, by_jax, by_torch])
def test_neighbors_are_found_and_checked(make):
    found = find_neighbors(make(), X, tol=1e-7 if make is by_differences else 1e-9)
    assert [row.tolist() for row in found] == NEIGHBORS
    assert [row.tolist() for row in make().with_neighbors(X, tol=1e-7).neighbors] == NEIGHBORS


def test_neighbors_that_show_up_late_are_not_missed_silently():
    """A link that is there at one point in four only: found, or refused."""

    def score(rows):
        link = np.where(rows[:, :1] > 1.0, rows[:, 1:2], 0.0)
        return -rows + np.concatenate([np.zeros_like(link), link], axis=1) * rows[:, :1]

    target = from_function(lambda rows: rows[:, 0], score)
    some = np.array([[2.0, 1.0], [3.0, 1.0], [2.5, -1.0]])
    assert find_neighbors(target, some)[0].tolist() == [1]
    with pytest.raises(ValueError, match="X must have at least three rows"):
        find_neighbors(target, some[:2])
    broken = from_function(lambda rows: rows[:, 0], lambda rows: rows * np.nan)
    with pytest.raises(ValueError, match="grad_log_prob must be finite"):
        find_neighbors(broken, some)


def test_neighbors_of_a_long_chain_take_batches():
    from sklearn import config_context

    d = 300
    centre = np.arange(1, d - 1)

    def score(rows):
        total = -2.0 * rows
        total[:, 1:] += 0.9 * rows[:, :-1]
        total[:, :-1] += 0.9 * rows[:, 1:]
        return total

    target = from_function(lambda rows: rows[:, 0], score)
    rows = np.random.default_rng(0).normal(size=(4, d))
    with config_context(working_memory=1):
        found = find_neighbors(target, rows)
    assert all(found[i].tolist() == [i - 1, i + 1] for i in centre)


def test_sites_go_there_and_back():
    numpyro = pytest.importorskip("numpyro")
    distributions = pytest.importorskip("numpyro.distributions")

    def model():
        numpyro.sample("scale", distributions.HalfNormal(1.0))
        numpyro.sample("weights", distributions.Dirichlet(np.ones(3)))
        with numpyro.plate("rows", 2):
            numpyro.sample("x", distributions.Uniform(-1.0, 2.0))

    target = from_numpyro(model)
    rows = np.random.default_rng(0).normal(size=(7, target.n_coordinates))
    sites = target.to_sites(rows)
    assert sites["weights"].shape == (7, 3) and sites["x"].shape == (7, 2)
    np.testing.assert_allclose(target.from_sites(sites), rows, atol=1e-10)
    with pytest.raises(ValueError, match="every site of the model; got missing='x'"):
        target.from_sites({name: sites[name] for name in ("scale", "weights")})
    with pytest.raises(ValueError, match="X must have 5 columns"):
        target.to_sites(rows[:, 1:])


def test_discrete_sites_are_summed_out():
    numpyro = pytest.importorskip("numpyro")
    pytest.importorskip("funsor")
    distributions = pytest.importorskip("numpyro.distributions")
    data = np.array([-1.0, 0.5, 2.0])

    def summed(y):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 2.0))
        parts = distributions.Normal(np.array([-1.0, 1.0]) + mean, 1.0)
        mixing = distributions.Categorical(probs=np.array([0.3, 0.7]))
        with numpyro.plate("rows", 3):
            numpyro.sample("y", distributions.MixtureSameFamily(mixing, parts), obs=y)

    def latent(y):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 2.0))
        with numpyro.plate("rows", 3):
            z = numpyro.sample("z", distributions.Categorical(probs=np.array([0.3, 0.7])))
            numpyro.sample("y", distributions.Normal(mean + 2.0 * z - 1.0, 1.0), obs=y)

    rows = np.array([[-0.5], [0.4], [2.0]])
    expected, target = from_numpyro(summed, data), from_numpyro(latent, data)
    for method in ("log_prob_unnormalized", "grad_log_prob"):
        values, others = getattr(target, method)(rows), getattr(expected, method)(rows)
        np.testing.assert_allclose(values, others, rtol=1e-6)


@pytest.mark.slow
def test_a_run_in_single_precision_after_the_target_works():
    numpyro = pytest.importorskip("numpyro")
    jax = pytest.importorskip("jax")
    distributions = pytest.importorskip("numpyro.distributions")

    def model(y, scale):
        mean = numpyro.sample("mean", distributions.Normal(0.0, 2.0))
        numpyro.sample("y", distributions.Normal(mean, scale), obs=y)

    data = np.array([1.0, 2.0]), np.array([0.5, 0.7])
    from_numpyro(model, *data).grad_log_prob(np.zeros((3, 1)))
    kernel = numpyro.infer.NUTS(model)
    chain = numpyro.infer.MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
    chain.run(jax.random.PRNGKey(0), *data)
    assert chain.get_samples()["mean"].shape == (5,)


def test_endless_discrete_sites_are_refused():
    numpyro = pytest.importorskip("numpyro")
    distributions = pytest.importorskip("numpyro.distributions")

    def model():
        rate = numpyro.sample("rate", distributions.Gamma(2.0, 1.0))
        numpyro.sample("count", distributions.Poisson(rate))

    with pytest.raises(ValueError, match=r"latent sites must be continuous.*'count'.*by hand"):
        from_numpyro(model)


class StanStandIn:
    """What BridgeStan documents of a model: scale > 0 and a matrix of shape (2, 3)."""

    def param_unc_num(self):
        return 7

    def param_names(self):
        # Stan counts from one, the first index fastest.
        return ["scale", *(f"m.{i}.{j}" for j in (1, 2, 3) for i in (1, 2))]

    def log_density(self, x):
        return -0.5 * float(x @ x)

    def log_density_gradient(self, x):
        return self.log_density(x), -x

    def param_constrain(self, x):
        return np.concatenate([np.exp(x[:1]), x[1:]])

    def param_unconstrain(self, values):
        return np.concatenate([np.log(values[:1]), values[1:]])


def test_stan_models_by_the_interface_of_bridgestan():
    target = from_bridgestan(StanStandIn())
    rows = np.random.default_rng(0).normal(size=(4, 7))
    np.testing.assert_allclose(target.grad_log_prob(rows), -rows)
    np.testing.assert_allclose(target.log_prob_unnormalized(rows), -0.5 * (rows**2).sum(axis=1))
    sites = target.to_sites(rows)
    assert sites["scale"].shape == (4,) and sites["m"].shape == (4, 2, 3)
    np.testing.assert_allclose(sites["m"][:, 1, 0], rows[:, 2])
    np.testing.assert_allclose(target.from_sites(sites), rows)
    with pytest.raises(TypeError, match=r"model must be a bridgestan\.StanModel"):
        from_bridgestan(object())


@pytest.mark.slow
def test_stan_models_compiled(tmp_path):
    bridgestan = pytest.importorskip("bridgestan")
    (tmp_path / "m.stan").write_text("parameters { real<lower=0> s; } model { s ~ normal(0, 1); }")
    try:
        model = bridgestan.StanModel(str(tmp_path / "m.stan"))
    except Exception as error:
        pytest.skip(f"BridgeStan cannot compile here: {error}")
    target = from_bridgestan(model)
    rows = np.array([[0.0], [0.5]])
    values = np.exp(rows)
    np.testing.assert_allclose(target.to_sites(rows)["s"], values[:, 0])
    np.testing.assert_allclose(target.grad_log_prob(rows), 1.0 - values**2, rtol=1e-8)


def test_pymc_models():
    pymc = pytest.importorskip("pymc")
    with pymc.Model() as model:
        scale = pymc.HalfNormal("scale", 2.0)
        x = pymc.Uniform("x", 0.0, scale, shape=2)
        pymc.Deterministic("total", x.sum())
        pymc.Normal("y", x.mean(), 1.0, observed=np.array([0.3, 0.9]))
    target = from_pymc(model)
    rows = np.random.default_rng(0).normal(size=(5, 3))
    slow = from_function(target.log_prob_unnormalized, finite_differences=True)
    np.testing.assert_allclose(target.grad_log_prob(rows), slow.grad_log_prob(rows), atol=1e-6)
    sites = target.to_sites(rows)
    np.testing.assert_allclose(sites["total"], sites["x"].sum(axis=1))
    assert (sites["x"] > 0).all() and (sites["x"] < sites["scale"][:, None]).all()
    np.testing.assert_allclose(target.from_sites(sites), rows, atol=1e-8)
    with pymc.Model() as counts:
        pymc.Poisson("n", 3.0)
    with pytest.raises(ValueError, match="free variables of a PyMC model must be continuous"):
        from_pymc(counts)
