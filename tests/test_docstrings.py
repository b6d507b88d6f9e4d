"""Everything public has a numpydoc docstring; every public entry point shows an example."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest
from numpydoc.validate import validate

import skcircuits

# Rules of numpydoc that this project does not follow: long descriptions, See Also and
# examples everywhere, the infinitive in every summary, a capital letter before a formula,
# names of returned values
NOT_OURS = {"ES01", "SA01", "EX01", "SS02", "SS05", "PR08", "RT02", "RT04"}

MODULES = [
    "skcircuits",
    *(
        module.name
        for module in pkgutil.walk_packages(skcircuits.__path__, "skcircuits.")
        if "._" not in module.name
    ),
]
# Packages that users import from
PUBLIC = {
    "circuits",
    "estimators",
    "graphical",
    "inspection",
    "kernels",
    "learning",
    "particles",
    "stein",
}
PACKAGES = ["skcircuits", *(name for name in MODULES if name.removeprefix("skcircuits.") in PUBLIC)]


def own_objects(module):
    """The classes and functions in __all__ that the module itself defines."""
    for name in getattr(module, "__all__", []):
        member = getattr(module, name)
        is_documented = inspect.isclass(member) or inspect.isfunction(member)
        if is_documented and member.__module__ == module.__name__:
            yield f"{module.__name__}.{name}", member


def public_methods(path, cls):
    """Dotted paths of the public methods that a class itself defines."""
    for name, value in vars(cls).items():
        is_method = inspect.isfunction(value) or isinstance(value, classmethod)
        if is_method and not name.startswith("_"):
            yield f"{path}.{name}"


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


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_and_classes_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} must have a docstring"
    found = [
        problem
        for path, member in own_objects(module)
        if not getattr(member, "_is_protocol", False)
        for problem in problems(path, member)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PACKAGES)
def test_entry_points_have_examples_and_documented_methods(name):
    package = importlib.import_module(name)
    found = []
    for exported in package.__all__:
        member = getattr(package, exported)
        if not (inspect.isclass(member) or inspect.isfunction(member)):
            continue
        if ">>>" not in (member.__doc__ or "") and not issubclass_of_exception(member):
            found.append(f"{name}.{exported}: has no example")
        if inspect.isclass(member):
            paths = public_methods(f"{name}.{exported}", member)
            found.extend(problem for path in paths for problem in problems(path))
    assert not found, "\n".join(found)


def issubclass_of_exception(member):
    return inspect.isclass(member) and issubclass(member, Exception)
