"""Circuits in files: one ``.npz`` archive with a JSON header, never a pickle.

The archive holds the graph (kinds, children, weights) and, per family of input units, its
parameters as plain arrays. Reading checks everything it uses and rebuilds the units through
their constructors, which check their own parameters; no code in a file is ever run.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from itertools import islice
from os import PathLike
from typing import Any

import numpy as np

from skcircuits.circuits.inputs import FAMILIES, LeafUnit
from skcircuits.circuits.units import Product, Sum, Unit, topological_order
from skcircuits.exceptions import CircuitFileError

__all__ = ["load", "save"]

FORMAT = "skcircuits circuit"
VERSION = 1
SUM, PRODUCT, FIRST_FAMILY = 0, 1, 2


def save(root: Unit, path: str | PathLike[str]) -> None:
    """Write a circuit.

    Parameters
    ----------
    root : Unit
        The root.
    path : str or path-like
        File name; written exactly as given.
    """
    order = topological_order(root)
    position = {id(unit): i for i, unit in enumerate(order)}
    families = sorted({type(unit).__name__ for unit in order if isinstance(unit, LeafUnit)})
    header = {"format": FORMAT, "version": VERSION, "families": families}
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "kinds": np.array([_kind(unit, families) for unit in order], dtype=np.int16),
        "n_children": np.array([len(unit.children) for unit in order], dtype=np.int64),
        "children": np.array(
            [position[id(child)] for unit in order for child in unit.children], dtype=np.int64
        ),
        "weights": np.concatenate(
            [unit.weights for unit in order if isinstance(unit, Sum)] or [np.empty(0)]
        ),
    }
    for name in families:
        leaves = [unit for unit in order if type(unit).__name__ == name]
        arrays.update(_pack(name, [leaf.parameters() for leaf in leaves]))  # type: ignore[attr-defined]
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _kind(unit: Unit, families: list[str]) -> int:
    """Number that says what a unit is."""
    if isinstance(unit, Sum):
        return SUM
    if isinstance(unit, Product):
        return PRODUCT
    return FIRST_FAMILY + families.index(type(unit).__name__)


def _pack(family: str, parameters: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Concatenate the parameters of one family: flat values and the shape of each."""
    packed = {}
    for name in parameters[0]:
        values = [np.asarray(entry[name]) for entry in parameters]
        packed[f"{family}.{name}.values"] = np.concatenate([value.ravel() for value in values])
        packed[f"{family}.{name}.shapes"] = np.array(
            [value.shape for value in values], dtype=np.int64
        ).reshape(len(values), -1)
    return packed


def load(path: str | PathLike[str]) -> Unit:
    """Read a circuit.

    Parameters
    ----------
    path : str or path-like
        File that ``save`` wrote.

    Returns
    -------
    Unit
        The root.

    Raises
    ------
    CircuitFileError
        If the file is no circuit, damaged, or of a newer version.
    """
    try:
        arrays = _read_arrays(path)
        return _rebuild(arrays, _check_header(arrays))
    except FileNotFoundError:
        raise
    except CircuitFileError:
        raise
    except (
        *(ValueError, KeyError, IndexError, TypeError, OverflowError, EOFError, OSError),
        *(MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    ) as error:
        raise CircuitFileError(
            f"{path!s} must be a circuit written by Circuit.save; it is damaged or something "
            f"else ({type(error).__name__}: {error})."
        ) from error


def _read_arrays(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays; a single array or object arrays are not a circuit."""
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise CircuitFileError("A circuit file must be an .npz archive; got a single array.")
    with loaded as archive:
        return {name: archive[name] for name in archive.files}


def _check_header(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Check format and version; gives the names of the families."""
    header = json.loads(arrays["header"].astype(np.uint8).tobytes().decode())
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CircuitFileError("A circuit file must have the header that Circuit.save writes.")
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise CircuitFileError(
            f"The version of a circuit file must be one of 1, ..., {VERSION}; got "
            f"version={version!r}. Install a newer skcircuits to read it."
        )
    unknown = set(header["families"]) - set(FAMILIES)
    if unknown:
        raise CircuitFileError(
            f"Input units of a circuit file must be among {sorted(FAMILIES)}; got "
            f"families={sorted(unknown)!r}."
        )
    return list(header["families"])


def _rebuild(arrays: Mapping[str, np.ndarray], families: list[str]) -> Unit:
    """Build the units, children first."""
    _check_graph(arrays, families)
    kinds, children = arrays["kinds"], arrays["children"]
    ends = np.cumsum(arrays["n_children"])
    weights = iter(arrays["weights"])
    leaves = {name: iter(_unpack(name, arrays)) for name in families}
    built: list[Unit] = []
    for kind, start, end in zip(kinds.tolist(), (ends - arrays["n_children"]).tolist(), ends):
        below = [built[number] for number in children[start:end]]
        if kind == SUM:
            built.append(Sum(below, weights=list(islice(weights, len(below)))))
        elif kind == PRODUCT:
            built.append(Product(below))
        else:
            name = families[kind - FIRST_FAMILY]
            built.append(FAMILIES[name](**next(leaves[name])))
    return built[-1]


def _check_graph(arrays: Mapping[str, np.ndarray], families: list[str]) -> None:
    """Check that kinds, children and weights describe a graph, children first."""
    kinds, n_children, children = arrays["kinds"], arrays["n_children"], arrays["children"]
    lists = all(
        array.ndim == 1 and array.dtype.kind in "iu" for array in (kinds, n_children, children)
    )
    if not lists or len(kinds) == 0 or len(kinds) != len(n_children):
        raise CircuitFileError("A circuit file must list the children of at least one unit.")
    # Bounds first: sums of hostile numbers could wrap around.
    bounded = n_children.min() >= 0 and n_children.max() <= len(children)
    if not bounded or n_children.sum() != len(children):
        raise CircuitFileError("A circuit file must list as many children as it announces.")
    # Children before parents also rules out cycles.
    parents = np.repeat(np.arange(len(kinds)), n_children)
    if not ((children >= 0) & (children < parents)).all():
        raise CircuitFileError("Units of a circuit file must follow their children.")
    if kinds.min() < 0 or kinds.max() >= FIRST_FAMILY + len(families):
        raise CircuitFileError("Units of a circuit file must be of the kinds its header names.")
    if arrays["weights"].shape != (n_children[kinds == SUM].sum(),):
        raise CircuitFileError("A circuit file must hold one weight per child of a sum.")
    for number, name in enumerate(families, start=FIRST_FAMILY):
        if any(len(arrays[key]) != (kinds == number).sum() for key in _shape_names(name, arrays)):
            raise CircuitFileError(f"A circuit file must hold the parameters of every {name}.")


def _shape_names(family: str, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the arrays that hold the shapes of a family's parameters."""
    return [key for key in arrays if key.startswith(f"{family}.") and key.endswith(".shapes")]


def _unpack(family: str, arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Constructor arguments of all units of a family."""
    columns: dict[str, list[Any]] = {}
    for key in _shape_names(family, arrays):
        name = key.removeprefix(f"{family}.").removesuffix(".shapes")
        values, shapes = arrays[f"{family}.{name}.values"], arrays[key]
        sizes = np.prod(shapes, axis=1, dtype=np.int64)
        if sizes.sum() != len(values) or (shapes < 0).any():
            raise CircuitFileError(f"Parameter {name} of {family} must match its shapes.")
        pieces = np.split(values, np.cumsum(sizes)[:-1])
        columns[name] = [
            piece.reshape(shape) if len(shape) else piece.item()
            for piece, shape in zip(pieces, shapes.tolist())
        ]
    return [dict(zip(columns, row)) for row in zip(*columns.values())]
