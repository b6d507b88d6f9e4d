"""What benchmarks print under two checkouts of the project, in turn::

    git worktree add ../before 55c7a49
    python -m benchmarks._before_after ../before . "fit_times nltcs" "hybrid queries german"

Every round runs a benchmark once under each checkout, as that checkout has it. Of lines that both
print, alike but for their numbers, those are shown in which a number changed, and the median over
the rounds of after / before for each such number: times should fall, rates rise. Some numbers are
counts or scores, which should stay.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from _data import data_path

NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")


def printed(checkout, benchmark):
    """Lines that a benchmark prints under a checkout: by their words, the line and its numbers."""
    script, *arguments = shlex.split(benchmark)
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}.py", *arguments],
        cwd=checkout,
        env={"SKCIRCUITS_DATA": str(data_path()), **os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines, seen = {}, Counter()
    for line in done.stdout.splitlines():
        words = " ".join(NUMBER.sub("#", line).split())
        numbers = [float(number.replace(",", "")) for number in NUMBER.findall(line)]
        lines[words, seen[words]] = line, np.array(numbers)
        seen[words] += 1
    return lines


def compare(checkouts, benchmark, n_rounds):
    """Print the lines of a benchmark whose numbers differ, with their ratios."""
    rounds = [[printed(checkout, benchmark) for checkout in checkouts] for _ in range(n_rounds)]
    _, latest = rounds[-1]
    for words, (line, _) in latest.items():
        if all(words in lines for pair in rounds for lines in pair):
            numbers = [[lines[words][1] for lines in pair] for pair in rounds]
            before, after = np.swapaxes(numbers, 0, 1)
            changed = (before != after).any(axis=0) & (before > 0).all(axis=0)
            ratios = np.median(after[:, changed] / before[:, changed], axis=0)
            if len(ratios):
                print(line, "  after / before:", *(f"{ratio:.2f}" for ratio in ratios), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("benchmarks", nargs="+", metavar="'SCRIPT ARGUMENT ...'")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    for benchmark in arguments.benchmarks:
        print(f"\n{benchmark}", flush=True)
        compare(checkouts, benchmark, arguments.rounds)


if __name__ == "__main__":
    main()
