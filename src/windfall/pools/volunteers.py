"""Kind `self`: workers that people start with --pool NAME; none are asked for. Touches nothing."""

from __future__ import annotations

from windfall.pools.kinds import NOTHING, Kind

KIND = Kind(gives=NOTHING)
