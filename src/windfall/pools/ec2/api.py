"""Calls of the EC2 API: clients by region, pages, a budget of calls, errors by kind. Touches the network.

No call raises: it returns its answer or a PoolError. Errors are shown in the words of AWS; credentials are in none.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

from windfall.errors import BadInput
from windfall.pools.contract import CAPACITY, CREDENTIALS, INVALID, QUOTA, TRANSIENT, PoolError
from windfall.pools.ec2.settings import Ec2Settings
from windfall.units import parse_duration

Json = dict[str, Any]
Items = list[Json]

PRICE_LIST_REGION = "us-east-1"
"""The price list is served from few regions and knows all of them."""
BURST_S = 4.0
READ_ATTEMPTS = 3
"""How often a call that changes nothing is made before it has failed, with growing pauses."""
_CAPACITY = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "InsufficientCapacity", "SpotMaxPriceTooLow", "InsufficientCapacityOnOutpost",
}  # fmt: skip
_QUOTA = {
    "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded",
    "InsufficientFreeAddressesInSubnet", "PrivateIpAddressLimitExceeded", "VolumeLimitExceeded",
    "SpotInstanceCountExceeded", "RequestResourceCountExceeded",
}  # fmt: skip
_CREDENTIALS = {
    "AuthFailure", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId",
    "SignatureDoesNotMatch", "RequestExpired", "MissingAuthenticationToken", "AccessDenied", "AccessDeniedException",
    "UnrecognizedClientException", "OptInRequired", "PendingVerification", "Blocked", "IncompleteSignature",
}  # fmt: skip
_TRANSIENT = {
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "InternalError",
    "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable", "RequestTimeout",
    "ConcurrentRunInstances", "IncorrectInstanceState", "InsufficientAddressCapacity",
}  # fmt: skip


class ApiError(PoolError, frozen=True):
    """A PoolError that keeps the code of AWS."""

    code: str = ""


def kind_of(code: str, status: int) -> str:
    """Of which kind an error of AWS is, by its code and the HTTP status."""
    for kind, codes in (
        (CAPACITY, _CAPACITY), (QUOTA, _QUOTA), (CREDENTIALS, _CREDENTIALS), (TRANSIENT, _TRANSIENT),
    ):  # fmt: skip
        if code in codes:
            return kind
    return TRANSIENT if status >= 500 or status == 429 else INVALID


class Budget:
    """A limit of calls per second, with bursts of `BURST_S` seconds' worth. `take` waits for its turn."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left, self._at = per_s * BURST_S, clock()
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Take one call from the budget; return the seconds after which it may be made."""
        with self._lock:
            now = self._clock()
            self._left = min(self._per_s * BURST_S, self._left + (now - self._at) * self._per_s) - 1.0
            self._at = now
            return max(0.0, -self._left / self._per_s)

    def take(self) -> None:
        if (wait_s := self.wait_s()) > 0:
            time.sleep(wait_s)


class Region:
    """One region: its clients, and its budget of calls."""

    def __init__(self, name: str, made: Callable[[int], Any], per_s: float) -> None:
        """`made(attempts)` makes a client that tries a call that often."""
        self.name, self._made, self._budget = name, made, Budget(per_s)

    @cached_property
    def _reads(self) -> Any:
        return self._made(READ_ATTEMPTS)

    @cached_property
    def _writes(self) -> Any:
        return self._made(1)

    def call(self, method: str, **arguments: Any) -> Json | PoolError:
        """One call, and its answer. It is not repeated here: the keepers do that, and wait longer each time."""

        def do() -> Json:
            self._budget.take()
            answer: Json = getattr(self._writes, method)(**arguments)
            return answer

        answer: Json | PoolError = _guarded(do, f"{self.name}: ")
        return answer

    def pages(self, method: str, key: str, **arguments: Any) -> Items | PoolError:
        """The list `key` of all pages; each page is a call of the budget."""

        def read() -> Items:
            return [item for page in self._pages(method, arguments) for item in page[key]]

        answer: Items | PoolError = _guarded(read, f"{self.name}: ")
        return answer

    def _pages(self, method: str, arguments: Json) -> Iterator[Json]:
        self._budget.take()
        if not self._reads.can_paginate(method):
            yield getattr(self._reads, method)(**arguments)
            return
        for number, page in enumerate(self._reads.get_paginator(method).paginate(**arguments)):
            if number:
                self._budget.take()
            yield page


@cache
def _loader() -> Any:
    """The descriptions of the services: large, and the same for all accounts."""
    import botocore.loaders

    return botocore.loaders.create_loader()


class Account:
    """The regions of one pool, the price list and the caller's identity, with the credentials of the AWS chain."""

    def __init__(self, settings: Ec2Settings) -> None:
        if importlib.util.find_spec("boto3") is None:
            hint = "install it: pip install 'windfall[ec2]'"
            raise BadInput("kind 'ec2' needs the package boto3", hint=hint, code="no-boto3")
        import boto3
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        self._settings = settings
        try:
            core = botocore.session.Session(profile=settings.profile or None)
            core.get_scoped_config()  # raises if there is no such profile
            core.register_component("data_loader", _loader())
            self._session = boto3.Session(botocore_session=core)
        except BotoCoreError as error:
            raise BadInput(f"{error}", hint="profiles stand in ~/.aws/config: aws configure list-profiles") from None
        names = settings.regions or [name for name in [self._session.region_name] if name]
        if not names:
            raise BadInput("no region is known", hint='say regions = ["eu-central-1"], or set AWS_REGION')
        limit_s = parse_duration(settings.time_limit, "time_limit")
        self._config = Config(connect_timeout=min(10.0, limit_s), read_timeout=limit_s, user_agent_extra="windfall")
        self.regions = {name: self._region("ec2", name) for name in names}

    def renewed(self) -> Account:
        """The same account with the credentials of now: keys in files and variables may have been replaced."""
        return Account(self._settings)

    def _region(self, service: str, region: str) -> Region:
        from botocore.config import Config

        def made(attempts: int) -> Any:
            tries = Config(retries={"total_max_attempts": attempts, "mode": "standard"})
            return self._session.client(
                service, region_name=region, endpoint_url=self._settings.endpoint or None,
                config=self._config.merge(tries),
            )  # fmt: skip

        return Region(region, made, self._settings.calls_per_s)

    def price_list(self) -> Region:
        return self._region("pricing", PRICE_LIST_REGION)

    def identity(self) -> Json | PoolError:
        return self._region("sts", next(iter(self.regions))).call("get_caller_identity")


def _guarded(call: Callable[[], Any], where: str) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
    from botocore.exceptions import ConnectionError as NotConnected

    try:
        return call()
    except ClientError as error:
        said = error.response.get("Error", {})
        code, status = said.get("Code", ""), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return ApiError(f"{where}{code}: {said.get('Message', '')}", kind_of(code, status), code=code)
    except NoCredentialsError:
        return ApiError(f"{where}no AWS credentials were found", CREDENTIALS, code="NoCredentials")
    except (HTTPClientError, NotConnected) as error:
        return ApiError(f"{where}{error}", TRANSIENT)
    except BotoCoreError as error:
        # Roles, single sign-on and web identities that cannot be refreshed are raised as various classes.
        words = ("credential", "token", "sso", "login")
        kind = CREDENTIALS if any(word in f"{type(error).__name__} {error}".lower() for word in words) else INVALID
        return ApiError(f"{where}{error}", kind)
