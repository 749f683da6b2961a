"""Kind `ssh`: workers on hosts that one can log in to, through the system's OpenSSH. Touches ssh processes.

Nothing depends on an open connection. Each call logs in, runs `remote.py` with the host's own Python and logs out;
request and token go through standard input, so that `ps` shows neither.
"""

from __future__ import annotations

import base64
import fnmatch
import shlex
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.errors import BadInput
from windfall.planning.offers import Offer
from windfall.pools.contract import (
    CAPACITY,
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    RELEASED,
    RUNNING,
    TRANSIENT,
    Check,
    Order,
    PoolError,
    Seen,
)
from windfall.pools.kinds import WORKERS, Kind, Place, PoolConfig
from windfall.pools.starting.calls import call
from windfall.pools.starting.shipped import one_line, server_of, worker_options
from windfall.pools.starting.workerfile import worker_pyz
from windfall.units import parse_duration

SHOWN_S = 600.0
HAND_BACK_S = 5.0
_AT_ONCE = 16
_FAILED_LOGIN = 255
_CREDENTIALS = ("permission denied", "host key verification failed", "no supported authentication", "too many auth")
_INVALID = ("could not resolve hostname", "bad configuration option", "no such identity")
Words = list[str]
Rows = list[Seen]  # `list` is also the name of a method
Checks = list[Check]
Findings = list[tuple[str, str, str]]
"""What was looked at, what is wrong, what to do."""


class SshSettings(Struct, forbid_unknown_fields=True):
    """Fields of a [[pool]] of kind `ssh`."""

    hosts: Words = []
    """As one types them after `ssh`; `node*` stands for all such hosts of the configuration file."""
    per_host: int = 1
    """Most workers on each host."""
    config: str = ""
    """Configuration file of ssh; default: ~/.ssh/config."""
    jump: str = ""
    """Jump hosts, as in `ssh -J`."""
    options: Words = []
    """More options of ssh, as in ["-o", "Port=2222"]."""
    python: str = "python3"
    """The Python (3.8 or newer) of the hosts."""
    folder: str = "~/.windfall-pool"
    """Folder on the hosts."""
    server: str = ""
    """Address of the server as the hosts see it; default: the one on which it listens."""
    interval: str | float = "5s"
    time_limit: str | float = "60s"


class SshPool:
    """See windfall.pools.contract.Pool. The id of a worker is its name, '@' and where it runs."""

    offers: tuple[Offer, ...] = ()

    def __init__(self, pool: PoolConfig, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._pool, self._place, self._clock = pool, place, clock
        self._settings: SshSettings = pool.settings
        self._hosts = expanded(self._settings, pool.base)
        self.interval_s = parse_duration(self._settings.interval, "interval")
        self._limit_s = parse_duration(self._settings.time_limit, "time_limit")
        self._server = server_of(place, self._settings.server)
        self._rows: dict[str, Rows] = {}
        """What each host showed last; a host that cannot be reached keeps its rows."""
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"ssh-{pool.name}")
        self._unreachable: dict[str, PoolError] = {}

    # --- the contract ---

    def start(self, order: Order) -> str | PoolError:
        if not self._rows and isinstance(unknown := self.list(), PoolError):
            return unknown  # what an earlier server started must be known, or it would be started twice
        known = [row for rows in self._rows.values() for row in rows if row.host == order.host]
        if known:
            return known[0].id
        load = {host: sum(row.phase != ENDED for row in self._rows.get(host, [])) for host in self._hosts}
        free = [host for host in self._hosts if load[host] < self._settings.per_host]
        if not free:
            return PoolError(f"each host of pool {self._pool.name} has its {self._settings.per_host} workers", CAPACITY)
        problem: PoolError | None = None
        for host in sorted(free, key=lambda host: (host in self._unreachable, load[host])):
            answer = self._start_on(host, order)
            if not isinstance(answer, PoolError):
                self._rows.setdefault(host, []).append(Seen(answer, RUNNING, self._clock(), order.host))
                return answer
            problem = answer
        assert problem is not None
        return problem

    def _start_on(self, host: str, order: Order) -> str | PoolError:
        options = ["--server", self._server, *worker_options(order, self._pool)]
        try:
            token = self._place.token_for(order.host)
        except OSError as error:
            return PoolError(f"{self._place.token_file}: {error.strerror}", TRANSIENT)
        request = {"do": "start", "host": order.host, "options": options, "token": token, "version": _version()}
        answer = self._ask(host, request)
        if isinstance(answer, dict) and answer.get("send") == "worker":
            answer = self._ask(host, {**request, "worker": base64.b64encode(worker_pyz()).decode()})
        return answer if isinstance(answer, PoolError) else f"{order.host}@{host}"

    def list(self) -> Rows | PoolError:
        answers = dict(zip(self._hosts, self._threads.map(self._list_on, self._hosts), strict=True))
        self._unreachable = {host: answer for host, answer in answers.items() if isinstance(answer, PoolError)}
        for host, answer in answers.items():
            if not isinstance(answer, PoolError):
                self._rows[host] = answer
        if len(self._unreachable) == len(self._hosts):
            return next(iter(self._unreachable.values()))
        return [row for rows in self._rows.values() for row in rows]

    def _list_on(self, host: str) -> Rows | PoolError:
        answer = self._ask(host, {"do": "list", "shown_s": SHOWN_S})
        if isinstance(answer, PoolError):
            return answer
        return [_seen(row, host) for row in answer.get("rows", [])]

    def stop(self, id: str, gently: bool = False) -> PoolError | None:
        name, _, host = id.partition("@")
        if host not in self._hosts:
            return None
        request = {"do": "stop", "host": name, "gently": gently, "hand_back_s": HAND_BACK_S}
        answer = self._ask(host, request)
        return answer if isinstance(answer, PoolError) else None

    def doctor(self) -> Checks:
        checks: Checks = []
        for host, found in zip(self._hosts, self._threads.map(self._examine, self._hosts), strict=True):
            checks += [Check(f"{host}: {what}", error, hint) for what, error, hint in found]
        return checks

    def _examine(self, host: str) -> Findings:
        answer = self._ask(host, {"do": "check", "server": self._server})
        if isinstance(answer, PoolError):
            return [
                (
                    "can be logged in to, and runs Python",
                    answer.error,
                    _advice(answer, host, self._settings, self._pool.base),
                )
            ]
        other = 'choose another: folder = "/scratch/me"'
        return [
            (f"can be logged in to, and runs Python {answer.get('python', '')}", "", ""),
            (f"{self._settings.folder} can be written", answer.get("folder", ""), other),
            (f"reaches the server at {self._server}", answer.get("server", ""), self._reach_hint()),
        ]

    def _reach_hint(self) -> str:
        if not self._place.outside_url and not self._settings.server:
            return "the server listens on this machine only: start it with --listen 0.0.0.0:7272"
        return 'open the port, or say how the hosts reach it: server = "http://head.example.org:7272"'

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    # --- one login ---

    def _ask(self, host: str, request: dict[str, Any]) -> dict[str, Any] | PoolError:
        request |= {"owner": self._place.owner, "pool": self._pool.name, "folder": self._settings.folder}
        request["at"] = host
        if self._place.cafile:
            request["certificate"] = Path(self._place.cafile).read_text()
        called = call(self._command(host), _program(request), self._limit_s)
        if called.trouble:
            return PoolError(f"{host}: {called.trouble}", TRANSIENT)
        said = one_line(called.stderr)
        if called.code == _FAILED_LOGIN:
            return PoolError(f"{host}: {said or 'ssh ended with code 255'}", _kind_of(said))
        if called.code != 0:
            return PoolError(f"{host}: {self._settings.python} ended with code {called.code}: {said}", INVALID)
        try:
            # A host may greet before; the answer is the last line.
            answer = msgspec.json.decode(called.stdout.strip().rpartition(b"\n")[2], type=dict[str, Any])
        except msgspec.DecodeError:
            printed = one_line(called.stdout[:200].decode(errors="replace"))
            return PoolError(f"{host}: no answer but {printed!r}", INVALID)
        return PoolError(f"{host}: {answer['error']}", TRANSIENT) if answer.get("error") else answer

    def _command(self, host: str) -> Words:
        settings = self._settings
        command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"]
        return [*command, *_options(settings, self._pool.base), "--", host, settings.python, "-"]


def _seen(row: dict[str, Any], host: str) -> Seen:
    name, id = str(row["host"]), f"{row['host']}@{host}"
    if row["alive"]:
        return Seen(id, RUNNING, 0.0, name)
    code, failed = row.get("code", ""), row.get("code", "") != "0"
    cause = RELEASED if row.get("told") else FAILED if failed else ""
    words = f"worker {name} on {host} ended with {'exit code ' + code if code else 'its host'}"
    about = f"{words}: {one_line(str(row.get('said', '')))}" if cause != RELEASED else ""
    return Seen(id, ENDED, float(row.get("ended_t", 0.0)), name, cause, None, about)


_PLACEHOLDER = 'json.loads("{}")'


def _program(request: dict[str, Any]) -> bytes:
    literal = repr(msgspec.json.encode(request).decode())
    return _remote().replace(_PLACEHOLDER, f"json.loads({literal})", 1).encode()


@cache
def _remote() -> str:
    return Path(__file__).with_name("remote.py").read_text()


@cache
def _version() -> str:
    return sha256(worker_pyz()).hexdigest()[:12]


def _kind_of(said: str) -> str:
    text = said.lower()
    if any(words in text for words in _CREDENTIALS):
        return CREDENTIALS
    return INVALID if any(words in text for words in _INVALID) else TRANSIENT


def _options(settings: SshSettings, base: Path) -> Words:
    """What the pool's settings add to every `ssh`."""
    words = ["-F", _path(settings.config, base)] if settings.config else []
    words += ["-J", settings.jump] if settings.jump else []
    return [*words, *settings.options]


def _advice(error: PoolError, host: str, settings: SshSettings, base: Path) -> str:
    """What to try, with the commands that the pool itself uses."""
    ssh = shlex.join(["ssh", *_options(settings, base)])
    if "host key" in error.error.lower():
        return f"log in once by hand and accept the key of the host: {ssh} {host}"
    if error.kind == CREDENTIALS:
        return f"the key must work without a question: {ssh} -o BatchMode=yes {host} true   (ssh-copy-id, ssh-agent)"
    if "ended with code" in error.error:
        return f'see that `{ssh} {host} {settings.python} --version` prints 3.8 or newer, or set python = "..."'
    return f"by hand: {ssh} -o BatchMode=yes {host} true"


def _path(text: str, base: Path) -> str:
    return str(base.resolve() / Path(text).expanduser())


def expanded(settings: SshSettings, base: Path) -> Words:
    """The hosts in order, without repetition; patterns stand for the hosts that ssh's configuration file names."""
    found: Words = []
    for host in settings.hosts:
        if not any(sign in host for sign in "*?["):
            found.append(host)
            continue
        file = Path(_path(settings.config or "~/.ssh/config", base))
        matching = [name for name in _named_in(file) if fnmatch.fnmatchcase(name, host)]
        if not matching:
            raise BadInput(f"no host of {file} matches '{host}'", hint="write the names of the hosts")
        found += matching
    return list(dict.fromkeys(found))


def _named_in(file: Path) -> Words:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}", hint="write the names of the hosts") from None
    names = [name for words in lines if words and words[0].lower() == "host" for name in words[1:]]
    return [name for name in names if not any(sign in name for sign in "*?!")]


def _check(pool: PoolConfig, where: str) -> None:
    settings: SshSettings = pool.settings
    if not settings.hosts:
        raise BadInput(f"{where}: it names no hosts", hint='as in hosts = ["node1", "me@node2"]')
    for host in settings.hosts:
        if host.startswith("-") or not host.strip():
            raise BadInput(f"{where}: '{host}' is not a host", hint="as one types it after `ssh`")
    if not 1 <= settings.per_host <= 4096:
        raise BadInput(f"{where}: per_host = {settings.per_host}", hint="it is a number from 1 to 4096")
    for name in ("interval", "time_limit"):
        if parse_duration(getattr(settings, name), name) < 0.1:
            raise BadInput(f"{where}: {name} = {getattr(settings, name)}", hint="at least 0.1 seconds")
    hosts = expanded(settings, pool.base)
    if pool.limit is None:
        pool.limit = len(hosts) * settings.per_host
    if shutil.which("ssh") is None:
        raise BadInput(f"{where}: there is no `ssh` here", hint="install it: sudo apt-get install openssh-client")


KIND = Kind(gives=WORKERS, settings=SshSettings, open=SshPool, check=_check)
