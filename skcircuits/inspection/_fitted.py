"""What a display needs of a fitted estimator."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from skcircuits.exceptions import must

__all__ = ["check_has"]


def check_has(estimator: Any, attribute: str, way_out: str) -> None:
    """Refuse estimators without an attribute.

    Parameters
    ----------
    estimator : fitted estimator
        What is to be drawn.
    attribute : str
        What it must have after fit.
    way_out : str
        What to draw instead.

    Raises
    ------
    ValueError
        If it has no such attribute.
    """
    check_is_fitted(estimator)
    if not hasattr(estimator, attribute):
        if hasattr(estimator, "best_estimator_"):
            way_out = "Pass the best_estimator_ of the search."
        condition = f"have {attribute} after fit"
        raise ValueError(must("estimator to inspect", condition, way_out, estimator=estimator))
