"""Peak memory of a whole fit of the mixture of all trees on the widest table.

ad has 1556 binary columns and 2461 training rows; every pass visits all of them with both
threads, and the 327 validation rows are scored after each. The peak memory of a process includes
all that it did before, so that nothing else runs in this one. A pass takes some minutes::

    OMP_NUM_THREADS=1 python -m benchmarks.moat_memory
    OMP_NUM_THREADS=1 python -m benchmarks.moat_memory --rows 128
"""

import argparse
import resource
import time

from twenty import load

from skcircuits import MoATDensity


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--rows", type=int, default=None, help="use the first rows only")
    arguments = parser.parse_args()
    train, valid, _ = load("ad")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    density = MoATDensity(max_iter=arguments.passes, n_jobs=2, random_state=0)
    density.fit(train[: arguments.rows], X_val=valid[: arguments.rows])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"ad: {density.n_iter_} passes over {len(train[: arguments.rows])} rows of "
        f"{train.shape[1]} variables in {seconds:.0f} s, peak memory {peak * 1024 / 1e6:.0f} MB "
        f"({before * 1024 / 1e6:.0f} MB before the fit)"
    )
    print(f"validation log-likelihoods {density.validation_scores_}")


if __name__ == "__main__":
    main()
