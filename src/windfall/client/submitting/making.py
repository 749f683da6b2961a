"""Bags from Python values: a command or a function, its parameters, its settings. Touches the files sent along."""

from __future__ import annotations

import hashlib
import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from windfall.bags.params import from_calls
from windfall.bags.settings import Settings, spec_fields
from windfall.bags.shell import has_shell_words
from windfall.bags.spec import JobSpec, Source, bad_field, check
from windfall.bags.submission import Request, Submission, program_name, read_job
from windfall.client.submitting.calls import Calls
from windfall.errors import BadInput


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Keyword arguments as settings; BadInput names what is unknown or of a wrong type."""
    for name in given:
        if name not in Settings.__struct_fields__:
            near = get_close_matches(name, Settings.__struct_fields__, n=1)
            raise BadInput(
                f"unknown setting '{name}'",
                hint=f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(Settings.__struct_fields__)}",
            )
    try:
        return msgspec.convert(dict(given), Settings)
    except msgspec.ValidationError as error:
        raise bad_field(error, "submit") from None


def command_bag(command: str | list[str] | None, params: Iterable[Any] | None, given: Mapping[str, Any]) -> Submission:
    """A command for each item; a command alone is one task; without a command the items are command lines."""
    if command is None and params is None:
        raise BadInput("submit needs a command or a function", hint="try: client.submit('./sim --seed {}', range(10))")
    if params is None:
        # One task, its placeholders and all left alone.
        line = command if isinstance(command, str) else shlex.join(command or [])
        given = {"name": program_name(line.split() or [""]), **given}
        params, command = [line], None
    elif isinstance(command, str) and has_shell_words(command):
        raise BadInput(
            f"a command with parameters is not given to a shell: {command[:80]}",
            hint="""try: ["sh", "-c", "your | command with $1", "sh", "{x}"]""",
        )
    settings = settings_of({**given, "command": command})
    if isinstance(params, range) and params.step > 0 and len(params) and params.start >= 0 and command:
        return read_job(Request(settings=settings, range=f"{params[0]}-{params[-1]}:{params.step}"))
    items = params if isinstance(params, Mapping) else list(params)
    if not items:
        raise BadInput("params is empty", hint="Nothing was started.")
    return read_job(Request(settings=settings, params=items))


def call_bag(
    function: Callable[..., Any], params: Iterable[Any] | None, given: Mapping[str, Any], calls: Calls
) -> Submission:
    """A call for each item: a tuple holds arguments, a dict keyword arguments, anything else is the one argument."""
    spec = call_spec(str(given.get("name") or getattr(function, "__name__", "calls")).strip("<>"), given)
    items = [()] if params is None else params
    chunks = from_calls(calls.payload(function, *_arguments(item)) for item in items)
    if not chunks:
        raise BadInput("params is empty", hint="Nothing was started.")
    digest = hashlib.sha256(b"".join(chunk.data for chunk in chunks)).hexdigest()
    return Submission(spec, sum(chunk.count for chunk in chunks), chunks, {}, digest)


def refuse_wrong_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """BadInput if a function cannot be called so, before the call has gone to a host."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some builtins have none
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadInput(
            f"{getattr(function, '__name__', 'the function')} cannot be called so: {error}",
            hint="one call: client.submit(f, x); a call for each item, with settings: client.submit(f, params=[1, 2])",
        ) from None


def call_spec(name: str, given: Mapping[str, Any], *, streaming: bool = False) -> JobSpec:
    """The specification of a bag of calls."""
    settings = settings_of({**given, "name": name})
    if settings.inputs:
        raise BadInput("a call takes no input files", hint="give it its data as arguments")
    fields = spec_fields(settings)
    spec = JobSpec(name=name, kind="call", source=Source("calls"), streaming=streaming, **fields)
    check(spec, "submit")
    return spec


def _arguments(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(item, tuple):
        return item, {}
    if isinstance(item, dict):
        return (), item
    return (item,), {}
