"""The boundary to tables: dataframes, labels and missing cells in, float arrays out."""

from skcircuits.tabular.schema import TableSchema

__all__ = ["TableSchema"]
