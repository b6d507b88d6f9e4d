"""Sizes and speeds of all densities on one mixed table: the table of the guide on densities.

    OMP_NUM_THREADS=1 python benchmarks/density_table.py         measures (two minutes)
    python benchmarks/density_table.py --page                    redraws doc/user_guide/densities.md

10,000 training rows of five numbers and five categories, 20 % of the cells missing completely at
random: three groups of rows with means and frequencies of their own, one column skewed. Times
are processor times of one thread; results are kept in `benchmarks/density_table.json`.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _timing import fastest
from overview import machine, versions

import skcircuits as sk

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "doc" / "user_guide" / "densities.md"
# Missing cells and queries, as their reference pages describe them
ABOUT = {
    "GaussianMixtureDensity": ("EM over the missing cells", "all; no exact mpe"),
    "AutomaticDensity": ("as its candidates", "all; no exact mpe"),
    "HiddenChowLiuDensity": ("EM over the missing cells", "all; no exact mpe"),
    "WMISPNDensity": ("structure from observed cells, parameters by EM", "all; no exact mpe"),
    "ChowLiuDensity": ("EM over the missing cells", "all, exact mpe"),
    "StrudelDensity": ("structure on completed rows, weights by EM", "all, exact mpe"),
    "ContinuousMixtureDensity": ("completed rows", "all; no exact mpe"),
    "MoATDensity": (
        "completed rows",
        "all under intervals and sets; counts, sums, covariances by `to_circuit`",
    ),
}


def rows(n_rows, seed):
    """A mixed table, complete."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n_rows)
    means, tables = np.random.default_rng(0).normal(size=(3, 5)), np.random.default_rng(1)
    numbers = 1.5 * means[group] + rng.normal(size=(n_rows, 5)) @ (np.eye(5) + 0.4)
    numbers[:, 0] = np.exp(0.5 * numbers[:, 0])
    table = pd.DataFrame(numbers, columns=[f"number {j}" for j in range(5)])
    for j in range(5):
        frequencies = tables.dirichlet(np.ones(4), size=3)
        drawn = (rng.random((n_rows, 1)) > np.cumsum(frequencies[group], axis=1)).sum(axis=1)
        table[f"category {j}"] = np.array(list("abcd"))[np.minimum(drawn, 3)]
    return table


def hidden(table, seed):
    """20 % of the cells missing completely at random."""
    return table.mask(np.random.default_rng(seed).random(table.shape) < 0.2)


def measure(name):
    """Times of one density and its held-out score."""
    train, test = hidden(rows(10_000, 2), 3), hidden(rows(10_000, 4), 5)
    density = getattr(sk, name)()
    if "random_state" in density.get_params():
        density.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        density.fit(train)
        found = {"fit": time.process_time() - start}
        n_scored = 500 if name == "MoATDensity" else len(test)
        score, found["nats"] = fastest(lambda: density.score(test[:n_scored]))
        found["rows_per_second"] = n_scored / score
        query = "`number 1` > 1 and `category 1` == 'b' and `number 2` < 2.5"
        found["probability"], _ = fastest(lambda: density.probability(query))
        if name != "MoATDensity":  # draws without conditions only
            draws, _ = fastest(lambda: density.sample(1000, given="`number 1` > 1", random_state=0))
            found["draws_per_second"] = 1000 / draws
    return found


def rounded(number):
    """Two digits, thousands separated."""
    return f"{float(f'{number:.2g}'):,.0f}"


def write_page():
    """Replace the table of the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    about = ["| | missing cells in training | queries |", "|---|---|---|"]
    about += [
        f"| {{class}}`~skcircuits.{name}` | {missing} | {queries} |"
        for name, (missing, queries) in ABOUT.items()
    ]
    heading = (
        "| | held-out nats per row | fit, s | rows scored per s | a probability, ms "
        "| draws under a condition per s |"
    )
    lines = [*about, "", heading, "|" + "---|" * 6]
    for name in ABOUT:
        r = results["densities"][name]
        milliseconds = f"{1e3 * r['probability']:.2g}" if "probability" in r else ""
        draws = rounded(r["draws_per_second"]) if "draws_per_second" in r else ""
        lines.append(
            f"| {{class}}`~skcircuits.{name}` | {r['nats']:.2f} | {r['fit']:.2g} "
            f"| {rounded(r['rows_per_second'])} | {milliseconds} | {draws} |"
        )
    found = results["versions"]
    packages = ", ".join(f"{package} {found[package]}" for package in ("skcircuits", "numpy"))
    lines += ["", f"Machine: {results['machine']}. {packages}."]
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- table of densities -->\n", "<!-- end of the table -->"
    head, tail = text.split(start)[0], text.split(end)[1]
    PAGE.write_text(head + start + "\n".join(lines) + "\n" + end + tail, encoding="utf-8")


def main():
    """Measure, or redraw the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    densities = kept.get("densities", {})
    for name in options.names or ABOUT:
        densities[name] = measure(name)
        print(name, densities[name], flush=True)
        kept = {"machine": machine(), "versions": versions(), "densities": densities}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
