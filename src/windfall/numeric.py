"""numpy, loaded when it is first used. Pure.

A server with one bag of tasks computes nothing that needs it, and loading it takes longer than running a short task.
Packages that every server loads write `from windfall.numeric import np`; the others import numpy itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["ArrayLike", "Bools", "Floats", "Ints", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]
else:
    ArrayLike = Ints = Floats = Bools = Any

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # inspect and debuggers ask for these
                raise AttributeError(name)
            value = getattr(import_module("numpy"), name)
            setattr(self, name, value)  # the next look finds it at once, as in a module
            return value

    np = _Numpy()
