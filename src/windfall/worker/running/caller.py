"""A warm Python process: unpickles calls, makes them, sends values back. Touches whatever the calls touch.

It exchanges messages with the agent directly; a runner enforces its limits, notices its death and clears up after it.
Standard output and error are files, read and emptied after each call: a pipe would need a reader during the call.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from typing import Any, NoReturn

from windfall.wire import messages as m
from windfall.worker.running import system, workdir
from windfall.worker.running.channel import Inbox, Line
from windfall.worker.running.window import marker

_MAX_FUNCTIONS = 256
_PROTOCOL = 5
_COUNT = struct.Struct("=Q")
_FORKED = (
    "windfall: process {pid}, which this call forked, returned from the call as well; it was ended, and the value of "
    "the call's own process counts. End forked processes with os._exit().\n"
)


class Caller:
    """Takes calls from the agent, one at a time."""

    def __init__(self, inbox: Inbox, line: Line, directory: str, label: str) -> None:
        self._inbox = inbox
        self._line = line
        self._own = workdir.OwnDirectory(directory, label)
        self._specs: dict[int, dict[str, Any]] = {}
        self._spec_id = -1
        self._environment = dict(os.environ)
        self._pid = os.getpid()
        self._calls = mmap.mmap(-1, _COUNT.size)
        """How many calls have ended, shared with processes that calls fork."""
        self._functions: dict[bytes, Any] = {}
        self._cores = tuple(os.sched_getaffinity(0))
        for fd, name in ((1, "out"), (2, "err")):
            path = os.path.join(directory, f"{label}.{name}")
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            os.dup2(file, fd)
            os.close(file)

    def run(self) -> None:
        """Run calls until the agent closes the queue or dies."""
        self._line.send(("up",))
        while (message := self._inbox.next()) is not None:
            if message[0] == "call":
                self._call(*message[1:])
            elif message[0] == "spec":
                self._specs[message[1]] = message[2]
            elif message[0] == "pin":
                system.use_cores(message[1] or self._cores)
            elif message[0] == "forget":
                self._specs.clear()
                self._spec_id = -1

    def _call(self, ident: int, spec_id: int, task: str, attempt: int, argv: None, payload: bytes) -> None:
        spec = self._specs[spec_id]
        started_ns, started_s, cpu_s = time.time_ns(), time.monotonic(), time.process_time()
        more: dict[str, Any] = {}
        try:
            folder = self._enter(spec, spec_id, task, attempt)
        except _NotStarted as failure:
            cause, text = failure.args
            self._line.send(("r", ident, cause, None, 0.0, 0.0, 0, b"", b"", b"", {"text": text}))
            self._own.leave()
            return
        before = self._calls[:]
        cause, value, text = self._evaluate(payload, bool(spec["memory_bytes"]))
        if os.getpid() != self._pid:
            self._end_fork(before)
        self._calls[:] = _COUNT.pack(_COUNT.unpack(before)[0] + 1)
        if cause == m.DONE and spec["outputs"]:
            files, missing = workdir.find_outputs(folder, spec["outputs"])
            if missing:
                cause, text = m.OUTPUTS, "missing declared output: " + ", ".join(missing[:5])
            else:
                more = {"files": files, "folder": None if spec["cwd"] is not None else self._own.give_away()}
        out, dropped_out = _take_output(sys.stdout, 1, spec["output_cap_bytes"])
        err, dropped_err = _take_output(sys.stderr, 2, spec["output_cap_bytes"])
        if text:
            more["text"] = text
        if dropped_out or dropped_err:
            more["dropped"] = [dropped_out, dropped_err]
        rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        run_s, cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
        code = 0 if cause == m.DONE else None
        self._line.send(("r", ident, cause, code, run_s, cpu_s, rss_bytes, out, err, value, more or None))
        if spec["cwd"] is None:
            self._own.leave(started_ns)

    def _end_fork(self, before: bytes) -> NoReturn:
        """A process that the call forked has come out of it as well: it must neither answer nor take the next call."""
        if self._calls[:] == before:  # else its output would be that of another call
            os.write(2, _FORKED.format(pid=os.getpid()).encode())
        os._exit(1)

    def _enter(self, spec: dict[str, Any], spec_id: int, task: str, attempt: int) -> str:
        """Environment, working directory and inputs of a call."""
        if spec_id != self._spec_id:
            self._spec_id = spec_id
            wanted = {**self._environment, **spec["env"]}
            wanted.pop("WINDFALL_TOKEN", None)
            os.environ.clear()
            os.environ.update(wanted, WINDFALL_JOB=str(spec["job"]), WINDFALL_HOST=spec["host"])
        os.environ["WINDFALL_TASK"] = task
        os.environ["WINDFALL_ATTEMPT"] = str(attempt)
        if spec["checkpoints"] is not None:
            os.environ["WINDFALL_CHECKPOINT_EVERY_S"] = f"{spec['checkpoint_s']:g}"
            os.environ["WINDFALL_CHECKPOINT"] = f"{spec['checkpoints']}.{task}"
        folder: str
        try:
            if spec["cwd"] is not None:
                folder = spec["cwd"]
                self._own.step_out()
                os.chdir(folder)
            else:
                # A call may have changed the working directory.
                folder = os.environ["WINDFALL_DIR"] = self._own.come_back()
        except OSError as error:
            raise _NotStarted(m.NO_CWD if spec["cwd"] is not None else m.LOST, str(error)) from None
        if spec["inputs"]:
            try:
                workdir.place_inputs(folder, spec["inputs"])
            except (OSError, workdir.BadName) as error:
                raise _NotStarted(m.INPUTS, str(error)) from None
        return folder

    def _evaluate(self, payload: bytes, limited: bool) -> tuple[str, bytes, str]:
        """Make one call; return its cause, its pickled value and a line of text."""
        try:
            function, args, kwargs = loaded(payload)
            result = self._function(function)(*args, **kwargs)
            return m.DONE, _dumps((True, result)), ""
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: a call must not end the process that runs the next calls.
            text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            cause = m.OOM if limited and isinstance(error, MemoryError) else m.PYTHON
            return cause, _failure(error), text

    def _function(self, reference: Any) -> Any:
        """The callable in these bytes, or in the blob with this name; cached for the next call."""
        found = self._functions.get(reference)
        if found is not None:
            return found
        data = self._blob(reference) if isinstance(reference, str) else reference
        if len(self._functions) >= _MAX_FUNCTIONS:
            self._functions.pop(next(iter(self._functions)))
        found = self._functions[reference] = loaded(data)
        return found

    def _blob(self, sha256: str) -> bytes:
        self._line.send(("need", sha256))
        while messages := self._line.wait():
            for message in messages:
                if message[0] == "blob" and message[1] == sha256:
                    _, _, path, text = message
                    if path is None:
                        raise RuntimeError(f"the function could not be fetched: {text}")
                    with open(path, "rb") as file:
                        return file.read()
        raise ConnectionError("the worker has gone")


class _NotStarted(Exception):
    """Cause and text."""


def loaded(data: bytes) -> Any:
    """What was pickled. A module that is missing here is missing on this host: say on which, and in which Python."""
    try:
        return pickle.loads(data)
    except ModuleNotFoundError as error:
        here = f"Python {sys.version.split()[0]} ({sys.executable})"
        host = os.environ.get("WINDFALL_HOST", "the worker")
        text = f"{error} on host {host}, in its {here}: install it there"
        raise ModuleNotFoundError(text, name=error.name) from None


def _dumps(value: object) -> bytes:
    try:
        return pickle.dumps(value, _PROTOCOL)
    except Exception:
        # Classes and functions of the client's main module are known here by value only.
        try:
            import cloudpickle
        except ImportError:
            raise
        return bytes(cloudpickle.dumps(value, _PROTOCOL))


def _failure(error: BaseException) -> bytes:
    # Leave out the frames of this file: they do not help the author of the call.
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    error.__traceback__ = None
    try:
        data = _dumps((False, error, text))
        pickle.loads(data)
        return data
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), text), _PROTOCOL)


def _take_output(stream: Any, fd: int, cap_bytes: int) -> tuple[bytes, int]:
    """Output of the call (head and tail, at most the cap) and how many bytes were dropped. Empties the file."""
    with contextlib.suppress(Exception):
        stream.flush()
    size = os.fstat(fd).st_size
    if not size:
        return b"", 0
    if size <= cap_bytes:
        data, dropped = os.pread(fd, size, 0), 0
    else:
        tail_bytes = cap_bytes // 2
        head_bytes = cap_bytes - tail_bytes
        dropped = size - cap_bytes
        data = os.pread(fd, head_bytes, 0) + marker(dropped) + os.pread(fd, tail_bytes, size - tail_bytes)
    os.ftruncate(fd, 0)
    return data, dropped


def main() -> None:
    """Entry point. Arguments: path of this code, a directory, a label, descriptors of queue and line."""
    source, directory, label, queue_fd, line_fd = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (queue_fd, line_fd):
        os.set_inheritable(fd, False)
    # A call that imports windfall must get the installed package, not the few modules shipped with the worker.
    sys.path.remove(source)
    sys.path.append(source)
    for name in [name for name in sys.modules if name.partition(".")[0] == "windfall"]:
        del sys.modules[name]
    sys.argv = [""]
    with contextlib.suppress(ConnectionError):
        Caller(Inbox(queue_fd), Line(socket.socket(fileno=line_fd)), directory, label).run()
