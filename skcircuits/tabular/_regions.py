"""Unions of disjoint boxes, closed under and, or, not.

A box holds, per constrained column, a closed interval of floats or a set of codes; an empty
box (no constraint) is everything. A region is a list of boxes that do not overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skcircuits.exceptions import must

__all__ = ["Box", "Interval", "Region", "States", "complement", "intersect", "unite"]


class Interval(NamedTuple):
    """A closed interval of floats.

    Parameters
    ----------
    lower, upper : float
        Bounds; infinite ones leave a side open.
    """

    lower: float
    upper: float

    def intersect(self, other: Interval) -> Interval | None:
        """Common part of two intervals, None when empty."""
        common = Interval(max(self.lower, other.lower), min(self.upper, other.upper))
        return common if common.lower <= common.upper else None

    def complement(self) -> list[Interval]:
        """Intervals below and above: from the neighbouring floats on."""
        parts = []
        if self.lower > -np.inf:
            parts.append(Interval(-np.inf, float(np.nextafter(self.lower, -np.inf))))
        if self.upper < np.inf:
            parts.append(Interval(float(np.nextafter(self.upper, np.inf)), np.inf))
        return parts


class States(NamedTuple):
    """Some of the codes 0, ..., n_states - 1.

    Parameters
    ----------
    codes : frozenset of int
        The codes.
    n_states : int
        Number of states of the column.
    """

    codes: frozenset[int]
    n_states: int

    def intersect(self, other: States) -> States | None:
        """Common codes, None when there are none."""
        codes = self.codes & other.codes
        return States(codes, self.n_states) if codes else None

    def complement(self) -> list[States]:
        """The other codes, if any."""
        codes = frozenset(range(self.n_states)) - self.codes
        return [States(codes, self.n_states)] if codes else []


Box = dict[int, Interval | States]
Region = list[Box]

# Alternatives that a query may fall into before it is refused.
MAX_BOXES = 50_000


def intersect(left: Region, right: Region) -> Region:
    """Intersect two regions.

    Parameters
    ----------
    left, right : list of Box
        Regions.

    Returns
    -------
    list of Box
        One box per overlapping pair.

    Raises
    ------
    ValueError
        If there are too many pairs.
    """
    if len(left) * len(right) > MAX_BOXES:
        raise ValueError(
            must(
                "A query",
                f"fall into at most {MAX_BOXES} boxes",
                "Ask for parts of it and add their probabilities.",
                n_boxes=len(left) * len(right),
            )
        )
    pairs = (_intersect_boxes(one, other) for one in left for other in right)
    return [box for box in pairs if box is not None]


def complement(region: Region) -> Region:
    """Everything outside a region.

    Parameters
    ----------
    region : list of Box
        A region.

    Returns
    -------
    list of Box
        Its complement.
    """
    outside: Region = [{}]
    for box in region:
        outside = intersect(outside, _complement_of_box(box))
    return outside


def unite(left: Region, right: Region) -> Region:
    """Unite two regions, disjointly: the left one and what the right one adds.

    Parameters
    ----------
    left, right : list of Box
        Regions.

    Returns
    -------
    list of Box
        Their union.
    """
    return left + intersect(right, complement(left))


def _intersect_boxes(left: Box, right: Box) -> Box | None:
    """Intersection of two boxes; None when empty."""
    box = dict(left)
    for column, constraint in right.items():
        if column in box:
            common = box[column].intersect(constraint)  # type: ignore[arg-type]
            if common is None:
                return None
            box[column] = common
        else:
            box[column] = constraint
    return box


def _complement_of_box(box: Box) -> Region:
    """Not c1, or c1 and not c2, or c1 and c2 and not c3, ...: disjoint."""
    outside: Region = []
    inside: Box = {}
    for column, constraint in box.items():
        outside += [{**inside, column: part} for part in constraint.complement()]
        inside[column] = constraint
    return outside
