"""The UAI format."""

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODEL.replace("MARKOV", "CREDAL"), "MARKOV or BAYES"),
        (MODEL.replace("\n6\n", "\n5\n"), "have 6 values"),
        (MODEL[:-4], "UAI file must be complete"),
    ],
)
def test_broken_files(tmp_path, text, message):
    path = tmp_path / "broken.uai"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        FactorGraph.from_uai(path)
