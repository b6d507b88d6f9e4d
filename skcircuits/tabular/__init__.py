"""The boundary to tables: dataframes, labels and missing cells in, float arrays out."""

from skcircuits.tabular.column_mask import column_mask
from skcircuits.tabular.discretize import Discretizer
from skcircuits.tabular.queries import Boxes, compile_queries
from skcircuits.tabular.schema import TableSchema
from skcircuits.tabular.text_queries import parse_query

__all__ = ["Boxes", "Discretizer", "TableSchema", "column_mask", "compile_queries", "parse_query"]
