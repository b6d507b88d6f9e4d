"""One script per claim: ``python benchmarks/NAME.py`` or ``python -m benchmarks.NAME``."""

import sys
from pathlib import Path

# Scripts import their helpers by plain names, whichever way they are started.
sys.path.insert(0, str(Path(__file__).parent))
