"""File formats, text and drawings of circuits."""
