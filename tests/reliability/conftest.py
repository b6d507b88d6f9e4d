"""How much is tried, from which seed, and the table that `make reliability` prints.

``RELIABILITY_SEED`` repeats a run, ``RELIABILITY_SCALE`` multiplies the numbers of cases.
"""

import os
from collections import defaultdict

import numpy as np
import pytest

SEED = int(os.environ.get("RELIABILITY_SEED", "0"))
SCALE = float(os.environ.get("RELIABILITY_SCALE", "1"))


class Tally:
    """Seeds of the cases of one test; what failed is collected, so that all are tried."""

    def __init__(self, record_property):
        self.record_property = record_property
        self.failures = []
        self.n_cases = 0

    def seeds(self, n_cases, name=""):
        """Give one seed per case, other ones for every name and every run's seed."""
        root = np.random.SeedSequence([SEED, *name.encode()])
        return root.generate_state(max(1, round(n_cases * SCALE))).tolist()

    def check(self, case, function, *arguments):
        """Run one case; an exception is kept with the words that repeat it."""
        self.n_cases += 1
        try:
            function(*arguments)
        except Exception as error:
            self.failures.append(f"{case}: {type(error).__name__}: {str(error)[:300]}")

    def close(self):
        self.record_property("cases", self.n_cases)
        self.record_property("failed_cases", len(self.failures))
        if self.failures:
            shown = "\n".join(self.failures[:400])
            pytest.fail(
                f"{len(self.failures)} of {self.n_cases} cases (RELIABILITY_SEED={SEED}):\n{shown}",
                pytrace=False,
            )


@pytest.fixture
def tally(record_property):
    cases = Tally(record_property)
    yield cases
    cases.close()


def pytest_terminal_summary(terminalreporter):
    """Print cases, failures and seconds of each class of tests."""
    nodes = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            node = getattr(report, "nodeid", "")
            # Modules that cannot be imported have reports of their own, without properties.
            is_test = "tests/reliability/" in node and isinstance(report, pytest.TestReport)
            if not is_test or report.skipped:
                continue
            found = dict(report.user_properties)
            n_cases, n_failures, seconds = nodes.get(node, (1, 0, 0.0))
            # The fixture tells its numbers when it is torn down; other tests are one case.
            n_cases = found.get("cases", n_cases)
            n_failures = found.get("failed_cases", max(n_failures, int(report.failed)))
            nodes[node] = n_cases, n_failures, seconds + report.duration
    rows = defaultdict(lambda: np.zeros(3))
    for node, numbers in nodes.items():
        rows[node.split("/")[-1].split(".py")[0].removeprefix("test_")] += numbers
    if rows:
        terminalreporter.write_sep("-", f"reliability (RELIABILITY_SEED={SEED})")
        terminalreporter.write_line(f"{'class':16s}{'cases':>10s}{'failures':>10s}{'seconds':>10s}")
        for name, (n_cases, n_failures, seconds) in sorted(rows.items()):
            terminalreporter.write_line(
                f"{name:16s}{n_cases:10.0f}{n_failures:10.0f}{seconds:10.1f}"
            )
