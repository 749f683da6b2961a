"""Structs with the setter of plain objects behave as other structs do."""

import msgspec
import pytest
from msgspec import Struct

from windfall.quick import quickly_set


@quickly_set
class Count(Struct, array_like=True, gc=False):
    """A struct whose field changes often."""

    number: int = 0
    name: str = ""


def test_fields_are_set_saved_compared_and_replaced_as_in_any_struct() -> None:
    count = Count()
    count.number += 3
    count.name = "three"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(count), type=Count) == count == Count(3, "three")
    assert msgspec.structs.replace(count, number=4) == Count(4, "three")


def test_a_field_that_the_struct_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError):
        Count().numbr = 1  # type: ignore[attr-defined]


def test_setting_takes_the_interpreters_own_setter() -> None:
    assert Count.__setattr__ is object.__setattr__ and Struct.__setattr__ is not object.__setattr__
