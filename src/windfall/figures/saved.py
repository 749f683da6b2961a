"""Pictures as files: SVG as it was drawn, PNG and PDF made from it. Touches: the files it saves."""

from __future__ import annotations

import re
from pathlib import Path

from windfall import files
from windfall.errors import BadInput
from windfall.figures.look import LIGHT

ENDINGS = ("svg", "png", "pdf")
"""Kinds of files that a picture can be saved as, by the end of the name."""
SCALE = 1.6
"""Pixels of a PNG for each unit of the drawing."""
DARK_LOOK = re.compile(r"@media\(prefers-color-scheme:dark\)\{:root\{[^}]*\}\}")
NAMED_COLOUR = re.compile(r"var\((--[a-z]+)\)")


def check_picture(path: str | Path) -> None:
    """BadInput if a picture cannot be saved there. Ask before the work that the picture shows."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in ENDINGS:
        raise BadInput(
            f"{path}: {f'no figure is drawn as .{kind}' if kind else 'which kind of figure?'}",
            hint=f"give the file one of these endings: {', '.join(f'.{each}' for each in ENDINGS)}",
        )
    files.check_writable(path)


def save(drawn: str, path: str | Path) -> Path:
    """Write an SVG document; the ending decides the kind of file. Missing folders are made."""
    path = Path(path)
    check_picture(path)
    return files.write(path, drawn + "\n" if path.suffix.lower() == ".svg" else _converted(drawn, path))


def _converted(drawn: str, path: Path) -> bytes:
    try:
        import cairosvg
    except (ImportError, OSError):
        raise BadInput(
            f"{path}: this host cannot make {path.suffix} files, for want of the library Cairo",
            hint="name an .svg file, or install it: apt-get install libcairo2",
        ) from None
    make = cairosvg.svg2pdf if path.suffix.lower() == ".pdf" else cairosvg.svg2png
    made: bytes = make(in_light(drawn).encode(), scale=SCALE)
    return made


def in_light(drawn: str) -> str:
    """The same with the colours of a light page written out, for programs that know neither variables nor queries."""
    colours = dict(part.split(":", 1) for part in LIGHT.split(";"))
    return NAMED_COLOUR.sub(lambda found: colours[found[1]], DARK_LOOK.sub("", drawn))
