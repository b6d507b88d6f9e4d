"""Families of input units from outside the package: what they get, and what they lack."""

from unittest.mock import patch

import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    InputUnit,
    Poisson,
    entropy,
    kl_divergence,
    multiply,
    register_input_unit,
)
from skcircuits.circuits.inputs.base import FAMILIES, Rules, divergence
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.learning import fit_parameters


class ShiftedLayer(Poisson.layer_type):
    """Poisson units of a family of its own."""


class Shifted(Poisson):
    """A family that is not registered."""

    layer_type = ShiftedLayer


@pytest.fixture
def forgotten():
    """The registry is as it was after the test."""
    with patch.dict(FAMILIES):
        yield


def test_families_that_are_not_registered_have_no_files(tmp_path, forgotten):
    circuit = Circuit(Shifted(0, 2.0))
    with pytest.raises(CircuitPropertyError, match=r"be registered; got families=\['Shifted'\]"):
        circuit.save(tmp_path / "own.npz")
    register_input_unit(Shifted)
    circuit.save(tmp_path / "own.npz")
    loaded = Circuit.load(tmp_path / "own.npz")
    assert isinstance(loaded.root, Shifted)
    assert loaded.log_prob([[1.0]]) == circuit.log_prob([[1.0]])


def test_families_without_statistics_are_not_learned():
    start = Circuit(0.5 * Shifted(0, 1.0) + 0.5 * Shifted(0, 2.0))
    with pytest.raises(CircuitPropertyError, match="Register their statistics by"):
        fit_parameters(start, np.ones((4, 1)))


def test_names_are_taken_once(forgotten):
    other = type("Poisson", (Shifted,), {})
    with pytest.raises(ValueError, match="names of families must differ; got name='Poisson'"):
        register_input_unit(other)


def test_abstract_families_are_refused():
    class Unfinished(InputUnit):
        layer_type = ShiftedLayer

        def marginalize(self, variables):
            return None

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()
    with pytest.raises(TypeError, match=r"missing=\['parameters'\]"):
        register_input_unit(Unfinished)

    class WithoutLayer(Unfinished):
        layer_type = None

        def parameters(self):
            return {}

    with pytest.raises(TypeError, match=r"missing=\['layer_type'\]"):
        register_input_unit(WithoutLayer)


def test_joint_families_say_how_they_are_marginalised():
    class Joint(Shifted):
        def __init__(self, variables):
            self.scope = tuple(variables)

    joint = Joint([0, 1])
    assert joint.marginalize(frozenset({2})) is joint
    assert joint.marginalize(frozenset({0, 1})) is None
    with pytest.raises(CircuitPropertyError, match="overrides `marginalize`; got family='Joint'"):
        joint.marginalize(frozenset({1}))


def test_rules_serve_subclasses_nearest_first():
    rules = Rules("compared")
    rules.register(InputUnit, InputUnit)(lambda left, right: "any")
    rules.register(Poisson, Poisson)(lambda left, right: "counts")
    assert rules(Shifted(0, 1.0), Poisson(0, 1.0)) == "counts"
    assert rules(Shifted(0, 1.0), Bernoulli(0, 0.5)) == "any"


def test_rules_of_own_families():
    class Coin(Categorical):
        pass

    # A subclass has the rules of its base class
    p = Circuit(Coin(0, [0.2, 0.8]))
    assert multiply(p, p).log_partition == pytest.approx(np.log(0.04 + 0.64))
    assert entropy(p) == pytest.approx(-0.2 * np.log(0.2) - 0.8 * np.log(0.8))


@pytest.mark.parametrize(("missed", "expected"), [(0.0, 0.5), (1e-300, np.inf)])
def test_divergences_of_own_families_say_what_mass_is_missed(monkeypatch, missed, expected):
    monkeypatch.setattr(divergence, "_rules", dict(divergence._rules))
    divergence.register(Shifted, Shifted)(lambda left, right: (missed, 0.5))
    p, q = (Circuit(Shifted(0, shift) * Bernoulli(1, 0.3)) for shift in (1.0, 2.0))
    assert kl_divergence(p, q) == expected
