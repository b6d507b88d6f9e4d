"""Speed of questions to densities: conditions in one pass, draws under rare conditions, counts.

(a) a thousand expectations, each under its own condition of five atoms, as a table of bounds and
as texts; (b) draws under a rare condition beside plain draws; (c) how many of thirty columns of
plants are true, under a latent tree; (d) comparisons of two skewed columns under one and under 192
transformed components; (e) a hundred thousand values in one set. Processor seconds::

    OMP_NUM_THREADS=1 python -m benchmarks.conditions
"""

import numpy as np
import pandas as pd
from _data import data_path
from _timing import warm_seconds

from skcircuits import GaussianMixtureDensity, HiddenChowLiuDensity, WMISPNDensity
from skcircuits.tabular import TableSchema, compile_queries

_N_ROWS = 1500
_N_CONDITIONS = 1000
_N_DRAWS = 100_000


def mixed_table(rng):
    """Integers, two dependent numbers, a category and an ordered one."""
    job = rng.choice(["cook", "nurse", "pilot"], _N_ROWS, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=_N_ROWS) + (job == "nurse") * 2
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], _N_ROWS), ["S", "M", "L"], ordered=True)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, _N_ROWS),
            "x": x,
            "y": 0.7 * x + rng.normal(size=_N_ROWS) * 0.5,
            "job": job,
            "size": sizes,
        }
    )


def conditions(rng):
    """The same conditions as a table and as texts."""
    low, age = rng.normal(size=_N_CONDITIONS) - 1, rng.integers(20, 40, _N_CONDITIONS)
    table = pd.DataFrame(
        {
            "age": [(a, None) for a in age],
            "x": [(b, None) for b in low],
            "y": [(None, b + 3) for b in low],
            "job": [{"cook", "nurse"}] * _N_CONDITIONS,
            "size": [{"M", "L"}] * _N_CONDITIONS,
        }
    )
    texts = [
        f"age >= {a} and x >= {b!r} and y <= {b + 3!r} and job != 'pilot' and size >= 'M'"
        for a, b in zip(age.tolist(), low.tolist())
    ]
    return table, texts


def main():
    """Print one line per question."""
    rng = np.random.default_rng(0)
    table = mixed_table(rng)
    as_table, as_texts = conditions(rng)
    densities = {
        "WMISPNDensity": WMISPNDensity(),
        "GaussianMixtureDensity(5, diag)": GaussianMixtureDensity(
            n_components=5, covariance_type="diag", random_state=0
        ),
        "HiddenChowLiuDensity(16)": HiddenChowLiuDensity(
            n_latent_states=16, max_iter=3, random_state=0
        ),
    }
    for name, density in densities.items():
        density.fit(table)
        for form, given in (("table", as_table), ("texts", as_texts)):
            taken = warm_seconds(lambda d=density, g=given: d.expectation(g, columns=["x", "y"]))
            print(f"{name}: {_N_CONDITIONS} expectations under a {form}: {taken:.3f} s")
        rare = "x > 4.3 and y < 1 and age < 22"
        plain = warm_seconds(lambda d=density: d.sample(_N_DRAWS, random_state=0), 1)
        given = warm_seconds(lambda d=density: d.sample(_N_DRAWS, random_state=0, given=rare), 1)
        print(
            f"{name}: {_N_DRAWS} draws under probability {density.probability(rare):.1e}: "
            f"{given:.2f} s, {given / plain:.1f} x plain draws"
        )
    X = np.load(data_path("twenty", "plants.npz"))["train"]
    tree = HiddenChowLiuDensity(n_latent_states=16, max_iter=2, random_state=0).fit(X[:2000])
    counted = f"count({', '.join(f'x{j} == 1' for j in range(30))}) >= 5"
    taken = warm_seconds(lambda: tree.probability(counted))
    print(f"count over 30 columns of plants: {1e3 * taken:.1f} ms")
    skewed = pd.DataFrame(np.exp(rng.normal(size=(3000, 4)) @ rng.normal(size=(4, 4)) / 2.0))
    skewed.columns = list("abcd")
    for n_components, pool in ((1, 1), (32, 6)):
        density = GaussianMixtureDensity(
            n_components=n_components,
            covariance_type="shrunk",
            transformation="johnson",
            pool=pool,
            max_iter=10,
            random_state=0,
        ).fit(skewed)
        for text in ("a < b", "a + 2 * c > 3"):
            taken = warm_seconds(lambda d=density, t=text: d.probability(t))
            print(f"{text}, {n_components * pool} transformed components: {1e3 * taken:.1f} ms")
    schema = TableSchema.learn(rng.normal(size=(5, 3)))
    text = f"x0 in {tuple(rng.normal(size=100_000).tolist())}"
    print(f"100,000 values in a set: {warm_seconds(lambda: compile_queries([text], schema)):.2f} s")


if __name__ == "__main__":
    main()
