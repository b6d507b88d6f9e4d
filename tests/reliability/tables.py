"""A table handed over in other containers, where answers stay, and tables that nobody means."""

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

__all__ = ["hostile_table", "other_form"]


def _object(frame):
    return frame.astype(object)


def _polars(frame):
    columns = {}
    for name in frame.columns:
        values = frame[name].tolist()
        columns[str(name)] = [None if value != value else value for value in values]
    return pl.DataFrame(columns)


def _nullable(frame):
    return frame.convert_dtypes()


def _arrow(frame):
    numbers = frame.select_dtypes("number").columns
    return frame.astype({name: pd.Float64Dtype() for name in numbers})


def _categories(frame):
    words = frame.columns.difference(frame.select_dtypes("number").columns)
    return frame.astype(dict.fromkeys(words, "category"))


def _other_index(frame):
    return frame.set_axis([f"row {i}" for i in range(len(frame))], axis=0)


def _read_only(frame):
    array = frame.to_numpy().copy()
    array.flags.writeable = False
    return pd.DataFrame(array, columns=frame.columns, copy=False).astype(dict(frame.dtypes))


SAME = [_object, _polars, _nullable, _arrow, _categories, _other_index, _read_only]


def other_form(frame, rng):
    """The same table in another container or with other dtypes, and what was done."""
    function = SAME[rng.integers(len(SAME))]
    return function(frame), function.__name__


def hostile_table(frame, rng):
    """One to three things wrong with a table; also what is no table."""
    frame = frame.copy()
    for _ in range(rng.integers(1, 4)):
        try:
            frame = WRONG[rng.integers(len(WRONG))](frame, rng)
        except Exception:  # pandas itself cannot make it
            continue
        if not isinstance(frame, pd.DataFrame) or frame.empty:
            break
    return frame


def _replaced(frame, place, values):
    columns = [frame.iloc[:, j] for j in range(frame.shape[1])]
    columns[place] = pd.Series(values, index=frame.index, name=frame.columns[place])
    return pd.concat(columns, axis=1)


def _put(value):
    def change(frame, rng):
        place = int(rng.integers(frame.shape[1]))
        values = np.empty(len(frame), dtype=object)
        values[:] = frame.iloc[:, place].tolist()
        values[int(rng.integers(len(frame)))] = value
        return _replaced(frame, place, values)

    return change


def _column(convert):
    def change(frame, rng):
        values = convert(frame.iloc[:, int(rng.integers(frame.shape[1]))], len(frame))
        return _replaced(frame, int(rng.integers(frame.shape[1])), values)

    return change


def _whole(convert):
    return lambda frame, rng: convert(frame)


def _numbers(frame):
    return frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)


WRONG = [
    *map(_put, [np.inf, -np.inf, 1e308, -1e308, 1e-320, 10**400, 2**63, -(2**70), None, pd.NA]),
    *map(_put, ["", "nan", "unseen", b"bytes", True, 1j, [1.0], (), {}, object(), pd.Timestamp(0)]),
    _column(lambda own, n: [np.nan] * n),
    _column(lambda own, n: [None] * n),
    _column(lambda own, n: ["same"] * n),
    _column(lambda own, n: [1.0] * n),
    _column(lambda own, n: np.arange(n) * 1e300),
    _column(lambda own, n: np.arange(n) * 5e-324),
    _column(lambda own, n: np.arange(n) + 2.0**53),
    _column(lambda own, n: [2**62 + i for i in range(n)]),
    _column(lambda own, n: [10**30 + i for i in range(n)]),
    _column(lambda own, n: np.arange(n) % 2 == 0),
    _column(lambda own, n: pd.date_range("2020", periods=n)),
    _column(lambda own, n: pd.to_timedelta(np.arange(n), unit="D")),
    _column(lambda own, n: np.arange(n) + 1j),
    _column(lambda own, n: [f"level {i}" for i in range(n)]),
    _column(lambda own, n: pd.Categorical(["u"] * n, ["v", "u"])),
    _column(lambda own, n: pd.array([None] * n, dtype="Int64")),
    _column(lambda own, n: np.arange(n).astype(np.uint8)),
    _column(lambda own, n: np.arange(n).astype(np.float16)),
    _column(lambda own, n: [[i] for i in range(n)]),
    _whole(lambda f: f.iloc[:0]), _whole(lambda f: f.iloc[:, :0]), _whole(lambda f: f.iloc[:1]),
    _whole(lambda f: f.iloc[:, :1]), _whole(lambda f: f.iloc[:, ::-1]),
    _whole(lambda f: pd.concat([f, f.add_prefix("more_")], axis=1)),
    _whole(lambda f: f.set_axis(["a"] * f.shape[1], axis=1)),
    _whole(lambda f: f.set_axis(range(f.shape[1]), axis=1)),
    _whole(lambda f: f.set_axis([("a", i) for i in range(f.shape[1])], axis=1)),
    _whole(lambda f: f.set_axis([0] * len(f), axis=0)),
    _whole(_polars), _whole(_object), _whole(_numbers), _whole(lambda f: _numbers(f)[:, ::-1]),
    _whole(lambda f: np.asfortranarray(_numbers(f))), _whole(lambda f: _numbers(f).tolist()),
    _whole(lambda f: _numbers(f).astype(np.float16)), _whole(lambda f: _numbers(f)[0]),
    _whole(lambda f: _numbers(f)[None]), _whole(lambda f: f.to_numpy()),
    _whole(lambda f: f.to_dict("list")), _whole(lambda f: f.to_dict("records")),
    _whole(lambda f: f.iloc[:, 0]), _whole(lambda f: np.ma.masked_invalid(_numbers(f))),
    _whole(lambda f: sparse.csr_array(np.nan_to_num(_numbers(f)))), _whole(lambda f: None),
    _whole(lambda f: "table"), _whole(lambda f: 3.0), _whole(lambda f: iter(f.to_numpy())),
    _whole(lambda f: f.to_records(index=False)), _whole(lambda f: np.asmatrix(_numbers(f))),
    _whole(lambda f: pd.DataFrame(sparse.random(len(f), f.shape[1]).toarray())),
    _whole(lambda f: pd.arrays.SparseArray(np.zeros(3))),
]  # fmt: skip
