"""Peers of the circuit benchmark, run by an interpreter that has them.

Called by ``benchmarks.evaluate``::

    python benchmarks/_circuit_peers.py deeprob|spflow rows.npz result.json

The archive holds ``train``, ``rows`` (complete) and ``incomplete``; the result the rates in rows
per processor second and, for deeprob-kit, the learned circuit with the log likelihoods of
``incomplete``.
"""

import json
import sys
import time

import numpy as np


def rate(function, n_rows):
    """Rows per processor second of the faster of two runs."""
    seconds = []
    for _ in range(2):
        began = time.process_time()
        function()
        seconds.append(time.process_time() - began)
    return n_rows / min(seconds)


def deeprob(train, rows, incomplete):
    from deeprob.spn.algorithms.inference import log_likelihood, mpe
    from deeprob.spn.algorithms.sampling import sample
    from deeprob.spn.learning.wrappers import learn_estimator
    from deeprob.spn.structure.leaf import Bernoulli

    n_columns = train.shape[1]
    root = learn_estimator(
        train.astype(np.float32),
        [Bernoulli] * n_columns,
        [[0, 1]] * n_columns,
        learn_leaf="mle",
        split_rows="kmeans",
        split_cols="gvs",
        min_rows_slice=64,
        random_state=0,
        verbose=False,
    )
    nothing = np.full_like(incomplete, np.nan)
    return {
        "units": graph(root),
        "log_likelihoods": np.ravel(log_likelihood(root, incomplete)).tolist(),
        "rates": {
            "log_prob": rate(lambda: log_likelihood(root, rows), len(rows)),
            "log_prob, 30 % NaN": rate(lambda: log_likelihood(root, incomplete), len(rows)),
            "mpe": rate(lambda: mpe(root, incomplete), len(rows)),
            "sample": rate(lambda: sample(root, nothing), len(rows)),
            "conditional sample": rate(lambda: sample(root, incomplete), len(rows)),
        },
    }


def graph(root):
    """Units of a deeprob circuit, children first: kind, children, weights or variable and p."""
    units, number = [], {}
    stack = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        if id(node) in number:
            continue
        if not children_done:
            stack.append((node, True))
            stack.extend((child, False) for child in node.children)
            continue
        number[id(node)] = len(units)
        children = [number[id(child)] for child in node.children]
        if not children:
            units.append({"variable": int(node.scope[0]), "p": float(node.p)})
        elif hasattr(node, "weights"):
            units.append({"children": children, "weights": np.asarray(node.weights).tolist()})
        else:
            units.append({"children": children})
    return units


def spflow(train, rows, incomplete):
    import torch
    from spflow.zoo.hclt import learn_hclt_binary

    torch.set_num_threads(1)
    model = learn_hclt_binary(torch.tensor(train), num_hidden_cats=16, init="random")
    complete, missing = (torch.tensor(x, dtype=torch.float32) for x in (rows, incomplete))
    with torch.no_grad():
        return {
            "n_parameters": sum(p.numel() for p in model.parameters()),
            "rates": {
                "log_prob": rate(lambda: model.log_likelihood(complete), len(rows)),
                "log_prob, 30 % NaN": rate(lambda: model.log_likelihood(missing), len(rows)),
            },
        }


if __name__ == "__main__":
    peer, source, target = sys.argv[1:]
    with np.load(source) as archive:
        tables = [archive[name] for name in ("train", "rows", "incomplete")]
    result = {"deeprob": deeprob, "spflow": spflow}[peer](*tables)
    with open(target, "w") as file:
        json.dump(result, file)
