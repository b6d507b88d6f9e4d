"""Text queries against a row-by-row evaluation of the same expression by Python."""

import numpy as np
import pandas as pd
import pytest

from skcircuits.tabular import TableSchema, compile_queries, parse_query
from skcircuits.tabular._regions import Interval, States, complement, intersect, unite


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "wage": np.round(rng.normal(30, 9, n), 2),
            "job": rng.choice(["cook", "nurse", "smith"], n),
            "smokes": rng.random(n) < 0.4,
            "rank": pd.Categorical(rng.integers(1, 5, n)),
            "capital gain": rng.normal(size=n),
        }
    )


def members(text, table):
    """Number of boxes of the query that hold each row."""
    schema = TableSchema.learn(table)
    boxes = compile_queries([text], schema)
    X = schema.encode(table)[:, None]
    inside = ((boxes.lower <= X) | np.isnan(boxes.lower)).all(axis=2)
    inside &= ((boxes.upper >= X) | np.isnan(boxes.upper)).all(axis=2)
    for j, allowed in boxes.states.items():
        inside &= allowed[:, X[:, 0, j].astype(int)].T
    return inside.sum(axis=1)


ATOMS = [
    "30 <= age < 40",
    "age == 33",
    "age != 33",
    "age in (20, 21, 60)",
    "40 > wage",
    "20 < wage <= 31.5",
    "job == 'nurse'",
    "'cook' != job",
    "job in ('nurse', 'cook')",
    "job not in ['smith']",
    "smokes",
    "smokes == False",
    "rank >= 3",
    "rank == 2",
    "`capital gain` > -0.5",
]


@pytest.mark.parametrize("text", ATOMS)
def test_atoms_mean_what_python_means(table, text):
    source = text.replace("`capital gain`", "gain")
    rows = table.rename(columns={"capital gain": "gain"}).to_dict("records")
    expected = [int(eval(source, {}, row)) for row in rows]
    np.testing.assert_array_equal(members(text, table), expected)


@pytest.mark.parametrize("seed", range(25))
def test_expressions_are_disjoint_unions(table, seed):
    rng = np.random.default_rng(seed)

    def expression(depth):
        if depth == 0:
            return str(rng.choice(ATOMS[:-1]))
        kind = rng.integers(3)
        if kind == 0:
            return f"not ({expression(depth - 1)})"
        return f"({expression(depth - 1)}) {('and', 'or')[kind - 1]} ({expression(depth - 1)})"

    text = expression(3)
    expected = [int(eval(text, {}, row)) for row in table.to_dict("records")]
    # A row in two boxes would count twice
    np.testing.assert_array_equal(members(text, table), expected)


def test_columns_of_an_array_are_numbered():
    schema = TableSchema.learn(np.random.default_rng(0).normal(size=(5, 3)))
    assert parse_query("-1 <= x2 <= 1e3", schema) == [{2: Interval(-1.0, 1000.0)}]


@pytest.mark.parametrize("names", [["_quoted_0", "x y"], ["_quoted0_0", "x y"]])
def test_no_name_of_a_column_is_taken_for_another(names):
    schema = TableSchema.learn(pd.DataFrame(np.eye(2) / 2, columns=names))
    above = Interval(1.0, np.inf)
    assert parse_query(f"{names[0]} >= 1", schema) == [{0: above}]
    for text in (f"`x y` >= 1 and {names[0]} >= 1", f"{names[0]} >= 1 and `x y` >= 1"):
        assert parse_query(text, schema) == [{0: above, 1: above}]


@pytest.mark.parametrize("text", ["not`x y`>=1", "1<=`x y`and`x y`>=1", " `x y` >= 1 "])
def test_backticks_need_no_blanks(text):
    schema = TableSchema.learn(pd.DataFrame({"x y": [0.5, 2.0]}))
    spaced = "not `x y` >= 1" if text.startswith("not") else "`x y` >= 1"
    assert parse_query(text, schema) == parse_query(spaced, schema)


def test_names_are_normalised_as_python_does():
    micro, mu = "\u00b5g", "\u03bcg"  # Python reads the first as the second
    one = TableSchema.learn(pd.DataFrame({"age": [0.5, 1.0], micro: [0.5, 1.0]}))
    expected = [{1: Interval(2.0, np.inf)}]
    for name in (micro, mu, f"`{micro}`"):
        assert parse_query(f"{name} >= 2", one) == expected
    both = TableSchema.learn(pd.DataFrame({mu: [0.5, 1.0], micro: [0.5, 1.0]}))
    assert parse_query(f"`{micro}` >= 2", both) == expected
    with pytest.raises(ValueError, match="put names in backticks that Python takes for the same"):
        parse_query(f"{micro} >= 2", both)


def test_impossible_and_certain_queries(table):
    schema = TableSchema.learn(table)
    assert parse_query("age < 20 and age > 30", schema) == []
    assert parse_query("age < 20 or not age < 20", schema) != []
    boxes = compile_queries(["job == 'cook' and job == 'nurse'", "age > 3"], schema)
    assert boxes.query.tolist() == [1] and boxes.n_queries == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wages > 3", r"Columns of a query must be columns of the table.*'age', 'wage'"),
        ("job == 'king'", r"among its categories.*They are \['cook', 'nurse', 'smith'\]"),
        ("age >", "be an expression"),
        ("age + 1 > 3", "compare a column with a constant"),
        ("age < wage", "compare a column with a constant"),
        ("3 < 4", "compare a column with a constant"),
        ("age == 'old'", "compare column 'age' with a number"),
        ("job > 'cook'", "by ==, != or in"),
        ("'cook' in job", "on the left of 'in'"),
        ("job in 'cook'", "collection of constants"),
        ("age is 3", "use <, <=, >, >=, ==, != or in"),
        ("rank is 3", "use <, <=, >, >=, ==, != or in"),
        ("rank is not 3", "use <, <=, >, >=, ==, != or in"),
        ("job is 'cook'", "by ==, != or in"),
        (f"age > {'9' * 400}", r"with numbers of at most 1.8e\+308 in magnitude"),
        (f"age in (1, -{'9' * 400})", r"with numbers of at most 1.8e\+308 in magnitude"),
        (f"rank > {'9' * 400}", r"with numbers of at most 1.8e\+308 in magnitude"),
        ("abs(age) > 3", "compare a column with a constant"),
        ("__import__('os').system('true')", "be made of comparisons"),
        ("age", "be made of comparisons"),
        ("job", "among its categories"),
        ("", "be an expression"),
    ],
)
def test_errors_say_what_would_do(table, text, message):
    with pytest.raises(ValueError, match=message):
        parse_query(text, TableSchema.learn(table))


def test_deep_nesting_is_refused(table):
    schema = TableSchema.learn(table)
    assert parse_query("not " * 100 + "age > 40", schema) == parse_query("age > 40", schema)
    with pytest.raises(ValueError, match="A query must be nested less deeply"):
        parse_query("not " * 2000 + "age > 40", schema)


def test_region_algebra():
    low, codes = {0: Interval(-np.inf, 1.0)}, {1: States(frozenset({0}), 3)}
    both = intersect([low], [codes])
    assert both == [{0: Interval(-np.inf, 1.0), 1: States(frozenset({0}), 3)}]
    assert complement([{}]) == [] and complement([]) == [{}]
    assert intersect([low], complement([low])) == []
    assert unite([low], [low]) == [low]
    assert len(complement(both)) == 2


def test_too_many_boxes_are_refused():
    schema = TableSchema.learn(np.random.default_rng(0).normal(size=(5, 20)))
    text = " and ".join(f"(x{j} < -1 or x{j} > 1)" for j in range(20))
    with pytest.raises(ValueError, match="at most 50000 boxes"):
        parse_query(text, schema)
