"""Registry of families of input units and of rules for them.

Registered families can be saved and loaded. Rules (products, entropies, ...) are looked up by the
classes of the units, the nearest base class first; if there is no rule, a ``CircuitPropertyError``
is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import product
from typing import Any, NamedTuple, TypeVar

from skcircuits.circuits.inputs.base import InputLayer, InputUnit
from skcircuits.exceptions import CircuitPropertyError, must

_Family = TypeVar("_Family", bound=type[InputUnit])
_Rule = TypeVar("_Rule", bound=Callable[..., Any])

_FAMILIES: dict[str, type[InputUnit]] = {}


def register_input_unit(family: _Family) -> _Family:
    """Register a family of input units for use in files; a class decorator.

    Parameters
    ----------
    family : type
        A concrete subclass of ``InputUnit`` with a ``layer_type``. Files refer to it by the name of
        the class and rebuild units as ``family(**unit.parameters())``. Parameters must be numbers
        or arrays of numbers.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    TypeError
        If the class is abstract or has no layer.
    ValueError
        If another family has the same name.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, register_input_unit
    >>> register_input_unit(Bernoulli) is Bernoulli
    True
    """
    missing = sorted(getattr(family, "__abstractmethods__", ()))
    layer = getattr(family, "layer_type", None)
    if missing or not (isinstance(layer, type) and issubclass(layer, InputLayer)):
        what = "a family of input units"
        condition = "define all abstract methods of InputUnit, and layer_type, an InputLayer"
        raise TypeError(
            must(what, condition, family=family.__name__, missing=missing or ["layer_type"])
        )
    # Files name families: two of one name could not be told apart
    if _FAMILIES.setdefault(family.__name__, family) is not family:
        raise ValueError(
            must("names of families", "differ", "Rename the class.", name=family.__name__)
        )
    return family


def family_of_name(name: str) -> type[InputUnit]:
    """Registered family of a name; ``KeyError`` where there is none."""
    return _FAMILIES[name]


def registered_names() -> list[str]:
    """Names of the registered families, sorted."""
    return sorted(_FAMILIES)


def require_registered(families: Collection[type]) -> None:
    """Refuse units of families that no file can name."""
    unknown = {family.__name__ for family in families} - {
        name for name, family in _FAMILIES.items() if family in families
    }
    if unknown:
        condition = "be registered"
        way_out = "Decorate their classes with skcircuits.circuits.register_input_unit."
        raise CircuitPropertyError(
            must("families of input units in a file", condition, way_out, families=sorted(unknown))
        )


class Rules:
    """Functions of one or several input units, one per combination of families.

    ``action`` completes "input units that are ..." in the error if there is no rule.
    """

    def __init__(self, action: str) -> None:
        self._action = action
        self._rules: dict[tuple[type, ...], Callable[..., Any]] = {}

    def register(self, *families: type) -> Callable[[_Rule], _Rule]:
        """Decorate the rule for units of these families and their subclasses."""

        def add(rule: _Rule) -> _Rule:
            self._rules[families] = rule
            return rule

        return add

    def __call__(self, *units: InputUnit) -> Any:
        """Apply the rule of the nearest base classes."""
        # Nearest classes first, as method resolution does for one argument
        for families in product(*(type(unit).__mro__ for unit in units)):
            if families in self._rules:
                return self._rules[families](*units)
        what = f"input units that are {self._action}"
        condition = "be of families with a rule for it, alike in both circuits"
        way_out = "Discrete units, Gaussian units and histograms have one."
        raise CircuitPropertyError(
            must(what, condition, way_out, families=[type(unit).__name__ for unit in units])
        )


class Scaled(NamedTuple):
    """A normalised unit times ``exp(log_factor)``; None with factor 0 for the zero function."""

    unit: InputUnit | None
    log_factor: float


#: Product of two units over the same variables, a ``Scaled``.
multiply_inputs = Rules("multiplied")
#: Quotient of two units, a ``Scaled``; 0 where the divisor is zero.
divide_inputs = Rules("divided")
#: ∫ left over the support of right, and ∫ left log(left / right) there, two floats.
divergence = Rules("compared")
#: Entropy of a unit in nats, differential where it is a density.
entropy = Rules("measured")
