"""The BOINC front as an application on its own path: pages, accounts, scheduler, downloads, uploads, administration.

Touches its folder of the state and, through the service, store and driver. Whoever asks here is a stranger, except at
`admin/...`, where a token of role admin is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from windfall.api.about import (
    AccountFacts,
    AccountWithKey,
    FrontAnswer,
    FrontShown,
    FrontVolunteer,
    Invitation,
)
from windfall.api.requests import FrontBody
from windfall.boinc import replies, uploads
from windfall.boinc.accounts import Account, Accounts
from windfall.boinc.bundle import job_file
from windfall.boinc.credit import AccountWork
from windfall.boinc.keys import PLATFORM, Keys, follows
from windfall.boinc.kind import BoincSettings
from windfall.boinc.names import Bundle, read_name, read_output
from windfall.boinc.replies import Reply
from windfall.boinc.requests import HEAD_BYTES, MAX_REQUEST_BYTES, SchedulerRequest, key_in, read_request
from windfall.boinc.scheduler import Scheduler
from windfall.boinc.validators import CannotJudge, argv_of, judged
from windfall.boinc.validators import pieces_of as pieces_of_file
from windfall.errors import BadInput, WindfallError
from windfall.pools.kinds import PoolConfig
from windfall.server.http.blobs import BlobResponse
from windfall.server.service import NotFound, Service

log = logging.getLogger(__name__)

STRANGER_S = 3600.0
"""How long a client with an unknown key waits before it asks again."""
TROUBLE_S = 60.0
SUMMED_FOR_S = 60.0
READ_AT_ONCE_BYTES = 256 << 10
"""Longer requests are read in a thread, so that others are answered meanwhile."""
UPLOAD, SCHEDULER, DOWNLOAD = "file_upload_handler", "cgi", "download/"
XML = "text/xml"


class Front:
    """One project: what volunteers attach to."""

    def __init__(self, pool: PoolConfig, folder: Path, service: object) -> None:
        assert isinstance(service, Service) and isinstance(pool.settings, BoincSettings)
        self.pool, self.settings, self.service = pool.name, pool.settings, service
        self.path, self.validators = self.settings.path, self.settings.validators
        self.keys = Keys(folder)
        self.signed = self.keys.open()
        self.accounts = Accounts(folder)
        self.uploads = uploads.Uploads(folder / "uploads", self.accounts.secret)
        self.scheduler = Scheduler(self)
        self._summed: tuple[float, AccountWork] | None = None
        self.uploads.clear(self.service.driver.clock(), self._is_awaited)
        self._app = Starlette(routes=self._routes())

    def _is_awaited(self, output: str) -> bool:
        bundle = read_output(output)
        return bundle is not None and self.scheduler.is_awaited(bundle)

    def _routes(self) -> list[Route]:
        def at(path: str, handler: Callable[..., Any], method: str = "GET") -> Route:
            return Route(self.path + path, handler, methods=[method])

        return [
            at("", self._page),
            at("get_project_config.php", self._config),
            at("lookup_account.php", self._lookup),
            at("create_account.php", self._create),
            at(SCHEDULER, self._schedule, "POST"),
            at(UPLOAD, self._upload, "POST"),
            at(DOWNLOAD + "{mark}/{kind}/{name}", self._work_file),
            at(DOWNLOAD + "{name}", self._launcher),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            return

    # --- addresses ---

    @property
    def _base(self) -> str:
        return self.settings.url

    def _mark(self, kind: str, name: str) -> str:
        """Makes the address of a file one that cannot be guessed."""
        said = f"download\0{kind}\0{name}"
        return hmac.new(self.accounts.secret, said.encode(), hashlib.sha256).hexdigest()[:32]

    def job_url(self, bundle: Bundle) -> str:
        return f"{self._base}{DOWNLOAD}{self._mark('job', bundle.name)}/job/{bundle.name}"

    def blob_url(self, sha: str) -> str:
        return f"{self._base}{DOWNLOAD}{self._mark('blob', sha)}/blob/{sha}"

    # --- what the scheduler asks of the front ---

    def empty_reply(self, account: Account | None = None) -> Reply:
        reply = Reply(self.settings.project, self._base, self.settings.ask_again_s)
        if account is not None:
            reply.while_busy = account.while_busy
            reply.user, reply.user_credit = account.name, self._work_done().of(account)["credit"]
        return reply

    def refusal(self, why: str) -> Reply:
        """What a client is told that gets nothing, and shall not ask again soon."""
        return Reply(self.settings.project, self._base, STRANGER_S, delay_s=STRANGER_S, message=why)

    def _work_done(self) -> AccountWork:
        """What accounts have done, as it was a minute ago: summing up takes a look at every host."""
        now = self.service.driver.clock()
        if self._summed is None or not self._summed[0] <= now < self._summed[0] + SUMMED_FOR_S:
            self._summed = now, AccountWork(self.service.state)
        return self._summed[1]

    def serves(self, platforms: list[str]) -> bool:
        return PLATFORM in platforms

    def output_cap(self, job: int) -> int:
        """Bytes of standard output of one task that are taken."""
        return self.service.spec(job).output_cap_bytes

    def validator(self, job: int) -> list[str]:
        """The command that judges the results of a job; empty if their bytes must agree."""
        name = self.service.spec(job).validator
        try:
            return argv_of(self.validators.get(name, ""), f"validator {name}") if name else []
        except BadInput as error:
            raise CannotJudge(error.message) from None

    async def fingerprint(self, validator: str, stdout: bytes, files: list[tuple[str, str]]) -> str:
        """What a validator prints for a result of a trusted host; empty if it prints nothing. `files`: name, blob."""
        try:
            argv = argv_of(self.validators.get(validator, ""), f"validator {validator}")
            with contextlib.ExitStack() as opened:
                blobs = [(name, opened.enter_context(self.service.store.open_blob(sha))) for name, sha in files]
                pieces = [(name, pieces_of_file(blob)) for name, blob in blobs]
                said = await asyncio.to_thread(judged, argv, stdout, pieces)
        except (WindfallError, CannotJudge) as error:
            log.error("validator %s did not work, votes on a task end unjudged: %s", validator, error)
            return ""
        if not said:
            log.warning(
                "validator %s calls a result of an own host wrong: it is believed, votes end unjudged", validator
            )
        return said

    def tell_key(self, held: str, reply: Reply) -> bool:
        """Give the client the signing key, if it has none or an old one; whether it can check the launcher then."""
        current = self.signed.public.text()
        if held == current:
            return True
        if not held:
            reply.key = current
            return True
        if held in self.signed.changes:
            reply.key, reply.key_signature = self.signed.changes[held]
            return reply.key == current
        reply.message = "your client holds another signing key of this project: reset the project"
        return False

    # --- pages ---

    async def _page(self, request: Request) -> Response:
        about = "<p>Attach a BOINC client to this address with the account key that you were given.</p>"
        page = replies.master_page(self.settings.project, self._base + SCHEDULER, about)
        return Response(page, media_type="text/html")

    async def _config(self, request: Request) -> Response:
        name, url = replies.xml_text(self.settings.project), replies.xml_text(self._base)
        return Response(
            "<project_config>\n"
            f"    <name>{name}</name>\n    <master_url>{url}</master_url>\n"
            f"    <web_rpc_url_base>{url}</web_rpc_url_base>\n    <min_passwd_length>8</min_passwd_length>\n"
            "    <account_creation_disabled/>\n    <sched_stopped>0</sched_stopped>\n    <web_stopped>0</web_stopped>\n"
            "    <platforms>\n"
            f"        <platform><platform_name>{PLATFORM}</platform_name>"
            "<user_friendly_name>Linux on x86-64</user_friendly_name></platform>\n"
            "    </platforms>\n</project_config>\n",
            media_type=XML,
        )

    async def _lookup(self, request: Request) -> Response:
        email, passwd_hash = _query(request, "email_addr"), _query(request, "passwd_hash")
        account = self.accounts.by_email(email) if email else None
        if account is None or account.closed:
            return _error(-136, "there is no such account")
        if not passwd_hash:
            return Response("<account_out>\n    <success/>\n</account_out>\n", media_type=XML)
        if not self.accounts.knows_password(account, email, passwd_hash):
            return _error(-206, "wrong password")
        return _account(self.accounts.key_of(account))

    async def _create(self, request: Request) -> Response:
        email, passwd_hash = _query(request, "email_addr"), _query(request, "passwd_hash")
        name, code = _query(request, "user_name"), _query(request, "invite_code")
        if not code or self.accounts.invitation(code) is None:
            return _error(-208, "accounts are made with an invitation only: ask the project for one")
        if not 3 <= len(email) <= 254 or "@" not in email:
            return _error(-205, "this is no e-mail address")
        if not 8 <= len(passwd_hash) <= 128:
            return _error(-206, "the password is missing")
        if self.accounts.by_email(email) is not None:
            return _error(-137, "this address has an account")
        try:
            account = self.accounts.create(name, self.service.driver.clock(), email, passwd_hash, code=code)
        except BadInput as error:
            return _error(-188, error.message)
        return _account(self.accounts.key_of(account))

    # --- the scheduler ---

    async def _schedule(self, request: Request) -> Response:
        try:
            body, account = await self._of_whom(request)
            asked = None if account is None else await _read(body)
        except BadInput as error:
            return self._said(Reply(self.settings.project, self._base, STRANGER_S, message=error.message), 400)
        if account is None or asked is None:
            why = "the project does not know this account key: attach again with the one that you were given"
            return self._said(self.refusal(why))
        try:
            if self.service.driver.trouble:
                raise WindfallError(self.service.driver.trouble)
            return self._said(await self.scheduler.answer(asked, account))
        except WindfallError as error:
            log.warning("a call of a BOINC client was not answered: %s", error.message)
            return Response(status_code=503, headers={"retry-after": f"{TROUBLE_S:.0f}"})

    async def _of_whom(self, request: Request) -> tuple[bytes, Account | None]:
        """The body of a call and whose it is. Of what strangers send, nothing but the begin is kept or read."""
        pieces, size, head = [], 0, b""
        account: Account | None = None
        async for piece in request.stream():
            size += len(piece)
            if size > MAX_REQUEST_BYTES:
                raise BadInput(f"a request of more than {MAX_REQUEST_BYTES:,} bytes")
            if account is None and len(head) < HEAD_BYTES:
                head += piece[:HEAD_BYTES]
                account = self.accounts.find(key_in(head))
            if account is not None or size <= HEAD_BYTES:
                pieces.append(piece)
        if account is None and not head.lstrip().startswith(b"<scheduler_request>"):
            raise BadInput("not a scheduler request", hint="attach a BOINC client to the project's URL")
        return b"".join(pieces), account

    def _said(self, reply: Reply, status: int = 200) -> Response:
        body = replies.scheduler_reply(reply, self.signed, self._base + DOWNLOAD, self._base + UPLOAD)
        return Response(body, status, media_type=XML)

    # --- files ---

    async def _launcher(self, request: Request) -> Response:
        if request.path_params["name"] != self.signed.file:
            return Response(status_code=404)
        return FileResponse(self.keys.folder / self.signed.file, media_type="application/octet-stream")

    async def _work_file(self, request: Request) -> Response:
        mark, kind, name = (request.path_params[part] for part in ("mark", "kind", "name"))
        if not hmac.compare_digest(mark.encode(), self._mark(kind, name).encode()):
            return Response(status_code=404)
        if kind == "job":
            bundle = read_name(name)
            if bundle is None or not self.scheduler.is_awaited(bundle):
                return Response(status_code=404)
            tasks, _ = self.scheduler.tasks_of(bundle)
            return Response(job_file(tasks), media_type="application/octet-stream")
        size = await asyncio.to_thread(self.service.store.blob_size, name)
        answer = None if size is None else await BlobResponse.of(self.service, name, size)
        return Response(status_code=404) if answer is None else answer

    # --- what the operator says ---

    async def administer(self, what: str, body: FrontBody) -> FrontAnswer:
        """`POST /v1/pools/NAME/front/WHAT`."""
        orders: dict[str, Callable[[FrontBody], Awaitable[FrontAnswer]]] = {
            "show": self._show, "add-account": self._add_account, "close": self._close,
            "new-key": self._new_key, "invite": self._invite, "rotate": self._rotate, "reload": self._reload,
        }  # fmt: skip
        if what not in orders:
            raise NotFound(f"volunteers' pools cannot be told to '{what}'", hint=", ".join(orders))
        return await orders[what](body)

    async def _show(self, body: FrontBody) -> FrontShown:
        work = AccountWork(self.service.state)
        return {
            "url": self.settings.url, "project": self.settings.project, "pool": self.pool,
            "launcher": {"version": self.signed.version, "file": self.signed.file, "md5": self.signed.md5},
            "key": self.signed.public.text(), "key_is_here": self.keys.key_is_here(),
            "validators": self.validators,
            "accounts": [{**self._told(account), **work.of(account)} for account in self.accounts.by_id.values()],
        }  # fmt: skip

    def volunteers(self) -> list[FrontVolunteer]:
        work = AccountWork(self.service.state)
        return [
            {"account": account.id, "name": account.name if account.shows_name else "", **work.of(account)}
            for account in self.accounts.by_id.values()
            if not account.closed
        ]

    def _told(self, account: Account) -> AccountFacts:
        return {
            "account": account.id, "name": account.name, "shows_name": account.shows_name, "closed": account.closed,
            "while_busy": account.while_busy, "created_s": account.created_s,
        }  # fmt: skip

    def _with_key(self, account: Account) -> AccountWithKey:
        return {**self._told(account), "key": self.accounts.key_of(account), "url": self.settings.url}

    async def _add_account(self, body: FrontBody) -> AccountWithKey:
        now = self.service.driver.clock()
        made = self.accounts.create(body.name, now, shows_name=body.shows_name, while_busy=body.while_busy)
        return self._with_key(made)

    async def _close(self, body: FrontBody) -> AccountFacts:
        return self._told(_there(self.accounts.close(body.account), body))

    async def _new_key(self, body: FrontBody) -> AccountWithKey:
        return self._with_key(_there(self.accounts.new_key(body.account), body))

    async def _invite(self, body: FrontBody) -> Invitation:
        return {"code": self.accounts.invite(body.uses, body.name), "uses": body.uses, "url": self.settings.url}

    async def _rotate(self, body: FrontBody) -> FrontShown:
        self.signed = await asyncio.to_thread(self.keys.rotate)
        return await self._show(body)

    async def _reload(self, body: FrontBody) -> FrontShown:
        """Take the launcher that lies in the folder now, signed on another machine."""
        signed = await asyncio.to_thread(self.keys.read)
        if signed is None:
            raise BadInput(f"nothing signed lies in {self.keys.folder}", hint="make it: windfall boinc sign FOLDER")
        if not follows(signed, self.signed.public.text()):
            raise BadInput(
                "clients would refuse it: its key is not signed by the one that they hold",
                hint="sign in a copy of the server's folder: windfall boinc sign FOLDER --rotate",
            )
        self.signed = signed
        return await self._show(body)

    # --- uploads ---

    async def _upload(self, request: Request) -> Response:
        try:
            return Response(await self._received(request), media_type=XML)
        except uploads.Refused as refused:
            return Response(replies.upload_reply(refused.status, str(refused)), media_type=XML)
        except OSError as error:
            log.warning("an upload could not be stored: %s", error)
            return Response(replies.upload_reply(uploads.LATER, "the server cannot store it now"), media_type=XML)

    async def _received(self, request: Request) -> bytes:
        pieces = request.stream().__aiter__()
        gathered = b""
        found: tuple[str, bytes] | None = None
        async for piece in pieces:
            gathered += piece
            found = uploads.split(gathered)
            if found is not None or len(gathered) > uploads.MAX_HEAD_BYTES:
                break
        if found is None:
            name = uploads.query(gathered[: uploads.MAX_HEAD_BYTES].decode("latin-1"))
            if not name or len(gathered) > uploads.MAX_HEAD_BYTES:
                raise uploads.Refused(uploads.NEVER, "this is no upload")
            return replies.upload_reply(uploads.DONE, size=self.uploads.stored(name))
        head = uploads.read_head(found[0])
        self.uploads.check(head)
        self.uploads.clear(self.service.driver.clock(), self._is_awaited)
        if not self._is_awaited(head.name):
            raise uploads.Refused(uploads.NEVER, "nobody waits for this file any more")
        await self.uploads.receive(head, found[1], pieces)
        return replies.upload_reply(uploads.DONE)


def _there(account: Account | None, body: FrontBody) -> Account:
    if account is None:
        raise NotFound(f"there is no account {body.account}", hint="see them: windfall boinc show")
    return account


def _query(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:1000]


def _error(number: int, text: str) -> Response:
    return Response(replies.error_page(number, text), media_type=XML)


def _account(key: str) -> Response:
    text = f"<account_out>\n    <authenticator>{key}</authenticator>\n</account_out>\n"
    return Response(text, media_type=XML)


async def _read(body: bytes) -> SchedulerRequest:
    return await asyncio.to_thread(read_request, body) if len(body) > READ_AT_ONCE_BYTES else read_request(body)
