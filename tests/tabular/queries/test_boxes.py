"""Queries as boxes: reading, restricting, and the errors of wrong ones."""

import numpy as np
import pandas as pd
import pytest

from skcircuits.tabular import Boxes, TableSchema, compile_queries
from skcircuits.tabular.queries._conditions import Conditions, read_conditions


@pytest.fixture
def schema():
    return TableSchema.learn(
        pd.DataFrame(
            {
                "age": [30, 41, 52],
                "income": [10.5, 20.25, np.nan],
                "job": ["cook", "nurse", "pilot"],
                "smokes": [True, False, True],
            }
        )
    )


def satisfies(boxes: Boxes, rows):
    """Brute force: which rows lie in the union of the boxes of each query."""
    inside = np.zeros((boxes.n_queries, len(rows)), dtype=bool)
    for i, query in enumerate(boxes.query):
        ok = ~(rows < boxes.lower[i]).any(axis=1) & ~(rows > boxes.upper[i]).any(axis=1)
        for j, allowed in boxes.states.items():
            ok &= allowed[i][rows[:, j].astype(int)]
        inside[query] |= ok
    return inside


def random_rows(n=500):
    generator = np.random.default_rng(0)
    numbers = [generator.integers(20, 60, n), generator.uniform(0, 30, n)]
    return np.column_stack([*numbers, generator.integers(0, 3, n), generator.integers(0, 2, n)])


def test_intervals_are_closed_and_none_is_unbounded(schema):
    boxes = compile_queries(
        [{"age": (30, 40)}, {"age": (None, 40)}, {"income": (5, None)}, {}], schema
    )
    np.testing.assert_array_equal(
        boxes.lower[:, :2], [[30, np.nan], [np.nan] * 2, [np.nan, 5], [np.nan] * 2]
    )
    np.testing.assert_array_equal(
        boxes.upper[:, :2], [[40, np.nan], [40, np.nan], [np.nan] * 2, [np.nan] * 2]
    )
    assert boxes.states == {}


def test_categories_and_sets_of_them(schema):
    boxes = compile_queries(
        [{"job": "nurse"}, {"job": {"cook", "pilot"}}, {"smokes": True}, {"job": ["cook"]}], schema
    )
    np.testing.assert_array_equal(
        boxes.states[2],
        [[False, True, False], [True, False, True], [True, True, True], [True, False, False]],
    )
    np.testing.assert_array_equal(boxes.states[3][2], [False, True])
    assert np.isnan(boxes.lower).all()
    alone = compile_queries([{"job": np.array("nurse")}], schema)
    np.testing.assert_array_equal(alone.states[2], [[False, True, False]])


def test_single_numbers_mean_equality(schema):
    queries = [{"age": 41}, {"age": (41, 41)}, "age == 41", {"age": np.int64(41)}]
    boxes = compile_queries(queries, schema)
    np.testing.assert_array_equal(boxes.lower[:, 0], [41] * 4)
    np.testing.assert_array_equal(boxes.upper[:, 0], [41] * 4)


def test_integers_stand_for_what_rounds_to_them(schema):
    queries = [{"age": 41}, "40 < age < 42", {"age": (40.2, None)}, "41.2 < age < 41.8", "age < 41"]
    boxes = compile_queries(queries, schema).around_numbers(schema.grids)
    np.testing.assert_array_equal(boxes.query, [0, 1, 2, 4])
    np.testing.assert_array_equal(boxes.lower[:, 0], [40.5, 40.5, 40.5, np.nan])
    np.testing.assert_array_equal(boxes.upper[:, 0], [41.5, 41.5, np.nan, 40.5])
    boxes = compile_queries([{"income": (1, 2)}], schema).around_numbers(schema.grids)
    assert (boxes.lower[0, 1], boxes.upper[0, 1]) == (1.0, 2.0)


def test_boxes_hold_all_that_counts_as_a_constant_or_nothing():
    table = np.column_stack([np.full(4, 3.7), [0.1, 0.2, 0.3, np.nan], np.full(4, 5.0)])
    schema = TableSchema.learn(table)
    np.testing.assert_array_equal(schema.constants, [3.7, np.nan, 5.0])
    queries = [f"x0 {sign} 3.7" for sign in ("<", "<=", "==", ">=", ">")]
    queries += [
        "x0 > 3.701",
        "x1 < 2",
        {0: (3.7001, 3.7002)},
        {0: (3.6, 3.8)},
        "x0 == 3.7 or x0 == 3.70001",
    ]
    boxes = compile_queries(queries, schema).around_numbers(schema.grids, schema.constants)
    first, last = 3.7 - 0.037, 3.7 + 0.037
    before, after = np.nextafter(first, 0.0), np.nextafter(last, 9.0)
    np.testing.assert_array_equal(boxes.query, [0, 1, 2, 3, 4, 5, 6, 8, 9])
    expected = [np.nan, np.nan, first, first, after, after, np.nan, 3.6, first]
    np.testing.assert_array_equal(boxes.lower[:, 0], expected)
    expected = [before, last, last, np.nan, np.nan, np.nan, np.nan, 3.8, last]
    np.testing.assert_array_equal(boxes.upper[:, 0], expected)
    again = boxes.around_numbers(schema.grids, schema.constants)
    np.testing.assert_array_equal(again.lower, boxes.lower)
    np.testing.assert_array_equal(again.upper, boxes.upper)
    rows = np.array([[3.71, 0.25, 5.2], [3.8, np.nan, 4.6]])
    np.testing.assert_array_equal(schema.rounded(rows), [[3.7, 0.25, 5.0], [3.8, np.nan, 5.0]])


def test_columns_of_arrays_are_counted():
    schema = TableSchema.learn(np.array([[0.5, 1.0], [1.5, 2.0]]), categorical_features=[1])
    boxes = compile_queries([{0: (0, 1), 1: 2.0}], schema)
    np.testing.assert_array_equal(boxes.states[1], [[False, True]])
    with pytest.raises(ValueError, match=r"They are \[0, 1\]"):
        compile_queries([{2: (0, 1)}], schema)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"wage": (0, 1)}, r"They are \['age', 'income', 'job', 'smokes'\]"),
        ({"age": (40, 30)}, "lower bound comes first"),
        ({"age": (1, 2, 3)}, "column 'age' must be a number, an interval"),
        ({"age": "old"}, "column 'age' must be a number, an interval"),
        ({"age": ("a", "b")}, "column 'age' must be a number, an interval"),
        ({"age": (np.nan, 3)}, "Use None for a missing bound"),
        ({"age": True}, "must be a number, an interval"),
        ({"job": "king"}, r"among its categories; got category='king'. They are \['cook'"),
        ({"job": {"cook", "king"}}, "got category='king'"),
        (("age", 3), "A query must be a dict"),
        ({"age": 10**400}, "at most 1.8e.308 in magnitude"),
        ({"age": (None, 10**400)}, "at most 1.8e.308 in magnitude"),
    ],
)
def test_wrong_queries_say_what_is_there(schema, query, message):
    with pytest.raises(ValueError, match=message):
        compile_queries([query], schema)


def test_intersection_is_the_conjunction(schema):
    queries = [
        {"age": (30, 40), "job": {"cook", "nurse"}},
        {"income": (None, 12.5)},
        {"job": "pilot"},
        {},
    ]
    condition = {"age": (35, None), "job": {"nurse", "cook"}, "smokes": False}
    boxes, restriction = compile_queries(queries, schema), compile_queries([condition], schema)
    rows = random_rows()
    condition = Conditions(restriction, np.full(restriction.lower.shape, np.nan), True)
    np.testing.assert_array_equal(
        satisfies(condition.with_queries(boxes).boxes, rows),
        satisfies(boxes, rows) & satisfies(restriction, rows),
    )


def test_every_condition_meets_every_query(schema):
    queries = ["age > 40 or job == 'cook'", "income < 15"]
    given = ["age < 50", "smokes or age < 30", "job == 'pilot' and age == 30"]
    conditions = read_conditions(given, schema)
    joint = conditions.with_queries(compile_queries(queries, schema)).boxes
    rows = random_rows()
    each = [satisfies(compile_queries(texts, schema), rows) for texts in (given, queries)]
    np.testing.assert_array_equal(
        satisfies(joint, rows), (each[0][:, None] & each[1]).reshape(6, -1)
    )


def test_empty_intersections_leave_no_box(schema):
    boxes = compile_queries([{"age": (30, 40)}, {"job": "pilot"}, {"income": (0, 1)}], schema)
    joint = read_conditions({"age": (50, 60), "job": "cook"}, schema).with_queries(boxes).boxes
    assert joint.n_queries == 3
    assert joint.query.tolist() == [2]
