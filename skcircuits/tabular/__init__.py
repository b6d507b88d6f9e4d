"""The boundary to tables: dataframes, labels and missing cells in, float arrays out."""

from skcircuits.tabular._column_mask import column_mask
from skcircuits.tabular._discretize import Discretizer
from skcircuits.tabular._queries import Boxes, compile_queries
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular._text_queries import parse_query

__all__ = ["Boxes", "Discretizer", "TableSchema", "column_mask", "compile_queries", "parse_query"]
