"""How commands end when told to: signals, a closed or full output. Touches signals and the standard streams.

The first SIGTERM or SIGHUP, and every Ctrl-C, is an exception in the command, which ends in good order. One that comes
while it is ending already ends the process at once: what the log on the disk holds is kept, as after kill -9.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

OUTPUT_LOST = 74
"""Exit code when standard output could not be written (EX_IOERR of sysexits.h)."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.05
_AT_ONCE = b"windfall: stopped at once; what was acknowledged is kept\n"


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: end in good order, now. `signal` says which."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.signal = number

    @property
    def exit_code(self) -> int:
        return 128 + self.signal


@contextmanager
def good_order() -> Iterator[None]:
    """Signals end the block by an exception: KeyboardInterrupt or Terminated. A signal that is ignored (nohup, a job in
    the background of a script) stays ignored."""
    told = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if number == signal.SIGINT and not told:
            raise KeyboardInterrupt
        if told:
            end_at_once(number)
        told = True
        raise Terminated(number)

    def again(number: int) -> None:
        nonlocal told
        told = False
        os.kill(os.getpid(), number)

    with _handling(on_signal), _heard(again):
        yield


@contextmanager
def _heard(again: Callable[[int], None]) -> Iterator[None]:
    """Where nobody can catch an exception (`__del__`, a callback), Python drops it: then send its signal again."""
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        lost = dropped.exc_value
        if not isinstance(lost, KeyboardInterrupt | Terminated):
            before(dropped)
            return
        import threading

        number = lost.signal if isinstance(lost, Terminated) else signal.SIGINT
        # Later, and by another thread: here the next exception would be dropped, too.
        timer = threading.Timer(_AGAIN_S, again, (number,))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def ending() -> Iterator[None]:
    """The command is ending: one more signal of any kind ends the process at once."""
    with _handling(lambda number, frame: end_at_once(number)):
        yield


@contextmanager
def _handling(handler: object) -> Iterator[None]:
    before = {}
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, earlier)


def ignore_signals() -> None:
    """The exit code is decided: a signal that comes while the interpreter ends does not change it any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def open_closed_streams() -> None:
    """Standard streams that were closed when we were started (`>&-`) swallow what is written to them."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def end_at_once(number: int) -> None:
    with contextlib.suppress(OSError):
        os.write(2, _AT_ONCE)
    os._exit(128 + number)


def say(text: str) -> None:
    """A line to standard error; nothing if that is closed or full."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Let a stream that cannot be written swallow the rest, so that the interpreter does not stumble over it later."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    with contextlib.suppress(OSError, ValueError):
        stream.flush()


def output_lost(error: OSError) -> int:
    """Standard output is closed or full: the exit code. A reader that went away (`| head`) is no failure."""
    drop(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    say(f"windfall: standard output cannot be written: {error.strerror or error}")
    return OUTPUT_LOST


_OF_THE_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EROFS)


def bad_name(error: OSError) -> str:
    """What is wrong with the name of a file that a user gave; empty for other errors, which are ours."""
    if error.filename is None or error.errno not in _OF_THE_NAME:
        return ""
    name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
    return f"{name if len(name) <= 100 else name[:97] + '...'}: {error.strerror}"


def is_of_a_reader(error: RecursionError) -> bool:
    """Whether a reader of JSON or TOML gave up on a text that is nested too deep; other recursions are ours."""
    if "JSON" in str(error) or "deserializing" in str(error):
        return True
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return where is not None and "tomllib" in where.tb_frame.f_code.co_filename


def has_too_many_digits(error: ValueError) -> bool:
    """Whether Python refused to read a whole number, in JSON, in TOML or typed: that of 4,300 digits takes too long."""
    return str(error).startswith("Exceeds the limit")


def is_about_output(error: OSError) -> bool:
    """A write that failed without a file name: errors of files and sockets are caught where they are used."""
    return isinstance(error, BrokenPipeError) or (
        error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EPIPE)
    )
