"""The settings of a job as people write them, on the command line or in a job.toml, and what becomes of them. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windfall.bags.shell import has_shell_words, is_balanced, split
from windfall.bags.spec import TaskClass, check_needs, parse_memory
from windfall.errors import BadInput
from windfall.resources import GPUS
from windfall.units import parse_bytes, parse_deadline, parse_duration, parse_money

Text = str | int | float
AUTO = "auto"
AUTO_CHECKPOINT_S = 600.0
"""Seconds between two looks at a checkpoint file whose job leaves that to the engine, until the engine says more."""


class Verbatim(str):
    """A text in which braces are no placeholders: the value of a variable that is passed on as it is."""

    __slots__ = ()


class Needs(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a job and a single task may both say. None: not said."""

    command: str | list[str] | None = None
    env: dict[str, Text] = {}
    cwd: str | None = None
    stdin: str | None = None
    inputs: list[str] = []
    outputs: list[str] = []
    cpus: float | None = None
    memory: str | int | None = None
    gpus: float | None = None
    nodes: int | None = None
    resources: dict[str, float] = {}
    wall: Text | None = None
    max_failures: int | None = None
    max_losses: int | None = None
    estimate: Text | None = None


class Settings(Needs, kw_only=True, forbid_unknown_fields=True):
    """The settings that only a job has."""

    name: str | None = None
    python: str | None = None
    max_failed_tasks: int | None = None
    fixed_memory: bool | None = None
    pin: bool | None = None
    image: str | None = None
    priority: float | None = None
    replication: Literal["idle-slots", "queued"] | None = None
    max_replicas: int | None = None
    quorum: int | None = None
    validator: str | None = None
    deadline: Text | None = None
    budget: Text | None = None
    pools: list[str] = []
    fleet: str | None = None
    planner: str | None = None
    confidence: float | None = None
    spread: float | None = None
    checkpoint: Text | None = None
    checkpoint_size: str | int | None = None
    grace: Text | None = None
    output_cap: str | int | None = None
    policies: dict[str, str] = {}
    attributes: dict[str, str | float | bool] = {}
    tags: dict[str, str] = {}
    data: dict[str, str | int] = {}
    output_data: str | int | dict[str, str | int] | None = None


def merged(base: Settings, over: Settings) -> Settings:
    """`base` with what `over` says: tables and lists are added to, everything else is replaced."""
    changes: dict[str, Any] = {}
    for name in Settings.__struct_fields__:
        new, old = getattr(over, name), getattr(base, name)
        if isinstance(new, dict) and isinstance(old, dict):
            changes[name] = {**old, **new}
        elif isinstance(new, list) and isinstance(old, list) and name != "command":
            changes[name] = [*old, *new]
        else:
            changes[name] = old if new is None else new
    return Settings(**changes)


def spec_fields(settings: Settings) -> dict[str, Any]:
    """The fields of a JobSpec that settings decide; those not said are left out. Inputs are files: see `reading`."""
    if settings.image is not None and not settings.image.strip():
        # As of a variable of the shell that is not set: tasks would run outside of any container.
        raise BadInput("image: the name is empty", hint="as in docker.io/library/python:3.12; or leave it out")
    said: dict[str, Any] = {
        "env": texts(settings.env),
        "outputs": settings.outputs,
        "pools": settings.pools or None,
        "policies": settings.policies,
        "attributes": settings.attributes,
        "tags": settings.tags,
        "resources": {name: amount for name, amount in amounts_of(settings).items() if amount},
        "data_gb": {region: parse_bytes(size, "data") / 1e9 for region, size in settings.data.items()},
        "task_data_gb": _written_gb(settings.output_data),
    }
    for name in ("cwd", "stdin", "cpus", "max_failures", "max_losses", "max_failed_tasks", "priority", "python",
                 "planner", "fleet", "confidence", "spread", "replication", "max_replicas", "fixed_memory", "pin",
                 "quorum", "validator", "image", "nodes"):  # fmt: skip
        said[name] = getattr(settings, name)
    converted: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
        "memory": ("memory", parse_memory),
        "wall": ("wall_s", parse_duration),
        "estimate": ("estimate_s", parse_duration),
        "deadline": ("deadline_s", lambda text, field: parse_deadline(text, time.time(), field=field).in_s),
        "grace": ("grace_s", parse_duration),
        "checkpoint": ("checkpoint_s", _checkpoint_s),
        "checkpoint_size": ("checkpoint_mb", _megabytes),
        "budget": ("budget_microusd", parse_money),
        "output_cap": ("output_cap_bytes", parse_bytes),
    }
    for name, (target, parse) in converted.items():
        value = getattr(settings, name)
        said[target] = None if value is None else parse(value, name)
    said["checkpoint_auto"] = True if settings.checkpoint == AUTO else None
    return {name: value for name, value in said.items() if value is not None}


def _written_gb(said: str | int | dict[str, str | int] | None) -> dict[str, float] | None:
    """Gigabytes that a task writes, by region; the empty name means the region of the store of its outputs."""
    if said is None:
        return None
    if isinstance(said, str) and "=" in said:
        region, _, size = said.partition("=")
        said = {region.strip(): size.strip()}
    sizes = said if isinstance(said, dict) else {"": said}
    return {region: parse_bytes(size, "output_data") / 1e9 for region, size in sizes.items()}


def deadline_identity(settings: Settings) -> float | None:
    """What stands for the deadline in a job's fingerprint: `18:00` typed again a minute later is the same job."""
    return None if settings.deadline is None else parse_deadline(settings.deadline, time.time()).identity


def amounts_of(needs: Needs) -> dict[str, float]:
    """Resources by name, GPUs among them; an amount of 0 takes back what the job says."""
    return needs.resources if needs.gpus is None else {**needs.resources, GPUS: needs.gpus}


def _checkpoint_s(value: Any, what: str) -> float:
    """How often the file is looked at; with `auto`, until the engine says how often."""
    return AUTO_CHECKPOINT_S if value == AUTO else parse_duration(value, what)


def _megabytes(value: str | int, what: str) -> float:
    return parse_bytes(value, what) / 1e6


def class_of(needs: Needs, default: TaskClass, where: str) -> TaskClass:
    """The class of a task: what it says, and for the rest what the job says."""
    own: dict[str, Any] = {
        name: getattr(needs, name) for name in ("cpus", "nodes", "max_failures", "max_losses")
    }  # fmt: skip
    if needs.memory is not None:
        own["memory"] = parse_memory(needs.memory, f"{where}: memory")
    if needs.wall is not None:
        own["wall_s"] = parse_duration(needs.wall, f"{where}: wall")
    if needs.estimate is not None:
        own["estimate_s"] = parse_duration(needs.estimate, f"{where}: estimate")
    if amounts := amounts_of(needs):
        both = {**dict(default.resources), **amounts}
        own["resources"] = tuple(sorted((name, amount) for name, amount in both.items() if amount))
    result = msgspec.structs.replace(default, **{name: value for name, value in own.items() if value is not None})
    if result != default:
        check_needs(result, where)
    return result


def texts(table: dict[str, Text]) -> dict[str, str]:
    """A table with its numbers written out, as environment variables are."""
    return {name: str(value) for name, value in table.items()}


def words(command: str | list[str], where: str) -> list[str]:
    """A command template as a list of words; a text is split as a shell would split it, and no more than that."""
    if isinstance(command, list):
        result = command
    elif is_balanced(command):
        result = split(command)
    else:
        raise BadInput(f"{where}: a quote is not closed in the command: {command[:80]}")
    if not result:
        raise BadInput(f"{where}: the command is empty")
    if isinstance(command, str) and has_shell_words(command):
        hint = """write it as: command = ["sh", "-c", "... {x} ..."]"""
        raise BadInput(f"{where}: a command with parameters is not given to a shell: {command[:80]}", hint=hint)
    return result
