"""Versions of the package and its dependencies, for bug reports."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, requires, version


def show_versions() -> None:
    """Print the versions of Python, of this package and of its dependencies.

    Optional dependencies that are not installed are shown as such.

    Examples
    --------
    >>> import skcircuits
    >>> skcircuits.show_versions()  # doctest: +ELLIPSIS
    skcircuits: ...
    """
    for name in ["skcircuits", *_dependencies()]:
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        print(f"{name}: {found}")
    print(f"python: {sys.version.split()[0]}")
    print(f"platform: {platform.platform()}")


def _dependencies() -> list[str]:
    """Names of the dependencies that the installed package declares, without repetition."""
    names: list[str] = []
    for requirement in requires("skcircuits") or []:
        name = requirement.split(";")[0]
        for stop in "<>=![ ~":
            name = name.split(stop)[0]
        if name not in names:
            names.append(name)
    return names
