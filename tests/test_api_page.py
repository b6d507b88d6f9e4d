"""The reference lists every public name, and nothing else."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "doc" / "api.md"
PACKAGES = [
    "skcircuits",
    *(
        f"skcircuits.{name}"
        for name in ("circuits", "graphical", "inspection", "kernels", "learning", "particles")
    ),
    "skcircuits.stein",
    "skcircuits.targets",
]


def listed_names():
    """Names below each ``currentmodule`` of the page, by module."""
    names, module = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif match := re.fullmatch(r"   (\w+)", line):
            names.setdefault(module, []).append(match[1])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_listed_once(package):
    public = importlib.import_module(package).__all__
    assert sorted(listed_names()[package]) == sorted(public)


def test_no_other_package_is_listed():
    assert set(listed_names()) == {*PACKAGES, "skcircuits.exceptions", "skcircuits.protocols"}
