"""Everything public has a numpydoc docstring and an example; everything else has a sentence."""

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest
from numpydoc.validate import validate

import skcircuits

# Rules of numpydoc that this project does not follow: long descriptions, See Also and
# examples everywhere, the infinitive in every summary, a capital letter before a formula,
# names of returned values
NOT_OURS = {"ES01", "SA01", "EX01", "SS02", "SS05", "PR08", "RT02", "RT04"}

ROOT = Path(skcircuits.__path__[0])
FILES = sorted(ROOT.rglob("*.py"))
# Packages that users import from
PACKAGES = [
    "skcircuits",
    *(
        f"skcircuits.{name}"
        for name in (
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
        if (ROOT / name).exists()
    ),
]


def public_methods(path, cls):
    """Dotted paths of the public methods that a class defines, or documents anew."""
    for name, value in vars(cls).items():
        is_method = inspect.isfunction(value) or isinstance(value, classmethod)
        if is_method and not name.startswith("_") and not inherits_documentation(cls, name, value):
            yield f"{path}.{name}"


def inherits_documentation(cls, name, method):
    """Whether a method overrides a documented one and adds at most a sentence."""
    overrides = any(getattr(getattr(base, name, None), "__doc__", None) for base in cls.__mro__[1:])
    return overrides and "\n" not in (method.__doc__ or "").strip()


def record_fields(member):
    if dataclasses.is_dataclass(member):
        return [field.name for field in dataclasses.fields(member)]
    return list(getattr(member, "_fields", []))


def problems(path, member=None):
    # The fields of a record are its parameters; they stand under Attributes
    fields = record_fields(member)
    ignored = NOT_OURS | {"PR01"} if fields else NOT_OURS
    found = [
        f"{path}: {c} {message}" for c, message in validate(path)["errors"] if c not in ignored
    ]
    found.extend(
        f"{path}: {field} not documented" for field in fields if field not in member.__doc__
    )
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_are_documented_with_an_example(name):
    package = importlib.import_module(name)
    found = []
    for exported in package.__all__:
        member = getattr(package, exported)
        if not (inspect.isclass(member) or inspect.isfunction(member)):
            continue
        found.extend(problems(f"{name}.{exported}", member))
        if ">>>" not in (member.__doc__ or "") and not issubclass_of_exception(member):
            found.append(f"{name}.{exported}: has no example")
        if inspect.isclass(member):
            paths = public_methods(f"{name}.{exported}", member)
            found.extend(problem for path in paths for problem in problems(path))
    assert not found, "\n".join(found)


def issubclass_of_exception(member):
    return inspect.isclass(member) and issubclass(member, Exception)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_modules_functions_and_classes_say_what_they_are(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent
