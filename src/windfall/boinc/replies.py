"""What clients are told, in the client's own kind of XML. Pure.

The client reads by a scanner of its own: every value on a line, no wrapper around known elements.
"""

from __future__ import annotations

import html

from msgspec import Struct, field

from windfall.boinc.keys import PLATFORM, Signed
from windfall.escaping import visible

FLOPS = 1e9
"""Speed that estimates and limits are told for: a second is this many operations."""
LONGEST_S = 30 * 86400.0
SHORTEST_LIMIT_S = 130.0
"""A shorter limit of the run time would be replaced by twelve hours."""


WHILE_BUSY = [
    "<global_preferences>", "    <run_on_batteries>1</run_on_batteries>",
    "    <run_if_user_active>1</run_if_user_active>", "    <suspend_cpu_usage>0</suspend_cpu_usage>",
    "    <max_ncpus_pct>100</max_ncpus_pct>", "    <cpu_usage_limit>100</cpu_usage_limit>",
    "    <work_buf_min_days>0.01</work_buf_min_days>", "    <work_buf_additional_days>0</work_buf_additional_days>",
    "</global_preferences>",
]  # fmt: skip
"""By default a client pauses all tasks while other programs use a quarter of the processors."""


class SentFile(Struct):
    """A file that a workunit takes."""

    name: str
    url: str
    md5: str
    size: int
    open_name: str


class SentWork(Struct):
    """One workunit and its only result."""

    name: str
    output: str
    files: list[SentFile]
    estimate_s: float
    limit_s: float
    memory_bytes: int
    deadline_t: float
    most_upload_bytes: int
    certificate: str


class Reply(Struct):
    """An answer of the scheduler."""

    project: str
    master_url: str
    next_s: float
    user: str = ""
    user_credit: float = 0.0
    host_credit: float = 0.0
    hostid: int = 0
    """Only to assign one: a client that is told its number again counts anew."""
    key: str = ""
    key_signature: str = ""
    delay_s: float = 0.0
    message: str = ""
    acks: list[str] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    work: list[SentWork] = field(default_factory=list)
    while_busy: bool = False
    """The volunteer has agreed that tasks run whatever else the machine does: replaces the client's preferences."""


def scheduler_reply(reply: Reply, signed: Signed, download_url: str, upload_url: str) -> bytes:
    parts = [
        "<scheduler_reply>", "<scheduler_version>720</scheduler_version>", _tag("master_url", reply.master_url),
        _tag("project_name", reply.project), f"<next_rpc_delay>{reply.next_s:.0f}</next_rpc_delay>", "<dont_use_dcf/>",
    ]  # fmt: skip
    if reply.delay_s:
        parts.append(f"<request_delay>{reply.delay_s:.0f}</request_delay>")
    if reply.message:
        parts.append(f'<message priority="low">{xml_text(reply.message)}</message>')
    if reply.user:
        parts += [
            _tag("user_name", reply.user), f"<user_total_credit>{reply.user_credit:.6f}</user_total_credit>",
            f"<host_total_credit>{reply.host_credit:.6f}</host_total_credit>",
        ]  # fmt: skip
    if reply.while_busy:
        parts += WHILE_BUSY
    if reply.hostid:
        parts.append(f"<hostid>{reply.hostid}</hostid>")
    if reply.key:
        parts += ["<code_sign_key>", reply.key, "</code_sign_key>"]
    if reply.key_signature:
        parts += ["<code_sign_key_signature>", reply.key_signature.strip(), "</code_sign_key_signature>"]
    for name in reply.acks:
        parts += ["<result_ack>", f"    {_tag('name', name)}", "</result_ack>"]
    for name in reply.aborts:
        parts += ["<result_abort>", f"    {_tag('name', name)}", "</result_abort>"]
    if reply.work:
        parts += _app(signed, download_url)
        told: set[str] = set()
        for work in reply.work:
            parts += _work(work, signed, upload_url, told)
    parts.append("</scheduler_reply>\n")
    return "\n".join(parts).encode()


def xml_text(text: str) -> str:
    """A text that stands in a page or a message and means nothing there."""
    return html.escape(visible(text))


def _tag(name: str, value: str) -> str:
    return f"<{name}>{xml_text(value)}</{name}>"


def _app(signed: Signed, download_url: str) -> list[str]:
    return [
        "<app>", "    <name>windfall</name>", "    <user_friendly_name>Windfall tasks</user_friendly_name>", "</app>",
        "<file_info>", f"    <name>{signed.file}</name>", f"    {_tag('url', download_url + signed.file)}",
        "    <executable/>", "    <file_signature>", signed.signature.strip(), "    </file_signature>",
        f"    <md5_cksum>{signed.md5}</md5_cksum>", f"    <nbytes>{signed.size}</nbytes>", "</file_info>",
        "<app_version>", "    <app_name>windfall</app_name>", f"    <version_num>{signed.version}</version_num>",
        "    <api_version>7.20.0</api_version>", f"    <platform>{PLATFORM}</platform>",
        f"    <flops>{FLOPS:.0f}</flops>",
        "    <avg_ncpus>1</avg_ncpus>", "    <file_ref>", f"        <file_name>{signed.file}</file_name>",
        "        <main_program/>", "    </file_ref>", "</app_version>",
    ]  # fmt: skip


def _work(work: SentWork, signed: Signed, upload_url: str, told: set[str]) -> list[str]:
    parts: list[str] = []
    for file in work.files:
        if file.name not in told:
            told.add(file.name)
            parts += [
                "<file_info>", f"    <name>{file.name}</name>", f"    {_tag('url', file.url)}",
                f"    <md5_cksum>{file.md5}</md5_cksum>", f"    <nbytes>{file.size}</nbytes>", "</file_info>",
            ]  # fmt: skip
    parts += [
        "<file_info>", f"    <name>{work.output}</name>", "    <generated_locally/>", "    <upload_when_present/>",
        f"    <max_nbytes>{work.most_upload_bytes}</max_nbytes>", f"    {_tag('url', upload_url)}",
        "    <xml_signature>", work.certificate.strip(), "    </xml_signature>", "</file_info>",
        "<workunit>", f"    <name>{work.name}</name>", "    <app_name>windfall</app_name>",
        f"    <version_num>{signed.version}</version_num>",
        f"    <rsc_fpops_est>{min(work.estimate_s, LONGEST_S) * FLOPS:.0f}</rsc_fpops_est>",
        f"    <rsc_fpops_bound>{max(SHORTEST_LIMIT_S, work.limit_s) * FLOPS:.0f}</rsc_fpops_bound>",
        f"    <rsc_memory_bound>{work.memory_bytes}</rsc_memory_bound>",
        f"    <rsc_disk_bound>{10 * work.most_upload_bytes}</rsc_disk_bound>",
    ]  # fmt: skip
    for file in work.files:
        parts += [
            "    <file_ref>", f"        <file_name>{file.name}</file_name>",
            f"        <open_name>{file.open_name}</open_name>", "    </file_ref>",
        ]  # fmt: skip
    parts += [
        "</workunit>", "<result>", f"    <name>{work.name}</name>",
        f"    <wu_name>{work.name}</wu_name>", f"    <report_deadline>{work.deadline_t:.0f}</report_deadline>",
        f"    <platform>{PLATFORM}</platform>", f"    <version_num>{signed.version}</version_num>",
        "    <plan_class></plan_class>", "    <report_immediately/>", "    <file_ref>",
        f"        <file_name>{work.output}</file_name>", "        <open_name>out</open_name>", "        <copy_file/>",
        "    </file_ref>", "</result>",
    ]  # fmt: skip
    return parts


def master_page(project: str, scheduler_url: str, about: str) -> bytes:
    """The page of the project. The client looks for the two lines with the address of the scheduler."""
    url, name = xml_text(scheduler_url), xml_text(project)
    return (
        f'<!doctype html>\n<html><head><meta charset="utf-8"><title>{name}</title>\n'
        f'<link rel="boinc_scheduler" href="{url}">\n</head><body>\n<h1>{name}</h1>\n{about}\n'
        f"<!--\n<scheduler>{url}</scheduler>\n-->\n</body></html>\n"
    ).encode()


def error_page(number: int, text: str) -> bytes:
    return f"<error>\n    <error_num>{number}</error_num>\n    {_tag('error_msg', text)}\n</error>\n".encode()


def upload_reply(status: int, message: str = "", size: int | None = None) -> bytes:
    parts = ["<data_server_reply>", f"    <status>{status}</status>"]
    if size is not None:
        parts.append(f"    <file_size>{size}</file_size>")
    if message:
        parts.append(f"    {_tag('message', message)}")
    return "\n".join([*parts, "</data_server_reply>\n"]).encode()
