"""The picture of `windfall market show --plot`: interruptions by age and by hour. Touches: the file it draws."""

from __future__ import annotations

from typing import Any

from windfall.errors import BadInput


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Two panels: learned rates by age of the spell, and observed interruptions per hour up by hour of the day."""
    from windfall.figures.canvas import new_figure, save

    if not rows:
        raise BadInput("there is no spot offer to draw", hint="see them: windfall market show")
    figure, (left, right) = new_figure(1, 2, width=11.0, height=4.2)
    for row in rows:
        name = f"{row['pool']}/{row['offer']}"
        ages = [part["from_s"] / 3600.0 for part in row["by_age"]]
        left.step([*ages, 1.5 * ages[-1]], [*(part["interrupted_per_h"] for part in row["by_age"]),
                  row["by_age"][-1]["interrupted_per_h"]], where="post", label=name)  # fmt: skip
        seen = [part for part in row["by_hour"] if part["up_h"] > 0.0]
        right.plot([part["hour"] for part in seen], [part["ends"] / part["up_h"] for part in seen], "o", label=name)
    left.set(xlabel="age of the spell (hours)", ylabel="interruptions per hour", yscale="log")
    left.legend(frameon=False, fontsize=8)
    right.set(xlabel="hour of the day (UTC)", ylabel="interruptions per hour up, as seen", xlim=(-0.5, 23.5))
    save(figure, path)
