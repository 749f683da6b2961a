"""Figure 9 of GridBot: four bags under different replication, volunteers included. Touches its executor."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from windfall.lab.gridbot import worlds
from windfall.lab.gridbot.finding import Claim, Finding, H, Means, Observed, incomplete

SEEDS = 3
"""Most seeds of this experiment: at full size a run takes minutes."""
BEGUN = 0.05
"""A bag has begun when this share of its tasks is done: its own time counts from there to its end."""
NAMES = ("R1", "R2", "R3", "R4")
BOTH_SIDES_S = 1800.0
"""Time before and after R3's tail in which its results are counted: its curve has a knee there."""

COMMUNITY = "30 % to 70 % of the jobs are sent to the community"
KNEE = "R3's curve has a knee where its tail is detected (half an hour later it brings a tenth less)"
REASONS = {
    COMMUNITY: "volunteers get 17 % of the attempts, because they return a task after three run times on average, many "
    "later. With 16,000 volunteers it is 34 %, but then R3's tail begins at 17,100 tasks and not at 13,000 (scale "
    "0.03, one seed). How many volunteers there were is not printed",
    KNEE: "in the paper R2 occupies the grids when R3's tail begins; here R2 is done by then, so R3 has all of them",
}
"""Why statements do not come out."""


class _Bags:
    """Means over the seeds of what the text says of each bag."""

    def __init__(self, seen: list[Observed], scale: float) -> None:
        every = [{bag.name: bag for bag in one.outcome.bags} for one in seen]
        ends = {name: [np.asarray(one.ends_s[name]) for one in seen] for name in NAMES}
        self.end_h = {name: _mean(times[-1] / H for times in ends[name]) for name in NAMES}
        self.half_h = {name: _mean(times[len(times) // 2] / H for times in ends[name]) for name in NAMES}
        self.own_h = {name: _mean((t[-1] - t[int(BEGUN * len(t))]) / H for t in ends[name]) for name in NAMES}
        tails = {name: [bags[name].tail_s or 0.0 for bags in every] for name in NAMES}
        self.left = {
            name: _mean((t > tail).sum() / scale for t, tail in zip(ends[name], tails[name], strict=True))
            for name in NAMES
        }
        self.replicas = {name: _mean(bags[name].replicas / bags[name].tasks for bags in every) for name in NAMES}
        self.waste = {name: _mean(bags[name].discarded / bags[name].tasks for bags in every) for name in NAMES}
        self.community = _mean(one.sent["volunteers"] / sum(one.sent.values()) for one in seen)
        sides = [_around(t, tail) for t, tail in zip(ends["R3"], tails["R3"], strict=True)]
        self.knee = _mean(after / max(1, before) for before, after in sides)


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def _around(ends: Any, t: float) -> tuple[int, int]:
    """Results before and after a time."""
    before = int(((ends > t - BOTH_SIDES_S) & (ends <= t)).sum())
    return before, int(((ends > t) & (ends <= t + BOTH_SIDES_S)).sum())


def figure9(means: Means) -> Finding:
    """Four bags under different replication, volunteers included."""
    seeds = min(means.seeds, SEEDS)
    seen = means.observe(worlds.replication_with_volunteers_run(means.scale), seeds)
    here = _Bags(seen, means.scale)
    more = _Bags(means.observe(worlds.replication_with_volunteers_run(means.scale, 4000), seeds), means.scale)
    rows = [_row(name, here, name) for name in NAMES] + [_row("R4 at 4,000", more, "R4")]
    return Finding(
        "figure9",
        "Figure 9: four bags at once, the community included",
        "The policies of figure 9(b) follow the text (their table is not legible in our copy): R1 replicates freely "
        "and runs anywhere, R2 leaves volunteers out in the tail, R3 also replicates carefully, R4 takes 2,000 tasks "
        "left for the tail. Ranks fall from R1 to R4: the text has the grids occupied by R2 in R3's tail, by R3 in "
        "R4's. 8,000 volunteers are there from the start; a host holds two tasks (Concurrency of figure 3) and keeps "
        "them; the tail begins when fewer than 1,500 tasks (the scheduling buffer) are unsent. A host has a high error "
        "rate as BOINC counts it: 10 % at first, 5 % less with every result, so above 1 % before its 45th. A bag's own "
        f"time counts from {BEGUN:.0%} of its tasks to the last.",
        ["bag", "done after (h)", "own time (h)", "half done after (h)", "left when its tail began", "replicas",
         "waste"],
        rows,
        _claims(here, more),
        {"2000": _plain(here), "4000": _plain(more)},
        REASONS,
        curves={name: incomplete(seen[0].ends_s[name]) for name in NAMES},
        axes={"xlabel": "time (h)", "ylabel": "incomplete tasks"},
    )  # fmt: skip


def _row(label: str, bags: _Bags, name: str) -> list[str]:
    return [
        label, f"{bags.end_h[name]:.2f}", f"{bags.own_h[name]:.2f}", f"{bags.half_h[name]:.2f}",
        f"{bags.left[name]:,.0f}", f"{bags.replicas[name]:.0%}", f"{bags.waste[name]:.0%}",
    ]  # fmt: skip


def _claims(here: _Bags, more: _Bags) -> list[Claim]:
    own, half = here.own_h, here.half_h
    steps = [half[later] - half[sooner] for sooner, later in pairwise(NAMES)]
    return [
        ("R1 has a longer turnaround than R2 and R3 despite free replication", own["R1"] > max(own["R2"], own["R3"])),
        ("R3 is as quick as R2 (within 10 %) despite restrictive replication", own["R3"] < 1.1 * own["R2"]),
        ("R4 is the least efficient of the four", own["R4"] == max(own.values())),
        ("because its tail begins at far more than 2,000 tasks (the paper: about 10,000)", here.left["R4"] > 5000),
        (
            f"with 4,000 as threshold R4 is much quicker, at least by a quarter (the paper: 80 minutes; here "
            f"{60 * more.own_h['R4']:.0f} instead of {60 * own['R4']:.0f})",
            more.own_h["R4"] < 0.75 * own["R4"],
        ),
        (
            f"R3 makes more replicas than the restrictive pair of the table, 11 %: {here.replicas['R3']:.0%}",
            here.replicas["R3"] > 0.11,
        ),
        (COMMUNITY, 0.3 <= here.community <= 0.7),
        ("the time between R4 and R3 is shorter than that between R3 and R2, or R2 and R1", steps[2] < min(steps[:2])),
        (
            f"R3's tail is detected at about 13,000 tasks (within a third): {here.left['R3']:,.0f}",
            abs(here.left["R3"] / 13_000 - 1) < 1 / 3,
        ),
        (KNEE, here.knee < 0.9),
    ]


def _plain(bags: _Bags) -> dict[str, Any]:
    return {name: getattr(bags, name) for name in ("end_h", "own_h", "half_h", "left", "replicas", "waste")} | {
        "community": bags.community, "knee": bags.knee,
    }  # fmt: skip
