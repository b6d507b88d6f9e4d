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
