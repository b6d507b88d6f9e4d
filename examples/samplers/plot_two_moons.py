"""
Particles on two moons
======================

Any density with a gradient can be a target; it is a class with a method ``grad_log_prob``. In this
example, the density has the shape of two crescents, and particles start in a small cloud between
them.
"""

# %%
# The target
# ----------
# A ring with high density on two sides; log density and gradient take a few lines.

import matplotlib.pyplot as plt
import numpy as np

from skcircuits import GraphicalSVGDSampler


class TwoMoons:
    """Density on a ring of radius 2, concentrated at the left and at the right."""

    def log_density(self, X):
        radius = np.linalg.norm(X, axis=-1)
        sides = np.logaddexp(
            -(((X[..., 0] - 2) / 0.8) ** 2) / 2, -(((X[..., 0] + 2) / 0.8) ** 2) / 2
        )
        return -(((radius - 2) / 0.3) ** 2) / 2 + sides

    def grad_log_prob(self, X):
        radius = np.linalg.norm(X, axis=1, keepdims=True)
        gradient = -(radius - 2) / 0.3**2 * X / radius
        right = 1 / (1 + np.exp(-4 * X[:, 0] / 0.8**2))  # how much the right side counts
        gradient[:, 0] -= (X[:, 0] - 2 * (2 * right - 1)) / 0.8**2
        return gradient


# %%
# Movement of the particles
# -------------------------

target = TwoMoons()
start = 0.3 * np.random.default_rng(0).normal(size=(150, 2)) + [0.0, 1.0]
clouds = {"start": start}
for n_iter in (30, 1000):
    sampler = GraphicalSVGDSampler(
        target=target, n_particles=150, kernel="global", max_iter=n_iter, tol=0.0, random_state=0
    )
    clouds[f"{n_iter} iterations"] = sampler.fit(start).particles_

side = np.linspace(-3.2, 3.2, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, (title, cloud) in zip(axes, clouds.items()):
    contours = ax.contourf(side, side, np.exp(target.log_density(grid)), levels=8, cmap="Blues")
    ax.scatter(*cloud.T, s=8, color="C1")
    ax.set(title=title, xlabel="x0", aspect="equal", xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
axes[0].set_ylabel("x1")
figure.colorbar(contours, ax=axes, label="unnormalised density", shrink=0.8)
plt.show()
