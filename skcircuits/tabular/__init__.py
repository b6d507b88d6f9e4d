"""Conversion of tables: dataframes, categories and missing values to float arrays and back."""

from skcircuits.tabular._columns import column_mask
from skcircuits.tabular._discretize import Discretizer
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries import Boxes, compile_queries

__all__ = ["Boxes", "Discretizer", "TableSchema", "column_mask", "compile_queries"]
