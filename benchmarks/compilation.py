"""Compile graphical models to circuits: sizes, times and errors against recorded marginals.

    python benchmarks/compilation.py
    python benchmarks/compilation.py pgmpy [names]     (needs pgmpy, whose networks it takes)
    python benchmarks/compilation.py evidence names    (circuits given three and four states)

Two errors are printed for the Bayesian networks, whose files print rows that sum to one up
to the last digit only ("rows off": the largest miss of a network).

"compiled" is the error of the circuit, whose rows are divided by their sums. The circuit is a
distribution and agrees with all other queries of the network.

"as recorded" compiles what the recorded marginals were computed from: the printed digits, with
the variables below the one asked for left out. Rows that miss one then reweight the states
of the variables above, and which rows take part depends on the variable asked for, so this
takes a circuit per variable. The two columns differ by less than the rows are off.
"""

import gzip
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _data import data_path

from skcircuits.graphical import BayesianNetwork, FactorGraph
from skcircuits.graphical._formats import parse_bif

NETWORKS = ("asia", "cancer", "sachs", "child", "alarm", "insurance")
ROW = "{:10s} {:>9} {:>5} {:>7} {:>8} {:>10} {:>10} {:>12} {:>9} {:>9} {:>12}"


def timed(function, repeat=3):
    """Best time of a few calls, and the result."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def report(name, model, recorded, as_recorded, rows_off=0.0):
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
            f"{rows_off:.1e}",
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


def marginals_as_recorded(network):
    """Marginals by circuits of the printed digits, one per variable and its ancestors."""
    cardinalities = [len(states) for states in network.state_names]
    marginals = []
    for variable in range(len(cardinalities)):
        factors = [
            ((*network.parents[v], v), network.tables[v])
            for v in ancestors(network.parents, variable)
        ]
        circuit = FactorGraph(factors, cardinalities).compile()
        marginals.append(circuit.marginals(np.full((1, len(cardinalities)), np.nan))[variable][0])
    return marginals


PEER_NETWORKS = ("alarm", "insurance", "hailfinder", "win95pts", "water", "mildew", "barley")
PEER_ROW = "{:12s}" + "{:>10}" * 5 + "{:>9}" * 4 + "{:>10}" * 4


def peer_network(name, folder):
    """Read one of pgmpy's networks."""
    import pgmpy
    from pgmpy.readwrite import BIFReader

    packed = Path(pgmpy.__file__).parent / "utils" / "example_models" / f"{name}.bif.gz"
    path = Path(folder) / f"{name}.bif"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return BIFReader(str(path)).get_model()


def cpu_seconds(function):
    """Process time of one call; the machine may be busy with others."""
    start = time.process_time()
    function()
    return time.process_time() - start


def normalised_peer_network(name):
    """One of pgmpy's networks; rows of the files miss one by their last digit."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = peer_network(name, folder)
    for table in theirs.get_cpds():
        table.normalize()
    return theirs


def likely_states(marginals, n_observed, seed):
    """The most probable states of some variables that a seed chooses."""
    observed = np.random.default_rng(seed).permutation(len(marginals))[:n_observed]
    return {int(v): int(marginals[v].argmax()) for v in observed}


def compile_given_evidence(names, seeds=3, max_edges=40_000_000):
    """Edges, seconds and rates of circuits of up to 40 million edges, which take 5 GB."""
    warnings.simplefilter("ignore")
    print(("{:12s}" + "{:>10}" * 5).format("network", "observed", "seed", "edges", "s", "edges/s"))
    for name in names:
        theirs = normalised_peer_network(name)
        marginals = BayesianNetwork.from_pgmpy(theirs).marginals()
        for n_observed in (3, 4):
            for seed in range(seeds):
                fresh = BayesianNetwork.from_pgmpy(theirs)
                evidence = likely_states(marginals, n_observed, seed)
                start = time.process_time()
                try:
                    circuit = fresh.compile(evidence, max_edges=max_edges)
                except MemoryError as error:
                    print(name, n_observed, seed, error)
                    continue
                seconds, n_edges = time.process_time() - start, circuit.n_edges
                print(
                    f"{name:12s}{n_observed:10d}{seed:10d}{n_edges:10d}{seconds:10.3f}"
                    f"{n_edges / seconds:10.0f}",
                    flush=True,
                )


def compare_with_pgmpy(names):
    """All marginals beside pgmpy's variable elimination, and circuits given four states.

    "first" finds the structure, "again" has it; ratios are pgmpy / ours, of the first call, of the
    second, and given four states, of the best of some times. "error" is the largest difference,
    with evidence and without.
    "compile" is the time to a circuit given these states, and "answers" that to its first log
    probability and first marginals, the best of some new networks.
    """
    warnings.simplefilter("ignore")
    columns = ("pgmpy", "first", "again", "p given", "given", "ratio 1", "ratio", "r given")
    print(PEER_ROW.format("network", *columns, "error", "edges", "compile", "edges/s", "answers"))
    for name in names:
        theirs = normalised_peer_network(name)
        evidence = likely_states(BayesianNetwork.from_pgmpy(theirs).marginals(), 4, seed=3)
        seconds, error = peer_times(theirs, evidence)
        n_edges, compile_s, answers_s = compile_times(theirs, evidence)
        pgmpy_s, first_s, again_s, pgmpy_given_s, given_s = seconds
        ratios = (pgmpy_s / first_s, pgmpy_s / again_s, pgmpy_given_s / given_s)
        print(
            PEER_ROW.format(
                name,
                *(f"{s:.4f}" for s in seconds),
                *(f"{ratio:.1f}" for ratio in ratios),
                f"{error:.0e}",
                n_edges,
                f"{compile_s:.4f}",
                f"{n_edges / compile_s:.0f}",
                f"{answers_s:.4f}",
            ),
            flush=True,
        )


def peer_times(theirs, evidence, repeat=3):
    """Seconds of pgmpy, of our first call and of our second, then of both given evidence.

    The best of some calls, of new networks where ours is called for the first time.
    """
    from pgmpy.inference import VariableElimination

    query = VariableElimination(theirs).query
    # Once before: imports and the parts that pgmpy prepares are not counted.
    query([next(iter(theirs.nodes()))], show_progress=False)
    times, errors = [], []
    for given in ({}, evidence):
        seconds = []
        for _ in range(repeat):
            fresh = BayesianNetwork.from_pgmpy(theirs)
            first_s, again_s = (cpu_seconds(lambda: fresh.marginals(given)) for _ in range(2))
            pgmpy_s, error = peer_marginals(query, fresh, given)
            seconds.append((pgmpy_s, first_s, again_s))
            errors.append(error)
        times.append(np.min(seconds, axis=0))
    return (*times[0], *times[1][:2]), max(errors)


def compile_times(theirs, evidence, repeat=5):
    """Edges of a circuit, 0 where it is refused (more than ten million), and seconds.

    The first seconds are those of compilation, the second also those of the first two answers.
    """
    n_edges, seconds = 0, []
    for _ in range(repeat):
        fresh = BayesianNetwork.from_pgmpy(theirs)
        unknown = np.full((1, len(fresh.cardinalities)), np.nan)
        start = time.process_time()
        try:
            circuit = fresh.compile(evidence)
        except MemoryError:
            return 0, time.process_time() - start, np.nan
        compile_s = time.process_time() - start
        circuit.log_prob(unknown)
        circuit.marginals(unknown)
        seconds.append((compile_s, time.process_time() - start))
        n_edges = circuit.n_edges
    return (n_edges, *np.min(seconds, axis=0))


def peer_marginals(query, ours, given):
    """Seconds of pgmpy for all marginals, and the largest difference to ours."""
    evidence = {ours.variable_names[v]: ours.state_names[v][state] for v, state in given.items()}
    free = [v for v in range(len(ours.variable_names)) if v not in given]
    found = {}

    def ask():
        for v in free:
            found[v] = query([ours.variable_names[v]], evidence=evidence, show_progress=False)

    seconds, marginals, error = cpu_seconds(ask), ours.marginals(given), 0.0
    for v in free:
        label = ours.variable_names[v]
        values = [found[v].get_value(**{label: state}) for state in ours.state_names[v]]
        error = max(error, np.abs(marginals[v] - values).max())
    return seconds, error


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
            "rows off",
            "compiled",
            "as recorded",
        )
    )
    grid = FactorGraph.from_uai(data_path("bbis", "ising_4x4_rand_id0.uai"))
    path = data_path("bbis", "ising_4x4_rand_id0_marginals.csv")
    recorded = np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:]
    compiled = grid.compile().marginals(np.full((1, 16), np.nan))
    report("ising", grid, recorded, [compiled[v][0] for v in range(16)])
    for name in NETWORKS:
        path = data_path("bn", f"{name}.bif")
        network = BayesianNetwork.from_bif(path)
        table = json.loads(data_path("bn", f"{name}_marginals.json").read_text())
        recorded = [
            np.array([table[variable][state] for state in states])
            for variable, states in zip(network.variable_names, network.state_names)
        ]
        printed = parse_bif(path.read_text())
        off = max(np.abs(table.sum(axis=-1) - 1.0).max() for table in printed.tables)
        report(name, network, recorded, marginals_as_recorded(printed), off)


if __name__ == "__main__":
    if sys.argv[1:2] == ["pgmpy"]:
        compare_with_pgmpy(sys.argv[2:] or PEER_NETWORKS)
    elif sys.argv[1:2] == ["evidence"]:
        compile_given_evidence(sys.argv[2:])
    else:
        main()
