"""Results that survive an interruption: one JSON object per line."""

import json
import shlex
import sys
import time
from pathlib import Path

import pandas as pd

__all__ = ["FOLDER", "Records", "lines_of", "record"]

FOLDER = Path(__file__).parent / "papers"  # beside the code: the page is drawn from them


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


def record(table, name, compute):
    """Give the numbers of an entry of a table; compute and keep them where it is not there.

    With them are kept the command that asked for them and the process time they took: what
    `python -m benchmarks.reproductions` writes beside the numbers of the papers.
    """
    records = Records(FOLDER / f"{table}.jsonl", ["name"])
    if {"name": name} not in records:
        start = time.process_time()
        numbers = compute()
        module = f"benchmarks.{Path(sys.argv[0]).stem}"
        command = shlex.join(["python", "-m", module, *sys.argv[1:]])
        seconds = round(time.process_time() - start, 1)
        records.add({"name": name, "command": command, "seconds": seconds, "numbers": numbers})
    return next(line["numbers"] for line in records.lines if line["name"] == name)


def lines_of(table):
    """Kept entries of a table by name."""
    return {line["name"]: line for line in Records(FOLDER / f"{table}.jsonl", ["name"]).lines}
