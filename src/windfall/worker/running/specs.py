"""What a job asks for, as runners of this host get it: units, containers and isolation filled in.

Touches nothing; reads one variable of this process's environment.

A spec is made once for all tasks of a job with the same overrides.
"""

from __future__ import annotations

import os
import sys
from math import ceil
from typing import Any

from windfall.worker.running import containers
from windfall.worker.running.devices import Devices

_MOST_SPECS = 1_000

NOTHING: dict[str, str] = {}


class JobSpec:
    """The spec of a job (with a task's overrides) as runners get it."""

    def __init__(
        self, ident: int, job: object, host: str, fields: dict[str, Any], python: str, share: dict[str, str] = NOTHING
    ) -> None:
        """`share`: variables that tell a task which units of resources it has."""
        self.ident = ident
        self.is_call = fields.get("kind") == "call"
        self.cpus = max(1, ceil(fields.get("cpus") or 1))
        self.pin = bool(fields.get("pin"))
        self.wall_s: float | None = fields.get("wall_s")
        self.grace_s = float(fields.get("grace_s", 10))
        self.checkpoint_s: float | None = fields.get("checkpoint_s")
        self.inputs: list[tuple[str, str, int]] = [(row[0], row[1], row[3]) for row in fields.get("inputs") or []]
        outputs: list[str] = fields.get("outputs") or []
        going = {output for output in outputs if "://" in output.partition("=")[2][:16]}
        self.destinations = [(name, url) for name, _, url in (output.partition("=") for output in sorted(going))]
        """Patterns of outputs that go to a store, each with its address."""
        self.units: list[tuple[str, int, int]] = [(row[0], row[1], row[2]) for row in fields.get("units") or ()]
        self.share = share
        own = fields.get("env") or {}
        threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(self.cpus)}
        self.fields: dict[str, Any] = {
            "job": job,
            "host": host,
            "env": {**threads, **own, **share},
            "cwd": fields.get("cwd"),
            "inputs": [],
            "outputs": [output.partition("=")[0] if output in going else output for output in outputs],
            "wall_s": self.wall_s,
            "memory_bytes": fields.get("memory_bytes"),
            "grace_s": self.grace_s,
            "output_cap_bytes": int(fields.get("output_cap_bytes", 1 << 20)),
            "checkpoints": None,
            "checkpoint_s": self.checkpoint_s,
            "node_file": fields.get("node_file"),
            "container": fields.get("container"),
            "isolation": fields.get("isolation"),
        }
        # A library that has seen a GPU keeps it: calls with other GPUs get another process.
        key = (fields.get("python") or python, fields.get("memory_bytes"), *sorted(share.items()))
        self.warm_key = key if self.is_call else None
        self.failure: str | None = None
        self.missing = {sha256 for _, sha256, _ in self.inputs}


class Specs:
    """The specs of the jobs whose tasks this worker has held lately."""

    def __init__(
        self,
        host: str,
        resources: Devices,
        checkpoints: str,
        engine: str | None,
        images: str,
        isolation: dict[str, Any] | None,
    ) -> None:
        """`engine` of containers, with `images` for locks and images; `isolation`: how tasks are kept apart from this
        host, None if they are not."""
        self._host = host
        self._resources = resources
        self._checkpoints = checkpoints
        self._engine, self._images = engine, images
        self._isolation = isolation
        self._known: dict[tuple[Any, str], tuple[dict[str, Any], JobSpec]] = {}
        self._count = 0

    def of(self, job: Any, fields: dict[str, Any], overrides: dict[str, Any] | None) -> JobSpec:
        """The spec of a task: that of its job, with what the task has otherwise."""
        key = (job, repr(overrides) if overrides else "")
        known = self._known.get(key)
        if known and known[0] == fields:
            return known[1]
        if len(self._known) >= _MOST_SPECS:
            self._known.clear()
        self._count += 1
        whole = {**fields, **overrides} if overrides else fields
        if overrides and "env" in overrides:
            whole["env"] = {**(fields.get("env") or {}), **overrides["env"]}
        units = whole.get("units") or ()
        if whole.get("image"):
            whole = {**whole, "container": self._container(whole, units)}
        elif self._isolation is not None:
            whole = {**whole, "isolation": self._isolation}
        share = self._resources.environment(units) if units else {}
        spec = JobSpec(self._count, job, self._host, whole, sys.executable, share)
        if spec.checkpoint_s is not None:
            spec.fields["checkpoints"] = os.path.join(self._checkpoints, str(job))
        self._known[key] = (fields, spec)
        return spec

    def _container(self, fields: dict[str, Any], units: Any) -> dict[str, Any]:
        gpus, memory_bytes = self._resources.nvidia_ids(units), fields.get("memory_bytes")
        amd = self._resources.has_amd(units)
        return containers.settings_of(self._engine, fields["image"], self._images, memory_bytes, gpus, amd)
