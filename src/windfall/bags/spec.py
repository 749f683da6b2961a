"""What a bag is, apart from its parameters: one struct that travels, is kept, and is checked here. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec
from msgspec import Struct

from windfall import resources
from windfall.bags.remote_files import check_address, destination
from windfall.bounds import (
    BROKEN,
    MAX_AMOUNT,
    MAX_ARGUMENT_BYTES,
    MAX_ATTRIBUTES,
    MAX_CLASSES,
    MAX_CPUS,
    MAX_INTEGER,
    MAX_MEMORY_BYTES,
    MAX_MICROUSD,
    MAX_NAME_CHARS,
    MAX_NODES,
    MAX_REPLICAS,
    MAX_RESOURCES,
    MAX_SECONDS,
    MAX_SPREAD,
    MAX_TASKS,
    MAX_TEXT_CHARS,
    MAX_TRIES,
    MIN_MEMORY_BYTES,
    broken,
)
from windfall.core.matching.policy import POLICIES
from windfall.errors import BadInput
from windfall.units import split_memory

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Memory(Struct, frozen=True, rename={"bytes_": "bytes"}, forbid_unknown_fields=True):
    """What an attempt may use. `per_attempt`: the second attempt gets twice as much, the third three times."""

    bytes_: int
    per_attempt: bool = False

    def of_attempt(self, attempt: int) -> int:
        """Bytes for an attempt, numbered from 1."""
        return self.bytes_ * attempt if self.per_attempt else self.bytes_


def parse_memory(text: str | int, field: str = "memory") -> Memory:
    """`2G` or `2G*attempt`."""
    return Memory(*split_memory(text, field))


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the parameters of the tasks come from.

    lines: one text per task. With a command it stands for `{}`; without one it *is* the command.
    rows:  one text per column and task.
    range: the numbers from `first` to `last`; needs no chunk.
    calls: pickled Python calls.
    tasks: tasks that say everything themselves (`TaskRow`).
    """

    kind: Literal["lines", "rows", "range", "calls", "tasks"] = "lines"
    columns: list[str] = []
    first: int = 0
    last: int = 0
    step: int = 1

    @property
    def range_count(self) -> int:
        """How many numbers a range has."""
        return (self.last - self.first) // self.step + 1


MAX_QUORUM = 10
"""Owners of volunteers' hosts that a job may ask to agree."""


class InputFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a task: its name below the attempt's directory, and its content by hash.

    With `url` hosts fetch it from there, and the hash may be unknown ("").
    """

    name: str
    sha256: str
    size: int
    mode: int = 0o644
    url: str = ""

    @property
    def row(self) -> list[object]:
        """As a worker gets it: name, hash or address, size, mode."""
        if not self.url:
            return [self.name, self.sha256, self.size, self.mode]
        return [self.name, f"{self.url}#sha256={self.sha256}" if self.sha256 else self.url, self.size, self.mode]


class TaskClass(Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine knows about a task. Tasks with the same needs are one class; a chunk is of one class."""

    cpus: float = 1.0
    memory: Memory | None = None
    wall_s: float | None = None
    max_failures: int = 3
    max_losses: int = 20
    estimate_s: float | None = None  # a first guess of the run time
    name: str = ""  # of a class that other jobs have too: run times are learned, and speeds on offers told, by it
    resources: tuple[tuple[str, float], ...] = ()  # GPUs, licences and the like, by name
    nodes: int = 0  # whole hosts of one pool; 0: slots of one host


class TaskRow(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task of source `tasks`: what it has of its own. None stands for what the job says."""

    argv: list[str]
    env: dict[str, str] | None = None  # added to the job's
    cwd: str | None = None
    stdin: str | None = None
    inputs: list[InputFile] | None = None  # added to the job's
    outputs: list[str] | None = None  # added to the job's
    name: str | None = None  # of a workflow's task
    takes: list[tuple[str, int]] | None = None  # files, each with the task that makes it (-1: among the job's `files`)


class JobSpec(Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A bag as it is submitted and kept. `command`, `stdin`, `outputs`, `task_env` and `task_cwd` are templates."""

    name: str
    owner: str = ""
    kind: Literal["command", "call"] = "command"
    command: list[str] = []
    source: Source = Source()
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None
    inputs: list[InputFile] = []
    outputs: list[str] = []
    python: str | None = None
    task_env: dict[str, str] = {}  # variables with placeholders, added to `env`
    task_cwd: str | None = None  # a directory with placeholders, instead of `cwd`

    cpus: float = 1.0
    memory: Memory | None = None
    fixed_memory: bool = False  # no more of it for a task that died of too little
    pin: bool = False  # each task keeps to cores of its own
    image: str = ""  # of a container that tasks run in
    wall_s: float | None = None
    max_failures: int = 3  # attempts that may fail before the task has failed for good; 1: never tried again
    max_losses: int = 20  # lost attempts after which the task has failed
    estimate_s: float | None = None  # a first guess of a task's run time, on a machine of speed 1
    checkpoint_s: float | None = None  # seconds between two copies of the checkpoint file to the server
    checkpoint_mb: float = 0.0  # about how large they are: for plans
    checkpoint_auto: bool = False  # the engine says how often, by what it knows of the host
    classes: list[TaskClass] = []  # of tasks with needs of their own: class 1, 2, ...; class 0 is the job's

    max_failed_tasks: int | None = None
    priority: float = 0.0
    replication: Literal["", "idle-slots", "queued"] = ""  # where replicas come from; empty: as the server says
    max_replicas: int | None = None  # of one task at a time; None: as the server says
    quorum: int = 0  # owners of volunteers' hosts that must agree on a result; 0: it is not for volunteers
    validator: str = ""  # a command of the volunteers' pool that says what must agree; empty: all bytes
    deadline_s: float | None = None  # from submission
    budget_microusd: int | None = None
    pools: list[str] = []  # whose offers may be rented for it
    planner: str = ""  # who decides what is rented; empty: the server's default
    confidence: float = 0.95  # the chance that the whole job is in time
    grace_s: float = 10.0
    output_cap_bytes: int = 1 << 20
    policies: dict[str, str] = {}
    attributes: dict[str, str | float | bool] = {}
    tags: dict[str, str] = {}
    streaming: bool = False  # tasks may still be added
    key: str = ""  # the same key submits once

    # Of a workflow; its dependencies are its shape (windfall.graph), which is sent beside the specification.
    files: list[InputFile] = []  # from outside, for the tasks that take them
    workflow_class: str = ""  # jobs of one class have the same tasks, and deadlines and files of their own
    like: int = 0  # the tasks are those of this job, the first of the class
    fleet: str = ""  # the named fleet whose machines it shares
    resources: dict[str, float] = {}  # units that a task gets: GPUs and the like of its host, licences of the server
    nodes: int = 0  # whole hosts of one pool that a task runs on at once; 0: slots of one host
    data_gb: dict[str, float] = {}  # what each machine fetches, by the region where it lies ("": not known); for plans
    task_data_gb: dict[str, float] = {}  # what a task fetches and writes on average beside that, likewise
    spread: float | None = None  # standard deviation of the logarithm of run times; 0: as estimated; None: not known

    def task_classes(self) -> list[TaskClass]:
        """All classes, by the number that chunks give."""
        own = TaskClass(
            self.cpus, self.memory, self.wall_s, self.max_failures, self.max_losses, self.estimate_s,
            resources=tuple(sorted(self.resources.items())), nodes=self.nodes,
        )  # fmt: skip
        return [own, *self.classes]


_json = msgspec.json.Encoder()


def encode(spec: JobSpec) -> bytes:
    """A specification as it is kept and sent: JSON."""
    return _json.encode(spec)


def decode(data: bytes | str, where: str = "the specification") -> JobSpec:
    """A specification, its types and its values checked."""
    spec = decode_kept(data, where)
    check(spec, where)
    return spec


def decode_kept(data: bytes | str, where: str = "the specification") -> JobSpec:
    """A specification that was checked when it came in: what a job has kept is not refused by newer limits."""
    try:
        return msgspec.json.decode(data, type=JobSpec)
    except msgspec.ValidationError as error:
        raise bad_field(error, where, JobSpec.__struct_fields__) from error
    except BROKEN as error:
        raise broken(error, f"{where} is not JSON") from error


_EXPECTED = re.compile(r"Expected `(?P<expected>.+?)`, got `(?P<got>.+?)`(?: - at `(?P<path>.+)`)?\Z")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.+?)`(?: - at `(?P<path>.+)`)?\Z")
_MISSING = re.compile(r"Object missing required field `(?P<name>.+?)`(?: - at `(?P<path>.+)`)?\Z")
_BOUND = re.compile(r"Expected `\w+`(?P<length> of length)? (?P<sign>[<>]=) (?P<limit>\S+)(?: - at `(?P<path>.+)`)?\Z")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "a table of names and values",
}


def bad_field(error: msgspec.ValidationError, where: str, fields: tuple[str, ...] = ()) -> BadInput:
    """msgspec's error in our words: where, which field, what it should be."""
    text = str(error)
    if match := _EXPECTED.match(text):
        types = [word for word in match["expected"].split(" | ") if word != "null"]
        if "float" in types and "int" in types:
            types.remove("int")
        expected = " or ".join(_WORDS.get(word, word) for word in types)
        return BadInput(
            f"{where}: {_path(match['path'])} must be {expected}, not {_WORDS.get(match['got'], match['got'])}"
        )
    if match := _UNKNOWN.match(text):
        near = get_close_matches(match["name"], fields, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(fields)}" if fields else ""
        return BadInput(f"{where}: unknown field '{match['name']}'{_inside(match['path'])}", hint=hint)
    if match := _MISSING.match(text):
        return BadInput(f"{where}: field '{match['name']}' is missing{_inside(match['path'])}")
    if match := _BOUND.match(text):
        most = "at most" if match["sign"] == "<=" else "at least"
        what = f"{_path(match['path'])} must be{' of length' if match['length'] else ''}"
        return BadInput(f"{where}: {what} {most} {float(match['limit']):,.12g}", hint="choose a value within the limit")
    return BadInput(f"{where}: {text}")


def _path(path: str | None) -> str:
    return (path or "$").removeprefix("$").lstrip(".") or "it"


def _inside(path: str | None) -> str:
    return f" in {_path(path)}" if path and path != "$" else ""


def check(spec: JobSpec, where: str = "the specification") -> None:
    """Refuse values that no bag can have. Templates are checked where they are compiled."""

    def refuse(name: str, why: str, hint: str = "") -> None:
        raise BadInput(f"{where}: {name} {why}", hint=hint)

    if not spec.name or len(spec.name) > MAX_NAME_CHARS or not spec.name.isprintable():
        refuse("name", f"must be 1 to {MAX_NAME_CHARS} printable characters, not {spec.name[:40]!r}")
    if spec.name.isdecimal() or spec.name == "last":
        refuse(
            "name", f"'{spec.name}' would be taken for a job's number or 'last'", "choose a name with a letter in it"
        )
    kind = spec.workflow_class
    if len(kind) > MAX_NAME_CHARS or not kind.isprintable() or "/" in kind:
        refuse("class", f"must be up to {MAX_NAME_CHARS} printable characters without '/', not {kind[:40]!r}")
    variables = [*spec.env, *spec.env.values(), *spec.task_env, *spec.task_env.values()]
    places = [spec.cwd or "", spec.task_cwd or ""]
    check_texts([*spec.command, spec.stdin or "", *places, *spec.outputs, *variables], where)
    for word in spec.command:
        if len(word.encode()) > MAX_ARGUMENT_BYTES:
            size = len(word.encode())
            refuse("command", f"has an argument of {size:,} bytes", "Linux takes at most 131,071: give it as a file")
    for name in (*spec.env, *spec.task_env):
        if not name or "=" in name:
            refuse("env", f"has a variable named {name!r}; a name is not empty and has no '='")
    for number, needs in enumerate(spec.task_classes()):
        check_needs(needs, where if number == 0 else f"{where}, task class {number}")
    if len(spec.classes) > MAX_CLASSES:
        refuse("classes", f"has {len(spec.classes):,} entries", f"at most {MAX_CLASSES:,}")
    check_files(spec.inputs, spec.outputs, where)
    check_files(spec.files, [], where)
    if spec.image and spec.kind == "call":
        refuse("image", "is for commands; a Python call runs in the Python of its worker", "submit a command instead")
    if max(len(spec.data_gb), len(spec.task_data_gb)) > MAX_RESOURCES:
        refuse("data", f"has {len(spec.data_gb)} regions", f"at most {MAX_RESOURCES}")
    for region, gb in (*spec.data_gb.items(), *spec.task_data_gb.items()):
        if len(region) > MAX_NAME_CHARS or not 0 <= gb <= MAX_AMOUNT:
            refuse("data", f"{region[:40]!r}: {gb:g} GB cannot be", "as in --data eu-west-1=50G")
    odd = not spec.image.isprintable() or spec.image.startswith("-") or (" " in spec.image and "/" not in spec.image)
    if len(spec.image) > MAX_NAME_CHARS or odd:
        refuse("image", f"{spec.image[:60]!r} is no name of an image", "as in docker.io/library/python:3.12")
    _check_numbers(spec, where)
    _check_words(spec, where)
    if any(needs.nodes for needs in spec.task_classes()):
        _check_whole_hosts(spec, where)
    for policy in spec.policies:
        if policy not in POLICIES:
            near = get_close_matches(policy, POLICIES, n=1)
            refuse(
                "policies",
                f"has no '{policy}'",
                f"did you mean {near[0]}?" if near else f"known are: {', '.join(POLICIES)}",
            )
    _check_source(spec, where)


def _check_whole_hosts(spec: JobSpec, where: str) -> None:
    """Refuse what cannot be had together with whole hosts."""
    clashes = {
        "checkpoint": (spec.checkpoint_s is not None, "a checkpoint is the file of one host; save to a shared disk"),
        "quorum": (spec.quorum, "volunteers' hosts do not see each other"),
    }
    for name, (is_said, hint) in clashes.items():
        if is_said:
            raise BadInput(f"{where}: nodes and {name} exclude each other", hint=hint)


def check_texts(texts: list[str], where: str) -> None:
    """Refuse what no argument can hold, and what could not be sent."""
    for text in texts:
        if "\0" in text:
            raise BadInput(f"{where}: {text[:40]!r} contains a NUL byte, which no argument can hold")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{where}: {text[:40]!r} is not UTF-8") from None


def check_needs(needs: TaskClass, where: str) -> None:
    """Refuse needs that no host can meet, and numbers that no column can hold."""
    if not 0 < needs.cpus <= MAX_CPUS:
        raise BadInput(f"{where}: cpus must be more than 0 and at most {MAX_CPUS:,}, not {needs.cpus:g}")
    if needs.memory is not None and not MIN_MEMORY_BYTES <= needs.memory.bytes_ <= MAX_MEMORY_BYTES:
        size = needs.memory.bytes_
        raise BadInput(
            f"{where}: memory must be {MIN_MEMORY_BYTES >> 20} MB to {MAX_MEMORY_BYTES >> 40} TB, not {size:,} bytes",
            hint=f"did you mean {size}G?" if 0 < size < 1000 else "write what one attempt uses, as in 2G",
        )
    for name, value in (("wall", needs.wall_s), ("estimate", needs.estimate_s)):
        if value is not None and not 0 < value <= MAX_SECONDS:
            raise BadInput(f"{where}: {name} must be more than 0 and at most {MAX_SECONDS:g} seconds, not {value:g}")
    if not 1 <= needs.max_failures <= MAX_TRIES:
        raise BadInput(
            f"{where}: max_failures must be 1 (no second attempt) to {MAX_TRIES:,}, not {_short(needs.max_failures)}"
        )
    if not 0 <= needs.max_losses <= MAX_TRIES:
        raise BadInput(f"{where}: max_losses must be 0 to {MAX_TRIES:,}, not {_short(needs.max_losses)}")
    resources.check(dict(needs.resources), f"{where}: resources")
    if not 0 <= needs.nodes <= MAX_NODES:
        raise BadInput(f"{where}: nodes must be 1 to {MAX_NODES:,}, not {_short(needs.nodes)}", hint="as in --nodes 4")
    if len(needs.name) > MAX_NAME_CHARS:
        raise BadInput(f"{where}: the name of a task class has at most {MAX_NAME_CHARS} characters")


def _short(value: float) -> str:
    """A number for an error, however large."""
    return f"{value:,}" if abs(value) <= MAX_INTEGER else f"{float(min(value, 10**300)):.3g}"


def _check_numbers(spec: JobSpec, where: str) -> None:
    at_most = {
        "max_failed_tasks": (spec.max_failed_tasks, MAX_TASKS, ""),
        "grace": (spec.grace_s, MAX_SECONDS, "seconds"),
        "output_cap": (spec.output_cap_bytes, MAX_INTEGER, "bytes"),
        "budget": (spec.budget_microusd, MAX_MICROUSD, "micro-dollars"),
        "checkpoint_size": (spec.checkpoint_mb, MAX_AMOUNT, "MB"),
        "like": (spec.like, MAX_INTEGER, ""),
    }
    for name, (value, most, unit) in at_most.items():
        if value is not None and not 0 <= value <= most:
            raise BadInput(f"{where}: {name} must be 0 or more and at most {most:,.12g} {unit}, not {_short(value)}")
    if spec.deadline_s is not None and not 0 < spec.deadline_s <= MAX_SECONDS:
        raise BadInput(
            f"{where}: deadline must be more than 0 seconds from now, not {spec.deadline_s:g}",
            hint=f"at most {MAX_SECONDS:g} seconds; as in 2h30m",
        )
    if spec.spread is not None and not 0 <= spec.spread <= MAX_SPREAD:
        raise BadInput(
            f"{where}: spread must be 0 to {MAX_SPREAD:g}, not {spec.spread:g}",
            hint="as in 0.3, about 30 % up or down; 0 says that estimates are exact",
        )
    if spec.checkpoint_s is not None and not 0 < spec.checkpoint_s <= MAX_SECONDS:
        raise BadInput(f"{where}: checkpoint must be more than 0 seconds, not {spec.checkpoint_s:g}", hint="as in 5m")
    if spec.max_replicas is not None and not 1 <= spec.max_replicas <= MAX_REPLICAS:
        raise BadInput(f"{where}: max_replicas must be 1 to {MAX_REPLICAS:,}, not {_short(spec.max_replicas)}")
    if not 0 <= spec.quorum <= MAX_QUORUM:
        raise BadInput(f"{where}: quorum must be 0 to {MAX_QUORUM}, not {_short(spec.quorum)}")
    if spec.validator and not spec.quorum:
        raise BadInput(
            f"{where}: a validator judges results of volunteers, and there is no quorum", hint="add: --quorum 2"
        )
    if spec.quorum and spec.kind == "call":
        raise BadInput(f"{where}: Python calls cannot be run by volunteers", hint="leave quorum out, or give a command")
    if spec.quorum and (spec.cwd is not None or spec.task_cwd is not None):
        raise BadInput(
            f"{where}: volunteers' hosts have no directory {spec.cwd or spec.task_cwd}", hint="send files: --input"
        )
    if not 0 < spec.confidence < 1:
        raise BadInput(f"{where}: confidence must be between 0 and 1, not {spec.confidence:g}", hint="as in 0.99")
    if not abs(spec.priority) <= MAX_AMOUNT:
        raise BadInput(f"{where}: priority must be a finite number, at most {MAX_AMOUNT:g}, not {spec.priority:g}")


def _check_words(spec: JobSpec, where: str) -> None:
    """Refuse names and texts that are too long to be shown, and attributes that no policy could see."""
    for name, text in (("owner", spec.owner), ("key", spec.key), ("planner", spec.planner), ("fleet", spec.fleet)):
        if len(text) > MAX_NAME_CHARS:
            raise BadInput(f"{where}: {name} has {len(text):,} characters", hint=f"at most {MAX_NAME_CHARS}")
    for policy, text in spec.policies.items():
        if len(text) > MAX_TEXT_CHARS:
            raise BadInput(f"{where}: policy {policy} has {len(text):,} characters", hint=f"at most {MAX_TEXT_CHARS:,}")
    tables: dict[str, Mapping[str, object]] = {"attributes": spec.attributes, "tags": spec.tags}
    for table, values in tables.items():
        if len(values) > MAX_ATTRIBUTES:
            raise BadInput(f"{where}: {len(values)} {table}", hint=f"at most {MAX_ATTRIBUTES}")
        for name, value in values.items():
            if not 0 < len(name) <= MAX_NAME_CHARS or (isinstance(value, str) and len(value) > MAX_TEXT_CHARS):
                raise BadInput(
                    f"{where}: {table}: '{name[:40]}' or its value is too long",
                    hint=f"a name has 1 to {MAX_NAME_CHARS} characters, a value at most {MAX_TEXT_CHARS:,}",
                )
            if isinstance(value, float) and not abs(value) <= MAX_AMOUNT:
                raise BadInput(f"{where}: {table}: '{name[:40]}' = {value:g}", hint=f"at most {MAX_AMOUNT:g}")


def check_files(inputs: list[InputFile], outputs: list[str], where: str) -> None:
    """Refuse names that clash or lead out of the attempt's directory."""
    seen: set[str] = set()
    for file in inputs:
        check_relative(file.name, f"{where}: input")
        if file.name in seen:
            raise BadInput(f"{where}: two inputs are named '{file.name}'", hint="give one another name: NAME=PATH")
        seen.add(file.name)
        if file.url:
            check_address(file.url, f"{where}: input '{file.name}'")
        hashed = _SHA256.match(file.sha256) or (file.url and not file.sha256)
        if not hashed or not 0 <= file.size <= MAX_INTEGER or not 0 <= file.mode <= 0o777:
            raise BadInput(f"{where}: input '{file.name}' has a wrong sha256, size or mode")
    for output in outputs:
        name, address = destination(output)
        check_relative(name, f"{where}: output")
        if address:
            check_address(address, f"{where}: output '{name}'", output=True)
    if len(set(outputs)) < len(outputs):
        raise BadInput(f"{where}: an output is declared twice: {next(o for o in outputs if outputs.count(o) > 1)}")


def check_relative(name: str, what: str) -> None:
    """Refuse a path that leads out of the attempt's directory."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\0" in name or len(name) > 1024:
        raise BadInput(f"{what} '{name[:80]}' must be a relative path without '..'")


def _check_source(spec: JobSpec, where: str) -> None:
    source = spec.source
    if (spec.kind == "call") != (source.kind == "calls"):
        raise BadInput(f"{where}: kind '{spec.kind}' does not go with source '{source.kind}'")
    if len(set(source.columns)) < len(source.columns):
        twice = next(c for c in source.columns if source.columns.count(c) > 1)
        raise BadInput(f"{where}: column '{twice}' is there twice", hint="give one of them another name")
    if source.kind == "range":
        check_range(source.first, source.last, source.step, where)
    if source.kind in ("rows", "range") and not spec.command:
        raise BadInput(
            f"{where}: there are parameters but no command", hint="put the command behind --, as in: -- ./run {}"
        )
    if source.kind == "rows" and not source.columns:
        raise BadInput(f"{where}: rows without columns")


def check_range(first: int, last: int, step: int, where: str) -> None:
    """Refuse a range that is reversed, empty, or longer than a bag may be."""
    if max(abs(first), abs(last), step) > MAX_INTEGER:
        raise BadInput(f"{where}: a range has numbers of at most {MAX_INTEGER:,}", hint="count from a smaller number")
    if step < 1:
        raise BadInput(f"{where}: the step of a range must be 1 or more, not {step}")
    if last < first:
        raise BadInput(f"{where}: the range {first}-{last} is reversed", hint=f"write {last}-{first}")
    if (last - first) // step >= MAX_TASKS:
        raise BadInput(
            f"{where}: the range {first}-{last} has more than {MAX_TASKS:,} numbers", hint="submit it in parts"
        )
