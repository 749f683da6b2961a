"""The picture of `windfall market show --plot`: interruptions by age and by hour. Pure."""

from __future__ import annotations

from windfall.api.market import LearnedOffer
from windfall.errors import BadInput
from windfall.figures.sheet import Line, Panel, sheet


def market_picture(rows: list[LearnedOffer]) -> str:
    """Two panels: learned rates by age of the spell, and observed interruptions per hour up by hour of the day."""
    if not rows:
        raise BadInput("there is no spot offer to draw", hint="see them: windfall market show")
    by_age, by_hour = [], []
    for hue, row in enumerate(rows):
        name = f"{row['pool']}/{row['offer']}"
        ages = [part["from_s"] / 3600.0 for part in row["by_age"]]
        rates = [part["interrupted_per_h"] for part in row["by_age"]]
        by_age.append(Line(x=[*ages, 1.5 * ages[-1]], y=[*rates, rates[-1]], name=name, hue=hue, steps=True))
        seen = [part for part in row["by_hour"] if part["up_h"] > 0.0]
        hours = [float(part["hour"]) for part in seen]
        by_hour.append(
            Line(x=hours, y=[part["ends"] / part["up_h"] for part in seen], name=name, hue=hue, joined=False)
        )
    return sheet(
        [
            Panel(lines=by_age, x_name="age of the spell (hours)", y_name="interruptions per hour", y_log=True),
            Panel(lines=by_hour, x_name="hour of the day (UTC)", y_name="per hour up, as seen", x_span=(-0.5, 23.5)),
        ],
        "Interruptions per hour, by the age of a spell and by the hour of the day.",
        title="Interruptions of spot machines",
    )
