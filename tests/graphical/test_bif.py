"""BIF files of strangers: linear time, and memory only for what they hold."""

import time
import tracemalloc

import pytest

from skcircuits.graphical import BayesianNetwork


@pytest.mark.parametrize(
    "line", ["some words that are no BIF\n", "/* ", '" /* //\n', "{ }\n", "((\n"]
)
def test_reading_time_is_linear_in_the_size_of_any_text(tmp_path, line):
    path = tmp_path / "text.bif"
    path.write_text(line * 64_000)
    start = time.process_time()
    with pytest.raises(ValueError):
        BayesianNetwork.from_bif(path)
    # Half a second; a minute where every word is read by each.
    assert time.process_time() - start < 20


def test_comments_must_be_closed(tmp_path):
    path = tmp_path / "open.bif"
    path.write_text("network a { } /* never closed")
    with pytest.raises(ValueError, match="comments of a BIF file must be closed"):
        BayesianNetwork.from_bif(path)


@pytest.mark.parametrize("n_parents", [33, 70])
def test_default_rows_are_refused_by_the_size_they_declare(tmp_path, n_parents):
    names = [f"p{i}" for i in range(n_parents)]
    path = tmp_path / "large.bif"
    path.write_text(
        "".join(f"variable {v} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for v in [*names, "c"])
        + "".join(f"probability ( {v} ) {{ table .5, .5; }}\n" for v in names)
        + f"probability ( c | {', '.join(names)} ) {{ default .5, .5; }}\n"
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"at most 60 variables.*n_variables={n_parents + 1}"):
        BayesianNetwork.from_bif(path)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


TWO = """variable A { type discrete [ 2 ] { a, b }; }
variable B { type discrete [ 2 ] { c, d }; }
probability ( A ) { table .5, .5; }
probability ( B | A ) { (a) .1, .9; (b) .2, .8; }
"""


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("(b) .2, .8;", "(a) .2, .8;", r"give every row once; got entry='\( a \) .2 .8'"),
        ("(b) .2, .8;", "default .2, .8; (b) .3, .7; (b) .2, .8;", "give every row once"),
        ("table .5, .5;", "table .5, .5; table .1, .9;", r"once; got entry='table .1 .9'"),
        ("(a) .1, .9; (b) .2, .8;", "default .1, .9; default .3, .7;", "every row once"),
        ("(b) .2, .8;", "table .1, .2, .9, .8;", "every row once; got entry='table"),
        ("(a) .1, .9;", "table .1, .2, .9, .8;", r"every row once; got entry='\( b"),
        ("table .5, .5", "table nan, .5", "numbers must be finite; got number='nan'"),
        ("table .5, .5", "table 1e400, .5", "numbers must be finite; got number='1e400'"),
    ],
)
def test_rows_given_twice_and_numbers_that_are_none_are_named(tmp_path, given, instead, message):
    path = tmp_path / "two.bif"
    path.write_text(TWO.replace(given, instead))
    with pytest.raises(ValueError, match=message):
        BayesianNetwork.from_bif(path)
