"""How well draws of a density are told from real rows: the classifier two-sample score.

A density is fitted to half of a table. A gradient boosting classifier then distinguishes the other
half from as many drawn rows. If they cannot be distinguished, the area under the curve of its
cross-validated scores is 1/2. The score is 2 (1 - area), at most 1 (Lopez-Paz and Oquab,
"Revisiting Classifier Two-Sample Tests", ICLR 2017). "real" are the rows that taught the densities
in place of drawn ones: what a perfect density reaches.

Tables of numbers and categories: abalone, elevators (categories: its columns of at most five
values) and shuttle, at most 10,000 rows each; clinic, shop, weather and cars are generated.

Results are appended to a file, one line per table, density and seed; what is there is not run
again.

Run: OMP_NUM_THREADS=1 python benchmarks/two_sample.py [--tables abalone] [--densities latent_tree]
     [--seeds 1] [--results FILE]
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _data import data_path
from _results import Records
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from skcircuits import (
    AutomaticDensity,
    ChowLiuDensity,
    GaussianMixtureDensity,
    HiddenChowLiuDensity,
    WMISPNDensity,
)

RESULTS = Path(__file__).parent / "results" / "two_sample.jsonl"
TABLES = ["abalone", "elevators", "shuttle", "clinic", "shop", "weather", "cars"]
MAX_ROWS = 10_000
DENSITIES = {
    "latent_tree": lambda seed: HiddenChowLiuDensity(random_state=seed),
    "wmispn": lambda seed: WMISPNDensity(random_state=seed),
    "chow_liu": lambda seed: ChowLiuDensity(random_state=seed),
    "gaussian_mixture": lambda seed: GaussianMixtureDensity(random_state=seed),
    "automatic": lambda seed: AutomaticDensity(random_state=seed),
}


def load(name):
    """A dataframe whose categories are pandas categories."""
    if name in GENERATED:
        frame = GENERATED[name](np.random.default_rng(0))
        categorical = frame.select_dtypes(exclude="number").columns
    elif name == "shuttle":
        frame = pd.read_csv(data_path("hybrid", "shuttle.csv.gz")).drop(columns="split")
        categorical = [frame.columns[-1]]
    else:
        frame = pd.read_csv(data_path("svr", f"{name}_raw.csv.gz"))
        numeric = frame.select_dtypes("number")
        few = [c for c in numeric if frame[c].nunique() <= 5]
        categorical = [*frame.columns.difference(numeric.columns), *few]
    frame = frame.sample(min(len(frame), MAX_ROWS), random_state=0).reset_index(drop=True)
    return frame.astype(dict.fromkeys(categorical, "category"))


def clinic(rng):
    """Patients: rounded measurements, one of them a function of two others, favourite digits."""
    sex, age = rng.choice(["f", "m"], MAX_ROWS), np.round(rng.gamma(9.0, 5.0, MAX_ROWS)) + 18
    height = np.round(rng.normal(np.where(sex == "f", 165, 178), 6.5))
    weight = np.round(rng.lognormal(3.1 + 0.007 * height + 0.002 * age, 0.15), 1)
    pressure = 90 + 0.6 * age + 0.25 * weight + rng.normal(0, 10, MAX_ROWS)
    smokes = rng.random(MAX_ROWS) < np.where(age < 50, 0.3, 0.15)
    cigarettes = smokes * 5 * (1 + rng.poisson(2.0, MAX_ROWS))
    return pd.DataFrame(
        {
            "sex": sex,
            "age": age.astype(int),
            "height": height,
            "weight": weight,
            "bmi": np.round(weight / (height / 100) ** 2, 1),
            "pressure": 5 * np.round(pressure / 5),
            "cigarettes": cigarettes.astype(int),
            "treated": np.where(pressure + rng.normal(0, 8, MAX_ROWS) > 150, "yes", "no"),
        }
    )


def shop(rng):
    """Orders: prices that end in nines, counts, a total, skewed waiting times."""
    group = rng.choice(["book", "food", "tool"], MAX_ROWS, p=[0.5, 0.3, 0.2])
    level = np.select([group == "book", group == "food"], [2.6, 1.2], 3.6)
    price = np.ceil(rng.lognormal(level, 0.4)) - np.where(rng.random(MAX_ROWS) < 0.7, 0.01, 0.5)
    count = 1 + rng.poisson(np.where(group == "food", 4.0, 0.5))
    express = rng.random(MAX_ROWS) < 0.2 + 0.4 * (price * count > 40)
    return pd.DataFrame(
        {
            "group": group,
            "price": np.round(price, 2),
            "count": count,
            "total": np.round(price * count, 2),
            "express": np.where(express, "yes", "no"),
            "days": np.round(rng.gamma(np.where(express, 2.0, 6.0), 0.6), 1),
            "stars": np.clip(6 - rng.poisson(1.0 + ~express), 1, 5),
        }
    )


def weather(rng):
    """Days: three temperatures that nearly tell each other, seasons, dry days without rain."""
    region, day = rng.choice(["north", "mid", "south"], MAX_ROWS), rng.integers(1, 366, MAX_ROWS)
    level = np.select([region == "north", region == "mid"], [4.0, 11.0], 19.0)
    mean = level + 9 * np.sin((day - 110) / 365 * 2 * np.pi) + rng.normal(0, 4, MAX_ROWS)
    spread = np.abs(rng.normal(8, 3, MAX_ROWS))
    drift = 83 - spread - 0.3 * mean + rng.normal(0, 8, MAX_ROWS)
    humidity = np.clip(np.round(drift), 5, 100)
    is_wet = rng.random(MAX_ROWS) < 1 / (1 + np.exp((75 - humidity) / 6))
    return pd.DataFrame(
        {
            "region": region,
            "day": day,
            "lowest": np.round(mean - spread / 2 + rng.normal(0, 0.5, MAX_ROWS), 1),
            "mean": np.round(mean, 1),
            "highest": np.round(mean + spread / 2 + rng.normal(0, 0.5, MAX_ROWS), 1),
            "humidity": humidity,
            "rain": np.round(np.where(is_wet, rng.gamma(0.8, 6.0, MAX_ROWS), 0.0), 1),
            "sky": np.where(~is_wet, "dry", np.where(mean < 1, "snow", "rain")),
        }
    )


def cars(rng):
    """Cars: sizes, weight, power and price follow one another; cylinders are cut from power."""
    kind = rng.choice(["small", "sedan", "van", "sport"], MAX_ROWS, p=[0.3, 0.4, 0.2, 0.1])
    size = np.select([kind == "small", kind == "sedan", kind == "van"], [3.8, 4.5, 4.7], 4.3)
    length = size + rng.normal(0, 0.15, MAX_ROWS)
    width = 0.9 + 0.19 * length + rng.normal(0, 0.03, MAX_ROWS)
    weight = 27 * (length * width) ** 2 + 200 * (kind == "van") + rng.normal(0, 60, MAX_ROWS)
    power = np.exp(0.6 * (kind == "sport") + rng.normal(0, 0.15, MAX_ROWS) - 1.6) * weight**0.9
    fuel = rng.choice(["diesel", "petrol"], MAX_ROWS, p=[0.35, 0.65])
    thirst = np.where(fuel == "diesel", 0.8, 1.0) * np.exp(0.0008 * power) * weight**0.7
    return pd.DataFrame(
        {
            "kind": kind,
            "length": np.round(length, 3),
            "width": np.round(width, 3),
            "weight": np.round(weight).astype(int),
            "power": np.round(power).astype(int),
            "cylinders": np.select([power > 260, power > 150], [8, 6], 4),
            "fuel": fuel,
            "litres": np.round(0.04 * thirst * rng.lognormal(0, 0.05, MAX_ROWS), 1),
            "price": np.round(power**0.6 * weight**0.35 * rng.lognormal(6, 0.12, MAX_ROWS), -1),
        }
    )


def recorded(drawn, train):
    """Round drawn numbers to the multiples of a step in which a column was recorded.

    A measurement of two decimals tells itself from a draw by its decimals alone.
    """
    result = drawn.copy()
    for column in train.select_dtypes("number"):
        values = np.unique(train[column].to_numpy(float))
        decimals = next((d for d in range(10) if (np.round(values, d) == values).all()), None)
        if decimals is not None:
            numbers = np.rint(values * 10**decimals).astype(np.int64)
            step = max(1, np.gcd.reduce(np.diff(numbers)))
            steps = np.rint((drawn[column] * 10**decimals - numbers[0]) / step)
            result[column] = np.round((numbers[0] + step * steps) / 10**decimals, decimals)
    return result.astype(train.dtypes)


def two_sample_score(real, drawn, seed):
    """2 (1 - area under the curve) of a classifier that tells real rows from drawn ones."""
    rows = pd.concat([real, drawn], ignore_index=True)
    is_categorical = [isinstance(t, pd.CategoricalDtype) for t in real.dtypes]
    for column in real.columns[is_categorical]:
        rows[column] = pd.Categorical(rows[column], categories=real[column].cat.categories)
    label = np.repeat([0, 1], [len(real), len(drawn)])
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=seed, early_stopping=False
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    told = cross_val_predict(model, rows, label, cv=folds, method="predict_proba")[:, 1]
    return min(1.0, 2 * (1 - roc_auc_score(label, told)))


def examine(table, name, seed):
    """Score, held-out log density and seconds of one density on one table."""
    frame = load(table)
    order = np.random.default_rng(seed).permutation(len(frame))
    half = len(frame) // 2
    train, test = frame.iloc[order[:half]], frame.iloc[order[half : 2 * half]]
    if name == "real":
        return {"score": two_sample_score(test, train, seed)}
    start = time.process_time()
    density = DENSITIES[name](seed).fit(train)
    fitted = time.process_time()
    drawn = recorded(density.sample(half, random_state=seed), train)
    return {
        "score": two_sample_score(test, drawn, seed),
        "log_density": float(density.score(test)),
        "fit": fitted - start,
    }


GENERATED = {"clinic": clinic, "shop": shop, "weather": weather, "cars": cars}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--densities", nargs="+", default=["real", *DENSITIES])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    records = Records(options.results, ["table", "density", "seed"])
    for seed in range(options.seeds):
        for table in options.tables:
            for density in options.densities:
                cell = {"table": table, "density": density, "seed": seed}
                if cell not in records:
                    records.add(cell | examine(table, density, seed))
    results = records.table()
    for what in ("score", "log_density", "fit"):
        means = results.pivot_table(index="table", columns="density", values=what)
        print(f"{what}\n{means.round(3).to_string()}")


if __name__ == "__main__":
    main()
