"""Numbers that scipy, scikit-learn, pgmpy and statsmodels compute by ways of their own.

Agreement was seen with scipy 1.17, scikit-learn 1.9, pgmpy 1.1 and statsmodels 0.15.
"""

import gzip
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.datasets import load_diabetes, load_wine
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import CategoricalNB
from sklearn.svm import SVR

from skcircuits import (
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    pool,
    pool_models,
)
from skcircuits.circuits import (
    Categorical,
    Circuit,
    FactorGaussian,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    Poisson,
    Product,
    Sum,
    entropy,
    kl_divergence,
)
from skcircuits.graphical import BayesianNetwork
from skcircuits.kernels import RBF, Laplacian, Polynomial, expected_kernel_matrix


@pytest.fixture(scope="module")
def wine():
    X = load_wine().data[:, :5]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def gaussians(mixture):
    """The circuit of a fitted mixture of scikit-learn."""
    units = [
        MultivariateGaussian(range(len(mean)), mean, covariance)
        for mean, covariance in zip(mixture.means_, mixture.covariances_)
    ]
    return Circuit(Sum(units, weights=mixture.weights_))


class TestScipy:
    def test_marginals_and_conditionals_of_a_gaussian(self, wine):
        mean, covariance = wine.mean(axis=0), np.cov(wine.T)
        circuit = Circuit(MultivariateGaussian(range(5), mean, covariance))
        incomplete = np.where(np.arange(5) % 2, np.nan, wine)
        kept = [0, 2, 4]
        seen = stats.multivariate_normal(mean[kept], covariance[np.ix_(kept, kept)])
        assert_allclose(circuit.log_prob(incomplete), seen.logpdf(wine[:, kept]), rtol=1e-10)
        assert entropy(circuit) == pytest.approx(
            stats.multivariate_normal(mean, covariance).entropy(), rel=1e-12
        )

    def test_boxes_of_a_gaussian(self, wine):
        mean, covariance = wine.mean(axis=0)[:3], np.cov(wine.T)[:3, :3]
        circuit = Circuit(MultivariateGaussian(range(3), mean, covariance))
        lower, upper = np.array([-1.0, -np.inf, 0.0]), np.array([0.5, 1.0, 2.0])
        expected = stats.multivariate_normal(mean, covariance, abseps=1e-9, releps=1e-9).cdf(
            upper, lower_limit=lower, rng=0
        )
        found = np.exp(circuit.log_prob_box(lower[None], upper[None]))[0]
        assert found == pytest.approx(expected, rel=1e-5)

    def test_counts_and_numbers(self):
        counts = np.arange(40.0)[:, None]
        assert_allclose(
            Circuit(Poisson(0, 7.5)).log_prob(counts), stats.poisson(7.5).logpmf(counts[:, 0])
        )
        far = np.array([[-300.0], [0.0], [1e-3], [40.0]])
        normal = Circuit(Gaussian(0, 0.3, 2.0))
        assert_allclose(normal.log_prob(far), stats.norm(0.3, 2.0).logpdf(far[:, 0]))
        tails = normal.log_prob_box(far, np.full((4, 1), np.inf))
        assert_allclose(tails, stats.norm(0.3, 2.0).logsf(far[:, 0]), rtol=1e-10, atol=1e-15)

    def test_divergences_of_categories(self):
        p, q = np.random.default_rng(0).dirichlet(np.ones(6), size=2)
        own, other = Circuit(Categorical(0, p)), Circuit(Categorical(0, q))
        assert entropy(own) == pytest.approx(stats.entropy(p), rel=1e-12)
        assert kl_divergence(own, other) == pytest.approx(stats.entropy(p, q), rel=1e-10)


class TestScikitLearn:
    def test_mixtures_score_alike_and_share_out_rows_alike(self, wine):
        mixture = GaussianMixture(3, random_state=0).fit(wine)
        circuit = gaussians(mixture)
        assert_allclose(circuit.log_prob(wine), mixture.score_samples(wine), rtol=1e-10)
        labels = [Indicator(5, k, 3) for k in range(3)]
        products = [Product([a, b]) for a, b in zip(circuit.root.children, labels)]
        labelled = Circuit(Sum(products, weights=mixture.weights_))
        rows = np.column_stack([wine, np.full(len(wine), np.nan)])
        assert_allclose(labelled.marginals(rows)[5], mixture.predict_proba(wine), atol=1e-12)

    @pytest.mark.parametrize("kind", ["full", "diag", "tied"])
    def test_a_learned_mixture_scores_as_one_with_its_parameters(self, wine, kind):
        density = GaussianMixtureDensity(
            n_components=3, covariance_type=kind, location_model=False, random_state=0
        ).fit(wine)
        twin = GaussianMixture(3)
        twin.weights_, twin.means_ = density.weights_, density.means_
        covariances = density.covariances_
        if kind == "diag":
            covariances = covariances[:, :, None] * np.eye(5)
        twin.covariances_ = np.broadcast_to(covariances, (3, 5, 5))
        twin.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(twin.covariances_))
        assert_allclose(density.score_samples(wine), twin.score_samples(wine), rtol=1e-9)

    @pytest.mark.parametrize(
        "model", [FactorAnalysis(2, max_iter=5000), PCA(2)], ids=["factors", "pca"]
    )
    def test_factors_score_alike(self, wine, model):
        model.fit(wine)
        if isinstance(model, PCA):
            noise = np.full(5, model.noise_variance_)
            spread = np.sqrt(model.explained_variance_ - model.noise_variance_)
            loadings = model.components_.T * spread
        else:
            loadings, noise = model.components_.T, model.noise_variance_
        circuit = Circuit(FactorGaussian(range(5), model.mean_, loadings, noise))
        assert_allclose(circuit.log_prob(wine), model.score_samples(wine), rtol=1e-10)

    def test_naive_bayes_is_a_circuit(self):
        rng = np.random.default_rng(0)
        X, y = rng.integers(3, size=(200, 4)), rng.integers(2, size=200)
        model = CategoricalNB(alpha=0.7, min_categories=3).fit(X, y)
        terms = [
            Product(
                [
                    Indicator(4, label, 2),
                    *(Categorical(j, np.exp(model.feature_log_prob_[j][label])) for j in range(4)),
                ]
            )
            for label in range(2)
        ]
        circuit = Circuit(Sum(terms, weights=np.exp(model.class_log_prior_)))
        rows = np.column_stack([X, np.full(200, np.nan)])
        assert_allclose(circuit.marginals(rows)[4], model.predict_proba(X), rtol=1e-10)

    def test_kernels_of_complete_rows(self, wine):
        circuit = Circuit(MultivariateGaussian(range(5), np.zeros(5), np.eye(5)))
        pairs = [
            (RBF(gamma=0.3), rbf_kernel(wine, gamma=0.3)),
            (Laplacian(gamma=0.3), laplacian_kernel(wine, gamma=0.3)),
            (Polynomial(3, c=0.5), polynomial_kernel(wine, degree=3, gamma=1.0, coef0=0.5)),
        ]
        for kernel, expected in pairs:
            assert_allclose(
                expected_kernel_matrix(wine, circuit=circuit, kernel=kernel), expected, rtol=1e-9
            )

    @pytest.mark.parametrize("gamma", ["scale", "auto", 0.05])
    def test_support_vectors_of_complete_rows(self, gamma):
        X, y = load_diabetes(return_X_y=True)
        X, y = X[:200] * 20, y[:200]
        peer = SVR(C=50.0, gamma=gamma).fit(X, y)
        density = GaussianMixtureDensity(n_components=1)
        model = ExpectedPredictionSVR(C=50.0, gamma=gamma, density=density).fit(X, y)
        assert_allclose(model.predict(X), peer.predict(X), rtol=1e-9)
        np.testing.assert_array_equal(model.support_, peer.support_)


NETWORKS = ["asia", "cancer", "earthquake", "survey", "sachs", "child", "alarm", "insurance"]


@pytest.mark.slow  # pgmpy takes long to import
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_marginals_of_networks_that_pgmpy_ships(name, tmp_path):
    pgmpy = pytest.importorskip("pgmpy")
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    packed = Path(pgmpy.__file__).parent / "utils" / "example_models" / f"{name}.bif.gz"
    path = tmp_path / f"{name}.bif"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    network = BayesianNetwork.from_bif(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = BIFReader(str(path)).get_model()
        inference = VariableElimination(peer)
    row = network.sample(1, random_state=0)[0].astype(int)
    names = list(network.variable_names)
    rng = np.random.default_rng(0)
    for n_observed in (0, 2, 4):
        seen = rng.choice(len(names), n_observed, replace=False).tolist()
        hidden = [v for v in range(len(names)) if v not in seen][:8]
        evidence = {names[v]: network.state_names[v][row[v]] for v in seen}
        found = network.marginals({v: int(row[v]) for v in seen})
        for v in hidden:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table = inference.query([names[v]], evidence, show_progress=False)
            states = [table.state_names[names[v]].index(s) for s in network.state_names[v]]
            # Tables in the files sum to one up to their last digit
            assert_allclose(found[v], table.values[states], rtol=1e-6, atol=1e-12)


def regression_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 3)), columns=["y", "a", "b"])
    frame["b"] += frame["a"]
    frame["y"] += frame["a"] - 0.5 * frame["b"]
    frame["a"] = frame["a"].mask(rng.random(150) < 0.3)
    return frame


class TestStatsmodels:
    def test_pooled_regressions(self):
        mice = pytest.importorskip("statsmodels.imputation.mice")
        import statsmodels.api as sm

        np.random.seed(0)  # noqa: NPY002  its imputations draw from the global generator
        imputation = mice.MICE("y ~ a + b", sm.OLS, mice.MICEData(regression_table()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = imputation.fit(2, 8)
        pooled = pool(
            [one.params for one in imputation.results_list],
            [np.diag(one.cov_params()) for one in imputation.results_list],
        )
        assert_allclose(pooled.estimate, peer.params, rtol=1e-10)
        assert_allclose(pooled.standard_error, peer.bse, rtol=1e-10)
        assert_allclose(pooled.within + 9 / 8 * pooled.between, peer.bse**2, rtol=1e-10)

    def test_standard_errors_of_complete_tables(self):
        sm = pytest.importorskip("statsmodels.api")
        frame = regression_table().dropna()
        X, y = frame[["a", "b"]], frame["y"]
        design = sm.add_constant(X)
        models = [(LinearRegression(), y, sm.OLS), (LogisticRegression(C=np.inf), y > 0, sm.Logit)]
        for model, target, peer in models:
            other = peer(target.astype(float), design)
            other = other.fit() if peer is sm.OLS else other.fit(disp=0)
            if isinstance(model, LogisticRegression):
                model.set_params(tol=1e-10, max_iter=1000)
            pooled = pool_models([model.fit(X, target)] * 2, [X, X], target)
            assert_allclose(pooled.estimate, other.params, rtol=1e-5)
            assert_allclose(pooled.standard_error, other.bse, rtol=1e-5)
