"""Scopes as the bits of integers: set operations on thousands of variables at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skcircuits.circuits.structure.units import Scope, Unit


def mask_of(variables: Iterable[int]) -> int:
    """A set of variables as the bits of one integer."""
    mask = 0
    for variable in variables:
        mask |= 1 << variable
    return mask


def variables_of(mask: int) -> Scope:
    """The variables of a set, ascending."""
    return tuple(i for i, bit in enumerate(reversed(f"{mask:b}")) if bit == "1")


def scope_masks(order: Iterable[Unit]) -> dict[int, int]:
    """Scope of each unit by its id; children come before parents."""
    masks: dict[int, int] = {}
    for unit in order:
        if unit.children:
            mask = 0
            for child in unit.children:
                mask |= masks[id(child)]
        else:
            mask = mask_of(unit.scope)
        masks[id(unit)] = mask
    return masks


def masks_are_laminar(masks: Iterable[int]) -> bool:
    """Tell whether any two scopes are nested or disjoint.

    From small to large, every scope must be a union of the largest ones inside it so far.
    """
    parent: dict[int, int] = {}  # a forest over variables: a tree per largest scope so far
    largest: dict[int, int] = {}  # by root

    def root_of(variable: int) -> int:
        root = variable
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[variable] != root:
            parent[variable], variable = root, parent[variable]
        return root

    for mask in sorted(set(masks), key=int.bit_count):
        rest, roots = mask, []
        while rest:
            root = root_of((rest & -rest).bit_length() - 1)
            inside = largest.get(root, 1 << root)
            if inside & ~mask:
                return False
            rest &= ~inside
            roots.append(root)
        for root in roots:
            parent[root] = roots[0]
        if roots:
            largest[roots[0]] = mask
    return True


def common_blocks(left: Sequence[int], right: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Group the factors of two products with one scope into the finest blocks of equal scope.

    Factors are given by the masks of their scopes; a block has their positions on both sides.
    """
    place = {mask: i for i, mask in enumerate(left)}
    if all(mask in place for mask in right):
        return [([place[mask]], [j]) for j, mask in enumerate(right)]
    blocks = [(mask, [i], list[int]()) for i, mask in enumerate(left)]
    for j, mask in enumerate(right):
        merged, own, other = mask, list[int](), [j]
        apart = []
        for block in blocks:
            if block[0] & mask:
                merged |= block[0]
                own += block[1]
                other += block[2]
            else:
                apart.append(block)
        blocks = [*apart, (merged, sorted(own), sorted(other))]
    return [(own, other) for _, own, other in blocks]
