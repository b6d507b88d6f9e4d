"""Random questions about mixed tables: texts, dicts and objects agree with the rows themselves."""

import numpy as np
import pandas as pd
import pytest

from skcircuits import col
from skcircuits.tabular import TableSchema, compile_queries


def make_table(rng):
    n = 200
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], n), ["S", "M", "L"], ordered=True)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 30, n),
            "wage": np.round(rng.normal(0, 2, n), 1),
            "job": rng.choice(["cook", "nurse", "smith"], n),
            "size": sizes,
            "member": rng.random(n) < 0.5,
            "capital gain": rng.normal(size=n),
        }
    )


def comparison(rng, table):
    """A text, the object that means the same, and the rows that satisfy it."""
    kind = rng.integers(7)
    if kind < 3:
        name = ("age", "wage", "capital gain")[kind]
        shown, op = f"`{name}`", str(rng.choice(["<", "<=", ">", ">=", "==", "!="]))
        value = float(rng.choice(table[name]))
        compared = {
            "<": (col(name) < value, table[name] < value),
            "<=": (col(name) <= value, table[name] <= value),
            ">": (col(name) > value, table[name] > value),
            ">=": (col(name) >= value, table[name] >= value),
            "==": (col(name) == value, table[name] == value),
            "!=": (col(name) != value, table[name] != value),
        }
        return f"{shown} {op} {value!r}", *compared[op]
    if kind == 3:
        values = rng.choice(table["age"], 4).tolist()
        return f"age in {tuple(values)}", col("age").isin(values), table["age"].isin(values)
    if kind == 4:
        low, high = sorted(rng.choice(table["wage"], 2).tolist())
        inside = table["wage"].between(low, high, inclusive="left")
        return f"wage in [{low}, {high})", col("wage").between(low, high, "left"), inside
    if kind == 5:
        jobs = rng.choice(["cook", "nurse", "smith"], 2).tolist()
        return f"job in {jobs}", col("job").isin(jobs), table["job"].isin(jobs)
    size = str(rng.choice(["S", "M", "L"]))
    return (
        f"size >= '{size}' & member",
        (col("size") >= size) & col("member"),
        ((table["size"] >= size) & table["member"]),
    )


def question(rng, table, depth):
    """A random formula of comparisons, in all three ways."""
    if depth == 0:
        return comparison(rng, table)
    left, right = (question(rng, table, depth - 1) for _ in range(2))
    kind = rng.integers(3)
    if kind == 0:
        return f"not ({left[0]})", ~left[1], ~left[2]
    if kind == 1:
        return f"({left[0]}) and ({right[0]})", left[1] & right[1], left[2] & right[2]
    return f"({left[0]}) | ({right[0]})", left[1] | right[1], left[2] | right[2]


def n_boxes_around(boxes, X):
    """Number of boxes that hold each row, (n_queries, n)."""
    counts = np.zeros((boxes.n_queries, len(X)), dtype=int)
    for i, query in enumerate(boxes.query):
        inside = ~((boxes.lower[i] > X) | (boxes.upper[i] < X)).any(axis=1)
        for j, allowed in boxes.states.items():
            inside &= allowed[i][X[:, j].astype(int)]
        counts[query] += inside
    return counts


def check(seed, n_questions):
    rng = np.random.default_rng(seed)
    table = make_table(rng)
    schema = TableSchema.learn(table)
    X = schema.encode(table)
    asked = [question(rng, table, int(rng.integers(4))) for _ in range(n_questions)]
    expected = np.stack([inside.to_numpy() for _, _, inside in asked]).astype(int)
    for form in (0, 1):
        boxes = compile_queries([one[form] for one in asked], schema)
        # Boxes are disjoint: a row in two of them would count twice
        np.testing.assert_array_equal(n_boxes_around(boxes, X), expected)


@pytest.mark.parametrize("seed", range(5))
def test_texts_and_objects_mean_what_rows_say(seed):
    check(seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 25))
def test_many_texts_and_objects_mean_what_rows_say(seed):
    check(seed, 500)


@pytest.mark.parametrize("seed", range(5))
def test_dicts_mean_what_texts_say(seed):
    rng = np.random.default_rng(seed)
    table = make_table(rng)
    schema = TableSchema.learn(table)
    X = schema.encode(table)
    for _ in range(40):
        low, high = sorted(rng.choice(table["wage"], 2).tolist())
        ages, jobs = rng.choice(table["age"], 3).tolist(), rng.choice(["cook", "nurse"], 2).tolist()
        as_dict = {"wage": (low, high), "age": set(ages), "job": jobs, "member": True}
        text = (
            f"{low} <= wage <= {high} and age in {tuple(ages)} and job in {tuple(jobs)} and member"
        )
        found = n_boxes_around(compile_queries([as_dict, text], schema), X)
        np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "int64[pyarrow]", "double[pyarrow]"])
def test_nullable_numbers_with_missing_values(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    table = pd.DataFrame({"n": pd.Series([1, 2, None, 4], dtype=dtype)})
    schema = TableSchema.learn(table)
    np.testing.assert_array_equal(schema.encode(table)[:, 0], [1, 2, np.nan, 4])
    assert schema.decode(schema.encode(table)).dtypes["n"] == table.dtypes["n"]
    assert len(compile_queries(["n >= 2 and n != 4"], schema)) == 2


@pytest.mark.parametrize("dtype", ["string", "string[pyarrow]", "boolean", "category"])
def test_nullable_categories_with_missing_values(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    cells = [True, False, None] if dtype == "boolean" else ["b", "a", None]
    table = pd.DataFrame({"c": pd.Series(cells, dtype=dtype)})
    schema = TableSchema.learn(table)
    np.testing.assert_array_equal(schema.encode(table)[:, 0], [1, 0, np.nan])
    assert schema.is_categorical.tolist() == [True]
