"""A proxy before moto's server that adds what moto lacks, fails when told, and logs every call with its time.

It adds client tokens, spot requests (with the habit of persistent ones to replace a terminated instance), prices that
move, pages, capacity that runs out, throttling, keys that expire, and the reasons of state transitions. What the
provider does by itself (`interrupt`, `resume`) goes to moto directly and is not a call of anybody.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.ec2.hypervisor import Hypervisor

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15"
_KEY = "Credential="
Params = dict[str, str]
ElementTree.register_namespace("", NAMESPACE)


@dataclass
class Call:
    """One call: who made it, when, and what came of it."""

    t: float
    action: str
    params: Params
    status: int = 0
    code: str = ""
    ids: list[str] = field(default_factory=list)
    """Instances that it started or ended."""


@dataclass
class Spell:
    """What the provider knows of one instance: from when to when it ran, and why it does not."""

    type: str
    zone: str
    market: str
    stretches: list[list[float]] = field(default_factory=list)
    """[from, to]; the last `to` is infinite while it runs."""
    reason: str = ""
    changed_t: float = 0.0
    taken: bool = False
    tags: Params = field(default_factory=dict)
    request: str = ""
    started_t: float = 0.0


@dataclass
class Request:
    """A spot request."""

    id: str
    instance: str
    persistent: bool
    behaviour: str
    body: Params
    tags: Params
    state: str = "active"
    status: str = "fulfilled"
    updated_t: float = 0.0


@dataclass
class Fault:
    """The next `times` calls of an action fail with a code."""

    action: str
    code: str
    status: int
    times: float


class Ec2Proxy:
    """See the module. All times are Unix seconds of this host."""

    def __init__(self, moto_port: int, hypervisor: Hypervisor) -> None:
        self._moto = moto_port
        self.hypervisor = hypervisor
        hypervisor.on_shutdown = self._shut_itself_down
        self.calls: list[Call] = []
        self.instances: dict[str, Spell] = {}
        self.requests: dict[str, Request] = {}
        self.prices: dict[tuple[str, str], list[tuple[float, float]]] = {}
        """(since, dollars per hour) by type and zone."""
        self.on_demand: dict[str, float] = {"c5.large": 0.085}
        """Dollars per hour in the price list."""
        self.faults: list[Fault] = []
        self.full: set[tuple[str, str, str]] = set()
        """Types, zones and markets without capacity."""
        self.bad_keys: set[str] = set()
        self.visible_after_s = 0.0
        self.page_size = 1000
        self._tokens: dict[str, tuple[str, bytes]] = {}
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Ec2Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def reset(self) -> None:
        self._forward("POST", "/moto-api/reset", {}, b"")

    # --- what a test tells it ---

    def set_price(self, type_: str, zone: str, usd_per_h: float, since_t: float | None = None) -> None:
        self.prices.setdefault((type_, zone), []).append((time.time() if since_t is None else since_t, usd_per_h))

    def fail(self, action: str, code: str, status: int = 400, times: float = 1) -> None:
        self.faults.append(Fault(action, code, status, times))

    def throttle(self, action: str, times: float = 1) -> None:
        self.fail(action, "RequestLimitExceeded", 503, times)

    def running(self) -> list[str]:
        """Instances that are billed now."""
        return [id for id, each in self.instances.items() if each.stretches and each.stretches[-1][1] == float("inf")]

    def calls_of(self, action: str) -> list[Call]:
        return [call for call in self.calls if call.action == action]

    # --- what a provider does by itself ---

    def interrupt(self, id: str, notice_s: float = 0.0, behaviour: str = "") -> None:
        """Give notice, wait, then terminate, stop or hibernate, as the spot request or the test says."""
        request = self.requests[self.instances[id].request]
        behaviour = behaviour or request.behaviour
        if notice_s:
            doing = {"terminate": "termination", "hibernate": "hibernation"}.get(behaviour, "stop")
            self.mark(id, f"marked-for-{doing}")
            self.hypervisor.announce(id, behaviour, time.time() + notice_s)
            time.sleep(notice_s)
        with self._lock:
            if behaviour == "terminate":
                self._own("TerminateInstances", id)
                self._stopped(id, "Server.SpotInstanceTermination", taken=True)
                self.hypervisor.kill(id)
                request.state = "closed"
                self._mark(request, "instance-terminated-no-capacity", self.instances[id].changed_t)
                return
            self._own("StopInstances", id)
            self._stopped(id, "Server.SpotInstanceShutdown")
            if behaviour == "hibernate":
                self.hypervisor.freeze(id)
            else:
                self.hypervisor.kill(id, for_good=False)
            request.state = "open"
            self._mark(request, "instance-stopped-no-capacity", self.instances[id].changed_t)

    def mark(self, id: str, status: str) -> None:
        """Have the spot request of an instance show a status."""
        self._mark(self.requests[self.instances[id].request], status)

    def resume(self, id: str) -> None:
        """There is capacity again for an instance that was stopped or hibernated."""
        request = self.requests[self.instances[id].request]
        with self._lock:
            self._own("StartInstances", id)
            spell = self.instances[id]
            now = _second()
            spell.reason, spell.changed_t, spell.started_t = "", 0.0, now
            spell.stretches.append([now, float("inf")])
            request.state = "active"
            self._mark(request, "fulfilled")
            if request.behaviour == "hibernate":
                self.hypervisor.thaw(id)
            else:
                self.hypervisor.boot(id)

    def _shut_itself_down(self, id: str) -> None:
        spell = self.instances[id]
        request = self.requests.get(spell.request)
        stops = request is not None and request.persistent
        with self._lock:
            self._own("StopInstances" if stops else "TerminateInstances", id)
            self._stopped(id, "Client.InstanceInitiatedShutdown")
            self.hypervisor.kill(id, for_good=not stops)
            if request is not None:
                request.state = "disabled" if stops else "closed"
                status = "instance-stopped-by-user" if stops else "instance-terminated-by-user"
                self._mark(request, status, spell.changed_t)

    def _stopped(self, id: str, reason: str, taken: bool = False) -> None:
        spell, now = self.instances[id], _second()
        if spell.stretches and spell.stretches[-1][1] == float("inf"):
            spell.stretches[-1][1] = now
        spell.reason, spell.changed_t, spell.taken = reason, now, spell.taken or taken

    def _mark(self, request: Request, status: str, at_t: float | None = None) -> None:
        request.status, request.updated_t = status, _second() if at_t is None else at_t

    def _own(self, action: str, id: str) -> None:
        """A call of the provider itself, past the log."""
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=AKIAPROVIDER/20260101/us-east-1/ec2/aws4_request, x",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = urlencode({"Action": action, "Version": "2016-11-15", "InstanceId.1": id}).encode()
        status, _, answer = self._forward("POST", "/", headers, body)
        assert status == 200, answer

    # --- calls ---

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        target = headers.get("X-Amz-Target", "")
        params = dict(parse_qsl(body.decode(), keep_blank_values=True)) if not target else {}
        call = Call(time.time(), params.get("Action", target.rpartition(".")[2]), params)
        with self._lock:
            self.calls.append(call)
            if (refused := self._refused(call, headers)) is not None:
                call.status, call.code = refused
                return _error(call.code, call.status, bool(target))
        if target.endswith("GetProducts"):
            call.status = 200
            return 200, "application/x-amz-json-1.1", self._products(json.loads(body))
        own: dict[str, Callable[[Call], bytes]] = {
            "DescribeSpotPriceHistory": self._price_history,
            "DescribeSpotInstanceRequests": self._listed_requests,
            "CancelSpotInstanceRequests": self._cancel,
            "GetConsoleOutput": self._console,
        }
        if call.action in own and params.get("DryRun") != "true":
            with self._lock:
                call.status = 200
                return 200, "text/xml", own[call.action](call)
        return self._through_moto(call, headers, body)

    def _refused(self, call: Call, headers: dict[str, str]) -> tuple[int, str] | None:
        key = headers.get("Authorization", "").partition(_KEY)[2].partition("/")[0]
        if key in self.bad_keys:
            return 401, "AuthFailure" if call.action != "GetCallerIdentity" else "ExpiredToken"
        for fault in self.faults:
            if fault.times > 0 and fault.action in ("*", call.action):
                fault.times -= 1
                return fault.status, fault.code
        if call.action == "RunInstances" and call.params.get("DryRun") != "true":
            spot = "InstanceMarketOptions.MarketType" in call.params
            where = (call.params["InstanceType"], _zone(call.params), "spot" if spot else "on-demand")
            if where in self.full:
                return 500, "InsufficientInstanceCapacity"
        return None

    def _through_moto(self, call: Call, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        token = call.params.get("ClientToken", "")
        starts = call.action == "RunInstances" and call.params.get("DryRun") != "true"
        if starts and token:
            with self._lock:
                same = urlencode(sorted(call.params.items()))
                if token in self._tokens:
                    before, answer = self._tokens[token]
                    call.status, call.code = (200, "") if before == same else (400, "IdempotentParameterMismatch")
                    return (200, "text/xml", answer) if before == same else _error(call.code, 400, False)
                status, kind, answer = self._started(call, headers, body)
                if status == 200:
                    self._tokens[token] = (same, answer)
                return status, kind, answer
        if starts:
            return self._started(call, headers, body)
        status, kind, answer = self._forward("POST", "/", headers, body)
        call.status = status
        if status != 200:
            call.code = _code(answer)
        elif call.action == "DescribeInstances":
            answer = self._patched(answer)
        elif call.action == "TerminateInstances" and call.params.get("DryRun") != "true":
            self._terminated(call)
        return status, kind, answer

    def _started(self, call: Call, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        status, kind, answer = self._forward("POST", "/", headers, body)
        call.status = status
        if status != 200:
            call.code = _code(answer)
            return status, kind, answer
        call.ids = [self._launched(node, call.params) for node in _instances(ElementTree.fromstring(answer))]
        return status, kind, self._patched(answer)

    def _launched(self, node: ElementTree.Element, params: Params) -> str:
        id = _text(node, "instanceId")
        spot = params.get("InstanceMarketOptions.MarketType") == "spot"
        tags = _tags(params, "instance")
        now = _second()
        spell = Spell(
            params["InstanceType"], _zone(params), "spot" if spot else "on-demand", [[now, float("inf")]], tags=tags,
            started_t=now,
        )  # fmt: skip
        self.instances[id] = spell
        if spot:
            options = "InstanceMarketOptions.SpotOptions."
            request = Request(
                f"sir-{next(self._numbers):08d}", id, params.get(f"{options}SpotInstanceType") == "persistent",
                params.get(f"{options}InstanceInterruptionBehavior", "terminate"), params,
                _tags(params, "spot-instances-request"), updated_t=now,
            )  # fmt: skip
            self.requests[request.id] = request
            spell.request = request.id
        self.hypervisor.boot(id, base64.b64decode(params.get("UserData", "")).decode())
        return id

    def _terminated(self, call: Call) -> None:
        call.ids = [value for key, value in call.params.items() if key.startswith("InstanceId.")]
        for id in call.ids:
            with self._lock:
                spell = self.instances.get(id)
                if spell is None or spell.reason.endswith(("Termination", "UserInitiatedShutdown")):
                    continue
                self._stopped(id, "Client.UserInitiatedShutdown")
                self.hypervisor.kill(id)
                request = self.requests.get(spell.request)
                if request is None:
                    continue
                self._mark(request, "instance-terminated-by-user", spell.changed_t)
                if request.persistent and request.state in ("open", "active"):
                    self._replace(request)
                elif request.state != "cancelled":
                    request.state = "closed"

    def _replace(self, request: Request) -> None:
        """A persistent request that was not cancelled starts another instance."""
        body = {key: value for key, value in request.body.items() if key != "ClientToken"}
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=AKIAPROVIDER/20260101/us-east-1/ec2/aws4_request, x",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        _, _, answer = self._forward("POST", "/", headers, urlencode(body).encode())
        for node in _instances(ElementTree.fromstring(answer)):
            id = self._launched(node, body)
            request.instance = id

    # --- answers of its own ---

    def _price_history(self, call: Call) -> bytes:
        types = {value for key, value in call.params.items() if key.startswith("InstanceType.")}
        since_t = _unix(call.params.get("StartTime", "1970-01-01T00:00:00Z"))
        rows = []
        for (type_, zone), moves in sorted(self.prices.items()):
            if types and type_ not in types:
                continue
            before = [move for move in moves if move[0] <= since_t][-1:]
            for at_t, usd_per_h in before + [move for move in moves if move[0] > since_t]:
                rows.append((at_t, type_, zone, usd_per_h))
        first = int(call.params.get("NextToken") or 0)
        shown = sorted(rows, reverse=True)[first : first + self.page_size]
        items = "".join(
            f"<item><instanceType>{type_}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{usd_per_h:.6f}</spotPrice><timestamp>{_iso(at_t)}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for at_t, type_, zone, usd_per_h in shown
        )
        more = str(first + self.page_size) if first + self.page_size < len(rows) else ""
        return _xml(call.action, f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{more}</nextToken>")

    def _listed_requests(self, call: Call) -> bytes:
        items = "".join(
            f"<item><spotInstanceRequestId>{each.id}</spotInstanceRequestId><state>{each.state}</state>"
            f"<type>{'persistent' if each.persistent else 'one-time'}</type><instanceId>{each.instance}</instanceId>"
            f"<status><code>{each.status}</code><updateTime>{_iso(each.updated_t)}</updateTime></status>"
            f"<instanceInterruptionBehavior>{each.behaviour}</instanceInterruptionBehavior><tagSet>"
            + "".join(
                f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
                for key, value in each.tags.items()
            )
            + "</tagSet></item>"
            for each in self.requests.values()
            if _has_tag(call.params, each.tags)
        )
        return _xml(call.action, f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>")

    def _cancel(self, call: Call) -> bytes:
        ids = [value for key, value in call.params.items() if key.startswith("SpotInstanceRequestId.")]
        for id in ids:
            self.requests[id].state = "cancelled"
            self._mark(self.requests[id], "request-canceled-and-instance-running")
        items = "".join(
            f"<item><spotInstanceRequestId>{id}</spotInstanceRequestId><state>cancelled</state></item>" for id in ids
        )
        return _xml(call.action, f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>")

    def _console(self, call: Call) -> bytes:
        id = call.params["InstanceId"]
        text = base64.b64encode(self.hypervisor.console(id).encode()).decode()
        return _xml(call.action, f"<instanceId>{id}</instanceId><output>{text}</output>")

    def _products(self, body: dict) -> bytes:
        wanted = {each["Field"]: each["Value"] for each in body["Filters"]}
        price = self.on_demand.get(wanted["instanceType"])
        terms = {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": f"{price}"}}}}}
        found = [] if price is None else [json.dumps({"product": {"attributes": wanted}, "terms": {"OnDemand": terms}})]
        return json.dumps({"FormatVersion": "aws_v1", "PriceList": found}).encode()

    def _patched(self, answer: bytes) -> bytes:
        """Add to instances what moto leaves out: the spot request, why and when the state has changed."""
        root = ElementTree.fromstring(answer)
        lists = root.tag.endswith("DescribeInstancesResponse")
        for parent in [*root.iter(f"{{{NAMESPACE}}}instancesSet")]:
            for node in [*parent]:
                spell = self.instances.get(_text(node, "instanceId"))
                if spell is not None and lists and time.time() < spell.started_t + self.visible_after_s:
                    parent.remove(node)
                elif spell is not None:
                    self._patch(node, spell)
        return ElementTree.tostring(root)

    def _patch(self, node: ElementTree.Element, spell: Spell) -> None:
        if spell.request:
            _set(node, "spotInstanceRequestId", spell.request)
            _set(node, "instanceLifecycle", "spot")
        _set(node, "launchTime", _iso(spell.started_t))
        by_user = spell.reason == "Client.UserInitiatedShutdown"
        when = time.strftime("%Y-%m-%d %H:%M:%S GMT", time.gmtime(spell.changed_t))
        _set(node, "reason", f"User initiated ({when})" if by_user else spell.reason)
        for old in node.findall(f"{{{NAMESPACE}}}stateReason"):
            node.remove(old)
        if spell.reason:
            reason = ElementTree.SubElement(node, f"{{{NAMESPACE}}}stateReason")
            _set(reason, "code", spell.reason)
            _set(reason, "message", f"{spell.reason}: as told")

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._moto, timeout=60)
        try:
            kept = {key: value for key, value in headers.items() if key.lower() not in ("content-length", "host")}
            connection.request(method, path, body, {**kept, "Host": _host(headers.get("Authorization", ""))})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", "text/xml"), answer.read()
        finally:
            connection.close()


def _handler(proxy: Ec2Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, kind, answer = proxy.answer(dict(self.headers.items()), body)
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _host(authorization: str) -> str:
    """The host that a call was meant for: moto tells regions and services by it."""
    scope = authorization.partition(_KEY)[2].split(",")[0].split("/")
    region, service = scope[2:4] if len(scope) >= 4 else ("us-east-1", "ec2")
    return f"{service}.{region}.amazonaws.com"


def _instances(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [node for parent in root.iter(f"{{{NAMESPACE}}}instancesSet") for node in parent]


def _text(node: ElementTree.Element, name: str) -> str:
    return node.findtext(f"{{{NAMESPACE}}}{name}") or ""


def _set(node: ElementTree.Element, name: str, text: str) -> None:
    found = node.find(f"{{{NAMESPACE}}}{name}")
    found = ElementTree.SubElement(node, f"{{{NAMESPACE}}}{name}") if found is None else found
    found.text = text


def _xml(action: str, inside: str) -> bytes:
    return f'<{action}Response xmlns="{NAMESPACE}"><requestId>r</requestId>{inside}</{action}Response>'.encode()


def _error(code: str, status: int, as_json: bool) -> tuple[int, str, bytes]:
    if as_json:
        return status, "application/x-amz-json-1.1", json.dumps({"__type": code, "message": f"{code} as told"}).encode()
    text = f"<Response><Errors><Error><Code>{code}</Code><Message>{code} as told</Message></Error></Errors></Response>"
    return status, "text/xml", text.encode()


def _code(answer: bytes) -> str:
    return answer.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


def _zone(params: Params) -> str:
    return params.get("Placement.AvailabilityZone", "us-east-1a")


def _tags(params: Params, resource: str) -> Params:
    found: Params = {}
    for number in range(1, 10):
        if params.get(f"TagSpecification.{number}.ResourceType") == resource:
            prefix = f"TagSpecification.{number}.Tag."
            for place in range(1, 60):
                if f"{prefix}{place}.Key" in params:
                    found[params[f"{prefix}{place}.Key"]] = params.get(f"{prefix}{place}.Value", "")
    return found


def _has_tag(params: Params, tags: Params) -> bool:
    return params.get("Filter.1.Name") != "tag-key" or params.get("Filter.1.Value.1") in tags


def _second() -> float:
    """The time that is told and billed: whole seconds."""
    return float(int(time.time()))


def _iso(t: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t % 1 * 1000):03d}Z"


def _unix(text: str) -> float:
    import calendar

    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
