"""Run a function of a test module in a fresh process, under limits of memory and time.

python -m tests.reliability.child <mebibytes> <seconds> <module> <function> [arguments]
"""

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def run_limited(module, function, *arguments, mebibytes=4096, seconds=60):
    """Give the exit code and all that was printed."""
    command = [sys.executable, "-m", "tests.reliability.child", str(mebibytes), str(seconds)]
    done = subprocess.run(
        [*command, module, function, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=2 * seconds + 60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def main():
    mebibytes, seconds, module, function, *arguments = sys.argv[1:]
    target = getattr(importlib.import_module(module), function)
    # BLAS ends the process where it finds no room for its buffers, which it maps at first use
    np.linalg.eigh(np.ones((100, 100)) @ np.ones((100, 100)))
    # Set after the imports, whose libraries map memory that they never touch.
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + (int(mebibytes) << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    target(*arguments)


if __name__ == "__main__":
    main()
