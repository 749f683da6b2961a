"""Structs whose fields are set as quickly as those of plain classes. Pure."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

S = TypeVar("S", bound=type[Struct])


def quickly_set(struct: S) -> S:
    """Give a struct the setter of plain objects, for fields that change with every attempt: 6 ns instead of 37.

    The setter of structs also shows the cycle collector a struct that it does not know yet. So this is for structs with
    `gc=False`, which it never knows, and for those that hold a container from the beginning, which it knows already.
    """
    # The interpreter has a quick way for classes without a setter of their own; deleting goes through the same slot.
    struct.__setattr__ = object.__setattr__  # type: ignore[method-assign]
    struct.__delattr__ = object.__delattr__  # type: ignore[method-assign]
    return struct
