"""Takes policies and ads out of the texts that people keep them in: TOML, JSON, ClassAds. Pure: texts in, dicts out.

Three forms hold policies: a job file with a table [job.policies], a TOML file of policies alone, and a ClassAd such as
GridBot's figure 3, where the policies stand among the attributes of BOT.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from classad2 import ClassAdException
from msgspec import Struct, field

from windfall.errors import BadInput
from windfall.policy.check import EMPTY
from windfall.policy.evaluate import Special, expression
from windfall.policy.names import ADS, POLICY_NAMES, REPLICA, REPLICA_SPELLING, ad_name, resolve, spelling
from windfall.policy.syntax import Node, SyntaxFault, parse, position, straighten

SHOWN = 200
"""Characters of a value that a message shows."""


class PolicyText(Struct):
    """Policies as they were written, and the ads that came along with them."""

    policies: dict[str, object] = field(default_factory=dict)
    ads: dict[str, dict[str, Any]] = field(default_factory=dict)


def read_policies(text: str, where: str) -> PolicyText:
    """The policies in a file, none for a job file that has none. `where` names it in errors."""
    if not text.strip():
        raise BadInput(f"{where} is empty", hint='write for example JobRequirements = "Host.Memory >= 8192"')
    if _is_ad(text):
        return _from_ad(text, where)
    data = _toml(text, where)
    return _from_job(data["job"], where) if "job" in data else _from_rules(data, where)


def _from_job(job: Any, where: str) -> PolicyText:
    """The policies in a job file, and what the file says of the bag and its tasks."""
    table = _table(job, where, "job")
    policies = _table(table.get("policies", {}), where, "job.policies")
    bag = _table(table.get("tags", {}), where, "job.tags") | _table(
        table.get("attributes", {}), where, "job.attributes"
    )
    said = {"Name": table.get("name"), "Priority": table.get("priority")}
    bag |= {name: value for name, value in said.items() if value is not None}
    ads = {"BOT": spelled("BOT", bag)}
    if isinstance(table.get("cpus"), (int, float)):
        ads["Job"] = {"Cpus": table["cpus"]}
    return PolicyText(policies=policies, ads=ads)


def _from_rules(data: dict[str, Any], where: str) -> PolicyText:
    """A file of policies alone, which may add attributes of the bag in a table [attributes]."""
    attributes = _table(data.pop("attributes", {}), where, "attributes")
    for table in ("policy", "policies"):
        if table in data:
            raise BadInput(f"{where}: [{table}] stands alone", hint="in a job file it is [job.policies]")
    return PolicyText(policies=data, ads={"BOT": spelled("BOT", attributes)})


def _table(value: Any, where: str, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: {name} is no table", hint=f"write [{name}] on a line of its own")
    return dict(value)


def read_ad(text: str, where: str, ad: str) -> dict[str, Any]:
    """The attributes of one ad from JSON, TOML or a ClassAd, in Windfall's spelling."""
    if not text.strip():
        raise BadInput(f"{where} is empty", hint='write for example {"Name": "node1", "Cpus": 4, "Memory": 16384}')
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadInput(f"{where}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    elif _is_ad(text):
        data = _record(parse_or_refuse(text, where), straighten(text), where)
    else:
        data = _toml(text, where)
    if len(data) == 1 and isinstance(inner := next(iter(data.values())), dict) and ad_name(next(iter(data))) == ad:
        data = inner
    return spelled(ad, data)


def spelled(ad: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Known names as Windfall spells them, in nested ads as well: {'memory': 1} is {'Memory': 1}."""
    result: dict[str, Any] = {}
    for name, value in attributes.items():
        known = spelling(ad, (name,))
        if isinstance(value, Mapping) and (replica := REPLICA.fullmatch(name)):
            result[f"Replica{replica[1]}"] = _spelled_replica(value)
            continue
        inner = "Host" if name.lower() == "host" else ad
        result[known[0] if known else name] = spelled(inner, value) if isinstance(value, Mapping) else value
    return result


def _spelled_replica(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        REPLICA_SPELLING.get(name.lower(), name): spelled("Host", value) if isinstance(value, Mapping) else value
        for name, value in attributes.items()
    }


def assign(ads: dict[str, dict[str, Any]], setting: str) -> None:
    """Carry out one `Host.Memory=4096`; the value as TOML or ClassAds write it, anything else as a text."""
    name, equals, written = setting.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or len(path) < 2 or ad_name(path[0]) is None:
        raise BadInput(f"--set {setting}: not an attribute and a value", hint="write for example --set BOT.Tail=true")
    reference = resolve(path)
    here = ads.setdefault(reference.ad, {})
    for step in reference.steps[:-1]:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise BadInput(f"--set {setting}: {step} is a value and has no attributes")
    here[reference.steps[-1]] = _value(written.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text.lower() == "undefined" else text


def _is_ad(text: str) -> bool:
    """A ClassAd opens with '[' and a name that something is bound to; TOML closes the bracket on the same line."""
    stripped = text.lstrip()
    return stripped.startswith("[") and "]" not in stripped.partition("\n")[0].partition("=")[0]


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where}: {error}", hint='in TOML a text stands in quotes: Rank = "Host.Speed"') from None


def parse_or_refuse(text: str, where: str) -> Node:
    try:
        node = parse(text)
    except SyntaxFault as fault:
        raise BadInput(f"{where}, {position(text, fault.offset)}: {fault.message}", hint=fault.hint) from None
    if node.kind != "record":
        raise BadInput(f"{where} is no ad", hint="write [ BOT = [ Rank = 1; ]; ]")
    return node


def _from_ad(text: str, where: str) -> PolicyText:
    text = straighten(text)
    found = PolicyText()
    entries = dict(_entries(parse_or_refuse(text, where)))
    if not any(ad_name(name) for name in entries):
        entries = {"BOT": parse_or_refuse(text, where)}
    for name, node in entries.items():
        ad = ad_name(name)
        if ad is None or node.kind != "record":
            raise BadInput(f"{where}: there is no ad '{name}'", hint=f"the ads are {', '.join(ADS)} and Grid")
        attributes = {}
        for attribute, value in _entries(node):
            if ad == "BOT" and attribute.lower() in POLICY_NAMES:
                found.policies[attribute] = text[value.start : value.end]
            else:
                attributes[attribute] = _constant(value, text, where)
        found.ads[ad] = spelled(ad, attributes)
    return found


def _entries(node: Node) -> list[tuple[str, Node]]:
    return list(zip(node.path, node.args, strict=True))


def _record(node: Node, text: str, where: str) -> dict[str, Any]:
    return {name: _constant(value, text, where) for name, value in _entries(node)}


def _constant(node: Node, text: str, where: str) -> Any:
    if node.kind == "record":
        return _record(node, text, where)
    written = text[node.start : node.end]
    at, shown = f"{where}, {position(text, node.start)}", written if len(written) <= SHOWN else written[:SHOWN] + "..."
    try:
        compiled = expression(written, {})
    except ClassAdException:
        raise BadInput(f"{at}: the ClassAd library cannot read {shown}") from None
    if not compiled.is_constant:
        raise BadInput(f"{at}: {shown} is no constant", hint="only policies compute")
    value = compiled.value(EMPTY)
    return None if isinstance(value, Special) else value
