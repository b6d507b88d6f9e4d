"""The UAI format."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import FactorGraph

MODEL = """MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 4.0 1.0
 2.0 3.0

6
 1 2 3
 4 5 6
"""


def test_last_variable_runs_fastest(tmp_path):
    path = tmp_path / "model.uai"
    path.write_text(MODEL)
    graph = FactorGraph.from_uai(path)
    assert graph.cardinalities.tolist() == [2, 2, 3]
    assert [factor.scope for factor in graph.factors] == [(0, 1), (1, 2)]
    assert_allclose(graph.log_prob_unnormalized([[1, 0, 2]]), np.log(2.0 * 3.0))


def test_byte_order_mark(tmp_path):
    path = tmp_path / "marked.uai"
    path.write_text(MODEL, encoding="utf-8-sig")
    assert len(FactorGraph.from_uai(path).factors) == 2


def test_constant_tables(tmp_path):
    path = tmp_path / "constant.uai"
    path.write_text("MARKOV 1 2 2 0 1 0 1 2.5 2 1.0 3.0")
    graph = FactorGraph.from_uai(path)
    assert_allclose(np.exp(graph.log_partition()), 10.0)


def test_comments_and_kinds_in_lower_case(tmp_path):
    path = tmp_path / "noted.uai"
    path.write_text("# by hand\n" + MODEL.lower().replace("2 2 3", "2 2 3 // states") + "# end")
    (tmp_path / "plain.uai").write_text(MODEL)
    noted, plain = FactorGraph.from_uai(path), FactorGraph.from_uai(tmp_path / "plain.uai")
    assert noted.cardinalities.tolist() == plain.cardinalities.tolist()
    assert noted.log_partition() == plain.log_partition()


def test_small_numbers_keep_their_logarithms(tmp_path):
    path = tmp_path / "small.uai"
    path.write_text("MARKOV 2 2 2 3 1 0 1 0 2 0 1 2 1 1e-200 2 1e-300 1 4 1 1e-320 0e-400 2")
    graph = FactorGraph.from_uai(path)
    expected = [
        np.log(1e-300),
        np.log(1e-300) + np.log(1e-320),
        -np.inf,
        np.log(1e-200) + np.log(2),
    ]
    found = graph.compile().log_prob([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert_allclose(found, expected - np.logaddexp.reduce(expected), rtol=1e-13)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODEL.replace("MARKOV", "CREDAL"), "MARKOV or BAYES"),
        (MODEL.replace("\n6\n", "\n5\n"), "have 6 values"),
        (MODEL[:-4], "UAI file must be complete.*It ends early"),
        ("", "UAI file must be complete"),
        (MODEL + "7", "last table must end the file; got word='7'"),
        (MODEL.replace("2 1 2", "2 1 3"), r"name variables below 3; got variables=\[3\]"),
        (MODEL.replace("2 1 2", "2 1 -1"), r"name variables below 3; got variables=\[-1\]"),
        (MODEL.replace("4.0", "nan"), "follow the format.*be finite"),
        (MODEL.replace("4.0", "-4.0"), "follow the format.*be non-negative"),
        (MODEL.replace("4.0", "4e-400"), "zero or at least 5e-324.*got number='4e-400'"),
        (MODEL.replace("4.0", "four"), "could not convert string to float: 'four'"),
        (MODEL.replace("2 2 3", "2 0 3"), "variables must have a state each"),
    ],
)
def test_broken_files(tmp_path, text, message):
    path = tmp_path / "broken.uai"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        FactorGraph.from_uai(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MARKOV 1 1000000000 0", "fit into the working memory"),
        (f"MARKOV 1 {'9' * 400} 0", "one positive integer per variable"),
        (f"MARKOV 40 {'8 ' * 40} 1 40 {' '.join(map(str, range(40)))} 5 1 1 1 1 1", "values"),
    ],
    ids=["states", "digits", "table"],
)
def test_declared_sizes_are_refused_before_memory_is_asked_for(tmp_path, text, message):
    path = tmp_path / "large.uai"
    path.write_text(text)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message):
        FactorGraph.from_uai(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
