"""The rows of an exchange, and the causes of an attempt's end. Pure data.

Rows are JSON arrays, not objects: a busy worker sends thousands a second. docs/reference/protocol.md shows them whole.

    result  [job, task, attempt, cause, exit, ended_ago_s, run_s, cpu_s, rss_bytes, n_stdout, n_stderr, n_value, more]
    task    [job, task, attempt, argv, overrides, n_payload]
"""

from __future__ import annotations

from typing import Final

# Why an attempt ended. The server adds LOST, BAD_TASK and DISAGREED to what a worker reports.
DONE: Final = "done"  # exit code 0 and every declared output arrived
EXIT: Final = "exit"  # ended with another exit code
SIGNAL: Final = "signal"  # killed by a signal that neither the worker nor a limit sent
OOM: Final = "oom"  # over its memory limit
TIME: Final = "time"  # over its wall time
PYTHON: Final = "python"  # the call raised; the value holds the pickled exception and its traceback
OUTPUTS: Final = "outputs"  # exit code 0, but a declared output is missing or could not be sent
INPUTS: Final = "inputs"  # an input could not be fetched or written
NO_COMMAND: Final = "no-command"  # the program does not exist or may not be executed
NO_CWD: Final = "no-cwd"  # the working directory does not exist on this host
PREEMPTED: Final = "preempted"  # the host had to end (notice, lifetime, SIGTERM) before the attempt did
CANCELLED: Final = "cancelled"  # the server asked for it
LOST: Final = "lost"  # the host vanished, restarted, or its runner died
BAD_TASK: Final = "bad-task"  # the server could not make its command; no host was told to run it
DISAGREED: Final = "disagreed"  # hosts of volunteers came to different results, too often
QUOTA: Final = "quota"  # its outputs are more than its job may have; since version 2

CAUSES: Final = (
    DONE, EXIT, SIGNAL, OOM, TIME, PYTHON, OUTPUTS, INPUTS, NO_COMMAND, NO_CWD, PREEMPTED, CANCELLED, LOST, BAD_TASK,
    DISAGREED, QUOTA,
)  # fmt: skip

LOSSES: Final = frozenset({PREEMPTED, LOST, NO_CWD})
"""Causes that lie with the machine: they are charged to `max_losses`, never to `max_failures`."""

NO_WORK: Final = "idle"
"""What a worker says that leaves because it got no work for a while."""

MAX_TEXT_CHARS: Final = 10_000
"""Of a text that says why an attempt or an instance ended; a row with a longer one is refused."""
