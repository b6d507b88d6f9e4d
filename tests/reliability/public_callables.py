"""Every public callable, found by introspection, with arguments that it takes and hostile ones."""

import copy
import importlib
import inspect
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

import skcircuits
from skcircuits.circuits import Categorical, Circuit, Gaussian
from skcircuits.graphical import BayesianNetwork, GaussianMRF, IsingModel
from skcircuits.kernels import RBF, Hamming

PACKAGES = ["", ".circuits", ".graphical", ".kernels", ".stein", ".particles", ".learning"]


@cache
def numbers():
    return np.random.default_rng(0).normal(size=(12, 2))


@cache
def codes():
    return np.random.default_rng(0).integers(2, size=(12, 4)).astype(float)


@cache
def mixed_circuit():
    return Circuit(
        0.3 * Categorical(0, [0.2, 0.8]) * Gaussian(1, 0.0, 1.0)
        + 0.7 * Categorical(0, [0.5, 0.5]) * Gaussian(1, 2.0, 1.0)
    )


@cache
def ising():
    return IsingModel.grid(2, 2, couplings=0.3)


def public_functions():
    """Pairs of a name and a function or class, every one once."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(f"skcircuits{package}")
        for name in module.__all__:
            member = getattr(module, name)
            if name.startswith("register_"):  # changes the package for everybody
                continue
            if callable(member) and member.__module__.startswith("skcircuits"):
                found.setdefault(member, f"{module.__name__}.{name}")
    return [(name, member) for member, name in found.items()]


def public_methods(thing):
    """Names of the public methods of an object."""
    return [
        name
        for name, _ in inspect.getmembers(type(thing), callable)
        if not name.startswith(("_", "set_", "get_metadata")) and name not in NOT_CALLED
    ]


# They write files, draw, read Python objects of others, or are the business of scikit-learn.
NOT_CALLED = {
    *("save", "load", "to_uai", "to_bif", "from_uai", "from_bif", "from_psdd", "from_pgmpy"),
    *("to_xmlbif", "from_xmlbif"),
    *("show", "figure", "get_params", "univariate"),
}


def instances():
    """Objects whose methods are called, by name."""
    network = BayesianNetwork([[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.4, 0.6]]])
    found = {
        "mixed_circuit": mixed_circuit(),
        "ising": ising(),
        "network": network,
        "gaussian_mrf": GaussianMRF(np.array([[2.0, 0.5], [0.5, 1.0]]), [0.0, 1.0]),
        "rbf": RBF(gamma=0.5),
        "hamming": Hamming(scale=1.0),
    }
    return found


# What a parameter of this name takes, to leave one thing wrong at a time.
VALID = {
    "circuit": mixed_circuit,
    "p": mixed_circuit,
    "q": mixed_circuit,
    "kernel": lambda: RBF(gamma=0.5) * Hamming(scale=1.0, variables=[0]),
    "target": ising,
    "X": lambda: mixed_circuit().sample(6, random_state=0),
    "Y": lambda: mixed_circuit().sample(6, random_state=1),
    "x": lambda: np.array([1.0, np.nan]),
    "lower": lambda: np.zeros((3, 2)),
    "upper": lambda: np.ones((3, 2)),
    "variables": lambda: [0],
    "variable": lambda: 0,
    "n_samples": lambda: 3,
    "random_state": lambda: 0,
    "evidence": lambda: {0: 1},
    "hidden": lambda: [0],
    "children": lambda: [Gaussian(0, 0.0, 1.0)],
    "probabilities": lambda: [0.2, 0.8],
    "couplings": lambda: np.zeros((2, 2)),
    "cardinalities": lambda: [2, 2],
    "factors": lambda: [((0, 1), np.ones((2, 2)))],
    "first": lambda: [0],
    "second": lambda: [1],
    "verbose": lambda: 0,
    "K": lambda: np.eye(3),
    "weights": lambda: None,
    "mean": lambda: 0.0,
    "std": lambda: 1.0,
    "precision": lambda: np.eye(2),
    "linear": lambda: np.zeros(2),
}


def hostile_values(rng):
    """One of what is seldom meant; a new copy, since a function may change it."""
    choices = _hostile_values()
    value = choices[rng.integers(len(choices))]
    is_readonly = isinstance(value, np.ndarray) and not value.flags.writeable
    return value if is_readonly else copy.deepcopy(value)


@cache
def _hostile_values():
    """Everything that is seldom meant."""
    table = np.array([[0.0, 1.0], [np.nan, 0.5], [1.0, -2.0]])
    readonly = table.copy()
    readonly.flags.writeable = False
    return [
        None, True, -1, 0, 10**400, -(10**20), 1e308, -1e308, 1e-320, np.nan, np.inf, -np.inf, 0.5,
        "", "abc", "X", b"bytes", [], {}, (), set(), object(), [[]], [[], []], [None], ["a", 1.0],
        {"a": 1}, {-1: 0}, {0: 99}, {0: np.nan}, [[1, 2], [3]], [np.nan], [np.inf, 0.0], [10**400],
        np.array(1.0), np.empty((0, 2)), np.empty((3, 0)), np.empty(0), table[:1], table[:, :1],
        table, table.T, table[::-1], table[:, ::-1], np.asfortranarray(table), readonly,
        table.astype(np.float32), table.astype(np.float16), np.full((3, 2), np.inf),
        np.full((3, 2), 1e308), np.full((3, 2), 1e-320), np.full((3, 2), np.nan),
        table.astype(object), np.array([["a", "b"]] * 3), np.array([["a", None]], dtype=object),
        np.ones((2, 2, 2)), np.ones(7), np.ones((3, 40)), np.ones((3, 2), dtype=complex),
        np.ones((3, 2), dtype=bool), np.ones((3, 2), dtype=np.uint8),
        np.array(["2020-01-01"], dtype="datetime64[D]"), np.ma.masked_invalid(table),
        sparse.csr_array(np.eye(2)), np.eye(2).view(np.matrix),
        pd.DataFrame(table, columns=["a", "a"]),
        pd.DataFrame({"a": ["u", "v"], "b": [1.0, np.nan]}), pd.DataFrame(), pd.Series([1.0, 2.0]),
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": pd.Categorical(["u", "v"])}),
        pl.DataFrame({"a": [1.0, None], "b": ["u", "v"]}), pl.Series([1.0, 2.0]), lambda x: x,
        mixed_circuit(), ising(), RBF(gamma=1.0), skcircuits.ChowLiuDensity(), int, range(3),
        np.random.default_rng(0), iter([1, 2]),
    ]  # fmt: skip


def arguments(function, rng):
    """Draw keyword arguments: valid ones by name, one or two of them hostile."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    named = [
        p
        for p in parameters
        if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if not named or any(p.kind is p.POSITIONAL_ONLY for p in named):
        return None
    given = {
        p.name: VALID[p.name]() if p.name in VALID else hostile_values(rng)
        for p in named
        if p.default is p.empty
    }
    for index in rng.integers(len(named), size=rng.integers(1, 3)):
        given[named[index].name] = hostile_values(rng)
    return given


def fingerprint(value):
    """What must not change of an argument."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tobytes(), value.flags.writeable, value.shape
    if isinstance(value, pd.DataFrame | pd.Series | pl.DataFrame | pl.Series | dict | list | set):
        return repr(value)
    return None
