"""Results that survive an interruption: one JSON object per line."""

import json
from pathlib import Path

import pandas as pd

__all__ = ["Records"]


class Records:
    """Lines of a file below ``benchmarks/results``; what is there is not computed again."""

    def __init__(self, path, keys):
        self.path = Path(path)
        self.keys = keys
        self.lines = []
        if self.path.exists():
            self.lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        self._known = {self._key(line) for line in self.lines}

    def _key(self, record):
        return tuple(record[key] for key in self.keys)

    def __contains__(self, record):
        return self._key(record) in self._known

    def add(self, record):
        """Append one line at once."""
        self.lines.append(record)
        self._known.add(self._key(record))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def table(self):
        """All lines as a dataframe."""
        return pd.DataFrame(self.lines)
