"""A slot's runner: starts one process after the other, enforces its limits, collects its output. Touches processes.

Built for short tasks: one `posix_spawn` per task (it shares our memory until exec, so this process stays small); pipes
and directory are reused while no other process can hold them; SIGCHLD reports the end of the child. A runner is a
process of its own because the interpreter holds its lock while it spawns.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from windfall.wire import messages as m
from windfall.worker.running import isolation, limits, system, workdir
from windfall.worker.running.attempt import Attempt, NotStarted, Spec
from windfall.worker.running.channel import Inbox, Line
from windfall.worker.running.containers import KILLED, Container, NoImage

_READ_BYTES = 1 << 16
_MAX_POSTED = 32
_POSTED_S = 0.02
"""Results of short tasks are sent together: after 32 of them (`_MAX_POSTED`), after 20 ms, or before waiting."""

_LOOK_S = 1.0
"""Seconds between two checks of a process that is silent."""
_TOLD_S = 60.0
"""Attempts that end badly within this time after a SIGTERM have ended because of it."""
_TOLD_LATE_S = 0.5
"""Time in which a SIGTERM reaches all processes of a job, on a busy host, too."""
_SHELL_SAYS = 300
"""Bytes at the end of standard error in which a shell says how its child ended."""


class Runner:
    """Takes packets from the agent and runs them, one at a time."""

    def __init__(self, inbox: Inbox, line: Line, directory: str, label: str) -> None:
        self._inbox = inbox
        self._line = line
        self._own = workdir.OwnDirectory(directory, label)
        self._memory = limits.MemoryLimit(label)
        self._specs: dict[int, Spec | NotStarted] = {}
        self._home = directory
        # A child inherits descriptors 0, 1 and 2 as they are here (/dev/null and two pipes): no file action per spawn.
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(signum, lambda *_: None)
        # A batch system sends it to every process of a job. The agent, which gets it too, says what is to be done.
        self._told_s = -_TOLD_S
        signal.signal(signal.SIGTERM, self._on_told)
        # Python ignores these signals, and exec keeps that: restore the defaults for tasks.
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        self._poll = select.epoll()
        # Edge-triggered: the byte need not be read, which saves a system call per task.
        self._poll.register(self._wake, select.EPOLLIN | select.EPOLLET)
        self._poll.register(line.fileno(), select.EPOLLIN)
        self._wakes = 0
        self._posted_s = 0.0
        """When the oldest result that was not sent yet ended."""
        self._cores = tuple(os.sched_getaffinity(0))
        self._pipes: tuple[int, ...] = ()
        self._subreaper = system.become_subreaper()
        self._open_pipes()

    def run(self) -> None:
        """Run tasks until the agent closes the queue or dies."""
        while (message := self._inbox.next(self._line.flush)) is not None:
            kind = message[0]
            if kind == "task":
                self._run_task(*message[1:])
            elif kind == "spec":
                self._add_spec(message[1], message[2])
            elif kind == "warm":
                self._run_warm(*message[1:])
            elif kind == "pin":
                system.use_cores(message[1] or self._cores)
            elif kind == "forget":
                self._specs.clear()
        self._memory.close()

    def _add_spec(self, spec_id: int, fields: dict[str, Any]) -> None:
        try:
            self._specs[spec_id] = Spec(fields)
        except (TypeError, ValueError, AttributeError) as error:
            self._specs[spec_id] = NotStarted(m.NO_COMMAND, f"the job's settings cannot be used: {error}")

    # -- commands ---------------------------------------------------------------------------------------------------

    def _run_task(self, ident: int, spec_id: int, task: str, attempt: int, argv: list[str], payload: bytes) -> None:
        spec = self._specs[spec_id]
        stdin, started_ns = 0, time.time_ns()
        try:
            if isinstance(spec, NotStarted):
                raise spec
            if payload:
                stdin = _file_with(payload)
            folder = self._enter(spec)
            env = spec.env
            env[b"WINDFALL_TASK"] = task.encode()
            env[b"WINDFALL_ATTEMPT"] = b"%d" % attempt
            if spec.checkpoints is not None:
                env[b"WINDFALL_CHECKPOINT"] = os.fsencode(f"{spec.checkpoints}.{task}")
            if folder:
                env[b"WINDFALL_DIR"] = os.fsencode(folder)
            contained = ""
            if spec.container is not None:
                contained = f"windfall-{os.getpid()}-{ident}"
                argv, env = self._contain(spec, spec.container, contained, argv, folder)
            elif spec.isolation is not None:
                argv = self._isolate(spec, spec.isolation, argv, folder or os.getcwd())
            running = self._start(ident, spec, argv, env, stdin)
        except NotStarted as failure:
            self._line.send(("r", ident, failure.cause, None, 0.0, 0.0, 0, b"", b"", b"", {"text": failure.text}))
            self._own.leave()
            return
        finally:
            if stdin:
                os.close(stdin)
        self._watch(running)
        if contained and spec.container is not None:
            self._clear_container(running, spec.container, contained)
        self._report(running, folder)
        if folder:
            self._own.leave(started_ns)

    def _contain(
        self, spec: Spec, container: Container, name: str, argv: list[str], folder: str | None
    ) -> tuple[list[str], dict[bytes, bytes]]:
        """The command line of the engine that runs a task in its image, and the environment of the engine."""
        try:
            container.fetch()
        except (NoImage, OSError) as error:
            raise NotStarted(m.INPUTS, str(error)) from None
        names = spec.own_variables
        if folder:
            names = [*names, "WINDFALL_DIR"]
        if spec.checkpoints is not None:
            names = [*names, "WINDFALL_CHECKPOINT", "WINDFALL_CHECKPOINT_EVERY_S"]
        made = container.argv(name, argv, folder or os.getcwd(), names, spec.places)
        return made, container.environment(spec.env, names)

    def _isolate(self, spec: Spec, settings: dict[str, Any], argv: list[str], folder: str) -> list[str]:
        """The command line that runs a task in a sandbox. A program that is not there is noticed before."""
        if not argv:
            return argv
        program = spec.programs.get(argv[0]) or self._find(spec, argv[0])
        if not os.access(os.path.join(folder, program), os.X_OK):
            raise NotStarted(m.NO_COMMAND, f"{program!r} is not there, or it cannot be executed")
        return isolation.argv_of(settings, [program, *argv[1:]], folder, spec.places)

    def _clear_container(self, running: Attempt, container: Container, name: str) -> None:
        if running.cause is not None or running.exit_code < 0:
            # The engine was killed, and may have left its container running.
            container.remove(name)
        elif container.memory_bytes and running.exit_code == KILLED:
            running.cause, running.text = m.OOM, _memory_text(container.memory_bytes)

    def _enter(self, spec: Spec) -> str | None:
        """Change to the attempt's directory; return it if it is the attempt's own, else None."""
        if spec.cwd is not None:
            self._own.step_out()
            try:
                os.chdir(spec.cwd)
            except OSError as error:
                raise NotStarted(m.NO_CWD, f"{spec.cwd}: {error.strerror} on host {os.uname().nodename}") from None
            folder, own = spec.cwd, None
        else:
            try:
                folder = own = self._own.enter()
            except OSError as error:
                # The host's fault and not the task's.
                raise NotStarted(m.LOST, f"no directory for the attempt: {error}") from None
        if spec.inputs:
            try:
                workdir.place_inputs(folder, spec.inputs)
            except (OSError, workdir.BadName) as error:
                raise NotStarted(m.INPUTS, str(error)) from None
        return own

    def _start(
        self, ident: int, spec: Spec, argv: Any, env: dict[bytes, bytes], stdin: int, fds: list[int] | None = None
    ) -> Attempt:
        if not argv:
            raise NotStarted(m.NO_COMMAND, "the command is empty")
        program = spec.programs.get(argv[0]) or self._find(spec, argv[0])
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0)] if stdin else None
        if fds:
            actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in fds]
        if spec.memory_bytes:
            self._memory.begin(spec.memory_bytes)
        try:
            pid = _spawn(program, argv, env, actions)
        except (OSError, ValueError) as error:
            if spec.memory_bytes:
                self._memory.failed_to_start()
            spec.programs.pop(argv[0], None)
            raise NotStarted(m.NO_COMMAND, _why_not(program, error)) from None
        running = Attempt(ident, pid, spec)
        if spec.memory_bytes:
            self._memory.started(pid)
        return running

    def _find(self, spec: Spec, name: str) -> str:
        """Path of the program, searched in the task's own PATH."""
        if "/" in name:
            return name
        for folder in os.fsdecode(spec.env.get(b"PATH", os.defpath.encode())).split(":"):
            path = os.path.join(folder or ".", name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                if folder.startswith("/"):
                    spec.programs[name] = path
                return path
        raise NotStarted(m.NO_COMMAND, f"{name!r} is not on the PATH of this host")

    def _watch(self, running: Attempt) -> None:
        """Until the process has ended: collect its output, enforce its limits, follow the agent's orders."""
        poll, wake, line = self._poll.poll, self._wake, self._line.fileno()
        spec, pid = running.spec, running.pid
        limited = bool(spec.memory_bytes or spec.wall_s)
        # Results queued before must not wait for a long task.
        timeout_s, now_s = _POSTED_S, running.started_s
        while True:
            if limited or running.kill_at_s:
                timeout_s = min(timeout_s, self._timeout_s(running))
            ready, before_s, now_s = poll(timeout_s), now_s, time.monotonic()
            if now_s - before_s > _LOOK_S and (slept_s := system.frozen_s(now_s - before_s, timeout_s)):
                running.was_frozen(slept_s)
            for fd, _ in ready:
                if fd == wake:
                    self._drain_wakes()
                elif fd == line:
                    self._obey(running)
                else:
                    self._read(running, fd)
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                break
            if limited or running.kill_at_s:
                self._enforce(running)
            if now_s - running.started_s > _POSTED_S:
                self._line.flush()
                timeout_s = _LOOK_S
        running.ended(status, usage)
        self._clear_up(running)
        # All writers have ended: what the pipes hold is the rest of the output.
        for fd, _ in poll(0):
            if fd != wake and fd != line:
                self._read(running, fd)

    def _drain_wakes(self) -> None:
        """Empty the wake-up pipe once in 1,000 wake-ups, so that it never fills."""
        self._wakes += 1
        if self._wakes >= 1_000:
            self._wakes = 0
            os.read(self._wake, 1 << 16)

    def _timeout_s(self, running: Attempt) -> float:
        times = [t for t in (running.kill_at_s, running.deadline_s) if t is not None]
        timeout_s = max(0.0, min(times) - time.monotonic()) if times else _LOOK_S
        if running.spec.memory_bytes and (watch_s := self._memory.watch_s):
            timeout_s = min(timeout_s, watch_s)
        return timeout_s

    def _enforce(self, running: Attempt) -> None:
        now_s = time.monotonic()
        if running.kill_at_s is not None and now_s >= running.kill_at_s:
            running.signal(signal.SIGKILL)
            running.kill_at_s = now_s + 1.0
        if running.deadline_s is not None and now_s >= running.deadline_s:
            running.deadline_s = None
            running.end(m.TIME, f"over its wall time of {running.spec.wall_s:g} s", running.spec.grace_s)
        if running.spec.memory_bytes and self._memory.over(running.pid, now_s):
            running.end(m.OOM, _memory_text(running.spec.memory_bytes), 0)

    def _read(self, running: Attempt, fd: int) -> None:
        """Read what is in a pipe. Bounded per turn: the limits of a task that never stops writing are still checked."""
        which = self._pipes.index(fd)
        window = running.window(which)
        for _ in range(64):
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                return
            if running.watched:
                self._line.send(("o", running.ident, which, window.total_bytes, data))
            window.add(data)
            if len(data) < _READ_BYTES:
                return

    def _obey(self, running: Attempt) -> None:
        for message in self._line.receive():
            if message[1] != running.ident:
                continue
            if message[0] == "end":
                _, _, cause, text, grace_s, notice = message
                grace_s = running.spec.grace_s if grace_s is None else grace_s
                running.end(cause, text, grace_s, running.spec.notice_signal if notice else signal.SIGTERM)
            elif message[0] == "watch" and not running.watched:
                running.watched = True
                for which in (0, 1):
                    for offset, data in running.window(which).pieces():
                        self._line.send(("o", running.ident, which, offset, data))
        if self._line.at_end:
            # The agent is dead: kill the task and everything it started; the result is not needed.
            running.signal(signal.SIGKILL)
            system.kill_orphans()
            self._memory.close()
            os._exit(1)

    def _clear_up(self, running: Attempt) -> None:
        """Kill every process that the attempt started and left behind."""
        if self._subreaper:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        running.signal(signal.SIGKILL)
        if not (self._subreaper and system.kill_orphans()):
            # A process may still hold the pipes: the next attempt gets new ones.
            self._open_pipes()

    def _open_pipes(self) -> None:
        """Put new pipes behind descriptors 1 and 2 and keep their reading ends."""
        for fd in self._pipes:
            self._poll.unregister(fd)
            os.close(fd)
        ends = []
        for target in (1, 2):
            read, write = os.pipe()
            os.dup2(write, target)
            os.close(write)
            os.set_blocking(read, False)
            self._poll.register(read, select.EPOLLIN)
            ends.append(read)
        self._pipes = tuple(ends)

    def _report(self, running: Attempt, folder: str | None) -> None:
        """Tell the agent how it ended; `folder` is the attempt's own directory, if it has one."""
        spec = running.spec
        stdout, dropped_out = running.output(0)
        stderr, dropped_err = running.output(1)
        cause, text = self._judge(running, stderr)
        more: dict[str, Any] = {"text": text} if text else {}
        if dropped_out or dropped_err:
            more["dropped"] = [dropped_out, dropped_err]
        if spec.outputs and cause == m.DONE:
            files, missing = workdir.find_outputs(folder or spec.cwd or "", spec.outputs)
            if missing:
                cause = m.OUTPUTS
                more["text"] = "missing declared output: " + ", ".join(missing[:5])
            else:
                more["files"] = files
                more["folder"] = self._own.give_away() if folder else None
        waiting = self._line.post(
            ("r", running.ident, cause, running.exit_code, running.run_s, running.cpu_s, running.rss_bytes,
             stdout, stderr, b"", more or None)
        )  # fmt: skip
        ended_s = running.started_s + running.run_s
        if waiting == 1:
            self._posted_s = ended_s
        if waiting >= _MAX_POSTED or running.run_s > _POSTED_S or ended_s - self._posted_s > _POSTED_S:
            self._line.flush()

    def _judge(self, running: Attempt, stderr: bytes) -> tuple[str, str]:
        """Cause and text of the end: what the runner did to it, else out of memory, else its exit code."""
        limit_bytes, largest_bytes = running.spec.memory_bytes, running.rss_bytes
        if limit_bytes:
            running.rss_bytes = max(largest_bytes, self._memory.peak_bytes)
        if running.cause is not None:
            return running.cause, running.text
        if limit_bytes and self._memory.judge(running.exit_code != 0, largest_bytes, stderr):
            return m.OOM, _memory_text(limit_bytes)
        if running.exit_code != 0 and self._was_told(running.exit_code, stderr):
            return m.PREEMPTED, "SIGTERM was sent to every process of the worker's job"
        return _plain_cause(running.exit_code)

    def _on_told(self, *_: object) -> None:
        self._told_s = time.monotonic()

    def _was_told(self, exit_code: int, stderr: bytes) -> bool:
        """Whether SIGTERM came to this process as well, and so to the attempt; it may come a moment after its end."""
        until_s = time.monotonic() + (_TOLD_LATE_S if _by_sigterm(exit_code, stderr) else 0.0)
        while self._told_s <= time.monotonic() - _TOLD_S and time.monotonic() < until_s:
            time.sleep(0.005)
        return self._told_s > time.monotonic() - _TOLD_S

    # -- a warm Python process --------------------------------------------------------------------------------------

    def _run_warm(self, ident: int, fields: dict[str, Any], argv: list[str]) -> None:
        """Start and watch a Python process that exchanges messages with the agent over the descriptors that follow."""
        fds = self._inbox.descriptors()
        spec = Spec(fields)
        self._own.step_out()
        os.makedirs(self._home, 0o700, exist_ok=True)
        os.chdir(self._home)
        try:
            words = [*argv, *(str(fd) for fd in fds)]
            if spec.isolation is not None:
                # Calls copy their inputs themselves.
                words = isolation.argv_of(spec.isolation, words, self._home, spec.isolation["places"])
            running = self._start(ident, spec, words, spec.env, 0, fds)
        except NotStarted as failure:
            self._line.send(("w", ident, failure.cause, None, 0, b"", failure.text))
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._watch(running)
        stderr = running.output(1)[0]
        cause, text = self._judge(running, stderr)
        self._line.send(("w", ident, cause, running.exit_code, running.rss_bytes, stderr, text))


def _spawn(program: str, argv: list[str], env: dict[bytes, bytes], actions: list[tuple[int, int, int]] | None) -> int:
    try:
        return os.posix_spawn(program, argv, env, file_actions=actions, setpgroup=0)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without an interpreter line: run it with the shell, as a terminal would.
    return os.posix_spawn("/bin/sh", ["sh", program, *argv[1:]], env, file_actions=actions, setpgroup=0)


def _file_with(data: bytes) -> int:
    """A descriptor from which the data can be read: a file in memory, so no process has to write it."""
    fd = os.memfd_create("stdin")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _why_not(program: str, error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return f"{program}: {error}"
    if isinstance(error, FileNotFoundError) and os.path.exists(program):
        return f"{program}: the interpreter that its first line names is not on this host"
    return f"{program}: {error.strerror}"


def _by_sigterm(exit_code: int, stderr: bytes) -> bool:
    """Whether SIGTERM has ended the process, or a child of it: a shell says so, or adds 128 to the number."""
    return exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM) or b"Terminated" in stderr[-_SHELL_SAYS:]


def _plain_cause(exit_code: int) -> tuple[str, str]:
    if exit_code == 0:
        return m.DONE, ""
    if exit_code < 0:
        try:
            return m.SIGNAL, f"killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return m.SIGNAL, f"killed by signal {-exit_code}"
    return m.EXIT, f"exit code {exit_code}"


def _memory_text(limit_bytes: int) -> str:
    return f"over its memory limit of {limit_bytes / 2**20:,.0f} MB"


def main() -> None:
    """Entry point. Arguments: descriptors of the queue and of the line, a directory, a label."""
    queue_fd, line_fd, directory, label = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    # Descriptor 2 becomes that of the tasks: our own errors go where it pointed before.
    sys.stderr = open(os.dup(2), "w", buffering=1)  # noqa: SIM115
    for fd in (queue_fd, line_fd):
        os.set_inheritable(fd, False)
    try:
        Runner(Inbox(queue_fd), Line(socket.socket(fileno=line_fd)), directory, label).run()
    except ConnectionError:
        pass  # the agent is gone
    finally:
        system.kill_orphans()
