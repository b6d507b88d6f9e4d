"""scikit-learn's own tests of imputers, with CircuitImputer in their list."""

from types import FunctionType

import pytest
from sklearn.impute import KNNImputer
from sklearn.impute.tests import test_common as sklearn_tests

from skcircuits import CircuitImputer


def add_imputer(test):
    """Copy a test whose list of imputers then has CircuitImputer at its end."""
    copy = FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    copy.pytestmark = [
        _extend(mark) if mark.name == "parametrize" else mark for mark in test.pytestmark
    ]
    return copy


def _extend(mark):
    names, values = mark.args
    if names == "imputer" and any(isinstance(value, KNNImputer) for value in values):
        return pytest.mark.parametrize(names, [*values, CircuitImputer()], **mark.kwargs).mark
    return mark


def _takes_all_imputers(test):
    marks = getattr(test, "pytestmark", [])
    return any(mark.name == "parametrize" and _extend(mark) is not mark for mark in marks)


TESTS = {name: test for name, test in vars(sklearn_tests).items() if _takes_all_imputers(test)}
globals().update({name: add_imputer(test) for name, test in TESTS.items()})


def test_scikit_learn_has_such_tests():
    assert len(TESTS) >= 6
