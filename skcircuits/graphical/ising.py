"""Ising models: binary variables with pairwise couplings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must, require, require_count
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.factor_graph import FactorGraph
from skcircuits.numerics._arrays import float_array
from skcircuits.protocols import FloatArray, IntArray


class IsingModel(FactorGraph):
    """Binary variables with pairwise couplings and fields.

    ``p(x) ∝ exp(sum_{i<j} J_ij s_i s_j + sum_i h_i s_i)`` with spins ``s = 2 x - 1`` of the
    states x in {0, 1}.

    Parameters
    ----------
    couplings : array-like of shape (d, d)
        Symmetric matrix J with a zero diagonal.
    fields : array-like of shape (d,), default=None
        The fields h; zero by default.

    Attributes
    ----------
    couplings : ndarray of shape (d, d)
        The matrix J.
    fields : ndarray of shape (d,)
        The vector h.

    See Also
    --------
    FactorGraph : The common methods, and the representation of rows and evidence.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> model = IsingModel.grid(2, 2, couplings=0.5, fields=[1.0, 0.0, 0.0, 0.0])
    >>> [float(p[1].round(3)) for p in model.marginals()]
    [0.881, 0.704, 0.704, 0.656]
    """

    def __init__(self, couplings: ArrayLike, fields: ArrayLike | None = None) -> None:
        matrix = float_array(couplings, "couplings").copy()
        _check_couplings(matrix)
        self.couplings = matrix
        self.fields = (
            np.zeros(len(matrix)) if fields is None else float_array(fields, "fields").copy()
        )
        if self.fields.shape != (len(matrix),) or not np.isfinite(self.fields).all():
            condition = "have one entry per variable, all finite"
            way_out = "Use evidence to fix a variable."
            raise ValueError(must("fields", condition, way_out, shape=self.fields.shape))
        # Energies go straight into log tables: exp(large coupling) is never formed.
        super().__init__(_factors(matrix, self.fields), np.full(len(matrix), 2))

    @classmethod
    def grid(
        cls,
        n_rows: int,
        n_columns: int,
        couplings: float | Sequence[float] | FloatArray = 1.0,
        fields: float | Sequence[float] | FloatArray = 0.0,
    ) -> IsingModel:
        """Build a rectangular grid.

        Parameters
        ----------
        n_rows, n_columns : int
            Size of the grid. Variable ``r * n_columns + c`` is in row r and column c.
        couplings : float or array-like of shape (n_edges,), default=1.0
            One coupling for all edges, or one per edge in the order of :meth:`grid_edges`.
        fields : float or array-like of shape (n_rows * n_columns,), default=0.0
            One field for all variables, or one per variable.

        Returns
        -------
        IsingModel
            The model.
        """
        left, right = cls.grid_edges(n_rows, n_columns).T
        matrix = np.zeros((n_rows * n_columns, n_rows * n_columns))
        # Upper half first; the sum below makes it symmetric.
        matrix[left, right] = _one_or_each(couplings, len(left), "couplings of a grid")
        each = _one_or_each(fields, len(matrix), "fields of a grid")
        return cls(matrix + matrix.T, np.broadcast_to(each, len(matrix)))

    @staticmethod
    def grid_edges(n_rows: int, n_columns: int) -> IntArray:
        """List the edges of a rectangular grid: all horizontal ones, then all vertical ones.

        Parameters
        ----------
        n_rows, n_columns : int
            Size of the grid.

        Returns
        -------
        ndarray of int of shape (n_edges, 2)
            The two variables of each edge.
        """
        require_count(1, n_rows=n_rows, n_columns=n_columns)
        cell = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
        horizontal = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
        vertical = np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1)
        return np.concatenate([horizontal, vertical])

    @classmethod
    def from_networkx(
        cls, graph: Any, *, weight: str = "weight", field: str = "field"
    ) -> IsingModel:
        """Convert an undirected networkx graph.

        Parameters
        ----------
        graph : networkx.Graph
            Variables in the order of ``graph.nodes``; parallel edges of a multigraph add up.
        weight : str, default="weight"
            Edge attribute with the coupling, which is 1 if absent.
        field : str, default="field"
            Node attribute with the field, which is 0 if absent.

        Returns
        -------
        IsingModel
            The model.
        """
        require("is_directed", "a networkx graph", graph=graph)
        if graph.is_directed():
            way_out = "Pass graph.to_undirected()."
            raise ValueError(must("graph", "be undirected", way_out, graph=type(graph).__name__))
        # Nodes may be anything hashable; variables are numbers.
        position = {node: index for index, node in enumerate(graph.nodes)}
        matrix = np.zeros((len(position), len(position)))
        edges = list(graph.edges(data=weight, default=1.0))
        couplings = float_array([edge[2] for edge in edges], f"{weight} of the edges")
        for (left, right, _), coupling in zip(edges, couplings.tolist()):
            matrix[position[left], position[right]] += coupling
        fields = [value for _, value in graph.nodes(data=field, default=0.0)]
        return cls(matrix + matrix.T, fields)


def _check_couplings(matrix: FloatArray) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(must("couplings", "be a square matrix", shape=matrix.shape))
    if not np.isfinite(matrix).all():
        raise ValueError(must("couplings", "be finite", "Use evidence to fix variables."))
    if not np.array_equal(matrix, matrix.T):
        raise ValueError(
            must("couplings", "be a symmetric matrix", "Pass (J + J.T) / 2.", shape=matrix.shape)
        )
    if np.diag(matrix).any():
        condition = "have a zero diagonal"
        way_out = "Pass fields as a separate vector; self-loops of a graph have no meaning here."
        raise ValueError(
            must("couplings", condition, way_out, variables=np.diag(matrix).nonzero()[0].tolist())
        )


def _one_or_each(values: ArrayLike, count: int, thing: str) -> FloatArray:
    array = float_array(values, thing)
    if array.shape not in ((), (count,)):
        raise ValueError(must(thing, f"be one number or {count}", shape=array.shape))
    return array


def _factors(couplings: FloatArray, fields: FloatArray) -> list[Factor]:
    agreement = np.array([[1.0, -1.0], [-1.0, 1.0]])
    # Zero couplings are no edges: they would widen every elimination.
    pairs = np.argwhere(np.triu(couplings)).tolist()
    factors = [Factor((i, j), couplings[i, j] * agreement) for i, j in pairs]
    return factors + [
        Factor((i,), np.array([-field, field])) for i, field in enumerate(fields) if field
    ]
