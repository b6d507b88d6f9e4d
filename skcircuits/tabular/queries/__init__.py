"""Queries about rows: strings, mappings and objects, read as unions of disjoint boxes."""

from skcircuits.tabular.queries._binding import Boxes
from skcircuits.tabular.queries._conditions import compile_queries
from skcircuits.tabular.queries.expressions import Expression, Query, col, count

__all__ = ["Boxes", "Expression", "Query", "col", "compile_queries", "count"]
