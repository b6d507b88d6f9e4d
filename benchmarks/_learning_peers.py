"""Peers of the learning benchmark, run by an interpreter that has them.

Called by ``benchmarks.fit_times``::

    python benchmarks/_learning_peers.py deeprob|spflow splits.npz

Prints one line of JSON: wall-clock and processor seconds of the fit, and the mean log likelihood
of the test rows.
"""

import json
import sys
import time

import numpy as np


class Clock:
    """Runs from its construction."""

    def __init__(self):
        self.began = time.perf_counter(), time.process_time()

    def seconds(self):
        """Wall-clock and processor seconds so far."""
        return time.perf_counter() - self.began[0], time.process_time() - self.began[1]


def deeprob(train, test):
    """LearnSPN with Chow-Liu leaves, the library's strongest settings on these tables."""
    from deeprob.spn.algorithms.inference import log_likelihood
    from deeprob.spn.learning.wrappers import learn_estimator
    from deeprob.spn.structure.leaf import Bernoulli

    n_columns = train.shape[1]
    clock = Clock()
    root = learn_estimator(
        train.astype(np.float32),
        [Bernoulli] * n_columns,
        [[0, 1]] * n_columns,
        learn_leaf="binary-clt",
        split_rows="kmeans",
        split_cols="gvs",
        min_rows_slice=256,
        random_state=0,
        verbose=False,
    )
    seconds = clock.seconds()
    return seconds, log_likelihood(root, test.astype(np.float32))


def spflow(train, test):
    """A hidden Chow-Liu tree with 16 states, 50 steps of expectation maximisation."""
    import torch
    from spflow.learn import expectation_maximization
    from spflow.zoo.hclt import learn_hclt_binary

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = torch.tensor(train, dtype=torch.float32)
    clock = Clock()
    model = learn_hclt_binary(rows, num_hidden_cats=16)
    expectation_maximization(model, rows, max_steps=50)
    seconds = clock.seconds()
    with torch.no_grad():
        return seconds, model.log_likelihood(torch.tensor(test, dtype=torch.float32)).numpy()


if __name__ == "__main__":
    peer, source = sys.argv[1:]
    with np.load(source) as splits:
        found = {"deeprob": deeprob, "spflow": spflow}[peer](splits["train"], splits["test"])
    (wall, processor), log_likelihoods = found
    score = float(np.mean(log_likelihoods))
    print(json.dumps({"wall": wall, "processor": processor, "score": score}))
