"""The agent of a host of a site: offers the host's resources, starts and ends instances on order. Touches processes.

It pulls, like a worker: each exchange reports what has started and ended, each answer lists everything that shall run
here (docs/reference/protocol.md), so an answer that comes twice or late does no harm. No process stays behind: workers
and runners die with this process, and it adopts orphaned descendants.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import selectors
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

from windfall.wire import VERSION, frames, other_version
from windfall.wire import messages as m
from windfall.worker import identity
from windfall.worker.running import system, workdir
from windfall.worker.site.instances import CommandInstance, Cores, End, WorkerInstance
from windfall.worker.transport.link import Address, Link, OtherVersion, Refused

_TICK_S = 0.5
_GAP_S = 0.04
_LEAVE_PATIENCE_S = 10.0
_ENDS_PER_EXCHANGE = 16
"""Commands whose ends are reported in one exchange: their outputs stay well below the server's limit."""


@dataclass
class SiteOptions:
    """The options of the command line."""

    address: Address
    folder: str
    site: str
    capacity: dict[str, float]
    tags: list[str]
    name: str | None = None
    quiet: bool = False


class SiteAgent:
    """One run of the agent, from its first exchange to its exit code."""

    def __init__(self, options: SiteOptions) -> None:
        self._options = options
        self._identity = identity.claim(options.name, options.address.url)
        self.host = self._identity.host
        self._boot = secrets.token_hex(8)
        # Kept beside the folder, which is made anew at each start.
        known = os.path.join(options.folder, f"agent-{self.host}")
        os.makedirs(known, mode=0o700, exist_ok=True)
        options.address.secret = identity.secret(known)
        self._folder = os.path.join(options.folder, f"site-{self.host}")
        workdir.remove(self._folder)
        os.makedirs(self._folder, mode=0o700)
        self._selector = selectors.DefaultSelector()
        self._link = Link(options.address, random.Random(), "/v1/site/exchange")
        self._cores = Cores()
        self._waiting: dict[int, dict[str, Any]] = {}
        """Orders whose instances start when the instances before them have ended."""
        self._running: dict[int, WorkerInstance | CommandInstance] = {}
        self._started: dict[int, float] = {}
        self._ends: dict[int, End] = {}
        """Ends that are not reported yet, or not acknowledged."""
        self._sent: tuple[list[int], list[int]] = ([], [])
        self._n = 0
        self._protocol = VERSION
        """The version that is spoken; another one once a server has said that it does not speak it."""
        self._refused: set[int] = set()
        """Versions that were refused since the last answer."""
        self._version = ""
        self._next_s = 1.0
        self._wait_s = 0.0
        self._sent_s = 0.0
        self._in_flight = self._nudged = self._said_goodbye = self._reported_down = False
        self._leaving: str | None = None
        self._leave_by_s = 0.0
        self._longest_grace_s = 0.0
        self._exit_code: int | None = None
        self._signals: list[int] = []

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until there is a reason to end; return the exit code."""
        self._set_up_signals()
        system.become_subreaper()
        self._selector.register(self._link, selectors.EVENT_READ, self._on_answer)
        offer = ", ".join(f"{amount:g} {name}" for name, amount in self._options.capacity.items())
        self._say(f"host {self.host} offers {offer} to {self._options.address.url}")
        try:
            while self._exit_code is None:
                for key, _ in self._selector.select(self._timeout_s()):
                    key.data()
                self._turn()
        finally:
            self._link.close()
            system.kill_orphans()
            workdir.remove(self._folder)
        return self._exit_code

    def _timeout_s(self) -> float:
        now_s = time.monotonic()
        times = [at - now_s for one in self._running.values() if (at := one.wakes_at_s) is not None]
        if not self._in_flight:
            times.append(self._sent_s + _GAP_S - now_s)
        return max(0.0, min([_TICK_S, *times]))

    def _turn(self) -> None:
        now_s = time.monotonic()
        while self._signals:
            self._on_signal(self._signals.pop(0))
        for one in list(self._running.values()):
            end = one.ended(now_s)
            if end is not None:
                self._clear_up(one, end)
        self._start_what_may()
        self._tell_of_outages()
        self._speak(now_s)

    def _set_up_signals(self) -> None:
        read, write = os.pipe()
        for fd in (read, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._selector.register(read, selectors.EVENT_READ, lambda: os.read(read, 4096))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda number, _: self._signals.append(number))

    def _on_signal(self, signum: int) -> None:
        """First signal: all instances end with their grace time. Second signal: they are killed."""
        grace_s = self._longest_grace_s if self._leaving is None else 0.0
        if self._leaving is None:
            self._leaving = "signal"
            self._say("leaving: signal")
            self._leave_by_s = time.monotonic() + grace_s + _LEAVE_PATIENCE_S
        for number in list(self._waiting):
            self._never_began(number, m.PREEMPTED, "the agent of its host leaves")
        for one in self._running.values():
            one.leave(m.PREEMPTED, "the agent of its host leaves", grace_s)

    # -- instances --------------------------------------------------------------------------------------------------

    def _follow(self, orders: list[dict[str, Any]]) -> None:
        listed = {order["id"] for order in orders}
        for number, one in self._running.items():
            if number not in listed and number not in self._ends:
                one.leave(m.PREEMPTED, "the server knows it no more", self._longest_grace_s)
        for order in orders:
            number, do = order["id"], order["do"]
            if do == "end":
                self._end(number, order["cause"], order["why"], order["grace_s"])
            elif do == "run" and not self._knows(number):
                self._longest_grace_s = max(self._longest_grace_s, order["grace_s"])
                self._waiting[number] = order
                if self._leaving:
                    self._never_began(number, m.PREEMPTED, "the agent of its host leaves")

    def _begin_anew(self) -> None:
        """The server had given this host up: end every instance, because the server does not know of any."""
        self._say("the server had given this host up; ending what runs and beginning anew")
        system.kill_orphans()
        for one in self._running.values():
            one.close()
            self._cores.give_back(one.cores)
        for book in (self._waiting, self._running, self._started, self._ends):
            book.clear()
        self._boot, self._n, self._version, self._sent = secrets.token_hex(8), 0, "", ([], [])

    def _knows(self, number: int) -> bool:
        return number in self._waiting or number in self._running or number in self._ends

    def _end(self, number: int, cause: str, why: str, grace_s: float) -> None:
        running = self._running.get(number)
        if running is not None:
            running.leave(cause, why, grace_s)
        elif number not in self._ends:
            self._never_began(number, cause, why)

    def _never_began(self, number: int, cause: str, why: str) -> None:
        self._waiting.pop(number, None)
        self._ends[number] = End(number, cause, text=why, ended_s=time.monotonic())

    def _start_what_may(self) -> None:
        for number, order in list(self._waiting.items()):
            if not any(before in self._running for before in order["after"]):
                del self._waiting[number]
                self._start(number, order)

    def _start(self, number: int, order: dict[str, Any]) -> None:
        cores = self._cores.take(order["vcpu"])
        try:
            if order["kind"] == "worker":
                self._running[number] = WorkerInstance(order, self._options.address, self._folder, cores)
            else:
                self._running[number] = CommandInstance(order, self.host, self._folder, cores, self._selector)
        except OSError as error:
            self._cores.give_back(cores)
            self._never_began(number, m.NO_COMMAND, f"it could not be started: {error}")
            return
        self._started[number] = time.monotonic()
        self._say(f"started {order['name']}")

    def _clear_up(self, one: WorkerInstance | CommandInstance, end: End) -> None:
        """Kill what the instance left behind; start instances that waited for its resources."""
        del self._running[one.number]
        one.close()
        system.kill_orphans(frozenset(other.pid for other in self._running.values()))
        self._cores.give_back(one.cores)
        end.ended_s = time.monotonic()
        self._ends[one.number] = end
        self._say(f"ended {one.name}: {end.cause} {end.text}".rstrip())

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _has_news(self) -> bool:
        """Whether there is news that the present exchange does not contain."""
        started, ends = self._sent
        return len(self._started) > len(started) or len(self._ends) > len(ends)

    def _speak(self, now_s: float) -> None:
        goodbye = self._leaving is not None and not self._running
        down_since_s = self._link.down_since_s
        nobody_hears = goodbye and down_since_s is not None and now_s - down_since_s > 1.0
        if self._leaving and (now_s > self._leave_by_s or nobody_hears):
            self._exit_code = 0
        elif self._in_flight:
            if (self._has_news() or goodbye) and self._wait_s > 2 * _GAP_S and not self._nudged:
                self._nudged = True
                self._link.nudge()
        elif self._said_goodbye:
            self._exit_code = 0
        elif now_s - self._sent_s >= _GAP_S:
            self._exchange(now_s, goodbye)

    def _exchange(self, now_s: float, goodbye: bool) -> None:
        self._n += 1
        self._sent_s = now_s
        ends = list(self._ends.values())[:_ENDS_PER_EXCHANGE]
        goodbye = goodbye and len(ends) == len(self._ends)
        self._sent = (list(self._started), [end.number for end in ends])
        self._said_goodbye = goodbye
        self._wait_s = 0.0 if goodbye or self._has_news() else max(0.05, min(20.0, 0.8 * self._next_s))
        header = {
            "v": self._protocol,
            "site": self._options.site,
            "host": self.host,
            "boot": self._boot,
            "n": self._n,
            "capacity": self._options.capacity if self._n == 1 else None,
            "tags": self._options.tags if self._n == 1 else None,
            "started": [[number, round(now_s - at_s, 6)] for number, at_s in self._started.items()],
            "ended": [_row(end, now_s) for end in ends],
            "version": self._version,
            "leaving": self._leaving if goodbye else None,
        }
        attachments = [part for end in ends for part in (end.stdout, end.stderr) if part]
        text = json.dumps(header, separators=(",", ":"))[:-1]
        first, repeat = (
            frames.join(f'{text},"wait_s":{wait_s:g}}}'.encode(), attachments) for wait_s in (self._wait_s, 0)
        )
        self._in_flight, self._nudged = True, False
        self._link.send(first, repeat, self._wait_s)

    def _other_version(self) -> int | None:
        self._refused.add(self._protocol)
        return other_version(self._refused)

    def _on_answer(self) -> None:
        outcome = self._link.answer()
        if outcome is None:
            return
        self._in_flight = False
        if isinstance(outcome, OtherVersion) and (other := self._other_version()) is not None:
            # Older, or upgraded meanwhile. It has not counted the exchange: say the same in its version.
            which = "older" if other < self._protocol else "newer"
            self._protocol = other
            self._say(f"the server is {which}; going on with version {other} of the protocol")
            self._said_goodbye = False
            self._n -= 1
            return
        if isinstance(outcome, Refused):
            self._say(str(outcome), always=True)
            self._exit_code = outcome.exit_code
            return
        if isinstance(outcome, Exception):
            raise outcome
        answer = json.loads(bytes(frames.split(outcome)[0]))
        self._refused.clear()
        self._next_s = float(answer["next_s"])
        if answer["reset"]:
            self._begin_anew()
            return
        started, ends = self._sent
        for number in started:
            self._started.pop(number, None)
        for number in ends:
            self._ends.pop(number, None)
        self._sent = ([], [])
        self._version = answer["version"]
        self._follow(answer["orders"])

    def _tell_of_outages(self) -> None:
        down = self._link.down_since_s is not None
        if down and not self._reported_down:
            self._say(f"the server cannot be reached ({self._link.last_failure}); going on and trying again")
        elif self._reported_down and not down:
            self._say("the server answers again")
        self._reported_down = down

    def _say(self, text: str, always: bool = False) -> None:
        if always or not self._options.quiet:
            print(f"windfall: {text}", file=sys.stderr, flush=True)


def _row(end: End, now_s: float) -> list[Any]:
    run_s = None if end.run_s is None else round(end.run_s, 6)
    return [
        end.number, end.cause, end.exit_code, round(max(0.0, now_s - end.ended_s), 6), run_s, end.rss_bytes,
        len(end.stdout), len(end.stderr), end.text[: m.MAX_TEXT_CHARS],
    ]  # fmt: skip
