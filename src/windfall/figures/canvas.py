"""Figures without a screen: one place that chooses the backend and the look. Touches: the files it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def new_figure(rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 4.2, **kwargs: Any) -> Any:
    """A figure and its axes, as plt.subplots gives them; width and height are of one panel row and column together."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **kwargs)


def save(figure: Any, path: str | Path) -> Path:
    """Write the figure (the ending decides the kind) and let it go."""
    import matplotlib.pyplot as plt

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
