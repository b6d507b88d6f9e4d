"""Random questions in three forms, against sums over the cells that all their constants leave.

Every atom is constant on a cell of the grid of constants, so that a formula evaluated in plain
Python at one point of each cell tells which cells it holds in.
"""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest

from skcircuits import (
    ChowLiuDensity,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    StrudelDensity,
    WMISPNDensity,
    col,
)

NUMBERS = [-1.0, -0.25, 0.5, 1.5]
INTEGERS = list(range(-2, 12))
SIZES = ["S", "M", "L"]
JOBS = ["cook", "nurse", "pilot"]
OPERATORS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def table(numbers=True):
    rng = np.random.default_rng(0)
    n = 500
    job = rng.choice(JOBS, n, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=n) + (job == "nurse")
    found = pd.DataFrame({"job": job, "member": rng.random(n) < 0.4})
    found["size"] = pd.Categorical(rng.choice(SIZES, n), SIZES, ordered=True)
    found["age"] = rng.poisson(3, n).clip(0, 9) + (job == "cook")
    if numbers:
        found["x"], found["y"] = x, 0.7 * x + 0.5 * rng.normal(size=n)
    return found


DENSITIES = {
    "chow_liu": (ChowLiuDensity(), False),
    "strudel": (StrudelDensity(max_iter=5, random_state=0), False),
    "diag": (
        GaussianMixtureDensity(n_components=3, covariance_type="diag", random_state=0), True
    ),
    "polynomials": (WMISPNDensity(), True),
    "latent_tree": (HiddenChowLiuDensity(n_latent_states=3, max_iter=3, random_state=0), True),
}  # fmt: skip


class Grid:
    """One row in each cell, and the probability of the cell."""

    def __init__(self, density, has_numbers):
        ends = [None, *NUMBERS, None]
        intervals = [({"x": pair}, {"y": pair}, _inside(pair)) for pair in pairwise(ends)]
        ages = [(i, i) for i in INTEGERS] + [((None, -3), -3), ((12, None), 12)]
        sides = [JOBS, [False, True], SIZES, ages]
        sides += [intervals, intervals] if has_numbers else []
        rows, cells = [], []
        for job, member, size, (age, at), *xy in product(*sides):
            row = {"job": job, "member": member, "size": size, "age": at}
            cell = {"job": job, "member": member, "size": size, "age": age}
            if xy:
                row |= {"x": xy[0][2], "y": xy[1][2]}
                cell |= xy[0][0] | xy[1][1]
            rows.append(row)
            cells.append(cell)
        self.rows = pd.DataFrame(rows)
        self.mass = density.probabilities(cells)

    def probability(self, inside):
        return self.mass[inside].sum()


def _inside(pair):
    low, high = pair
    if low is None:
        return high - 1.0
    return low + 1.0 if high is None else (low + high) / 2.0


def atom(rng, has_numbers):
    """An atom as text, as object, and as a function of a table."""
    kind = rng.choice(["job", "member", "size", "age", "x", "y"] if has_numbers else
                      ["job", "member", "size", "age"])  # fmt: skip
    if kind in ("x", "y", "age"):
        values = NUMBERS if kind != "age" else INTEGERS
        if rng.random() < 0.3:
            low, high = sorted(rng.choice(values, 2).tolist())
            return (
                f"{low!r} <= {kind} <= {high!r}",
                col(kind).between(low, high),
                lambda rows: rows[kind].between(low, high),
            )
        if kind == "age" and rng.random() < 0.3:
            chosen = rng.choice(INTEGERS, 3).tolist()
            return (
                f"age in {tuple(chosen)}", col("age").isin(chosen),
                lambda rows: rows["age"].isin(chosen),
            )  # fmt: skip
        op, value = str(rng.choice(list(OPERATORS)[: 4 if kind != "age" else 6])), None
        value = rng.choice(values).item()
    elif kind == "member":
        op, value = "==", bool(rng.random() < 0.5)
    elif kind == "size":
        op, value = str(rng.choice(list(OPERATORS))), str(rng.choice(SIZES))
    else:
        op, value = str(rng.choice(["==", "!="])), str(rng.choice(JOBS))
    compare = OPERATORS[op]
    if kind == "size":
        return (
            f"size {op} {value!r}", compare(col("size"), value),
            lambda rows: compare(rows["size"].map(SIZES.index), SIZES.index(value)),
        )  # fmt: skip
    return (
        f"{kind} {op} {value!r}", compare(col(kind), value),
        lambda rows: compare(rows[kind], value),
    )  # fmt: skip


def question(rng, has_numbers, depth=3):
    """A formula as text, as object, and as a function of a table."""
    kind = rng.choice(["atom", "and", "or", "not"], p=[0.25, 0.3, 0.3, 0.15])
    if depth == 0 or kind == "atom":
        return atom(rng, has_numbers)
    if kind == "not":
        text, query, holds = question(rng, has_numbers, depth - 1)
        return f"not ({text})", ~query, lambda rows: ~holds(rows)
    parts = [question(rng, has_numbers, depth - 1) for _ in range(rng.integers(2, 4))]
    text = f" {kind} ".join(f"({text})" for text, _, _ in parts)
    query = parts[0][1]
    for _, other, _ in parts[1:]:
        query = query & other if kind == "and" else query | other
    combine = np.logical_and.reduce if kind == "and" else np.logical_or.reduce
    return text, query, lambda rows: combine([holds(rows) for _, _, holds in parts])


def mapping(rng, has_numbers):
    """A question that a mapping says, as mapping and as text."""
    cell, words = {}, []
    if rng.random() < 0.6:
        cell["job"] = set(rng.choice(JOBS, 2).tolist())
        words.append(f"job in {tuple(cell['job'])}")
    if rng.random() < 0.6 or not cell:
        low, high = sorted(rng.choice(INTEGERS, 2).tolist())
        cell["age"] = (low, high)
        words.append(f"{low} <= age <= {high}")
    if has_numbers and rng.random() < 0.6:
        low = rng.choice(NUMBERS).item()
        cell["x"] = (low, None)
        words.append(f"x >= {low!r}")
    return cell, " and ".join(words)


def check_questions(name, n_questions, seed=0):
    prototype, has_numbers = DENSITIES[name]
    density = prototype.fit(table(has_numbers))
    grid = Grid(density, has_numbers)
    assert grid.mass.sum() == pytest.approx(1.0, abs=1e-9)
    rng = np.random.default_rng([seed, *name.encode()])
    asked = [question(rng, has_numbers) for _ in range(n_questions)]
    texts, objects, holds = zip(*asked)
    expected = np.array([grid.probability(one(grid.rows)) for one in holds])
    np.testing.assert_allclose(density.probabilities(texts), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(density.probabilities(objects), expected, rtol=1e-8, atol=1e-9)
    # Each question under the one before it
    for place in range(1, n_questions, 7):
        given = np.asarray(holds[place - 1](grid.rows), dtype=bool)
        total = grid.probability(given)
        if total > 1e-9:
            both = grid.probability(given & np.asarray(holds[place](grid.rows), dtype=bool))
            found = density.probability(texts[place], given=objects[place - 1])
            assert found == pytest.approx(both / total, rel=1e-6, abs=1e-9), texts[place]
    mappings = [mapping(rng, has_numbers) for _ in range(n_questions // 4)]
    cells, words = zip(*mappings)
    np.testing.assert_allclose(density.probabilities(cells), density.probabilities(words))


@pytest.mark.parametrize("name", ["chow_liu", "diag"])
def test_a_few_questions(name):
    check_questions(name, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_questions(name, seed):
    check_questions(name, 500, seed + 1)
