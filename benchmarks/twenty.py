"""Test log-likelihoods on the Twenty Datasets, beside the published ones.

Reproduces Table 1 of Selvam, Zhang and Van den Broeck, "Mixtures of All Trees" (2023), and,
with ``--curves``, the learning curves of Figure 3 for both initialisations::

    python -m benchmarks.twenty --model moat --data nltcs plants
    python -m benchmarks.twenty --model moat --data plants --set n_components=8 --set max_iter=60
    python -m benchmarks.twenty --model moat --data plants --curves

The pass with the best validation score is tested. Seconds are wall-clock times of the fit.
"""

import argparse
import ast
import time

import numpy as np

from benchmarks._data import data_path
from skcircuits.estimators.moat import MoATDensity

MODELS = {
    "moat": MoATDensity,
}
# Per dataset: number of variables, published MoAT, HCLT and MT
PUBLISHED = {
    "nltcs": (16, -6.07, -5.99, -6.01),
    "msnbc": (17, -6.43, -6.05, -6.07),
    "kdd": (64, -2.13, -2.18, -2.13),
    "plants": (69, -13.50, -14.26, -12.95),
    "baudio": (100, -39.03, -39.77, -40.08),
    "jester": (100, -51.65, -52.46, -53.08),
    "bnetflix": (100, -55.52, -56.27, -56.74),
    "accidents": (111, -31.59, -26.74, -29.63),
    "tretail": (135, -10.81, -10.84, -10.83),
    "pumsb_star": (163, -29.89, -23.64, -23.71),
    "dna": (180, -87.10, -79.05, -85.14),
    "kosarek": (190, -10.57, -10.66, -10.62),
    "msweb": (294, -9.80, -9.98, -9.85),
    "book": (500, -33.46, -33.83, -34.63),
    "tmovie": (500, -49.37, -50.81, -54.60),
    "cwebkb": (839, -147.70, -152.77, -156.86),
    "cr52": (889, -84.78, -86.26, -85.90),
    "c20ng": (910, -149.44, -153.4, -154.24),
    "bbc": (1058, -243.82, -251.04, -261.84),
    "ad": (1556, -15.30, -16.07, -16.02),
}


def load(name):
    with np.load(data_path("twenty", f"{name}.npz")) as splits:
        return splits["train"], splits["valid"], splits["test"]


def run(name, make, parameters):
    """Fit one model and print its line of the table."""
    train, valid, test = load(name)
    start = time.perf_counter()
    model = make(random_state=0, **parameters).fit(train, X_val=valid)
    seconds = time.perf_counter() - start
    _, moat, hclt, mixture_of_trees = PUBLISHED[name]
    columns = [f"{name:10s}", f"{train.shape[1]:5d}", f"{model.score(test):9.3f}"]
    columns += [f"{value:8.2f}" for value in (moat, hclt, mixture_of_trees)]
    columns += [f"{model.n_iter_:6d}", f"{seconds:8.1f}"]
    print(" ".join(columns), flush=True)
    return model


def print_curves(name, parameters):
    """Print training and validation log-likelihood per pass for both initialisations."""
    print(f"{name}: pass, then training and validation log-likelihood of each initialisation")
    train, valid, _ = load(name)
    curves = []
    for init in ("mutual_information", "random"):
        model = MoATDensity(init=init, random_state=0, n_iter_no_change=10_000, **parameters)
        model.fit(train, X_val=valid)
        curves += [-np.array(model.loss_curve_), np.array(model.validation_scores_)]
    print("pass", "mutual_information".rjust(20), "random".rjust(20))
    for i, values in enumerate(zip(*curves, strict=True), start=1):
        print(f"{i:4d}", " ".join(f"{value:10.4f}" for value in values))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="moat")
    parser.add_argument("--data", nargs="+", choices=sorted(PUBLISHED), default=["nltcs"])
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE")
    parser.add_argument("--curves", action="store_true", help="learning curves instead of scores")
    return parser.parse_args()


def main():
    arguments = parse()
    pairs = (setting.split("=", 1) for setting in arguments.set)
    parameters = {name: ast.literal_eval(value) for name, value in pairs}
    if arguments.curves:
        for name in arguments.data:
            print_curves(name, parameters)
        return
    print(f"{arguments.model}, parameters {parameters}; test log-likelihood, nats per row")
    print("data        vars      test     MoAT     HCLT       MT passes  seconds")
    for name in arguments.data:
        run(name, MODELS[arguments.model], parameters)


if __name__ == "__main__":
    main()
