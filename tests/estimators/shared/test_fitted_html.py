"""Densities in notebooks."""

import numpy as np
import pandas as pd
import pytest

from skcircuits import (
    AutomaticDensity,
    ChowLiuDensity,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    MoATDensity,
    StrudelDensity,
    WMISPNDensity,
)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "height <cm>": rng.normal(170.0, 9.0, 60),
            "children": rng.integers(0, 4, 60),
            "job": pd.Categorical(rng.choice(["cook", "nurse"], 60)),
        }
    )


@pytest.mark.parametrize(
    "density",
    [
        ChowLiuDensity(),
        GaussianMixtureDensity(n_components=2, random_state=0),
        HiddenChowLiuDensity(n_latent_states=2, random_state=0),
        MoATDensity(max_iter=2, random_state=0),
        StrudelDensity(max_iter=2, random_state=0),
        WMISPNDensity(),
        AutomaticDensity(families=["wmispn"], random_state=0),
    ],
    ids=lambda density: type(density).__name__,
)
def test_columns_types_and_sizes_are_shown(density, people):
    assert "Fitted to" not in density._repr_html_()
    html = density.fit(people)._repr_html_()
    assert "Fitted to 3 columns" in html
    assert "<td>height &lt;cm&gt;</td><td>number</td>" in html
    assert "<td>children</td><td>integer</td>" in html
    assert "<td>job</td><td>category of 2: cook, nurse</td>" in html
    if hasattr(density, "circuit_"):
        assert f"{density.circuit_.n_parameters} parameters" in html
    if isinstance(density, GaussianMixtureDensity):
        assert "2 components" in html
        assert f"training rows: {density.lower_bound_:.4g} nats per row" in html
    if isinstance(density, HiddenChowLiuDensity | MoATDensity):
        assert f"held-out rows: {max(density.validation_scores_):.4g} nats per row" in html
    if hasattr(density, "log_likelihood_"):
        assert density.log_likelihood_ == pytest.approx(density.score(people))
        assert f"training rows: {density.log_likelihood_:.4g} nats per row" in html
