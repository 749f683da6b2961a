"""Which servers are preemptible: by flavor, image or scheduler hint, in this order. Pure.

The first of the three that says anything decides: the operator's word (flavor) before that of the image's owner, and
that before the user's. A rule of policy may close each of them; one that is closed says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

FLAVOR_KEY = "windfall:preemptible"
"""Extra spec of a flavor, and scheduler hint."""
IMAGE_KEY = "windfall_preemptible"
"""Property of an image: glance and nova allow no colon there."""
PRICE_KEY = "windfall:price_usd_per_h"
"""Extra spec of a flavor: what its user pays for an hour; the cost `revenue` reads it."""
CHECKPOINT_KEY = "windfall:checkpoint_t"
"""Metadata of a server, set by its user: Unix time of its last checkpoint; the cost `work` reads it."""
EVICTED_KEY = "windfall:evicted_at_t"
"""Metadata of a victim: Unix time at which it is shut down."""
FOR_KEY = "windfall:evicted_for"
"""Metadata of a victim: the server that needs its place."""
FLAVOR, IMAGE, HINT = "flavor", "image", "hint"
SOURCES = (FLAVOR, IMAGE, HINT)
YES, NO = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


class Said(Struct, frozen=True):
    """Whether a server is preemptible, and what says so (empty: nothing does)."""

    preemptible: bool = False
    source: str = ""
    unclear: tuple[str, ...] = ()
    """Sources with a value that is neither true nor false; they are not heard."""
    closed: tuple[str, ...] = ()
    """Sources that policy closes for this user."""


def truth(value: Any) -> bool | None:
    """True or False; None if the value is neither. A scheduler hint may come as a list of one."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    text = str(value).strip().lower()
    return True if text in YES else False if text in NO else None


def said(
    extra_specs: Mapping[str, Any] | None,
    image_properties: Mapping[str, Any] | None,
    hints: Mapping[str, Any] | None,
    open_to: Callable[[str], bool] = lambda source: True,
) -> Said:
    """`open_to(source)`: whether policy lets this source speak; asked only where it says anything."""
    values = {
        FLAVOR: (extra_specs or {}).get(FLAVOR_KEY),
        IMAGE: (image_properties or {}).get(IMAGE_KEY),
        HINT: (hints or {}).get(FLAVOR_KEY),
    }
    unclear: list[str] = []
    closed: list[str] = []
    for source in SOURCES:
        if values[source] is None:
            continue
        answer = truth(values[source])
        if answer is None:
            unclear.append(source)
        elif not open_to(source):
            closed.append(source)
        else:
            return Said(answer, source, tuple(unclear), tuple(closed))
    return Said(False, "", tuple(unclear), tuple(closed))


def number(value: Any) -> float | None:
    """A number that is not negative; None for anything else."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        return None
    return result if 0 <= result < 1e15 else None
