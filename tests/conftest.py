"""Settings of all tests: no example is judged by the clock; continuous integration draws the same ones every time."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("windfall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("windfall"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "windfall")

# A shell starts what runs in its background deaf to Ctrl-C, and nohup deaf to a closed terminal: so would be all that
# the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
