"""Answers of the server held against the shapes that the OpenAPI document is made from."""

from __future__ import annotations

import re
import typing
from typing import Any

import msgspec

from windfall.server.http.routes import ROUTES, handler_of
from windfall.server.http.shapes import SHAPES, parts_of

UNTOLD = {"series"}
"""Pictures come with what they are drawn from, which is no part of the promise."""


def check_shape(method: str, path: str, answer: Any) -> bool:
    """Whether the answer has a shape; an error if it differs from it, by a key or by the type of a value."""
    shape = shape_of(method, path.partition("?")[0])
    if shape is None:
        return False
    parts = parts_of(shape)
    fitting = next(
        (part for part in parts if typing.is_typeddict(part) and set(answer) == set(part.__annotations__)), None
    )
    one = parts[0] if len(parts) == 1 else fitting
    assert one is not None, f"{path}: {sorted(answer)} are the keys of none of {[part.__name__ for part in parts]}"
    msgspec.convert(answer, one)
    _check_keys(one, answer, path)
    return True


def shape_of(method: str, path: str) -> Any:
    for route, allowed, name, _, _ in ROUTES:
        if allowed == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route), path):
            return SHAPES.get(handler_of(name))
    return None


def _check_keys(shape: Any, value: Any, place: str) -> None:
    """No key that the shape does not name: types are checked already, and all that must be there is."""
    if typing.is_typeddict(shape):
        hints = typing.get_type_hints(shape)
        more = set(value) - set(hints) - UNTOLD
        assert not more, f"{place}: {sorted(more)} are not in {shape.__name__}"
        for key in value.keys() & hints.keys():
            _check_keys(hints[key], value[key], f"{place} {key}")
    elif isinstance(value, list) and typing.get_origin(shape) is list:
        for item in value:
            _check_keys(typing.get_args(shape)[0], item, place)
    elif isinstance(value, dict) and typing.get_origin(shape) is dict:
        for item in value.values():
            _check_keys(typing.get_args(shape)[1], item, place)
    elif value is not None:
        for one in typing.get_args(shape):
            if typing.is_typeddict(one):
                _check_keys(one, value, place)
