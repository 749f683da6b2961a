"""One job from everything that a person may say about it: a request in, a checked specification with chunks out.

Touches files, reading only. Whatever is wrong is said before anything is sent.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from windfall.bags.chunks import Chunk, Parameters
from windfall.bags.jobfile import JobFile, read_job_file
from windfall.bags.params import from_tasks, from_values
from windfall.bags.reading import (
    STANDARD_INPUT,
    json_lines,
    open_file,
    place_input,
    read_csv,
    read_inputs,
    read_lines,
    read_range,
)
from windfall.bags.rendering import Renderer, Rows, scope_of
from windfall.bags.scripts import PREFIX, guard
from windfall.bags.settings import (
    Needs,
    Settings,
    Verbatim,
    class_of,
    deadline_identity,
    merged,
    spec_fields,
    texts,
    words,
)
from windfall.bags.shell import argv_of, first_unbalanced, needs_shell
from windfall.bags.spec import (
    InputFile,
    JobSpec,
    TaskClass,
    TaskRow,
    bad_field,
    check,
    check_files,
    check_relative,
    check_texts,
    encode,
)
from windfall.bags.template import BRACES, Scope, compile_texts, with_parameter
from windfall.errors import BadInput
from windfall.graph import Graph

N = TypeVar("N", bound=Needs)
_LINE = Scope(single=True)
"""What `{}` and its relatives stand for where tasks are lines."""


class Request(Struct, kw_only=True):
    """What was asked for on the command line. With `job_file`, everything said here goes before what stands there."""

    tasks: str | None = None  # a file with one command, or one parameter, per line; or whole tasks (.jsonl)
    csv: str | None = None
    range: str | None = None
    stdin: bool = False  # lines from standard input
    params: Any = None  # values, from Python
    job_file: str | None = None
    command: list[str] = []
    settings: Settings = msgspec.field(default_factory=Settings)
    owner: str = ""
    workflow: str | None = None  # a workflow's file (windfall.workflows); the fields below go with it
    workflow_class: str = ""
    emulate: bool = False
    time_scale: float = 1.0


class Submission(Struct):
    """A job, ready to be sent. `uploads`: where the content of each input is, by its hash.

    `fingerprint` is the same for the same job on the same data, wherever and whenever it is read.
    """

    spec: JobSpec
    count: int
    chunks: list[Chunk]
    uploads: dict[str, Path]
    fingerprint: str
    shape: Graph | None = None  # of a workflow
    estimates: bytes = b""  # seconds that each task is thought to take, as 32-bit floats
    identity: str = ""  # the same for the same job on other data; empty: such jobs are not compared
    remarks: list[str] = []  # on its command, to show when it is submitted
    unmeasured: list[str] = []  # on inputs whose size could not be asked
    remote: list[InputFile] = []  # inputs of single tasks that lie in stores


class _Origin(Struct):
    """Where the parameters are; one of these is set. Paths are relative to `base`."""

    base: Path
    lines: str | None = None
    csv: str | None = None
    range: str | None = None
    params: Any = None
    whole: list[Needs] = []
    stdin: bool = False

    def set_ones(self) -> list[str]:
        given = [name for name in ("lines", "csv", "range", "params") if getattr(self, name) is not None]
        return given + [name for name in ("whole", "stdin") if getattr(self, name)]


def read_job(request: Request, standard_input: BinaryIO | None = None) -> Submission:
    """Read and check everything. BadInput: nothing was started."""
    _refuse_quoted_line(request.command)
    if _is_one_task(request, standard_input):
        request = _of_one_task(request)
    file, base, where = JobFile(), Path(), "the command line"
    if request.job_file:
        file, base, where = read_job_file(Path(request.job_file)), Path(request.job_file).parent, request.job_file
    settings = merged(placed(file.job, base), placed(request.settings, Path()))
    command = request.command or (words(settings.command, where) if settings.command else [])
    said = spec_fields(settings)
    inputs, uploads = read_inputs(settings.inputs, where)
    draft = JobSpec(name="draft", inputs=inputs, **said)
    whole = _WholeTasks(draft)
    parameters = _read(_origin(request, file, base), command, whole, where, standard_input)
    spec = msgspec.structs.replace(
        draft,
        name=settings.name or _default_name(command, request),
        owner=request.owner,
        source=parameters.source,
        classes=whole.classes,
        command=command,
    )
    spec, warning = _with_templates(spec, settings, parameters, where)
    identity = identity_of(spec, settings)
    spec, unmeasured = with_sizes(spec, whole.remote, parameters.count)
    return Submission(
        spec,
        parameters.count,
        parameters.chunks,
        uploads | whole.uploads,
        hashlib.sha256(identity + parameters.digest.encode()).hexdigest(),
        identity=hashlib.sha256(identity).hexdigest(),
        remarks=_remarks(spec, command, warning),
        unmeasured=unmeasured,
        remote=whole.remote,
    )


def _refuse_quoted_line(command: list[str]) -> None:
    """A command that was typed as one quoted word names no program: GNU parallel would give it to a shell."""
    if len(command) != 1 or len(command[0].split()) < 2 or os.path.exists(command[0]):  # noqa: PTH110
        return
    line, is_script = command[0], needs_shell(BRACES.sub("", command[0]))
    if line.startswith("/") and not is_script and not BRACES.search(line):
        return  # a path on another host
    tried = shlex.join(["sh", "-c", line]) if is_script else line
    raise BadInput(
        f"the command is one word, which names no program: {line[:80]}",
        hint=f"try: -- {tried}   (a shell runs only what names it).  Nothing was started.",
    )


def _is_one_task(request: Request, standard_input: BinaryIO | None) -> bool:
    """Is a command all that was said? With placeholders, or lines on standard input, a source was forgotten."""
    sources = (request.tasks, request.csv, request.range, request.params, request.job_file, request.workflow)
    if not request.command or request.stdin or any(source is not None for source in sources):
        return False
    said = [*request.command, *request.settings.outputs, *texts(request.settings.env).values()]
    if any(match[2] is not None and _LINE.looks_meant(match[2]) for text in said for match in BRACES.finditer(text)):
        return False
    return standard_input is not None and not _has_lines(standard_input)


def _has_lines(standard_input: BinaryIO) -> bool:
    """Whether standard input is a pipe or a file, from which lines could be meant to come."""
    try:
        mode = os.fstat(standard_input.fileno()).st_mode
    except (OSError, ValueError):
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _of_one_task(request: Request) -> Request:
    """The request with its command as its one task."""
    settings = msgspec.structs.replace(request.settings, name=request.settings.name or program_name(request.command))
    return msgspec.structs.replace(request, params=[shlex.join(request.command)], command=[], settings=settings)


def is_measured(spec: JobSpec, of_tasks: Sequence[InputFile]) -> bool:
    """Whether stores are asked about it: how large inputs are, and in which region outputs lie."""
    return any(file.url for file in (*spec.inputs, *of_tasks)) or "" in spec.task_data_gb


def with_sizes(spec: JobSpec, of_tasks: list[InputFile], count: int) -> tuple[JobSpec, list[str]]:
    """A job that rents machines with the size of its inputs in stores; and remarks on what could not be asked.

    `of_tasks`: inputs of single tasks of its `count`.

    To be called when the identity is known: a file that has grown makes no other job.
    """
    if not spec.pools or not is_measured(spec, of_tasks):
        return spec, []
    from windfall.bags.remote_sizes import measured  # not above: few jobs need it, and it loads much

    return measured(spec, of_tasks, count)


def _remarks(spec: JobSpec, typed: list[str], warning: str) -> list[str]:
    """Remarks on a command that contains a script."""
    if warning:
        return [warning]
    if any(name.startswith(PREFIX) for name in spec.task_env) and typed != spec.command:
        return ["values reach the script of sh -c as quoted data, never as code; one value is one word"]
    return []


def identity_of(spec: JobSpec, settings: Settings) -> bytes:
    """The specification as far as it is the same whenever the same words are read again."""
    return encode(msgspec.structs.replace(spec, deadline_s=deadline_identity(settings)))


def placed(settings: N, base: Path) -> N:
    """Settings with their relative paths made absolute, seen from where they were said."""
    cwd = settings.cwd
    if cwd is not None:
        # Symbolic links are kept, and so is {//}.
        path = os.path.join(os.path.abspath(base), cwd)  # noqa: PTH100, PTH118
        cwd = path if BRACES.search(path) else os.path.normpath(path)
    inputs = [place_input(text, base) for text in settings.inputs]
    return msgspec.structs.replace(settings, cwd=cwd, inputs=inputs)


def _origin(request: Request, file: JobFile, base: Path) -> _Origin:
    """The one source of parameters: the command line's, else the file's."""
    asked = _Origin(Path(), request.tasks, request.csv, request.range, request.params, stdin=request.stdin)
    job = file.job
    written = _Origin(base, job.lines, job.csv, job.range, job.params, file.task)
    origin, where = (asked, "the command line") if asked.set_ones() else (written, request.job_file)
    names = {"lines": "a list of tasks", "whole": "[[task]] tables", "stdin": "--stdin"}
    found = [names.get(name, name) for name in origin.set_ones()]
    if len(found) > 1:
        raise BadInput(f"{where} names {len(found)} sources of tasks: {', '.join(found)}", hint="choose one of them")
    if not found:
        raise BadInput(
            f"{where or 'the command line'} does not say what the tasks are",
            hint="try: windfall run tasks.txt   or   windfall run --range 1-10 -- ./sim --seed {}"
            "   or   ... | windfall run --stdin -- ./sim {}",
        )
    return origin


def _read(
    origin: _Origin, command: list[str], whole: _WholeTasks, where: str, standard_input: BinaryIO | None
) -> Parameters:
    if origin.whole:
        named = ((f"{where} task {number}", table) for number, table in enumerate(origin.whole, 1))
        return from_tasks(whole.rows(named, origin.base, command), where)
    if origin.range is not None:
        return read_range(origin.range, "--range" if where == "the command line" else f"{where}: range")
    if origin.params is not None:
        return from_values(origin.params, "params" if where == "the command line" else f"{where}: params")
    if origin.stdin:
        if standard_input is None:
            raise BadInput("standard input is not there to be read")
        return read_lines(standard_input, STANDARD_INPUT, commands=not command)
    path = origin.base / (origin.csv or origin.lines or "")
    with open_file(path) as file:
        if origin.csv:
            return read_csv(file, str(path))
        if path.suffix == ".jsonl":
            return from_tasks(whole.rows(_tables(file, str(path)), path.parent, command), str(path))
        return read_lines(file, str(path), commands=not command)


def _tables(file: BinaryIO, where: str) -> Iterator[tuple[str, Needs]]:
    """The whole tasks of a .jsonl, each with its place."""
    decoder = msgspec.json.Decoder(Needs)
    for line, row in json_lines(file, where):
        try:
            yield f"{where} line {line}", decoder.decode(row)
        except msgspec.ValidationError as error:
            raise bad_field(error, f"{where} line {line}", Needs.__struct_fields__) from None
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{where} line {line} is not JSON: {error}",
                hint='each line is an object, as in: {"command": "./run 1", "cpus": 2}',
            ) from None


class _WholeTasks:
    """Turns tables that say everything about a task into rows and their classes."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._numbers = {job.task_classes()[0]: 0}
        self.uploads: dict[str, Path] = {}
        self.remote: list[InputFile] = []
        """Inputs of single tasks that lie in stores."""

    @property
    def classes(self) -> list[TaskClass]:
        """The classes beside the job's own."""
        return list(self._numbers)[1:]

    def rows(
        self, tables: Iterator[tuple[str, Needs]], base: Path, command: list[str]
    ) -> Iterator[tuple[TaskRow, int]]:
        if command:
            raise BadInput("tasks that bring their own commands do not go with a command", hint="leave one of them out")
        default = next(iter(self._numbers))
        for where, table in tables:
            own = class_of(table, default, where)
            yield self._row(placed(table, base), where), self._numbers.setdefault(own, len(self._numbers))

    def _row(self, table: Needs, where: str) -> TaskRow:
        inputs, found = read_inputs(table.inputs, where)
        self.uploads |= found
        self.remote += [file for file in inputs if file.url]
        check_files([*self._job.inputs, *inputs], [*self._job.outputs, *table.outputs], where)
        row = TaskRow(
            argv=_argv(table.command, where),
            env=texts(table.env) or None,
            cwd=table.cwd,
            stdin=table.stdin,
            inputs=inputs or None,
            outputs=table.outputs or None,
        )
        check_texts([*row.argv, *(row.env or {}), *(row.env or {}).values(), row.cwd or "", row.stdin or ""], where)
        return row


def _argv(command: str | list[str] | None, where: str) -> list[str]:
    """A whole task's command: words as they are, a text as a line of a tasks.txt."""
    if not command or not (command if isinstance(command, list) else command.strip()):
        raise BadInput(f"{where}: the task has no command", hint='as in: command = "./run 1"')
    if isinstance(command, list):
        return command
    if first_unbalanced([command], command) is not None:
        raise BadInput(f"{where}: a quote or backslash is not closed in: {command[:80]}")
    return argv_of(command)


def _default_name(command: list[str], request: Request) -> str:
    """What a person would call it: the program, or the file."""
    if command:
        return program_name(command)
    return _no_number(Path(request.tasks or request.job_file or "tasks").stem)


def program_name(command: Sequence[str]) -> str:
    """The name of a job after its program."""
    return _no_number(Path(command[0]).name)


def _no_number(name: str) -> str:
    return f"job-{name}" if name.isdecimal() or name == "last" else name[:200] or "job"


def _with_templates(spec: JobSpec, settings: Settings, parameters: Parameters, where: str) -> tuple[JobSpec, str]:
    """The specification with its templates found to be right, `{}` put behind a command that does not say where.

    And a warning if values are run as code.
    """
    scope = scope_of(spec, parameters.where)
    spec = _with_own_place(spec, settings, scope)
    guarded = guard(spec.command, lambda inner: scope.getter(inner) is not None)
    spec = msgspec.structs.replace(spec, command=guarded.command, task_env={**spec.task_env, **guarded.env})
    if spec.command:
        elsewhere = [spec.stdin or "", spec.task_cwd or "", *spec.outputs, *spec.task_env.values()]
        spec = msgspec.structs.replace(spec, command=with_parameter(spec.command, scope, elsewhere))
    check(spec, where)
    compile_texts(spec.command, scope)
    compile_texts([spec.stdin or ""], scope, "stdin")
    if compile_texts(spec.outputs, scope, "outputs").has_placeholders:
        _check_outputs(spec, parameters)
    return spec, guarded.warning


def _with_own_place(spec: JobSpec, settings: Settings, scope: Scope) -> JobSpec:
    """Variables and a directory that have placeholders, kept apart from those that all tasks share."""
    env, task_env = dict(spec.env), {}
    for name, value in settings.env.items():
        if isinstance(value, Verbatim) or "{" not in str(value):
            continue
        check_texts([str(value)], f"the variable {name}")
        template = compile_texts([str(value)], scope, f"the variable {name}")
        if template.has_placeholders:
            task_env[name] = env.pop(name)
        else:
            env[name] = template.fill(0, None)[0]
    cwd, task_cwd = spec.cwd, None
    if cwd is not None and (template := compile_texts([cwd], scope, "cwd")):
        cwd, task_cwd = (None, cwd) if template.has_placeholders else (template.fill(0, None)[0], None)
    return msgspec.structs.replace(spec, env=env, task_env=task_env, cwd=cwd, task_cwd=task_cwd)


def directories(bag: Submission, most: int = 10_000) -> list[str]:
    """The working directories that a bag names; those of its first tasks if they depend on a parameter."""
    spec = bag.spec
    if spec.task_cwd is None:
        return [spec.cwd] if spec.cwd is not None else []
    data = {chunk.first: chunk.data for chunk in bag.chunks}
    renderer = Renderer(spec, Rows(bag.chunks, data.__getitem__))
    rendered = (renderer.task(index).overrides or {} for index in range(min(bag.count, most)))
    return list(dict.fromkeys(task["cwd"] for task in rendered))


def _check_outputs(spec: JobSpec, parameters: Parameters) -> None:
    """Refuse parameters that would lead outputs out of the attempt's directory."""
    data = {chunk.first: chunk.data for chunk in parameters.chunks}
    renderer = Renderer(spec, Rows(parameters.chunks, data.__getitem__))
    for index in range(parameters.count):
        for output in (renderer.task(index).overrides or {}).get("outputs", ()):
            check_relative(output, f"task {index}: output")
