"""`python -m windfall`, and the program `windfall`: the command line."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        # Ctrl-C while modules are loaded: nothing has begun, so end without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from windfall.cli import main as run

    signal.signal(signal.SIGINT, interrupt)
    run()


if __name__ == "__main__":
    main()
