"""
Learning and inspecting the structure of a circuit
==================================================

Which pixels of handwritten digits depend on each other, and how well can these dependences be
modelled? A Chow-Liu tree answers the first question. It is also the starting point of two models:
:class:`~skcircuits.StrudelDensity` splits its edges one by one, and
:class:`~skcircuits.HiddenChowLiuDensity` adds a latent variable for each pixel.
"""

# %%
# Digits in black and white
# -------------------------
# Every pixel is on or off, and a fifth of the images is held out.

# sphinx_gallery_thumbnail_number = 3
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, StrudelDensity

X = (load_digits().data > 7).astype(float)
train, test = train_test_split(X, test_size=0.2, random_state=0)

tree = ChowLiuDensity().fit(train)
latent = HiddenChowLiuDensity(n_latent_states=8, random_state=0).fit(train)
strudel = StrudelDensity(max_iter=300, random_state=0).fit(train)
for density in (tree, strudel, latent):
    print(f"{type(density).__name__:21s} {density.score(test):.2f} nats per image")

# %%
# The structure
# -------------
# Every line connects a pixel with its parent in the tree; most are neighbours along a stroke. The
# lines of pixels that are hardly ever on are left out, because their parents are arbitrary. The
# colour shows how often a pixel is on.


def draw_tree(axis, parents):
    fraction_on = train.mean(axis=0)
    axis.imshow(fraction_on.reshape(8, 8), cmap="Blues")
    for child, parent in enumerate(parents):
        if parent >= 0 and fraction_on[child] > 0.02:
            rows, columns = np.divmod([child, parent], 8)
            axis.plot(columns, rows, color="C1", linewidth=1.5)
    axis.set_axis_off()


figure, axis = plt.subplots(figsize=(5, 4.5), layout="constrained")
draw_tree(axis, tree.parents_[0])
axis.set_title("Chow-Liu tree of the pixels")
plt.show()

# %%
# Learning curves
# ---------------
# Each split of Strudel increases the likelihood of the training rows; the held-out rows determine
# when it stops. The latent tree is learned in passes over the rows.

figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
axis.plot(strudel.validation_scores_, label="Strudel, after each split")
passes = np.linspace(0, len(strudel.validation_scores_), len(latent.validation_scores_))
axis.plot(passes, latent.validation_scores_, label="latent tree, after each pass (rescaled)")
axis.axhline(strudel.validation_scores_[0], color="gray", linestyle=":", label="Chow-Liu tree")
axis.set(xlabel="splits", ylabel="log-likelihood of validation rows", title="Learning curves")
axis.legend()
plt.show()

# %%
# Completion of images
# --------------------
# Half of an image is hidden. As Strudel is deterministic, the most probable completion is exact;
# the latent tree gives the probability of every pixel.

upper_half = test[:6].copy()
upper_half[:, 32:] = np.nan
best = strudel.circuit_.mpe(upper_half)
expected = latent.circuit_.expectation(upper_half)
figure, axes = plt.subplots(3, 6, figsize=(9, 4.5), layout="constrained")
for column, rows in enumerate(zip(test[:6], best, expected)):
    for axis, image in zip(axes[:, column], rows):
        axis.imshow(image.reshape(8, 8), cmap="Blues", vmin=0, vmax=1)
        axis.axhline(3.5, color="C1", linewidth=0.8)
        axis.set_axis_off()
for axis, title in zip(axes[:, 0], ["truth", "most probable (Strudel)", "expected (latent tree)"]):
    axis.set_title(title, fontsize="small", loc="left")
plt.show()
