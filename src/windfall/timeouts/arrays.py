"""The one array type of this package. Pure; numpy only, so that the engine can learn without loading scipy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def as_array(t: ArrayLike) -> Array:
    return np.asarray(t, dtype=np.float64)
