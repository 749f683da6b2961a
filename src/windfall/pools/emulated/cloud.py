"""The emulated cloud: rented machines are workers on this host, frozen, thawed and killed. Touches processes, files.

The provider is a directory (one file per machine) and the processes that belong to it. A file holds the desired state
of its machine: it is written first and carried out afterwards, and a server that opens the directory makes the
processes agree with it. So machines outlive their server, and the next one finds them. While no server runs, no machine
is interrupted; interruptions that were due happen when the next server starts.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from secrets import token_hex

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.planning.offers import Offer, PriceLaw
from windfall.planning.price_law import steps
from windfall.pools.contract import (
    ENDED,
    FAILED,
    HIBERNATED,
    INVALID,
    PENDING,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    PriceMove,
    Seen,
)
from windfall.pools.emulated.config import (
    HIBERNATE,
    TERMINATE,
    Cloud,
    CloudSettings,
    Rented,
    check_cloud,
    cloud_of,
)
from windfall.pools.kinds import MACHINES, Kind, Place, PoolConfig
from windfall.pools.starting.process_tree import Tree, find, spawn
from windfall.pools.starting.shipped import FORGET, TOKEN, write_private
from windfall.resources import GPUS

log = logging.getLogger(__name__)

BOOT, RESUME, NOTICE = "boot", "resume", "notice"
POKES = (HIBERNATE, RESUME, TERMINATE, NOTICE)
SHOWN_S = 600.0
"""Seconds for which a machine is listed after its end."""
_LOOK_S = 0.2
_STRANGERS_S = 2.0
_AGAIN_S = 1.0
_SHORTEST_NAP_S = 0.005
_LAST_WORDS_BYTES = 2000


Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Moves = list[PriceMove]
_DAY_S = 86400.0
Words = list[str]


class Machine(Struct):
    """One machine, as it is stored on disk. `due`: its next change of state, at `due_t`."""

    id: str
    number: int
    owner: str
    offer: str
    cores: int
    memory_mb: int | None
    """Memory that its tasks share; None: that of this host."""
    host: str
    url: str
    phase: str
    since_t: float
    due: str = ""
    due_t: float = 0.0
    draws: int = 0
    notified: bool = False
    cause: str = ""
    about: str = ""
    pid: int = 0
    born: int = 0
    resources: dict[str, float] = {}
    """Units of resources that its worker has."""


Machines = list[Machine]


class PriceTape:
    """The prices of one offer by the law and the seed of its cloud: the same from every server."""

    def __init__(self, rented: Rented, law: PriceLaw, seed: int, epoch_t: float) -> None:
        self._name, self._epoch_t = rented.offer.name, epoch_t
        self._steps = steps(law, rented.offer.price_usd, lambda a, b: _random(f"{seed}/prices/{self._name}/{a}/{b}"))
        self.moves = [self._next()]
        self._ahead = self._next()

    def _next(self) -> PriceMove:
        at_h, usd = next(self._steps, (math.inf, 0.0))
        return PriceMove(self._name, usd, self._epoch_t + 3600.0 * at_h)

    def until(self, now: float) -> Moves:
        """The moves of the last day, and the one that held before."""
        while self._ahead.since_t <= now:
            self.moves.append(self._ahead)
            self._ahead = self._next()
        old = sum(move.since_t <= now - _DAY_S for move in self.moves)
        del self.moves[: max(0, old - 1)]
        return self.moves


def _random(place: str) -> float:
    return min(max(Random(place).random(), 1e-12), 1.0 - 1e-12)


class EmulatedPool:
    """See windfall.pools.contract.Pool. A thread of its own carries out boots and interruptions on time."""

    interval_s = 0.25

    def __init__(self, cloud: Cloud, place: Place, owner: str = "", clock: Callable[[], float] = time.time) -> None:
        self.offers: tuple[Offer, ...] = cloud.offers
        self._cloud, self._place, self._clock = cloud, place, clock
        self._owner = owner
        self._rented = {rented.offer.name: rented for rented in cloud.rented}
        self._machines: dict[str, Machine] = {}
        self._trees: dict[str, Tree] = {}
        self._lock = threading.Condition()
        self._closed = False
        self._strangers_t, self._known_strangers = 0.0, Rows()
        place.directory.mkdir(parents=True, exist_ok=True)
        self._epoch_t = self._founded()
        self._tapes = {
            rented.offer.name: PriceTape(rented, rented.prices, cloud.seed, self._epoch_t)
            for rented in cloud.rented
            if rented.prices is not None
        }
        with self._lock:
            self._find_again()
        self._thread = threading.Thread(target=self._live, name=f"cloud-{cloud.name}", daemon=True)
        self._thread.start()

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        if order.offer is None or order.machine is None:
            return PoolError("this pool rents machines for the plans of jobs only", INVALID)
        with self._lock:
            known = next((machine for machine in self._ours() if machine.host == order.host), None)
            if known is not None:
                return known.id
            rented = self._rented.get(order.offer.name)
            if rented is None:
                return PoolError(f"there is no offer '{order.offer.name}' any more", INVALID)
            if self._is_full(rented, order.machine):
                return PoolError(f"no capacity for {order.offer.name}")
            machine = self._ordered(order.host, order.machine, order.offer, rented)
            try:
                self._folder(machine).mkdir(parents=True, exist_ok=True)
                self._write(machine)
            except OSError as error:
                return PoolError(f"the machine cannot be written down: {error.strerror or error}", TRANSIENT)
            self._machines[machine.id] = machine
            self._lock.notify()
            return machine.id

    def _ordered(self, host: str, number: int, offer: Offer, rented: Rented) -> Machine:
        now = self._clock()
        return Machine(
            id=f"{self._cloud.name}-{number}-{token_hex(2)}",
            number=number,
            owner=self._owner,
            offer=offer.name,
            cores=offer.cores,
            memory_mb=None if math.isinf(offer.memory_gb) else max(1, round(offer.memory_gb * 1024)),
            host=host,
            url=self._place.url,
            phase=PENDING,
            since_t=now,
            due=BOOT,
            due_t=now + rented.boot_s,
            resources=offer.units,
        )

    def stop(self, id: str, gently: bool = False) -> None:
        with self._lock:
            machine = self._machines.get(id)
            if machine is not None and machine.phase != ENDED:
                self._end(machine, RELEASED, "")

    def list(self) -> Rows:
        with self._lock:
            return [_seen(machine) for machine in self._machines.values()] + self._strangers()

    def price_moves(self) -> Moves:
        """Moves since the founding of the cloud, as far as they are a day old at most."""
        now = self._clock()
        for name, tape in self._tapes.items():
            usd = tape.until(now)[-1].price_usd
            self.offers = tuple(
                replace(each, price_usd=usd) if each.name == name else each for each in self.offers
            )  # fmt: skip
        return sorted((move for tape in self._tapes.values() for move in tape.moves), key=lambda move: move.since_t)

    def doctor(self) -> Checks:
        return [Check(f"{self._place.directory} can be written")]  # the constructor has written to it

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify()
        self._thread.join()

    # --- by hand ---

    def poke(self, id: str, what: str) -> None:
        """Do to a machine what a provider does; BadInput if that is not possible."""
        with self._lock:
            machine = self._machines.get(id)
            if machine is None:
                raise BadInput(f"there is no machine '{id}'", hint="see them: windfall pool machines")
            if what not in POKES:
                raise BadInput(f"a machine cannot be told to '{what}'", hint=", ".join(POKES))
            wanted = HIBERNATED if what == RESUME else RUNNING
            if machine.phase != wanted and not (what == TERMINATE and machine.phase in (PENDING, HIBERNATED)):
                raise BadInput(f"machine '{id}' is {machine.phase}", hint=f"to {what}, it must be {wanted}")
            if what == NOTICE:
                self._will(machine, self._rented_of(machine).offer.when_taken, self._clock() + self._cloud.notice_s)
                self._notify(machine)
            else:
                self._do(machine, what)
            self._lock.notify()

    # --- what happens by itself ---

    def _live(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                try:
                    for machine in self._ours():
                        self._look_after(machine)
                    for rented in self._rented.values():
                        self._follow_trace(rented)
                except Exception:
                    log.exception("the machines of %s could not be looked after; trying again", self._cloud.name)
                    self._lock.wait(_AGAIN_S)
                self._lock.wait(self._nap_s())

    def _nap_s(self) -> float:
        """Seconds until the next change that is due; bounded, so that the end of a worker is noticed."""
        next_t = min((machine.due_t for machine in self._ours() if machine.due), default=math.inf)
        return max(_SHORTEST_NAP_S, min(_LOOK_S, next_t - self._clock()))

    def _look_after(self, machine: Machine) -> None:
        now = self._clock()
        if machine.phase == ENDED:
            if now > machine.since_t + SHOWN_S:
                shutil.rmtree(self._folder(machine), ignore_errors=True)
                del self._machines[machine.id]
            return
        notice_s = self._cloud.notice_s
        is_taken = notice_s > 0 and machine.due in (HIBERNATE, TERMINATE) and now >= machine.due_t - notice_s
        if is_taken and not machine.notified:
            self._notify(machine)
        tree = self._trees.get(machine.id)
        leaves = machine.notified and machine.due == TERMINATE  # its worker has been told to go
        if tree is not None and not tree.alive and not leaves:
            self._end(machine, FAILED, f"{tree.ending}{self._last_words(machine)}")
        elif machine.due and now >= machine.due_t:
            self._do(machine, machine.due)

    def _do(self, machine: Machine, what: str) -> None:
        if what == TERMINATE:
            self._end(machine, TAKEN, "")
            return
        machine.phase = HIBERNATED if what == HIBERNATE else RUNNING
        machine.since_t = self._clock()
        machine.notified = False
        self._draw(machine)
        self._keep(machine)
        self._agree(machine)

    def _draw(self, machine: Machine) -> None:
        """Draw the next interruption by the offer's law; the same seed gives the same interruption."""
        rented = self._rented_of(machine)
        awake = machine.phase == RUNNING
        rates = {HIBERNATE: rented.hibernations} if awake else {RESUME: rented.resumes}
        rates[TERMINATE] = rented.terminations
        machine.draws += 1
        generator = Random(f"{self._cloud.seed}/{machine.number}/{machine.draws}")
        times = {what: generator.expovariate(rate) for what, rate in rates.items() if rate > 0}
        machine.due = min(times, key=times.__getitem__, default="")
        machine.due_t = machine.since_t + times[machine.due] if machine.due else 0.0

    def _follow_trace(self, rented: Rented) -> None:
        """Interrupt the youngest machines beyond the capacity to come; resume hibernated ones if there is capacity."""
        trace = rented.trace
        if trace is None:
            return
        now, notice_s = self._clock(), self._cloud.notice_s
        mine = sorted((m for m in self._ours() if m.offer == rented.offer.name), key=lambda m: m.number)
        held = [machine for machine in mine if machine.phase in (PENDING, RUNNING)]
        staying = [machine for machine in held if machine.due not in (HIBERNATE, TERMINATE)]
        ahead_s = now + notice_s - self._epoch_t
        for machine in staying[trace.at(ahead_s) :]:
            self._will(machine, rented.offer.when_taken if machine.phase == RUNNING else TERMINATE, now + notice_s)
        asleep = [machine for machine in mine if machine.phase == HIBERNATED]
        for machine in asleep[: max(0, trace.at(now - self._epoch_t) - len(held))]:
            self._do(machine, RESUME)

    def _will(self, machine: Machine, what: str, t: float) -> None:
        machine.due, machine.due_t = what, t
        self._keep(machine)

    def _notify(self, machine: Machine) -> None:
        """Give notice of an interruption. If the machine will be terminated, its worker is told too."""
        machine.notified = True
        self._keep(machine)
        if machine.due == TERMINATE:
            self._notice_file(machine).touch()

    def _end(self, machine: Machine, cause: str, about: str) -> None:
        machine.phase, machine.since_t, machine.cause, machine.about = ENDED, self._clock(), cause, about
        machine.due, machine.notified = "", False
        self._keep(machine)
        self._agree(machine)

    def _is_full(self, rented: Rented, number: int) -> bool:
        held = [machine for machine in self._ours() if machine.phase in (PENDING, RUNNING)]
        of_this = sum(machine.offer == rented.offer.name for machine in held)
        if len(held) >= self._cloud.limit or (rented.offer.limit is not None and of_this >= rented.offer.limit):
            return True
        if rented.trace is not None:
            elapsed_s = self._clock() - self._epoch_t
            if of_this >= min(rented.trace.at(elapsed_s), rented.trace.at(elapsed_s + self._cloud.notice_s)):
                return True
        return Random(f"{self._cloud.seed}/{number}/start").random() < rented.capacity_errors

    # --- processes that agree with what is written ---

    def _agree(self, machine: Machine) -> None:
        tree = self._trees.get(machine.id)
        if machine.phase == ENDED:
            if tree is not None:
                tree.kill()
                del self._trees[machine.id]
            shutil.rmtree(self._folder(machine) / machine.host, ignore_errors=True)
        elif tree is None and machine.phase == RUNNING:
            self._boot(machine)
        elif tree is not None:
            (tree.freeze if machine.phase == HIBERNATED else tree.thaw)()

    def _boot(self, machine: Machine) -> None:
        try:
            write_private(self._folder(machine) / TOKEN, self._place.token_for(machine.host))
            self._trees[machine.id] = tree = spawn(self._command(machine), self._folder(machine))
        except OSError as error:
            self._end(machine, FAILED, f"its worker cannot be started: {error.strerror or error}")
            return
        machine.pid, machine.born = tree.pid, tree.born
        self._keep(machine)

    def _command(self, machine: Machine) -> Words:
        place = self._place
        command = [sys.executable, "-m", "windfall.worker", "--server", place.url, "--name", machine.host]
        command += ["--token-file", str(self._folder(machine) / TOKEN), FORGET]
        command += ["--slots", str(machine.cores), "--pool", self._cloud.name]
        command += ["--machine", str(machine.number), "--idle-exit", f"{self._cloud.idle_exit_s:g}"]
        command += ["--unreachable-exit", f"{self._cloud.unreachable_exit_s:g}"]
        command += ["--notice-file", str(self._notice_file(machine)), "--dir", str(self._folder(machine))]
        command += ["--memory", str(machine.memory_mb)] if machine.memory_mb else []
        # GPUs of this host are not those of its machines.
        for name, count in {GPUS: 0, **machine.resources}.items():
            command += ["--resource", f"{name}={count:g}"]
        return command + (["--cafile", place.cafile] if place.cafile else [])

    def _find_again(self) -> None:
        """Read the files of an earlier server and make the processes agree with them."""
        for machine in self._read():
            if machine.owner != self._owner:
                continue
            self._machines[machine.id] = machine
            tree = find(machine.pid, machine.born, self._folder(machine))
            if tree is not None:
                self._trees[machine.id] = tree
                if machine.phase == PENDING:
                    tree.kill()  # its boot had begun but was not written down
                    del self._trees[machine.id]
                elif machine.url != self._place.url and machine.phase != ENDED:
                    # The server's address has changed: end workers that ask at the old one. Their results are on disk.
                    tree.kill()
                    del self._trees[machine.id]
                    machine.url = self._place.url
                    self._keep(machine)
            elif machine.phase == RUNNING and not (machine.notified and machine.due == TERMINATE):
                self._end(machine, FAILED, "its worker ended while no server ran")
            self._agree(machine)

    def _last_words(self, machine: Machine) -> str:
        with contextlib.suppress(OSError):
            text = (self._folder(machine) / "worker.log").read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
            if lines := text.strip().splitlines():
                return f": {lines[-1]}"
        return ""

    # --- the directory ---

    def _ours(self) -> Iterator[Machine]:
        return iter([*self._machines.values()])

    def _strangers(self) -> Rows:
        """Machines in the directory that other servers ordered; read only now and then."""
        if self._clock() - self._strangers_t > _STRANGERS_S:
            self._strangers_t, self._known_strangers = self._clock(), self._read_strangers()
        return self._known_strangers

    def _read_strangers(self) -> Rows:
        return [
            Seen(machine.id, machine.phase, machine.since_t, about=f"{machine.offer}, ordered by {machine.owner}")
            for machine in self._read()
            if machine.owner != self._owner and machine.phase != ENDED
        ]

    def _read(self) -> Machines:
        found = []
        for path in sorted(self._place.directory.glob("*/machine.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Machine))
            except (OSError, msgspec.DecodeError) as error:
                log.warning("%s: not a machine: %s", path, error)
        return found

    def _keep(self, machine: Machine) -> None:
        """Write the desired state. On a full disk it is carried out all the same, and a warning is logged."""
        try:
            self._write(machine)
        except OSError as error:
            log.warning("machine %s could not be written down: %s", machine.id, error)

    def _write(self, machine: Machine) -> None:
        path = self._folder(machine) / "machine.json"
        path.with_suffix(".new").write_bytes(msgspec.json.encode(machine))
        path.with_suffix(".new").replace(path)

    def _founded(self) -> float:
        """Unix time at which this provider was first used: traces start then, for all servers."""
        path = self._place.directory / "founded"
        with contextlib.suppress(OSError, ValueError):
            return float(path.read_text())
        now = self._clock()
        path.write_text(repr(now))
        return now

    def _folder(self, machine: Machine) -> Path:
        return self._place.directory / machine.id

    def _notice_file(self, machine: Machine) -> Path:
        return self._folder(machine) / "notice"

    def _rented_of(self, machine: Machine) -> Rented:
        """The machine's offer; if it is no longer in the file, one without interruptions."""
        found = self._rented.get(machine.offer)
        return found or Rented(Offer(name=machine.offer, price_usd=0.0, cores=machine.cores))


def _seen(machine: Machine) -> Seen:
    taken_at_t = machine.due_t if machine.notified else None
    return Seen(machine.id, machine.phase, machine.since_t, machine.host, machine.cause, taken_at_t, machine.about)


def _open(pool: PoolConfig, place: Place) -> EmulatedPool:
    return EmulatedPool(cloud_of(pool), place, place.owner)


KIND = Kind(gives=MACHINES, settings=CloudSettings, open=_open, check=check_cloud, limit=1000, idle_exit="1h")
