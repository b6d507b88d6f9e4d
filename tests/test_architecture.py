"""The folders are those that the architecture page names, and names keep one rule."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skcircuits
from skcircuits import GaussianMixtureDensity

ROOT = Path(skcircuits.__path__[0])
PAGE = ROOT.parent / "doc" / "architecture.md"
INTERNAL = {"numerics", "trees", "tabular", "predictions"}  # packages without public names
MAX_MODULES = 15
SHARED = {"exceptions.py", "protocols.py", "parallel.py"}


def modules():
    return sorted(file for file in ROOT.rglob("*.py") if file.name != "__init__.py")


def defines_public_names(file):
    """Whether a public package exports something that this module defines."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(["skcircuits", *parts]))
    packages = [skcircuits, importlib.import_module(f"skcircuits.{parts[0]}")]
    exported = [
        getattr(package, name)
        for package in packages
        if package.__name__.rpartition(".")[2] not in INTERNAL
        for name in package.__all__
    ]
    own = [v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__]
    return any(value is public for value in own for public in exported)


def folders():
    return sorted(
        str(path.parent.relative_to(ROOT))
        for path in ROOT.rglob("__init__.py")
        if path.parent != ROOT
    )


def test_the_page_lists_every_folder_and_no_other():
    listing = re.search(r"```text\n(skcircuits/\n.*?)```", PAGE.read_text("utf-8"), re.S)[1]
    listed, stack = [], []
    for line in listing.splitlines()[1:]:
        match = re.match(r"( *)([a-z_]+)/", line)
        if match:
            stack = [*stack[: len(match[1]) // 2 - 1], match[2]]
            listed.append("/".join(stack))
    assert sorted(listed) == folders()


def test_no_folder_is_crowded():
    counts = {}
    for file in modules():
        counts[file.parent] = counts.get(file.parent, 0) + 1
    assert max(counts.values()) <= MAX_MODULES


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_leading_underscore_marks_internal_modules(file):
    if file.name not in SHARED:
        assert defines_public_names(file) is not file.name.startswith("_")


def test_tests_mirror_the_folders():
    tests = Path(__file__).parent
    others = {"reference", "reliability"}
    for folder in sorted(path.parent for path in tests.rglob("test_*.py")):
        inside = folder.relative_to(tests)
        if inside.parts and inside.parts[0] not in others:
            assert (ROOT / inside).is_dir(), inside


def walks():
    """Files named in each walk of the page."""
    text = PAGE.read_text("utf-8").split("## Two walks")[1].split("\n## ")[0]
    return [
        re.findall(r"^([\w/]+\.py)", w, re.M) for w in re.findall(r"```text\n(.*?)```", text, re.S)
    ]


def called_again():
    """Files that the page names after each walk."""
    text = PAGE.read_text("utf-8").split("## Two walks")[1].split("\n## ")[0]
    return [
        set(re.findall(r"`([\w/]+\.py)`", lines))
        for lines in re.findall(r"^Called again: (.*?)\n\n", f"{text}\n\n", re.M | re.S)
    ]


def files_passed(call):
    """Files of the package, without tools, in the order in which a call enters them first.

    And those that it has left when it calls one of their functions, methods not counted.
    """
    found, again = [], set()
    last = None

    def enter(frame, event, _):
        nonlocal last
        name = frame.f_code.co_filename
        file = str(Path(name).relative_to(ROOT)) if name.startswith(str(ROOT)) else "parallel.py"
        if event != "call" or file.startswith("numerics/") or file == "parallel.py":
            return
        if file not in found:
            found.append(file)
        elif file == caller_of(frame):
            return
        elif file != last and "." not in frame.f_code.co_qualname:
            again.add(file)
        last = file

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found, again


def caller_of(frame):
    """File of the package, without tools, that a call comes from."""
    while (frame := frame.f_back) is not None:
        name = frame.f_code.co_filename
        file = str(Path(name).relative_to(ROOT)) if name.startswith(str(ROOT)) else "parallel.py"
        if not file.startswith("numerics/") and file != "parallel.py":
            return file
    return None


def predict_a_row_with_a_missing_value():
    X = np.random.default_rng(0).normal(size=(100, 3))
    density = GaussianMixtureDensity(n_components=2, covariance_type="full", random_state=0)
    model = skcircuits.ExpectedPredictionSVR(density=density).fit(X, X[:, 0] + X[:, 1] ** 2)
    # The first call compiles what every later one finds
    model.predict(X[:1])
    return lambda: model.predict([[0.3, np.nan, -1.0]])


def fit_a_column_of_counts():
    table = pd.DataFrame({"visits": np.random.default_rng(0).poisson(3, 300)})
    density = skcircuits.WMISPNDensity()
    return lambda: density.fit(table)


@pytest.mark.parametrize(
    ("walk", "again", "prepare"),
    list(
        zip(
            walks(),
            called_again(),
            [predict_a_row_with_a_missing_value, fit_a_column_of_counts],
            strict=True,
        )
    ),
    ids=["predict", "fit"],
)
def test_the_page_walks_through_the_files_that_are_passed(walk, again, prepare):
    assert len(set(walk)) == len(walk)
    assert (walk, again) == files_passed(prepare())
