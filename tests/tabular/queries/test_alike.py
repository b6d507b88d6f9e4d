"""Texts that differ in numbers alone, read together: the same boxes as one by one."""

import numpy as np
import pandas as pd
import pytest

from skcircuits.tabular import TableSchema, compile_queries
from skcircuits.tabular._columns import INTEGERS, NUMBERS
from skcircuits.tabular.queries import _conditions
from skcircuits.tabular.queries._conditions import read_conditions

TEMPLATES = {
    "x > {}": True,
    "x >= {} and x < {} and k <= {}": True,
    "{} <= k < {} and {} > x and job != 'cook'": True,
    "-{} < x and x <= +{} & `x y` == - {}": True,
    "x between {} and {} and (k > {} and (job in ('cook', 'x1') or member))": True,
    "x in [{}, {}) and k in ({}, {}]": True,
    "k == {} and size >= 'M'": True,
    "x > {} and job == 'x1' and not member": True,
    "x > {} and x + k < x": True,
    "x > {} or k < {}": False,
    "not x > {}": False,
    "x != {}": False,
    "2 * x > {}": False,
    "x + k < {}": False,
    "x in ({}, {}, 1)": False,
    "abs(x) < {}": False,
    "code > {} and x > {}": False,
    "`x 2` > {}": False,
    "job != 'item {}' and x > {}": False,
    "day > '2020-01-0{}'": False,
    "count(x > {}, member) == 1": False,
}


@pytest.fixture(scope="module")
def schema():
    rng = np.random.default_rng(0)
    n = 60
    table = pd.DataFrame(
        {"x": rng.normal(size=n), "x y": rng.normal(size=n), "x 2": rng.normal(size=n)}
    )
    table["k"] = rng.integers(0, 30, n)
    items = [f"item {i}" for i in range(10)]
    table["job"] = rng.permutation(["cook", "x1", *items] * 5)
    table["member"] = rng.random(n) < 0.5
    table["size"] = pd.Categorical(rng.choice(list("SML"), n), list("SML"), ordered=True)
    table["code"] = pd.Categorical(rng.permutation(list(range(10)) * 6))
    table["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 30, n), "D")
    return TableSchema.learn(table)


def number(rng, template):
    if any(word in template for word in ("item", "day", "code")):
        return str(rng.integers(1, 9))
    styles = ["{:d}", "{:.3f}", "{:.2e}", "{:d}.", "1_{:d}"]
    style = styles[rng.integers(len(styles))]
    return style.format(int(rng.integers(0, 9)) if "d" in style else rng.random() * 9)


def same(one, two, is_integral):
    grids = np.where(is_integral, INTEGERS, NUMBERS)
    one, two = one.around_numbers(grids), two.around_numbers(grids)
    for name in ("lower", "upper", "query"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for j in one.states.keys() | two.states.keys():
        for mine, other in ((one, two), (two, one)):
            everything = np.ones_like(next(b.states[j] for b in (mine, other) if j in b.states))
            np.testing.assert_array_equal(
                mine.states.get(j, everything), other.states.get(j, everything)
            )
    assert one.n_queries == two.n_queries and one.totals.keys() == two.totals.keys()
    for box, own in one.totals.items():
        assert own == two.totals[box]


@pytest.mark.parametrize("template", TEMPLATES)
def test_texts_read_together_are_read_as_alone(schema, template, monkeypatch):
    rng = np.random.default_rng(len(template))
    texts = [
        template.format(*(number(rng, template) for _ in range(template.count("{}"))))
        for _ in range(30)
    ]
    group = next(_conditions.group_alike(texts))
    assert (group.boxes(schema, 30) is not None) == TEMPLATES[template]
    together = compile_queries(texts, schema)
    conditions = read_conditions(texts, schema).boxes
    monkeypatch.setattr(_conditions, "MIN_ALIKE", 100)
    alone = compile_queries(texts, schema)
    same(together, alone, schema.is_integral)
    same(conditions, alone, schema.is_integral)


def test_several_groups_keep_their_places(schema, monkeypatch):
    rng = np.random.default_rng(0)
    texts = [
        text
        for _ in range(5)
        for text in (
            f"x > {rng.random()}",
            f"x < {rng.random()} and job == 'x1'",
            "member",
            f"count(member, x > {rng.random()}) == 1 or k < 3",
            f"k >= {rng.integers(20)} and k <= {rng.integers(20)}",
        )
    ]
    together = compile_queries(texts, schema)
    monkeypatch.setattr(_conditions, "MIN_ALIKE", 100)
    same(together, compile_queries(texts, schema), schema.is_integral)


@pytest.mark.parametrize("bad", ["1e999", "1__0", "9" * 5000])
def test_numbers_that_need_care_are_read_alone(schema, bad):
    texts = [f"x > {value}" for value in ("1", "2", "3", "4", bad)]
    assert next(_conditions.group_alike(texts)).boxes(schema, 5) is None
    if bad == "1e999":
        assert len(compile_queries(texts, schema)) == 4
    else:
        with pytest.raises(ValueError, match="A query must be an expression"):
            compile_queries(texts, schema)


def test_errors_name_one_of_the_texts(schema):
    with pytest.raises(ValueError, match="'jobs'"):
        compile_queries([f"x > {i} and jobs == 'cook'" for i in range(9)], schema)
