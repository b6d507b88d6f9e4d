"""Exact probabilistic reasoning as ordinary scikit-learn estimators."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skcircuits.estimators import *
    from skcircuits.tabular.queries import col, count

__version__ = "0.1.0"

__all__ = [
    "AutomaticDensity",
    "BBISWeighter",
    "ChowLiuDensity",
    "CircuitImputer",
    "ContinuousMixtureDensity",
    "ExpectedPredictionClassifier",
    "ExpectedPredictionRegressor",
    "ExpectedPredictionSVR",
    "GaussianMixtureDensity",
    "GraphicalSVGDSampler",
    "HiddenChowLiuDensity",
    "MoATDensity",
    "PooledEstimate",
    "StackingDensity",
    "StrudelDensity",
    "WMISPNDensity",
    "col",
    "count",
    "pool",
    "pool_models",
    "show_versions",
]

_PACKAGES = (
    "circuits",
    "estimators",
    "graphical",
    "inspection",
    "kernels",
    "learning",
    "particles",
    "stein",
    "targets",
)


# As in SciPy (SPEC 1): what a program does not name is not loaded.
def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"skcircuits.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'skcircuits' has no attribute {name!r}")
    home = "skcircuits.tabular.queries" if name in ("col", "count") else "skcircuits.estimators"
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PACKAGES])


def show_versions() -> None:
    """Print the versions of Python, of this package and of its dependencies.

    Optional dependencies that are not installed are shown as such.

    Examples
    --------
    >>> import skcircuits
    >>> skcircuits.show_versions()  # doctest: +ELLIPSIS
    skcircuits: ...
    """
    import platform
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    declared = [re.split("[^a-zA-Z0-9._-]", text)[0] for text in requires("skcircuits") or []]
    for name in dict.fromkeys(["skcircuits", *declared]):
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        print(f"{name}: {found}")
    print(f"python: {platform.python_version()}")
    print(f"platform: {platform.platform()}")
