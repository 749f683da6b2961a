"""A wall clock that jumps: programs started with this folder in PYTHONPATH add the seconds in the named file."""

import os
import time

_real = time.time
_file = os.environ.get("WINDFALL_TEST_CLOCK", "")


def _jumping() -> float:
    try:
        with open(_file) as file:
            return _real() + float(file.read() or 0)
    except (OSError, ValueError):
        return _real()


if _file:
    time.time = _jumping
