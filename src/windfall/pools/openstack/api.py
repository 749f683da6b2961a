"""Calls of the compute API through openstacksdk, and what their errors mean. Touches one cloud."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

from windfall.errors import BadInput
from windfall.pools.contract import CREDENTIALS, INVALID, QUOTA, TRANSIENT, PoolError
from windfall.pools.openstack.settings import OpenStackSettings
from windfall.units import parse_duration

MICROVERSION = "2.79"
"""Train and later: actions of deleted servers (2.21), extra specs in flavors (2.61)."""
MOST_PAGES = 1000
Json = dict[str, Any]
Items = list[Json]


class Compute:
    """The compute API of one project."""

    def __init__(self, settings: OpenStackSettings) -> None:
        if importlib.util.find_spec("openstack") is None:
            hint = "install it: pip install 'windfall[openstack]'"
            raise BadInput("kind 'openstack' needs the package openstacksdk", hint=hint, code="no-openstacksdk")
        import openstack
        from keystoneauth1.exceptions import ClientException

        named: Json = {"cloud": settings.cloud} if settings.cloud else {}
        named |= {"region_name": settings.region_name} if settings.region_name else {}
        try:
            warnings.filterwarnings("ignore", module=r"openstack\.")  # the library warns of calls that it makes itself
            self._connection = openstack.connect(app_name="windfall", **named)
        except (openstack.exceptions.SDKException, ClientException, OSError) as error:
            hint = "clouds are named in clouds.yaml: openstack --os-cloud NAME server list must work"
            raise BadInput(f"{error}", hint=hint) from None
        self._time_limit_s = parse_duration(settings.time_limit, "time_limit")

    def call(self, method: str, path: str, body: Json | None = None) -> Json | PoolError:
        """One call, not repeated here: the keepers do that."""
        import openstack
        from keystoneauth1 import exceptions as keystone

        try:
            answer = self._connection.compute.request(
                path, method, json=body, microversion=MICROVERSION, raise_exc=False,
                timeout=self._time_limit_s, connect_retries=0,
            )  # fmt: skip
        except (keystone.Unauthorized, keystone.MissingAuthPlugin, keystone.MissingRequiredOptions) as error:
            return PoolError(f"{error}", CREDENTIALS)
        except (keystone.ClientException, openstack.exceptions.SDKException, OSError) as error:
            return PoolError(f"{method} {path}: {error}", TRANSIENT)
        if answer.status_code >= 400:
            return _refusal(answer)
        try:
            found = answer.json() if answer.content else {}
        except ValueError:
            return PoolError(f"{method} {path}: the answer is not JSON", TRANSIENT)
        return found if isinstance(found, dict) else PoolError(f"{method} {path}: the answer is no object", TRANSIENT)

    def pages(self, path: str, key: str) -> Items | PoolError:
        """The list `key` of all pages."""
        found: Items = []
        for _ in range(MOST_PAGES):
            answer = self.call("GET", path)
            if isinstance(answer, PoolError):
                return answer
            found += answer.get(key, [])
            links = [link["href"] for link in answer.get(f"{key}_links", []) if link.get("rel") == "next"]
            if not links:
                return found
            path = _below_version(links[0])
        return PoolError(f"{path}: more than {MOST_PAGES} pages", INVALID)


def _below_version(href: str) -> str:
    """The part of a link that follows the version and, where there is one, the project."""
    return "/servers/detail?" + href.partition("?")[2] if "/servers/detail" in href else href


class Refusal(PoolError, frozen=True):
    """An answer of the API that is an error."""

    status: int = 0


def _refusal(answer: Any) -> Refusal:
    try:
        [said] = answer.json().values()
        words = str(said.get("message", ""))
    except (ValueError, AttributeError):
        words = str(answer.text)[:200]
    after = str(answer.headers.get("Retry-After", ""))
    retry_after_s = float(after) if after.isdigit() else 0.0
    return Refusal(
        f"{answer.status_code}: {words}", kind_of(answer.status_code, words), retry_after_s, answer.status_code
    )


def kind_of(status: int, words: str) -> str:
    if "quota" in words.lower() or status == 413:
        return QUOTA
    if status == 401 or (status == 403 and "policy" in words.lower()):
        return CREDENTIALS
    return TRANSIENT if status >= 500 or status in (409, 429) else INVALID
