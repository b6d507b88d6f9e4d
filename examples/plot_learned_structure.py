"""
Learning a circuit, and looking at what was learned
====================================================

Which pixels of handwritten digits depend on each other, and how well can that be modelled?
One Chow-Liu tree answers the first question and starts the answer to the second:
:class:`~skcircuits.StrudelDensity` splits its edges one by one, and
:class:`~skcircuits.HiddenChowLiuDensity` puts a hidden variable above each pixel.
"""

# %%
# Digits in black and white
# -------------------------
# Every pixel is on or off; a fifth of the images is held out.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skcircuits import ChowLiuDensity, HiddenChowLiuDensity, StrudelDensity

X = (load_digits().data > 7).astype(float)
train, test = train_test_split(X, test_size=0.2, random_state=0)

tree = ChowLiuDensity().fit(train)
hidden = HiddenChowLiuDensity(n_latent_states=8, random_state=0).fit(train)
strudel = StrudelDensity(max_iter=300, random_state=0).fit(train)
for density in (tree, strudel, hidden):
    print(f"{type(density).__name__:21s} {density.score(test):.2f} nats per image")

# %%
# The structure
# -------------
# Every line joins a pixel with its parent in the tree; most are neighbours along a stroke.
# Pixels that are hardly ever on hang anywhere, so their lines are left out. The colour says
# how often a pixel is on.


def draw_tree(axis, parents):
    share = train.mean(axis=0)
    axis.imshow(share.reshape(8, 8), cmap="Blues")
    for child, parent in enumerate(parents):
        if parent >= 0 and share[child] > 0.02:
            rows, columns = np.divmod([child, parent], 8)
            axis.plot(columns, rows, color="tab:red", linewidth=1.5)
    axis.set_axis_off()


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
draw_tree(left, tree.parents_[0])
left.set_title("Chow-Liu tree of the pixels")

# %%
# The curves
# ----------
# Each split of Strudel helps the training rows; the held-out rows decide when to stop. The
# hidden tree learns in passes over the rows.

right.plot(strudel.validation_scores_, label="Strudel, after each split")
passes = np.linspace(0, len(strudel.validation_scores_), len(hidden.validation_scores_))
right.plot(passes, hidden.validation_scores_, label="hidden tree, after each pass (rescaled)")
right.axhline(strudel.validation_scores_[0], color="gray", linestyle=":", label="Chow-Liu tree")
right.set(xlabel="splits", ylabel="log-likelihood of validation rows", title="Learning curves")
right.legend()
plt.show()

# %%
# What the model knows
# --------------------
# Half of an image is hidden. Strudel is deterministic, so the most probable completion is
# exact; the hidden tree gives the probability of every pixel.

holes = test[:6].copy()
holes[:, 32:] = np.nan
best = strudel.circuit_.mpe(holes)
expected = hidden.circuit_.expectation(holes)
figure, axes = plt.subplots(3, 6, figsize=(9, 4.5), layout="constrained")
for column, rows in enumerate(zip(test[:6], best, expected)):
    for axis, image in zip(axes[:, column], rows):
        axis.imshow(image.reshape(8, 8), cmap="Blues", vmin=0, vmax=1)
        axis.axhline(3.5, color="tab:red", linewidth=0.8)
        axis.set_axis_off()
for axis, title in zip(axes[:, 0], ["truth", "most probable (Strudel)", "expected (hidden tree)"]):
    axis.set_title(title, fontsize="small", loc="left")
plt.show()
