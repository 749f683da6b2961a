"""A job.toml, read and checked against what a job may say; errors name the line. Touches that file, reading only.

The format is described in docs/reference/job-toml.md.
"""

from __future__ import annotations

import re
import time
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windfall.bags.reading import open_file
from windfall.bags.settings import Needs, Settings, spec_fields
from windfall.bags.spec import bad_field
from windfall.errors import BadInput
from windfall.units import IN_THE_PAST, parse_deadline


class JobTable(Settings, kw_only=True, forbid_unknown_fields=True):
    """The table [job]: settings, and where the parameters are (one of these, or [[task]] tables)."""

    lines: str | None = None
    csv: str | None = None
    range: str | None = None
    params: Any = None


class JobFile(Struct, forbid_unknown_fields=True):
    """A job.toml as a whole."""

    job: JobTable = msgspec.field(default_factory=JobTable)
    task: list[Needs] = []


_PATH = re.compile(r"at `\$(?P<path>[^`]*)`")
_FIELD = re.compile(r"unknown field `(?P<name>[^`]+)`")


def read_job_file(path: Path) -> JobFile:
    """The file, every type in it checked."""
    with open_file(path) as stream:
        content = stream.read()
    try:
        text = content.decode()
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        at = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} line {at} is not UTF-8 (byte 0x{content[error.start]:02x})") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    _refuse_misplaced(table, text, path)
    try:
        file = msgspec.convert(table, JobFile)
        # A deadline that has passed may yet be replaced on the command line.
        spec_fields(msgspec.structs.replace(file.job, deadline=None))
        if file.job.deadline is not None:
            parse_deadline(file.job.deadline, time.time())
    except msgspec.ValidationError as error:
        raise _with_line(error, text, path) from None
    except BadInput as error:
        if error.code == IN_THE_PAST:
            return file
        line = _line_of(text, f"job.{error.message.partition(':')[0]}")
        raise BadInput(f"{path} line {line}: {error.message}", hint=error.hint) from None
    return file


def _refuse_misplaced(table: dict[str, Any], text: str, path: Path) -> None:
    """Keys outside of [job] are the mistake that everybody makes first."""
    for key in table:
        if key in ("job", "task"):
            continue
        line = _line_of(text, key)
        if key in JobTable.__struct_fields__:
            raise BadInput(f"{path} line {line}: '{key}' belongs below [job]", hint="put a line [job] above it")
        near = get_close_matches(key, ["job", "task"], n=1)
        hint = f"did you mean '{near[0]}'?" if near else "a job.toml has one table [job] and any number of [[task]]"
        raise BadInput(f"{path} line {line}: unknown key '{key}'", hint=hint)


def _with_line(error: msgspec.ValidationError, text: str, path: Path) -> BadInput:
    """The error, with the line on which the field stands."""
    message = str(error)
    place = _PATH.search(message)
    unknown = _FIELD.search(message)
    where = place["path"].lstrip(".") if place else ""
    if unknown:
        where = f"{where}.{unknown['name']}".lstrip(".")
    line = _line_of(text, where)
    fields = Needs.__struct_fields__ if where.startswith("task") else JobTable.__struct_fields__
    return bad_field(error, f"{path} line {line}" if line else str(path), fields)


def _line_of(text: str, where: str) -> int | None:
    """The line of `job.cpus`, `job.env[...]` or `task[2].memory`: of its key, else of its table."""
    table, _, key = where.partition(".") if "." in where else ("", "", where)
    name, number = (table.split("[")[0], int(re.sub(r"\D", "", table) or 0)) if table else ("", 0)
    key = re.split(r"[.\[]", key)[0]
    wanted_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
    header = re.compile(r"\s*\[\[?\s*([\w.\"'-]+)\s*\]")
    current, seen, found_table = "", -1, None
    for line, row in enumerate(text.split("\n"), 1):
        if match := header.match(row):
            current = match[1]
            seen += current == "task"
            if current == name and (name != "task" or seen == number):
                found_table = line
            if current == f"{name}.{key}".lstrip("."):
                return line
        elif current == name and (name != "task" or seen == number) and wanted_key.match(row):
            return line
    return found_table
