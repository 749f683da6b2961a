"""What `windfall site explain` says of a site's market, of hosts that are emptied and of what does not pay. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windfall.cli.show.output import moment
from windfall.units import show_duration

Json = dict[str, Any]


def explained(row: Json) -> Iterator[str]:
    """Lines: each mechanism with its settings and its present state, then what the reviews did, the newest last."""
    yield f"site {row['site']}: reviewed every {show_duration(row['review_s'])} where something below is on"
    yield _market(row)
    yield _consolidation(row)
    yield _power(row)
    if row["notes"]:
        yield "what reviews did:"
    for note in row["notes"]:
        yield f"  {moment(note['t'])}  {note['text']}"


def _market(row: Json) -> str:
    if not row["market"]:
        return "  market: off (--market)"
    price = row["market_price_usd"]
    now = "not cleared yet" if price is None else f"an hour of one vCPU costs ${price:.6g}"
    return f"  market: {now}; at least ${row['reserve_usd']:.6g}; workers bid ${row['bid_usd']:.6g} an hour each"


def _consolidation(row: Json) -> str:
    if row["consolidate_s"] is None:
        return "  consolidation: off (--consolidate TIME)"
    lost = show_duration(row["consolidate_s"])
    return f"  consolidation: hosts are emptied where the moves from one lose at most {lost} of work"


def _power(row: Json) -> str:
    if not row["power_usd"]:
        return "  instances that do not pay: stay (--power USD)"
    return (
        f"  instances that do not pay: end with their billing cycle of {show_duration(row['cycle_s'])}; "
        f"an hour of a host costs ${row['power_usd']:.6g}, "
        f"{row['evictions_per_h']:.3g} evictions per hour of an instance so far"
    )
