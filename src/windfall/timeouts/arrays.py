"""The one array type of this package. Pure; numpy only, so that the engine can learn without loading scipy."""

from __future__ import annotations

from windfall.numeric import ArrayLike, np
from windfall.numeric import Floats as Array

__all__ = ["Array", "as_array"]


def as_array(t: ArrayLike) -> Array:
    return np.asarray(t, dtype=np.float64)
