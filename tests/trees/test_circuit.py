import numpy as np
import pytest

from skcircuits.circuits import Categorical, is_decomposable, is_smooth
from skcircuits.trees import TreeBank, bank_circuit
from tests.trees.conftest import all_states


@pytest.fixture
def bank(two_components):
    return TreeBank(two_components, 12, np.random.default_rng(0))


def test_circuit_is_the_bank(bank):
    circuit = bank_circuit(bank, Categorical)
    states = all_states(bank.layout.cardinalities)
    rows = states.astype(float)
    rows[np.random.default_rng(1).random(rows.shape) < 0.4] = np.nan
    codes = np.where(np.isnan(rows), -1, rows).astype(int)
    expected = bank.log_evidence(bank.layout.evidence(codes))
    np.testing.assert_allclose(circuit.log_prob(rows), expected, atol=1e-10)


def test_circuit_is_well_formed(bank):
    circuit = bank_circuit(bank, Categorical)
    assert is_smooth(circuit) and is_decomposable(circuit)
    assert np.exp(circuit.log_partition) == pytest.approx(1)


def test_marginals_of_the_circuit(bank):
    circuit = bank_circuit(bank, Categorical)
    row = np.array([[0, np.nan, 1, np.nan]])
    evidence = bank.layout.evidence(np.array([[0, -1, 1, -1]]))
    expected = bank.marginals(evidence).probabilities[0]
    np.testing.assert_allclose(circuit.marginals(row)[1][0], expected[2:5], atol=1e-10)
