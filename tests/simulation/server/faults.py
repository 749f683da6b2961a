"""`python -m tests.simulation.server.faults FIRST [LAST]`: worlds of these seeds (`make faults`). One seed: that again.

Prints what happened in them, and ends with exit code 1 and the seed of the first world in which something broke. A
range that passed is added to the report of campaigns.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import traceback
from collections import Counter

from tests.support.server import campaigns
from tests.support.server.simulated import live_through

PIECE = 100
"""Seeds of one row of the report."""


def main(first: int, last: int) -> int:
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # a quarter of the processor time went into looking at modules, and at worlds that are not over yet
    gc.disable()
    rows = []
    for start in range(first, last + 1, PIECE):
        end = min(start + PIECE - 1, last)
        counts: Counter[str] = Counter()
        for seed in range(start, end + 1):
            try:
                counts += live_through(seed)
            except BaseException:
                traceback.print_exc()
                print(f"seed {seed} failed; again: python -m tests.simulation.server.faults {seed}", file=sys.stderr)
                return 1
        gc.collect()
        rows.append(campaigns.Row("faults", start, end, dict(counts)))
        if last > first:
            campaigns.add(campaigns.REPORT, rows[-1])
    print(json.dumps(campaigns.add_up(rows)))
    return 0


if __name__ == "__main__":
    said = [int(word) for word in sys.argv[1:]] or [1, 10_000]
    sys.exit(main(said[0], said[-1]))
