"""`python -m tests.simulation.server.faults FIRST [LAST]`: worlds of these seeds (`make faults`). One seed: that again.

Prints what happened in them, and ends with exit code 1 and the seed of the first world in which something broke.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections import Counter

from tests.support.server.simulated import live_through


def main(first: int, last: int) -> int:
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    for seed in range(first, last + 1):
        try:
            total += live_through(seed)
        except BaseException:
            traceback.print_exc()
            print(f"seed {seed} failed; again: python -m tests.simulation.server.faults {seed}", file=sys.stderr)
            return 1
    print(json.dumps({"seeds": last - first + 1, **dict(sorted(total.items()))}))
    return 0


if __name__ == "__main__":
    said = [int(word) for word in sys.argv[1:]] or [1, 10_000]
    sys.exit(main(said[0], said[-1]))
