"""Run all benchmarks one after the other: ``python -m benchmarks [name ...]``."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))

if __name__ == "__main__":
    for name in sys.argv[1:] or SCRIPTS:
        print(f"\n=== {name} ===", flush=True)
        sys.argv = [name]
        runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
