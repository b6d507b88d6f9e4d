"""One reusable test case: an operation on circuits against brute force.

A subclass says what is asked of a circuit and what enumeration answers; it inherits the
random circuits, the incomplete rows and the comparison.
"""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import compatible_circuits, random_circuit, random_rows

N_CIRCUITS = 210
N_QUICK_CIRCUITS = 105  # the others are tried by `make test-all`
SEEDS_PER_TEST = 15  # a test costs pytest as much as a circuit or two


def for_seeds(n_seeds=N_CIRCUITS, step=1):
    """Run a test of one ``seed`` for many, some of them one after the other in the same test."""
    seeds = range(0, n_seeds, step)
    blocks = [seeds[i : i + SEEDS_PER_TEST] for i in range(0, len(seeds), SEEDS_PER_TEST)]
    params = [
        pytest.param(
            block,
            id=f"{block[0]}-{block[-1]}",
            marks=pytest.mark.slow if block[0] >= N_QUICK_CIRCUITS else (),
        )
        for block in blocks
    ]

    def decorate(test):
        @pytest.mark.parametrize("seeds", params)
        @functools.wraps(test)
        def run(*args, seeds, **kwargs):
            for seed in seeds:
                try:
                    test(*args, seed=seed, **kwargs)
                except BaseException as error:
                    error.add_note(f"with seed={seed}")
                    raise

        # What pytest reads
        signature = inspect.signature(test)
        own = [
            parameter.replace(name="seeds") if name == "seed" else parameter
            for name, parameter in signature.parameters.items()
        ]
        run.__signature__ = signature.replace(parameters=own)
        return run

    return decorate


class QueryCase:
    """A query of one circuit at incomplete rows.

    A subclass overrides ``query`` (all rows at once) and ``expected`` (one row, from its
    completions), and perhaps ``circuit`` and ``rows``.
    """

    rtol = 1e-9
    atol = 1e-12

    def circuit(self, seed):
        return random_circuit(seed)

    def rows(self, rng, circuit):
        return random_rows(rng, circuit, 3)

    def query(self, circuit, X):
        raise NotImplementedError

    def expected(self, completions: Completions):
        raise NotImplementedError

    @for_seeds()
    def test_equals_enumeration(self, seed):
        circuit = self.circuit(seed)
        X = self.rows(np.random.default_rng(seed), circuit)
        expected = [self.expected(Completions(circuit, x)) for x in X]
        np.testing.assert_allclose(self.query(circuit, X), expected, rtol=self.rtol, atol=self.atol)


class AlgebraCase:
    """An operation that makes one circuit of two.

    A subclass overrides ``operation`` and ``expected``, the value of the result at complete
    rows given the values of both circuits, and perhaps ``circuits``.
    """

    rtol = 1e-9

    def circuits(self, seed):
        return compatible_circuits(seed)

    def operation(self, p, q):
        raise NotImplementedError

    def expected(self, p_values, q_values):
        raise NotImplementedError

    @for_seeds()
    def test_equals_enumeration(self, seed):
        p, q = self.circuits(seed)
        rng = np.random.default_rng(seed)
        X = np.vstack([p.sample(10, random_state=rng), q.sample(10, random_state=rng)])
        result = self.operation(p, q)
        expected = self.expected(unit_values(p, X), unit_values(q, X))
        np.testing.assert_allclose(unit_values(result, X), expected, rtol=self.rtol)
        np.testing.assert_allclose(np.exp(result.log_prob(X)), expected, rtol=self.rtol)
