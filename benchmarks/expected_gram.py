"""Gram matrices of expected kernels between many circuits of one structure.

200 x 200 circuits conditioned on different rows, from 16 to 240 binary variables, a balanced
tree of regions with 32 units each; beside a loop over pairs. Processor times, one thread.

Regions of up to four variables are tables, and cost a quarter of what larger regions do. With
16 variables there are four of them and two larger regions (the root is one unit); with 60 there
are 16 and 14, and from there on both numbers grow in proportion to the variables.
"""

from __future__ import annotations

import time

import numpy as np
from _timing import fastest

from skcircuits.circuits import Bernoulli, Circuit, Product, Sum
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.kernels import RBF, Hamming, expected_kernel_matrix
from skcircuits.kernels import _points as evaluation
from skcircuits.kernels._points import posterior_weights
from skcircuits.kernels.families.base import structure_of
from skcircuits.kernels.pairs._evaluation import CircuitBatch, expected_kernels
from skcircuits.kernels.pairs._plan import compile_pairs, split_kernel

N_CIRCUITS = 200
WIDTH = 32


def balanced_circuit(n_variables, rng):
    """A balanced latent tree: every region has WIDTH sums over WIDTH products."""

    def region(low, high, n_sums):
        if high - low == 1:
            return [Bernoulli(low, p) for p in rng.random(WIDTH)]
        middle = (low + high) // 2
        left, right = region(low, middle, WIDTH), region(middle, high, WIDTH)
        products = [Product(pair) for pair in zip(left, right, strict=True)]
        return [Sum(products, weights=rng.dirichlet(np.ones(WIDTH))) for _ in range(n_sums)]

    return Circuit(region(0, n_variables, 1)[0])


def main():
    """Time both kinds of weights for some numbers of variables."""
    for n_variables in (16, 60, 120, 240):
        rng = np.random.default_rng(0)
        circuit = balanced_circuit(n_variables, rng)
        X = rng.integers(2, size=(N_CIRCUITS, n_variables)).astype(float)
        X[rng.random(X.shape) < 0.5] = np.nan
        pairs = compile_pairs(circuit.plan, circuit.plan)
        kernel = split_kernel(pairs, structure_of(Hamming(float(n_variables)), circuit.variables))
        plan = circuit.plan
        own = CircuitBatch(plan, posterior_weights(plan, X), X)
        shared = CircuitBatch(plan, SumWeights(plan.weights.log), X)
        print(f"{n_variables} variables, {circuit.n_units} units, {N_CIRCUITS} x {N_CIRCUITS}")
        for name, batch in (("own weights", own), ("shared weights", shared)):
            elapsed = fastest(lambda b=batch: expected_kernels(pairs, kernel, b, b))[0]
            per_variable = 1e3 * elapsed / n_variables
            print(f"  {name:14s}: {elapsed:.2f} s, {per_variable:.1f} ms per variable", flush=True)
        single = [CircuitBatch(plan, posterior_weights(plan, x), x) for x in (X[:1], X[1:2])]
        elapsed = fastest(lambda s=single: expected_kernels(pairs, kernel, *s))[0]
        n_pairs = N_CIRCUITS**2
        print(
            f"  a loop over pairs would take {elapsed * n_pairs:.0f} s ({n_pairs} times one pair)"
        )
        if n_variables == 16:
            points_by_tables(circuit, X[:50])


def points_by_tables(circuit, X):
    """Incomplete rows against points, by tables of distinct restrictions and without."""
    points = circuit.sample(1000, random_state=0)
    fraction, times = evaluation.MAX_FRACTION, []
    for evaluation.MAX_FRACTION in (fraction, 0.0):
        start = time.process_time()
        expected_kernel_matrix(X, points, circuit=circuit, kernel=RBF(0.1))
        times.append(time.process_time() - start)
    evaluation.MAX_FRACTION = fraction
    print(f"  50 rows x 1000 points: {times[0]:.2f} s by tables, {times[1]:.2f} s plainly")


if __name__ == "__main__":
    main()
