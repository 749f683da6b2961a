"""`python -m windfall`, and the program `windfall`: the command line."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line, run it, and end the process."""
    import atexit

    ending: list[object] = []
    # The first to be registered runs last: behind all that modules have registered, and when no thread is left.
    atexit.register(_leave, ending)
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        # Ctrl-C while modules are loaded: nothing has begun, so end without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from windfall.loading import loading

    with loading():
        from windfall.cli import main as run
    signal.signal(signal.SIGINT, interrupt)
    try:
        run()
    except SystemExit as end:
        ending.append(end.code)
        raise


def _leave(ending: list[object]) -> None:
    """End at once: taking every module apart, as Python does, takes longer than some commands."""
    import os
    import sys

    code = ending.pop() if ending else None
    if not isinstance(code, int):
        return  # another way to end, or a text to print: Python does that
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # said before: the reader is gone, or the disk is full
            code = code or 120
    os._exit(code)


if __name__ == "__main__":
    main()
