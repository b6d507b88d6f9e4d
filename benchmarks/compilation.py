"""Compile graphical models to circuits: sizes, times and errors against recorded marginals.

    python benchmarks/compilation.py

Two errors are printed for the Bayesian networks. "compiled" is that of the circuit, whose
tables are normalised. The recorded marginals of alarm and sachs come from tables whose
printed rows miss one by 1e-7, with the variables below the one asked for left out;
"as recorded" repeats that computation.
"""

import json
import time

import numpy as np
from _data import data_path

from skcircuits.graphical import BayesianNetwork, FactorGraph
from skcircuits.graphical.bif import read_bif

NETWORKS = ("asia", "cancer", "sachs", "child", "alarm", "insurance")
ROW = "{:10s} {:>9} {:>5} {:>7} {:>8} {:>10} {:>10} {:>12} {:>11} {:>12}"


def timed(function, repeat=3):
    """Best time of a few calls, and the result."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def report(name, model, recorded, as_recorded):
    """Print one line: sizes, times, and largest errors of the marginals."""
    elimination_s, _ = timed(model.marginals)
    compile_s, circuit = timed(model.compile)
    empty = np.full((1, len(model.cardinalities)), np.nan)
    plan_s, marginals = timed(lambda: circuit.marginals(empty), repeat=1)
    circuit_s, marginals = timed(lambda: circuit.marginals(empty))
    error = max(np.abs(marginals[v][0] - p).max() for v, p in enumerate(recorded))
    repeated = max(np.abs(p - q).max() for p, q in zip(as_recorded, recorded))
    print(
        ROW.format(
            name,
            len(model.cardinalities),
            model.width(),
            circuit.n_units,
            f"{compile_s:.3f}",
            f"{elimination_s:.4f}",
            f"{circuit_s:.4f}",
            f"{compile_s + plan_s:.3f}",
            f"{error:.1e}",
            f"{repeated:.1e}",
        )
    )


def ancestors(parents, variable):
    """The variable and everything above it."""
    found, frontier = {variable}, [variable]
    while frontier:
        fresh = set(parents[frontier.pop()]) - found
        found |= fresh
        frontier += fresh
    return found


def marginals_as_recorded(path):
    """Marginals from the printed digits, one variable and its ancestors at a time."""
    network = read_bif(path)
    cardinalities = [len(states) for states in network.state_names]
    marginals = []
    for variable in range(len(cardinalities)):
        factors = [
            ((*network.parents[v], v), network.tables[v])
            for v in ancestors(network.parents, variable)
        ]
        marginals.append(FactorGraph(factors, cardinalities).marginals()[variable])
    return marginals


def main():
    """Report the grid and the six networks."""
    print(
        ROW.format(
            "model",
            "variables",
            "width",
            "units",
            "compile",
            "eliminate",
            "circuit",
            "compile+all",
            "compiled",
            "as recorded",
        )
    )
    grid = FactorGraph.from_uai(data_path("bbis", "ising_4x4_rand_id0.uai"))
    path = data_path("bbis", "ising_4x4_rand_id0_marginals.csv")
    recorded = np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:]
    report("ising", grid, recorded, grid.marginals())
    for name in NETWORKS:
        path = data_path("bn", f"{name}.bif")
        network = BayesianNetwork.from_bif(path)
        table = json.loads(data_path("bn", f"{name}_marginals.json").read_text())
        recorded = [
            np.array([table[variable][state] for state in states])
            for variable, states in zip(network.variable_names, network.state_names)
        ]
        report(name, network, recorded, marginals_as_recorded(path))


if __name__ == "__main__":
    main()
