"""Starting and stopping a server on a state directory, in this thread or in one of its own. Touches sockets and files.

The directory then holds `server.json` (where the server is, while it runs) and `token` (its owner's token, readable by
its owner alone), so that commands typed on this machine find it and are let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from windfall.core.engine import Engine
from windfall.core.events import Settings
from windfall.drivers.following import Following
from windfall.drivers.keepers.pools import PoolKeeper
from windfall.drivers.realtime import Realtime
from windfall.errors import BadCredentials, BadInput, WindfallError
from windfall.pools.kinds import MACHINES, Place, PoolConfig
from windfall.server.hooks.config import Hook
from windfall.server.http.app import Application
from windfall.server.http.submission import known_policies
from windfall.server.http.uploads import Uploads
from windfall.server.limits import Intake, Limits
from windfall.server.pool_admin import PoolAdmin
from windfall.server.pool_tokens import KEY_NAME, open_tokens, write_private
from windfall.server.retention import Retainer, Retention
from windfall.server.service import Service
from windfall.server.standby import Front, stand_by
from windfall.server.sweeping import Sweeper
from windfall.server.watchdog import Watchdog
from windfall.server.web import WebServer
from windfall.store import holds_state, open_following, open_for_server
from windfall.store.contract import Store
from windfall.store.location import StateLocation
from windfall.store.sqlite.files import make_directory

log = logging.getLogger(__name__)

OWNER = "owner of the state directory"
POOL_TOKEN = "pool "
"""Names of tokens that older versions made for the workers of pools begin with this."""
DEFAULT_PORT = 7272
ANNOUNCE_AGAIN_S = 5.0
"""How long after a failure the address is written again."""
D = TypeVar("D", bound=Realtime)


@dataclass
class Options:
    """How to serve. `listen`: HOST:PORT, PORT or HOST; port 0 takes a free one."""

    state: Path
    listen: str = "127.0.0.1:0"
    store: str = field(default="", repr=False)
    """The URL of a PostgreSQL database, if the log is kept there and not in `state`. May hold a password."""
    lease_s: float = 60.0
    tls_cert: str = ""
    tls_key: str = ""
    settings: Settings = field(default_factory=Settings)
    pools: list[PoolConfig] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    open_metrics: bool = False
    hooks: list[Hook] = field(default_factory=list)
    standby_s: float | None = None
    """Seconds without a sign of the server that writes to the state until this one takes over. None: not a standby."""
    advertise: str = ""
    """Addresses that workers of pools are given, with commas between them. Empty: that of this server."""
    retention: Retention = field(default_factory=Retention)
    blobs: str = ""
    """The object store for files of jobs, which the state remembers. Empty: where the state says."""
    release: bool = False
    """When the server stops, rented machines are given back; else they go on, and the next server finds them."""


def split_listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = ("127.0.0.1", text) if text.isdecimal() else (text, str(DEFAULT_PORT))
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"--listen {text}: '{port}' is not a port", hint="as in: --listen 127.0.0.1:7272")
    return host, int(port)


def check_tls(cert: str, key: str) -> None:
    """BadInput, with what seems to be wrong, unless these two files are a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key behind a passphrase would ask for it at the terminal, also where there is none.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        holds = {file: _pem_kinds(file) for file in (cert, key)}
        if "PRIVATE KEY" in holds[cert] and "CERTIFICATE" in holds[key] and "CERTIFICATE" not in holds[cert]:
            hint = "they seem to be swapped"
        elif "ENCRYPTED" in holds[key]:
            hint = "the key has a passphrase: openssl pkey -in KEY -out PLAIN makes one without"
        elif "CERTIFICATE" not in holds[cert]:
            hint = f"{cert} holds no certificate (PEM)"
        elif "PRIVATE KEY" not in holds[key]:
            hint = f"{key} holds no private key (PEM)"
        else:
            hint = "do they belong together?"
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise BadInput(f"--tls-cert {cert} and --tls-key {key} cannot be used ({why})", hint=hint) from None


def _pem_kinds(file: str) -> str:
    """The lines of a PEM file that say what it holds."""
    try:
        with open(file, errors="replace") as lines:
            return " ".join(line for line in lines if line.startswith("-----BEGIN") or "ENCRYPTED" in line)
    except OSError:
        return ""


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address; BadInput if it is taken or not ours."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by every connection; without it each answer of two writes waits 40 ms for an acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BadInput(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another: --listen 127.0.0.1:0 takes a free port",
        ) from error
    return sock


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class Server:
    """One server on one state directory."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.host, self.port = split_listen(options.listen)
        if bool(options.tls_cert) != bool(options.tls_key):
            raise BadInput("--tls-cert and --tls-key go together")
        if options.tls_cert:
            check_tls(options.tls_cert, options.tls_key)
        make_directory(options.state, "set XDG_STATE_HOME to another directory" if options.store else "")
        self._socket = listening(self.host, self.port)
        try:
            self.store: Store = self._open_store()
        except BaseException:
            self._socket.close()
            raise
        self.url = ""
        self.token = ""
        self.warnings: list[str] = []
        self.machines_left = 0
        """Rented machines that went on when the server stopped."""
        self.on_hang: Callable[[], None] = lambda: None
        """What to do when the event loop stands still, from another thread; it is logged in any case."""
        self.on_takeover: Callable[[], None] = lambda: None
        """What to do when a standby has become the server."""
        self._front = Front()
        self._web: WebServer | None = None
        self._answering: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Realtime | None = None
        self._service: Service | None = None
        self._admin: PoolAdmin | None = None
        self._leaving: Future[None] | None = None
        self._token_files: dict[str, tuple[Path, float]] = {}
        """Of each pool, where its workers find their token, and the seconds for which one is good."""
        self.ready = threading.Event()

    @property
    def unwritten(self) -> int:
        """Records that the store could not take before the server stopped. None of them was acknowledged."""
        return self._driver.unwritten if self._driver is not None else 0

    def illness(self) -> str:
        """Why a server that was started again would do better; empty if it is well, stands by, or waits for space."""
        driver = self._driver
        return "" if driver is None or driver.trouble else driver.illness()

    @property
    def location(self) -> StateLocation:
        return StateLocation(self.options.state, self.options.store)

    @property
    def _has_others(self) -> bool:
        """Whether workers of pools know of other servers of this state, with which they go on."""
        return "," in self.options.advertise

    def _open_store(self) -> Store:
        if self.options.standby_s is None:
            return open_for_server(self.location, self.options.blobs)
        if not holds_state(self.location):
            raise BadInput(
                f"{self.location} holds no state to stand by for", hint="start the first server without --standby"
            )
        return open_following(self.location)

    async def serve(self) -> None:
        """Serve until told to stop. ServerFailed: it could not go on; what it acknowledged is kept."""
        self._loop = asyncio.get_running_loop()
        self._web = WebServer(self._front, self.options.tls_cert, self.options.tls_key, self.options.limits)
        try:
            if self.options.standby_s is None:
                driver = self._new_driver(Realtime)
                self.warnings = driver.restore()
            else:
                found = await self._stand_by(self.options.standby_s)
                if found is None:
                    return
                driver = found
            for warning in self.warnings:
                log.warning("%s", warning)
            self._driver, service = driver, self._new_service(driver)
            self._admit(service)
            await self._serve(driver, service)
        finally:
            self._socket.close()
            self.store.close()

    def _new_driver(self, kind: type[D]) -> D:
        return kind(self.store, Engine(known_policies), _settings(self.options), self.options.state)

    def _new_service(self, driver: Realtime) -> Service:
        self._service = service = Service(driver, self.store)
        service.open_metrics = self.options.open_metrics
        limits = self.options.limits
        service.intake = Intake(limits)
        service.uploads = Uploads(self.store, limits.blob_bytes, limits.uploads, limits.all_blobs_bytes)
        return service

    async def _stand_by(self, silence_s: float) -> Realtime | None:
        """Follow and answer questions; a driver that goes on with the state once it is ours. None: told to stop."""
        assert self._web is not None
        following = self._new_driver(Following)
        self.warnings = following.restore()
        service = self._new_service(following)
        if self.store.remembered(KEY_NAME):
            service.tokens.pools = open_tokens(self.store, self.options.state)
        self._front.app = Application(service)
        self._answering = asyncio.create_task(self._web.serve(sockets=[self._socket]), name="the web server")
        self.url = self._url(self.host)
        self.ready.set()
        try:
            store = await stand_by(following, service, self.location, silence_s, self._web.left)
            if store is None:
                await self._answering
                return None
            self.store.close()
            self.store = store
            driver = self._new_driver(Realtime)
            driver.go_on_from(following)
        except BaseException:
            self._web.leave()
            await asyncio.gather(self._answering, return_exceptions=True)
            raise
        service.wake_everybody()
        return driver

    async def _serve(self, driver: Realtime, service: Service) -> None:
        assert self._web is not None
        driver.on_fatal = self._exit
        watchdog = Watchdog(asyncio.get_running_loop(), lambda: self.on_hang(), answers=service.loop_times)
        try:
            await driver.start()
            watchdog.start()
            self._front.app = Application(service)
            await self._begin(driver, service)
            if self._answering is not None:
                self.on_takeover()
            await (self._answering or self._web.serve(sockets=[self._socket]))
        except WindfallError as error:
            raise driver.failure or error from error
        finally:
            watchdog.stop()
            await self._end(driver, service)
        if driver.failure is not None:
            raise driver.failure

    async def _begin(self, driver: Realtime, service: Service) -> None:
        """Start what runs beside the web server: the announcement, and the keepers of sites, pools and machines."""
        driver.background(self._announce(), "the announcement of the server's address", ends=True)
        driver.background(self._keep_tokens(service), "the keeper of the tokens of pools")
        if self.options.store:  # of a directory, the lock says whether its server lives
            driver.background(driver.beat(self._url(self.host)), "the signs of life")
        driver.background(Sweeper(service).run(), "the search for files that nobody needs")
        if self.options.retention.chooses_jobs or self.options.retention.cuts_log:
            retainer = Retainer(service, self.options.retention)
            driver.background(retainer.run(), "the search for what is old")
        self._admin = service.admin = PoolAdmin(service, self.options.pools, lambda pool: self._place_of(pool, service))
        await self._admin.begin()
        if self.options.hooks:
            from windfall.server.hooks.follower import Follower

            for hook in self.options.hooks:
                follower = Follower(service, hook, self.options.state / "hooks")
                driver.background(follower.run(), f"hook {hook.name}")
        service.serving = True

    async def _end(self, driver: Realtime, service: Service) -> None:
        """Stop all of it, whatever of it fails; the driver last, which writes what is left."""
        stops: list[tuple[str, Coroutine[object, object, None]]] = []
        # A server that was replaced leaves workers and machines alone: they are the other one's.
        if self._admin is not None and self._admin.keeper is not None and not driver.fenced:
            stops.append(("pools", self._admin.keeper.stop(leave=self._has_others)))
        if self._admin is not None:
            stops.append(("plans", self._admin.planning.stop()))
        if service.rented is not None:
            stops.append(("machines", service.rented.stop(self.options.release and not driver.fenced)))
        if self._leaving is not None:
            await asyncio.gather(asyncio.wrap_future(self._leaving), return_exceptions=True)
        for name, stop in stops:
            try:
                await stop
            except Exception as error:
                log.error("the keeper of %s did not stop in order: %s", name, error)
        self.machines_left = sum(machine.there for machine in driver.state.fleet.machines.values())
        service.wake_everybody()
        announced = self.options.state / "server.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            if json.loads(announced.read_text())["pid"] == os.getpid():  # not that of a server which has taken over
                announced.unlink()
        await driver.stop()

    def _admit(self, service: Service) -> None:
        """The owner's token, and the refusal to be reachable from elsewhere before anybody was given one.

        Workers of pools have tokens of their own.
        """
        others = [row for row in service.tokens.listing() if not _is_own(str(row["name"]))]
        if not is_loopback(self.host) and not others and not self.options.pools:
            location = StateLocation(self.options.state, self.options.store)
            raise BadInput(
                f"refusing to listen on {self.host}, beyond this machine, while no token has been made",
                hint=f"make one first: windfall token create --role worker --state {location}",
                code="no-tokens",
            )
        self.token = _owner_token(service, self.options.state)
        service.tokens.pools = open_tokens(self.store, self.options.state)
        for row in service.tokens.listing():
            if str(row["name"]).startswith(POOL_TOKEN):  # of an older version: it has no end
                service.tokens.revoke(str(row["id"]))

    async def _announce(self) -> None:
        assert self._web is not None
        await self._web.started.wait()
        if self._web.left.is_set():
            return  # told to stop while it started: the socket is closed already
        self.url = self._url(self.host)
        while not self._announced():
            # A full disk, say: what is there can be read all the same. Others find this server when there is space.
            self.ready.set()
            await asyncio.sleep(ANNOUNCE_AGAIN_S)
        self.ready.set()

    def _announced(self) -> bool:
        """Write where this server is, for other commands on this host. False: it could not be written."""
        try:
            write_private(self.options.state / "server.json", json.dumps({"url": self.url, "pid": os.getpid()}))
        except OSError as error:
            if not self.ready.is_set():  # once
                log.warning("other commands do not find this server yet: server.json cannot be written: %s", error)
            return False
        return True

    def _url(self, host: str) -> str:
        scheme = "https" if self.options.tls_cert else "http"
        port = self._socket.getsockname()[1]
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def _place_of(self, pool: PoolConfig, service: Service) -> Place:
        """Where the workers of a pool find this server, their token and their files."""
        state = self.options.state.resolve()
        nearby = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        outside = "" if is_loopback(self.host) else self._url(socket.getfqdn() if nearby != self.host else self.host)
        url, outside = self.options.advertise or self._url(nearby), self.options.advertise or outside
        folder = state / ("cloud" if pool.of.gives == MACHINES else "pools") / pool.name
        token_file = state / "pool-tokens" / pool.name
        token_file.parent.mkdir(mode=0o700, exist_ok=True)
        self._token_files[pool.name] = (token_file, pool.token_life_s)
        self._refresh_tokens(service)
        return Place(url, token_file, folder, self.options.tls_cert, self._state_id(), outside)

    def _state_id(self) -> str:
        """Id of this state, made once: it marks what its servers order from pools. A file shows it to people."""
        path, shown = self.options.state / "id", ""
        with contextlib.suppress(OSError):
            shown = path.read_text().strip()
        known = self.store.remembered("id")
        if known is None:
            known = shown or secrets.token_hex(6)
            self.store.remember("id", known)
        if shown != known:
            write_private(path, known)
        return known

    def _refresh_tokens(self, service: Service) -> None:
        assert service.tokens.pools is not None
        for pool, (file, life_s) in self._token_files.items():
            service.tokens.pools.refresh(file, pool, life_s, service.driver.clock())

    async def _keep_tokens(self, service: Service) -> None:
        """Workers that start at any time find a token that is good for a while."""
        while True:
            await asyncio.sleep(min([60.0, *(life_s / 8 for _, life_s in self._token_files.values())]))
            try:
                self._refresh_tokens(service)
            except OSError as error:
                log.warning("the tokens of pools could not be renewed: %s", error)

    def stop(self) -> None:
        """May be called from any thread, and from a signal handler. Twice: do not wait for the workers of pools."""
        if self._web is None or self._loop is None or self._loop.is_closed():
            return
        keeper = None if self._admin is None else self._admin.keeper
        if keeper is None or self._leaving is not None:
            self._loop.call_soon_threadsafe(self._exit)
        else:
            self._leaving = asyncio.run_coroutine_threadsafe(self._leave(keeper), self._loop)

    async def _leave(self, keeper: PoolKeeper) -> None:
        """Workers that we started go first, while there is somebody who hears what becomes of their tasks."""
        assert self._driver is not None
        if self._driver.trouble:
            self._exit()  # nobody is heard while nothing can be written
        try:
            await keeper.stop(leave=self._has_others)
        finally:
            self._exit()

    def _exit(self) -> None:
        assert self._web is not None and self._service is not None
        self._web.leave()
        self._service.wake_everybody()


def _settings(options: Options) -> Settings:
    import msgspec

    return msgspec.structs.replace(options.settings, lease_s=options.lease_s)


def _owner_token(service: Service, state: Path) -> str:
    return _token_in(state / "token", "admin", OWNER, service)


def _token_in(path: Path, role: str, name: str, service: Service) -> str:
    with contextlib.suppress(FileNotFoundError, BadCredentials):
        token = path.read_text().strip()
        service.tokens.bearer_of(f"Bearer {token}")
        return token
    token = service.tokens.create(role, name, service.driver.clock())
    write_private(path, token)
    return token


def _is_own(name: str) -> bool:
    """Whether the server itself made a token of this name."""
    return name == OWNER or name.startswith(POOL_TOKEN)


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Run a server's loop in this thread; on uvloop where there is one, which is about twice as fast."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serving)


class Running:
    """A server in a thread of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="windfall-server", daemon=True)

    def _run(self) -> None:
        try:
            run(self._server.serve())
        except BaseException as error:
            self._error = error
        finally:
            self._server.ready.set()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> Running:
        self._thread.start()
        try:
            self._server.ready.wait()
        except BaseException:
            # Ctrl-C, most likely. The caller does not hold this object yet, so it must end here what has begun.
            self._server.ready.wait()
            self.stop()
            raise
        if self._error is not None:
            raise self._error
        return self

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def token(self) -> str:
        return self._server.token

    @property
    def warnings(self) -> list[str]:
        return self._server.warnings

    @property
    def failure(self) -> BaseException | None:
        """Why the server has ended although it was not told to; empty if it has not."""
        return self._error

    def stop(self) -> None:
        """Let requests end, write a snapshot, release the directory."""
        self._server.stop()
        self._thread.join()


def start(
    state: Path | str,
    listen: str = "127.0.0.1:0",
    lease_s: float = 60.0,
    store: str = "",
    pools: Sequence[PoolConfig] = (),
    release: bool = False,
) -> Running:
    """Start a server in a thread and return when it serves."""
    options = Options(Path(state), listen, store, lease_s, pools=list(pools), release=release)
    return Running(Server(options)).begin()
