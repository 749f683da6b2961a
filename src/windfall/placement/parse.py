"""JSON documents into hosts and requests; whatever is malformed is refused with the path to the field. Pure.

The shapes are those of `windfall place` and of the site's HTTP interface. Nothing is guessed: an unknown field is
refused too, because a misspelt `anti_affinity` that is silently dropped would place an instance where it must not be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from windfall.errors import BadInput
from windfall.placement.model import LARGEST_AMOUNT, Host, Instance, Request

T = TypeVar("T")

# Beyond these, sums of microseconds or micro-dollars would no longer be exact.
LONGEST_RUN_S = 1e9
DEAREST_USD_PER_H = 1e6

HOST_FIELDS = ("name", "capacity", "instances", "tags", "aggregates", "attributes")
INSTANCE_FIELDS = (
    "id", "preemptible", "run_s", "resources", "price_usd_per_h", "bid_usd_per_h", "checkpoint_s", "group",
)  # fmt: skip
REQUEST_FIELDS = ("preemptible", "resources", "tags", "aggregates", "affinity", "anti_affinity", "expression")


class _Object(dict[str, Any]):
    """A JSON object that remembers a key given twice, so that the refusal can name its path."""

    twice: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        result.twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return result


def document(text: str, file: str) -> Any:
    """The JSON of a file; `NaN` and `Infinity` are let through so that the reader of the field can name it."""
    if not text.strip():
        raise BadInput(f"{file}: the file is empty", hint="expected JSON; see: windfall place decide --help")
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}", hint="mend the file; nothing was decided"
        ) from None
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of thousands of digits
        raise BadInput(f"{file}: not JSON that can be read: {error}") from None


def hosts(doc: Any, file: str = "hosts") -> tuple[Host, ...]:
    """The hosts of a document: a list of `{"name", "capacity", "instances", ...}`."""
    items = _list(doc, "hosts", file)
    result = tuple(_host(item, f"hosts[{i}]", file) for i, item in enumerate(items))
    _unique(((host.name, f"hosts[{i}].name") for i, host in enumerate(result)), "host name", file)
    _unique(
        (
            (instance.id, f"hosts[{i}].instances[{j}].id")
            for i, host in enumerate(result)
            for j, instance in enumerate(host.instances)
        ),
        "instance id",
        file,
    )
    return result


def request(doc: Any, known: Iterable[Host], file: str = "request") -> Request:
    """The request of a document; its resources must exist on some host of `known` (any, where there are no hosts)."""
    fields = _fields(doc, "request", REQUEST_FIELDS, ("preemptible", "resources"), file)
    names = {name for host in known for name in host.capacity}
    resources = _amounts(fields["resources"], "request.resources", file, names or None, "no host has this resource")
    expression = fields.get("expression", "")
    if not isinstance(expression, str):
        _refuse(file, "request.expression", f"must be a ClassAd expression in a string, not {_shown(expression)}")
    return Request(
        preemptible=_boolean(fields["preemptible"], "request.preemptible", file),
        resources=resources,
        tags=_names(fields, "tags", "request", file),
        aggregates=_names(fields, "aggregates", "request", file),
        affinity=_names(fields, "affinity", "request", file),
        anti_affinity=_names(fields, "anti_affinity", "request", file),
        expression=expression,
    )


def bids(doc: Any, known: Sequence[Host], file: str = "bids") -> tuple[Instance, ...]:
    """Bids that wait for a place: preemptible instances, each with `bid_usd_per_h`; `run_s` may be left out."""
    everywhere = {name: 0.0 for host in known for name in host.capacity}
    result = []
    for i, item in enumerate(_list(doc, "bids", file)):
        path = f"bids[{i}]"
        fields = {"preemptible": True, "run_s": 0, **_dict(item, path, file)}
        bid = _instance(fields, path, everywhere, file)
        if not bid.preemptible:
            _refuse(file, f"{path}.preemptible", "must be true: normal instances do not bid")
        if bid.bid_usd_per_h is None:
            _refuse(file, f"{path}.bid_usd_per_h", "missing")
        result.append(bid)
    ids = [(i.id, f"hosts: '{host.name}'") for host in known for i in host.instances]
    _unique([*ids, *((bid.id, f"bids[{i}].id") for i, bid in enumerate(result))], "instance id", file)
    return tuple(result)


def require_prices(hosts: Iterable[Host], file: str = "hosts") -> None:
    """Prices for all preemptible instances or for none: a real price must not be weighed against a guess."""
    priced = [
        (instance.price_usd_per_h is not None, f"hosts[{i}].instances[{j}].price_usd_per_h")
        for i, host in enumerate(hosts)
        for j, instance in enumerate(host.instances)
        if instance.preemptible
    ]
    if any(has for has, _ in priced):
        for has, path in priced:
            if not has:
                _refuse(file, path, "missing, though other preemptible instances have a price", "price all or none")


def _host(doc: Any, path: str, file: str) -> Host:
    fields = _fields(doc, path, HOST_FIELDS, ("name", "capacity", "instances"), file)
    capacity = _amounts(fields["capacity"], f"{path}.capacity", file, None, "")
    items = _list(fields["instances"], f"{path}.instances", file)
    instances = tuple(_instance(item, f"{path}.instances[{j}]", capacity, file) for j, item in enumerate(items))
    for name in capacity:
        if sum(instance.resources.get(name, 0) for instance in instances) > 4 * LARGEST_AMOUNT:
            _refuse(file, f"{path}.instances", f"their {name} adds up to more than {4 * LARGEST_AMOUNT:g}")
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict):
        _refuse(file, f"{path}.attributes", f"must be an object, not {_shown(attributes)}")
    return Host(
        name=_text(fields["name"], f"{path}.name", file),
        capacity=capacity,
        instances=instances,
        tags=_names(fields, "tags", path, file),
        aggregates=_names(fields, "aggregates", path, file),
        attributes=attributes,
    )


def _instance(doc: Any, path: str, capacity: Mapping[str, float], file: str) -> Instance:
    fields = _fields(doc, path, INSTANCE_FIELDS, ("id", "preemptible", "run_s", "resources"), file)
    run_s = _number(fields["run_s"], f"{path}.run_s", file, LONGEST_RUN_S)
    checkpoint_s = _number(fields.get("checkpoint_s", 0.0), f"{path}.checkpoint_s", file, LONGEST_RUN_S)
    if checkpoint_s > run_s:
        _refuse(file, f"{path}.checkpoint_s", f"{checkpoint_s:g} is later than the instance has run (run_s {run_s:g})")
    return Instance(
        id=_text(fields["id"], f"{path}.id", file),
        preemptible=_boolean(fields["preemptible"], f"{path}.preemptible", file),
        run_s=run_s,
        resources=_amounts(
            fields["resources"], f"{path}.resources", file, set(capacity), "the host has no such resource"
        ),
        price_usd_per_h=_optional(fields, "price_usd_per_h", path, file, _price),
        bid_usd_per_h=_optional(fields, "bid_usd_per_h", path, file, _price),
        checkpoint_s=checkpoint_s,
        group=_optional(fields, "group", path, file, _text) or "",
    )


def _fields(doc: Any, path: str, known: tuple[str, ...], needed: tuple[str, ...], file: str) -> Mapping[str, Any]:
    fields = _dict(doc, path, file)
    for key in fields:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known fields: {', '.join(known)}"
            _refuse(file, f"{path}.{key}", "unknown field", hint)
    for key in needed:
        if key not in fields:
            _refuse(file, f"{path}.{key}", "missing", f"needed fields: {', '.join(needed)}")
    return fields


def _dict(doc: Any, path: str, file: str) -> Mapping[str, Any]:
    if not isinstance(doc, dict):
        _refuse(file, path, f"must be an object, not {_shown(doc)}")
    if isinstance(doc, _Object) and doc.twice is not None:
        _refuse(file, f"{path}.{doc.twice}", "given twice")
    return doc


def _amounts(doc: Any, path: str, file: str, known: set[str] | None, unknown: str) -> dict[str, float]:
    amounts = _dict(doc, path, file)
    if not amounts:
        _refuse(file, path, "names no resource", 'for example {"vcpu": 2, "ram_mb": 4000}')
    for name in amounts:
        if not name:
            _refuse(file, path, "a resource has an empty name")
        if known is not None and name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known resources: {', '.join(sorted(known))}"
            _refuse(file, f"{path}.{name}", f"unknown resource: {unknown}", hint)
    return {name: _amount(value, f"{path}.{name}", file) for name, value in amounts.items()}


def _amount(value: Any, path: str, file: str) -> float:
    return _number(value, path, file, LARGEST_AMOUNT, "use a larger unit, such as GB for bytes")


def _price(value: Any, path: str, file: str) -> float:
    return _number(value, path, file, DEAREST_USD_PER_H)


def _number(value: Any, path: str, file: str, most: float, hint: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(file, path, f"must be a number, not {_shown(value)}")
    if value != value or value in (math.inf, -math.inf):
        _refuse(file, path, f"must be a finite number, not {'NaN' if value != value else 'infinity'}")
    if value < 0:
        _refuse(file, path, f"must not be negative: {_shown(value)}")
    if value > most:
        _refuse(file, path, f"must be at most {most:g}: {_shown(value)}", hint)
    return value


def _text(value: Any, path: str, file: str) -> str:
    if not isinstance(value, str) or not value:
        _refuse(file, path, f"must be a string that is not empty, not {_shown(value)}")
    return value


def _boolean(value: Any, path: str, file: str) -> bool:
    if not isinstance(value, bool):
        _refuse(file, path, f"must be true or false, not {_shown(value)}")
    return value


def _list(value: Any, path: str, file: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(file, path, f"must be a list, not {_shown(value)}")
    return value


def _names(fields: Mapping[str, Any], key: str, path: str, file: str) -> tuple[str, ...]:
    items = _list(fields.get(key, []), f"{path}.{key}", file)
    return tuple(_text(item, f"{path}.{key}[{i}]", file) for i, item in enumerate(items))


def _optional(
    fields: Mapping[str, Any], key: str, path: str, file: str, read: Callable[[Any, str, str], T]
) -> T | None:
    value = fields.get(key)
    return None if value is None else read(value, f"{path}.{key}", file)


def _unique(named: Iterable[tuple[str, str]], what: str, file: str) -> None:
    first: dict[str, str] = {}
    for name, path in named:
        if name in first:
            _refuse(file, path, f"duplicate {what} '{name}', first used at {first[name]}")
        first[name] = path


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _refuse(file: str, path: str, what: str, hint: str = "") -> NoReturn:
    raise BadInput(f"{file}: {path}: {what}", hint=hint)
