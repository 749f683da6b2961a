"""A workflow that has run as WfCommons WfFormat 1.5: its graph, commands and files, and what was measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from windfall import __version__

Json = dict[str, Any]
_NOT_ALLOWED = re.compile(r"[^0-9a-zA-Z_.-]")
_HOSTNAME = re.compile(r"[^0-9a-zA-Z.-]")


class Ran(Struct, kw_only=True):
    """One task: what it is, and what its attempt that counted was seen to use (None: not known, or not run)."""

    name: str
    parents: list[int]
    argv: list[str]
    cores: float = 1.0
    inputs: Mapping[str, int] = {}  # bytes by name
    outputs: Mapping[str, int] = {}
    start_s: float | None = None
    end_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    host: str | None = None


class _Ids:
    """Names of the format: letters, digits, `-`, `_` and `.`, each for one thing only."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._by_name:
            plain = found = _NOT_ALLOWED.sub("_", name) or "_"
            number = 1
            while found in self._taken:
                number += 1
                found = f"{plain}_{number}"
            self._taken.add(found)
            self._by_name[name] = found
        return self._by_name[name]


def document(name: str, tasks: list[Ran], hosts: Mapping[str, Json]) -> Json:
    """The file as a dictionary. `hosts`: the ads of the hosts that tasks ran on, by name."""
    ids, files = _Ids(), _Ids()
    known = [ids.of(task.name) for task in tasks]
    children: list[list[str]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for parent in task.parents:
            children[parent].append(known[number])
    sizes = {files.of(file): size for task in tasks for file, size in (*task.inputs.items(), *task.outputs.items())}
    specification: Json = {
        "tasks": [
            {
                "name": task.name,
                "id": known[number],
                "parents": [known[parent] for parent in task.parents],
                "children": children[number],
                "inputFiles": [files.of(file) for file in task.inputs],
                "outputFiles": [files.of(file) for file in task.outputs],
            }
            for number, task in enumerate(tasks)
        ],
        "files": [{"id": file, "sizeInBytes": size} for file, size in sizes.items()],
    }
    workflow: Json = {"specification": specification}
    ran = [task for task in tasks if task.start_s is not None and task.end_s is not None]
    if ran:
        workflow["execution"] = _execution(ran, ids, hosts)
    return {
        "name": name,
        "schemaVersion": "1.5",
        "runtimeSystem": {"name": "Windfall", "version": __version__},
        "workflow": workflow,
    }


def _execution(ran: list[Ran], ids: _Ids, hosts: Mapping[str, Json]) -> Json:
    began_s = min(task.start_s or 0.0 for task in ran)
    used = sorted({task.host for task in ran if task.host})
    found: Json = {
        "makespanInSeconds": max(task.end_s or 0.0 for task in ran) - began_s,
        "executedAt": datetime.fromtimestamp(began_s, UTC).isoformat(),
        "tasks": [_measured(task, ids.of(task.name)) for task in ran],
    }
    if used:
        found["machines"] = [_machine(host, hosts.get(host, {})) for host in used]
    return found


def _measured(task: Ran, ident: str) -> Json:
    run_s = (task.end_s or 0.0) - (task.start_s or 0.0)
    found: Json = {"id": ident, "runtimeInSeconds": run_s, "coreCount": max(1.0, task.cores)}
    if task.argv:
        # The format knows no empty argument.
        found["command"] = {"program": task.argv[0], "arguments": [word for word in task.argv[1:] if word]}
    if task.cpu_s is not None and run_s > 0:
        found["avgCPU"] = round(100.0 * task.cpu_s / run_s, 3)
    if task.memory_bytes:
        found["memoryInBytes"] = task.memory_bytes
    found["readBytes"], found["writtenBytes"] = sum(task.inputs.values()), sum(task.outputs.values())
    if task.host:
        found["machine"] = _node(task.host)
    return found


def _machine(host: str, ad: Json) -> Json:
    found: Json = {"nodeName": _node(host)}
    if cores := _whole(ad.get("cpus")):
        found["cpu"] = {"coreCount": cores}
    if memory_mb := _whole(ad.get("memory_mb")):
        found["memoryInBytes"] = memory_mb << 20
    if isinstance(arch := ad.get("arch"), str) and arch:
        found["architecture"] = arch
    return found


def _node(host: str) -> str:
    """A host's name as the name of a node: the format wants host names."""
    return _HOSTNAME.sub("-", host).strip("-.") or "host"


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 else 0


def file_sizes(rows: Iterable[list[Any]]) -> dict[str, int]:
    """Bytes by name from rows [name, sha256, size, ...]."""
    return {str(row[0]): int(row[2]) for row in rows}
