"""Figures without a screen: one place that chooses the backend and the look. Touches: the files it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windfall.errors import BadInput

ENDINGS = ("png", "svg", "pdf", "jpg", "webp")
"""Kinds of files that a figure can be saved as, by the end of the name."""


def new_figure(rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 4.2, **kwargs: Any) -> Any:
    """A figure and its axes, as plt.subplots gives them; width and height are of one panel row and column together."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **kwargs)


def check_ending(path: str | Path) -> None:
    """BadInput if a figure cannot be saved under this name. Ask before the work that the figure shows."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in ENDINGS:
        raise BadInput(
            f"{path}: {f'no figure is drawn as .{kind}' if kind else 'which kind of figure?'}",
            hint=f"give the file one of these endings: {', '.join(f'.{each}' for each in ENDINGS)}",
        )


def save(figure: Any, path: str | Path) -> Path:
    """Write the figure (the ending decides the kind) and let it go. Missing directories are made."""
    import matplotlib.pyplot as plt

    path = Path(path)
    check_ending(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}", hint="name another file") from None
    finally:
        plt.close(figure)
    return path
