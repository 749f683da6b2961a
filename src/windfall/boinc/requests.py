"""What a client says to the scheduler, typed and bounded. Pure; nobody who speaks here is trusted.

A request is not safe XML: a job's standard error stands in it as it is, and may hold whole forged reports. So it is
read by lines and by no XML parser. What stands once at the top is taken at its first place. A name that is reported
twice, or reported and held at once, is taken for held: one of the two is forged.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable
from math import isfinite

from msgspec import Struct, field

from windfall.boinc.names import read_name
from windfall.bounds import MAX_CPUS, MAX_INTEGER, MAX_MEMORY_BYTES, MAX_SECONDS
from windfall.errors import BadInput

MAX_REQUEST_BYTES = 16 << 20
MAX_REPORTS = 2000
MAX_OTHERS = 10_000
MAX_TASKS = 100_000
"""Tasks in all results that are reported or held: each is looked up while others wait. A host holds 65,536 at most."""
MAX_STDERR_CHARS = 64 << 10
MAX_VALUE_CHARS = 250
MAX_CLOCK_S = 1e10
MAX_MACHINE_CPUS = 1024
"""Processors that a volunteer's machine is believed to have: a host gets tasks for all of them at once."""
MAX_PLATFORMS = 10
HEAD_BYTES = 8192
"""The account key stands at the very begin of a request."""
FINISHED, ABORTED = 5, 6
"""States of a result: computed and uploaded; aborted by server, user or client."""
_KEY = re.compile(rb"<authenticator>([^<\n]{0,250})</authenticator>")
_TAG = re.compile(r"\s*<([a-z0-9_]{1,40})>([^<\n]{0,4096})</\1>\s*\Z")


class BadRequest(BadInput):
    """Not a request of a BOINC client, or out of bounds."""


class ReportedFile(Struct):
    name: str
    size: int
    md5: str
    refused: bool = False
    """Its upload was refused for good."""


class Report(Struct):
    """A result that has ended at the client, however it ended."""

    name: str
    state: int
    exit: int
    cpu_s: float = 0.0
    elapsed_s: float = 0.0
    files: list[ReportedFile] = field(default_factory=list)
    stderr: str = ""


class HostInfo(Struct):
    """What the client's machine is said to be."""

    cpid: str = ""
    name: str = ""
    cpus: int = 1
    memory_bytes: int = 0
    disk_bytes: int = 0
    flops: float = 0.0
    model: str = ""
    os: str = ""


class SchedulerRequest(Struct):
    hostid: int
    seqno: int
    platforms: list[str]
    """Platforms whose programs it runs, its own first."""
    version: str
    wants_s: float
    """Processor seconds of work that are asked for; 0: none."""
    idle: float
    """Processors that have nothing to do."""
    sends_none: bool
    """The user has said: no new tasks."""
    host: HostInfo
    key: str
    """The code signing key that the client holds; empty if none."""
    reports: list[Report]
    held: list[str]
    """Results that the client has and has not finished or uploaded."""
    now_t: float = 0.0
    """The time by the client's clock; 0 if it does not say."""
    doubtful: list[str] = []
    """Results that are reported more than once: one of the reports is forged. They count as held."""


def key_in(head: bytes) -> str:
    """The account key that a request shows: strangers are told from volunteers before anything else is read."""
    match = _KEY.search(head[:HEAD_BYTES])
    return match[1].decode("utf-8", "replace") if match else ""


def read_request(body: bytes) -> SchedulerRequest:
    if len(body) > MAX_REQUEST_BYTES:
        raise BadRequest(f"a request of {len(body):,} bytes", hint=f"at most {MAX_REQUEST_BYTES:,}")
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    if not text.lstrip().startswith("<scheduler_request>") or "</scheduler_request>" not in text[-200:]:
        raise BadRequest("not a scheduler request", hint="attach a BOINC client to the project's URL")
    lines = text.split("\n")
    begins = next((at for at, line in enumerate(lines) if line == "<result>"), len(lines))
    head = lines[:begins]
    others = _others(lines)
    reports = _reports(lines[begins:])
    host = _block(head, "host_info")
    said = _scalars(head)
    ends: Counter[str] = Counter([report.name for report in reports])
    ends.update(set(others))
    _check_tasks(ends)
    doubtful = sorted({report.name for report in reports if ends[report.name] > 1})
    held = set(others)
    return SchedulerRequest(
        hostid=_integer(said.get("hostid", "0"), MAX_INTEGER),
        seqno=_integer(said.get("rpc_seqno", "0"), MAX_INTEGER),
        platforms=[_plain(said.get("platform_name", "")), *_alternatives(head)],
        version=".".join(
            str(_integer(said.get(name, "0"), 100_000))
            for name in ("core_client_major_version", "core_client_minor_version", "core_client_release")
        ),
        wants_s=_number(said.get("cpu_req_secs", said.get("work_req_seconds", "0")), MAX_SECONDS),
        idle=_number(said.get("cpu_req_instances", "0"), MAX_CPUS),
        sends_none=said.get("dont_send_work", "0").strip() == "1",
        host=_host(_scalars(host)),
        key="\n".join(line.strip() for line in _block(head, "code_sign_key")).strip()[:2000],
        reports=[report for report in reports if ends[report.name] == 1],
        held=list(dict.fromkeys([*others, *doubtful])),
        doubtful=[name for name in doubtful if name not in held],
        now_t=_number(_scalars(_block(head, "time_stats")).get("now", "0"), MAX_CLOCK_S),
    )


def _check_tasks(names: Iterable[str]) -> None:
    """BadRequest if more tasks are named than a client can have."""
    tasks = sum(bundle.count for name in names if (bundle := read_name(name)) is not None)
    if tasks > MAX_TASKS:
        raise BadRequest(f"more than {MAX_TASKS} tasks are reported or held", hint="no client has that many")


def _alternatives(lines: list[str]) -> list[str]:
    """Further platforms: the name in each of the first blocks `<alt_platform>`."""
    begins = [at for at, line in enumerate(lines) if line.strip() == "<alt_platform>"][:MAX_PLATFORMS]
    return [_plain(_scalars(lines[at + 1 : at + 2]).get("name", "")) for at in begins]


def _scalars(lines: list[str]) -> dict[str, str]:
    """Fields on a line of their own; the first of a name counts."""
    found: dict[str, str] = {}
    for line in lines:
        match = _TAG.match(line) if "<" in line else None
        if match is not None:
            found.setdefault(match[1], match[2])
    return found


def _block(lines: list[str], name: str) -> list[str]:
    """The lines between `<name>` and `</name>`."""
    inside = False
    found: list[str] = []
    for line in lines:
        stripped = line.strip()
        if stripped == f"</{name}>" and inside:
            return found
        if inside:
            found.append(line)
        elif stripped == f"<{name}>":
            inside = True
    return []


def _others(lines: list[str]) -> list[str]:
    """Names in the last list of other results: it stands behind all reports."""
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip() == "<other_results>"), None)
    if last is None:
        return []
    found: list[str] = []
    for line in lines[last + 1 :]:
        if line.strip() == "</other_results>":
            break
        match = _TAG.match(line)
        if match is not None and match[1] == "name":
            found.append(match[2][:MAX_VALUE_CHARS])
            if len(found) > MAX_OTHERS:
                raise BadRequest(f"more than {MAX_OTHERS} results are held", hint="no client holds that many")
    return found


def _reports(lines: list[str]) -> list[Report]:
    found: list[Report] = []
    at = 0
    while at < len(lines):
        if lines[at] != "<result>":
            at += 1
            continue
        report, at = _report(lines, at + 1)
        if report is not None:
            found.append(report)
        if len(found) > MAX_REPORTS:
            raise BadRequest(f"more than {MAX_REPORTS} results are reported", hint="no client reports that many")
    return found


def _report(lines: list[str], at: int) -> tuple[Report | None, int]:
    """The report that begins here, and the line behind it; None if it has no end."""
    plain: list[str] = []
    files: list[list[str]] = []
    stderr: list[str] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if line == "</result>":
            return _made(_scalars(plain), files, stderr), at
        if line == "<stderr_out>":
            while at < len(lines) and lines[at] != "</stderr_out>":
                stderr.append(lines[at])
                at += 1
            at += 1
        elif line == "<file_info>":
            files.append([])
            while at < len(lines) and lines[at] != "</file_info>":
                files[-1].append(lines[at])
                at += 1
            at += 1
        else:
            plain.append(line)
    return None, at


def _made(said: dict[str, str], files: list[list[str]], stderr: list[str]) -> Report | None:
    name = said.get("name", "")
    if not name or len(name) > MAX_VALUE_CHARS:
        return None
    return Report(
        name,
        _integer(said.get("state", "0"), 100),
        _integer(said.get("exit_status", "0"), 1 << 31),
        _number(said.get("final_cpu_time", "0"), MAX_SECONDS),
        _number(said.get("final_elapsed_time", "0"), MAX_SECONDS),
        [_file(lines) for lines in files[:10]],
        _said(stderr)[-MAX_STDERR_CHARS:],
    )


_WRAPPING = re.compile(r"<core_client_version>.*|<!\[CDATA\[|\]\]>|</?stderr_txt>|</?message>")


def _said(lines: list[str]) -> str:
    """What client and program said, without the lines that only wrap it."""
    return "\n".join(line for line in lines if not _WRAPPING.fullmatch(line)).strip()


def _file(lines: list[str]) -> ReportedFile:
    said = _scalars(lines)
    refused = any(line.strip().startswith("<error_msg>") for line in lines)
    size = int(_number(said.get("nbytes", "0"), float(MAX_INTEGER)))
    return ReportedFile(said.get("name", "")[:MAX_VALUE_CHARS], size, said.get("md5_cksum", "")[:64], refused)


def _host(said: dict[str, str]) -> HostInfo:
    return HostInfo(
        cpid=re.sub(r"[^0-9a-zA-Z]", "", said.get("host_cpid", ""))[:64],
        name=_plain(said.get("domain_name", "")),
        cpus=max(1, _integer(said.get("p_ncpus", "1"), MAX_MACHINE_CPUS)),
        memory_bytes=int(_number(said.get("m_nbytes", "0"), float(MAX_MEMORY_BYTES))),
        disk_bytes=int(_number(said.get("d_free", "0"), float(MAX_INTEGER))),
        flops=_number(said.get("p_fpops", "0"), 1e18),
        model=_plain(said.get("p_model", "")),
        os=_plain(f"{said.get('os_name', '')} {said.get('os_version', '')}".strip()),
    )


def _plain(text: str) -> str:
    """A text for people: unescaped, printable, short."""
    shown = "".join(char for char in html.unescape(text) if char.isprintable())
    return shown[:MAX_VALUE_CHARS].strip()


def _integer(text: str, most: int) -> int:
    value = _number(text, float(most))
    return int(value)


def _number(text: str, most: float) -> float:
    """A number between -most and most; 0 for what is none. Where only counts make sense, below zero is 0 later."""
    try:
        value = float(text.strip()[:40] or 0)
    except ValueError:
        return 0.0
    return max(-most, min(most, value)) if isfinite(value) else 0.0
