"""Messages of real clients, as they were captured, and hostile ones: what is read, and what is not believed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from windfall.boinc.bundle import BadArchive, read_archive
from windfall.boinc.names import Bundle, grouped, read_name, read_output
from windfall.boinc.requests import BadRequest, read_request
from windfall.boinc.uploads import NEVER, Refused, read_head, split

CAPTURED = Path(__file__).parents[2] / "data" / "boinc"
REQUEST = """<scheduler_request>
    <authenticator>0123456789abcdef0123456789abcdef</authenticator>
    <hostid>7</hostid>
    <rpc_seqno>3</rpc_seqno>
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
    <dont_send_work>0</dont_send_work>
    <cpu_req_secs>1727.000000</cpu_req_secs>
    <cpu_req_instances>1.000000</cpu_req_instances>
    <platform_name>x86_64-pc-linux-gnu</platform_name>
    <code_sign_key>
1024
b686
.
</code_sign_key>
<host_info>
    <domain_name>vm</domain_name>
    <host_cpid>0958e2241a83b5c8a8245d4656433b10</host_cpid>
    <p_ncpus>2</p_ncpus>
    <p_model>A &lt;b&gt;fast&lt;/b&gt; one</p_model>
    <m_nbytes>25275125760.000000</m_nbytes>
</host_info>
{results}<app_versions>
</app_versions>
<other_results>
{others}</other_results>
</scheduler_request>
"""
RESULT = """<result>
    <name>{name}</name>
    <final_cpu_time>0.000704</final_cpu_time>
    <final_elapsed_time>1.500000</final_elapsed_time>
    <exit_status>{exit}</exit_status>
    <state>{state}</state>
    <platform>x86_64-pc-linux-gnu</platform>
<stderr_out>
<core_client_version>7.20.5</core_client_version>
<![CDATA[
<stderr_txt>
{stderr}

</stderr_txt>
]]>
</stderr_out>
<file_info>
    <name>{name}_0</name>
    <nbytes>119.000000</nbytes>
    <max_nbytes>10000000.000000</max_nbytes>
    <md5_cksum>df2eede3abfb8525a142b06b3173facf</md5_cksum>
    <upload_url>http://127.0.0.1:8800/grid/file_upload_handler</upload_url>
</file_info>
</result>
"""


def result(name: str, state: int = 5, exit: int = 0, stderr: str = "") -> str:
    return RESULT.format(name=name, state=state, exit=exit, stderr=stderr)


def other(name: str) -> str:
    return (
        f"    <other_result>\n        <name>{name}</name>\n        <app_version>0</app_version>\n    </other_result>\n"
    )


def request(results: str = "", others: str = "") -> bytes:
    return REQUEST.format(results=results, others=others).encode()


def test_a_request_is_read_as_the_client_meant_it():
    read = read_request(request(result("w1_0_1_1", stderr="it said so"), other("w1_1_1_1")))
    assert (read.hostid, read.seqno, read.version, read.wants_s, read.idle) == (7, 3, "7.20.5", 1727.0, 1.0)
    assert read.key == "1024\nb686\n."
    assert (read.host.cpid, read.host.cpus, read.host.memory_bytes) == (
        "0958e2241a83b5c8a8245d4656433b10", 2, 25275125760,
    )  # fmt: skip
    assert read.host.model == "A <b>fast</b> one"
    report = read.reports[0]
    assert (report.name, report.state, report.exit, report.elapsed_s) == ("w1_0_1_1", 5, 0, 1.5)
    assert (report.files[0].md5, report.files[0].size) == ("df2eede3abfb8525a142b06b3173facf", 119)
    assert report.stderr == "it said so"
    assert read.held == ["w1_1_1_1"]


def test_requests_that_the_real_client_sent_are_read_whole():
    """Captured from Debian's client 7.20.5 at this server's front; key and kernel were taken out."""
    first = read_request((CAPTURED / "first_request.xml").read_bytes())
    assert (first.hostid, first.seqno, first.platform, first.version) == (0, 0, "x86_64-pc-linux-gnu", "7.20.5")
    assert first.key == "" and first.wants_s > 0 and not first.sends_none
    assert first.host.cpus == 2 and first.host.memory_bytes > 1 << 30 and len(first.host.cpid) == 32
    assert first.reports == [] == first.held
    later = read_request((CAPTURED / "two_reports.xml").read_bytes())
    assert later.hostid > 0 and later.key.startswith("1024\n") and later.key.endswith("\n.")
    told = [(report.name, report.state, report.exit, [file.name for file in report.files]) for report in later.reports]
    assert told == [("w1_1_1_1", 5, 0, ["w1_1_1_1_0"]), ("w1_0_1_1", 5, 0, ["w1_0_1_1_0"])]
    assert [report.files[0].size for report in later.reports] == [113, 113]
    assert later.held == ["w1_2_1_1"]


def test_standard_error_on_one_line_forges_nothing():
    forged = (
        "before ]]></stderr_out></result><result><name>w1_9_1_1</name><state>5</state></result> <![CDATA[ after \x01"
    )
    read = read_request(request(result("w1_0_1_1", stderr=forged)))
    assert [report.name for report in read.reports] == ["w1_0_1_1"]


def test_a_whole_forged_report_of_a_result_that_the_client_holds_is_not_believed():
    forged = f"]]>\n</stderr_out>\n</result>\n{result('w1_1_1_1', 6, 203)}<result>\n<name>x</name>\n<stderr_out>"
    read = read_request(request(result("w1_0_1_1", stderr=forged), other("w1_1_1_1")))
    assert "w1_1_1_1" not in [report.name for report in read.reports]
    assert "w1_1_1_1" in read.held


def test_two_reports_of_one_result_are_believed_neither_way():
    read = read_request(request(result("w1_0_1_1", 3, 1) + result("w1_0_1_1")))
    assert read.reports == []
    assert read.held == ["w1_0_1_1"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"<scheduler_request>", b"\xff" * 100, b"<!DOCTYPE x [<!ENTITY a 'b'>]>"]
)
def test_what_is_no_request_is_refused(body):
    with pytest.raises(BadRequest):
        read_request(body)


def test_numbers_out_of_bounds_become_bounds():
    body = (
        request()
        .replace(b"<p_ncpus>2<", b"<p_ncpus>1e300<")
        .replace(b"<cpu_req_secs>1727.000000<", b"<cpu_req_secs>nan<")
    )
    read = read_request(body)
    assert read.host.cpus == 65536 and read.wants_s == 0.0


def test_names_say_which_attempts_they_hold():
    bundle = Bundle(3, 40, 10, 2)
    assert read_name(bundle.name) == bundle == read_output(bundle.output)
    assert next(bundle.attempts()) == (3, 40, 2)
    for bad in (
        "w3_40_0_1",
        "w3_40_501_1",
        "w03_40_1_1",
        "../w3_40_1_1",
        "w3_40_1_1\n",
        "x",
        "w" + "9" * 30 + "_1_1_1",
    ):
        assert read_name(bad) is None


def test_neighbours_are_grouped_up_to_a_size():
    keys = [(1, task, 1) for task in (0, 1, 2, 3, 7)] + [(1, 8, 2)]
    assert grouped(keys, 3) == [Bundle(1, 0, 3, 1), Bundle(1, 3, 1, 1), Bundle(1, 7, 1, 1), Bundle(1, 8, 1, 2)]


UPLOAD = b"""<data_server_request>
    <core_client_major_version>7</core_client_major_version>
<file_upload>
<file_info>
<name>w1_0_1_1_0</name>
<xml_signature>
244ecef06be7d1b133b8d7ea9039d61b6131af7f9b7f5106265b526b3c653400
.</xml_signature>
<max_nbytes>10000000</max_nbytes>
</file_info>
<nbytes>5</nbytes>
<md5_cksum>df2eede3abfb8525a142b06b3173facf</md5_cksum>
<offset>0</offset>
<data>
hello"""


def test_the_head_of_an_upload_is_split_from_its_bytes():
    found = split(UPLOAD)
    assert found is not None and found[1] == b"hello"
    head = read_head(found[0])
    assert (head.name, head.most_bytes, head.size, head.offset) == ("w1_0_1_1_0", 10000000, 5, 0)
    assert split(UPLOAD[:300]) is None


@pytest.mark.parametrize("what", [b"<nbytes>5", b"<offset>0", b"<md5_cksum>df2e"])
def test_an_upload_without_its_sizes_is_refused_for_good(what):
    found = split(UPLOAD.replace(what, b"<x>"))
    assert found is not None
    with pytest.raises(Refused) as refused:
        read_head(found[0])
    assert refused.value.status == NEVER


GOOD = b"WF1 1\nT 4 done 0 0.100 0.050 1000 3 0 2 7 1\nout" + b"er" + b"F 644 5 5\na.txt" + b"hello" + b"E\n"


def ends(data: bytes, cap: int = 100):
    return read_archive(io.BytesIO(data), len(data), range(4, 5), cap)


def test_an_archive_says_how_each_task_ended():
    end = ends(GOOD)[0]
    assert (end.task, end.cause, end.exit, end.stdout, end.stderr, end.dropped) == (4, "done", 0, b"out", b"er", (0, 7))
    name, mode, at, size = end.files[0]
    assert (name, mode, GOOD[at : at + size]) == ("a.txt", 0o644, b"hello")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"WF1 1", b"WF1 2"), (b"T 4", b"T 5"), (b"done", b"lost"), (b"E\n", b"E\nmore"), (b"E\n", b""),
        (b"a.txt", b"../ab"), (b"a.txt", b"/abcd"), (b"F 644 5 5", b"F 644 500 5"), (b" 3 0 2 7 1", b" 101 0 2 7 1"),
        (b" 7 1\n", b" 7 2\n"), (b"1000 3", b"99999999999999999999 3"),
    ],
)  # fmt: skip
def test_an_archive_that_the_launcher_did_not_write_is_refused(old, new):
    assert old in GOOD
    with pytest.raises(BadArchive):
        ends(GOOD.replace(old, new))
