"""Messages of real clients, as they were captured, and hostile ones: what is read, and what is not believed."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from windfall.boinc.bundle import BadArchive, are_announced, read_archive
from windfall.boinc.names import Bundle, grouped, read_name, read_output
from windfall.boinc.requests import HEAD_BYTES, MAX_MACHINE_CPUS, BadRequest, key_in, read_request
from windfall.boinc.uploads import NEVER, Refused, read_head, split
from windfall.bounds import MAX_INTEGER

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
    assert (first.hostid, first.seqno, first.platforms[0], first.version) == (0, 0, "x86_64-pc-linux-gnu", "7.20.5")
    assert first.key == "" and first.wants_s > 0 and not first.sends_none
    assert first.host.cpus == 2 and first.host.memory_bytes > 1 << 30 and len(first.host.cpid) == 32
    assert first.reports == [] == first.held
    later = read_request((CAPTURED / "two_reports.xml").read_bytes())
    assert later.hostid > 0 and later.key.startswith("1024\n") and later.key.endswith("\n.")
    told = [(report.name, report.state, report.exit, [file.name for file in report.files]) for report in later.reports]
    assert told == [("w1_1_1_1", 5, 0, ["w1_1_1_1_0"]), ("w1_0_1_1", 5, 0, ["w1_0_1_1_0"])]
    assert [report.files[0].size for report in later.reports] == [113, 113]
    assert later.held == ["w1_2_1_1"]


def test_other_platforms_that_a_client_runs_are_read():
    more = b"".join(b"    <alt_platform>\n        <name>p%d</name>\n    </alt_platform>\n" % n for n in range(20))
    body = request().replace(b"<host_info>", more + b"<host_info>", 1)
    assert read_request(body).platforms == ["x86_64-pc-linux-gnu", *(f"p{n}" for n in range(10))]
    assert read_request(request()).platforms == ["x86_64-pc-linux-gnu"]


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
    assert read.held == ["w1_0_1_1"] == read.doubtful


def test_what_the_client_runs_is_not_doubtful_whatever_is_said_of_it():
    read = read_request(request(result("w1_0_1_1", 3, 1) * 2, other("w1_0_1_1")))
    assert (read.reports, read.held, read.doubtful) == ([], ["w1_0_1_1"], [])


BILLION_LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">]>
"""


@pytest.mark.parametrize(
    "body",
    [
        BILLION_LAUGHS + request(), request().decode().encode("utf-16"), request().decode().encode("utf-32"),
        gzip.compress(request()), request()[:-300], b"\xef\xbb\xbf" + request(),
    ],
)  # fmt: skip
def test_other_encodings_and_documents_are_no_requests(body):
    with pytest.raises(BadRequest):
        read_request(body)


def test_entities_are_text_and_odd_bytes_are_replaced():
    body = request().replace(b"A &lt;b&gt;fast", b"&lol; &#0;&#x110000;\xff\xfe &xxe; " + b"&lt;" * 900)
    model = read_request(body).host.model
    assert model.isprintable() and len(model) <= 250 and "&lol;" in model


@pytest.mark.parametrize(
    ("field", "value"),
    [("hostid", "-1"), ("hostid", "0x10"), ("hostid", "9" * 400), ("rpc_seqno", "-inf"), ("p_ncpus", "-4")],
)
def test_odd_numbers_are_bounded(field, value):
    old = {"hostid": "7", "rpc_seqno": "3", "p_ncpus": "2"}[field]
    read = read_request(request().replace(f"<{field}>{old}<".encode(), f"<{field}>{value}<".encode()))
    assert read.host.cpus >= 1 and abs(read.hostid) <= MAX_INTEGER and abs(read.seqno) <= MAX_INTEGER


def test_the_key_is_found_at_the_begin_alone():
    assert key_in(request()) == "0123456789abcdef0123456789abcdef"
    assert key_in(b"<scheduler_request>" + b"\n" * HEAD_BYTES + b"<authenticator>x</authenticator>") == ""
    assert key_in(b"<authenticator>\xff</authenticator>") == "\ufffd"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"<scheduler_request>", b"\xff" * 100, b"<!DOCTYPE x [<!ENTITY a 'b'>]>"]
)
def test_what_is_no_request_is_refused(body):
    with pytest.raises(BadRequest):
        read_request(body)


@pytest.mark.parametrize("where", ["results", "others"])
def test_tasks_that_a_request_names_are_bounded_together(where):
    """Each is looked up: 10,000 names of 500 tasks kept everybody waiting for seconds."""

    def said(names: int) -> bytes:
        each = [f"w1_{first}_500_1" for first in range(names)]
        results = "".join(f"<result>\n<name>{name}</name>\n<state>5</state>\n</result>\n" for name in each)
        others = "".join(f"<name>{name}</name>\n" for name in each)
        told = {"results": "", "others": "", where: results if where == "results" else others}
        return REQUEST.format(**told).encode()

    asked = read_request(said(200))
    assert len(asked.reports) + len(asked.held) == 200
    with pytest.raises(BadRequest, match="more than 100000 tasks"):
        read_request(said(201))


def test_numbers_out_of_bounds_become_bounds():
    body = (
        request()
        .replace(b"<p_ncpus>2<", b"<p_ncpus>1e300<")
        .replace(b"<cpu_req_secs>1727.000000<", b"<cpu_req_secs>nan<")
    )
    read = read_request(body)
    assert read.host.cpus == MAX_MACHINE_CPUS and read.wants_s == 0.0


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


def archive_of(*names: str) -> bytes:
    files = b"".join(b"F 644 1 %d\n%bx" % (len(name.encode()), name.encode()) for name in names)
    return b"WF1 1\nT 4 done 0 0.100 0.050 1000 0 0 0 0 %d\n%bE\n" % (len(names), files)


def test_names_of_files_that_no_task_could_have_left_are_refused():
    assert [name for name, *_ in ends(archive_of("a", "b/c", "b/d", "é"))[0].files] == ["a", "b/c", "b/d", "é"]
    for names in (
        ["a", "a"], ["a", "a/b"], ["a/b", "a"], ["x" * 256], ["é" * 200], ["a//b"], ["a/../b"], ["./a"], ["a/"], [""],
        ["/etc/passwd"], ["a\\b"], ["a\n"], ["a\x1b[2J"], ["a\u202eb"],
    ):  # fmt: skip
        with pytest.raises(BadArchive):
            ends(archive_of(*names))


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        ([], []), (["a.txt"], ["a.txt"]), (["out/a", "out/b/c"], ["out"]), (["out/a"], ["./out/"]),
        (["a.txt", "b.txt"], ["*.txt"]), (["a", "x/y/a"], ["**/a"]), (["x/y/z"], ["**"]), (["x/a/y/b"], ["x/**/b"]),
        (["a[1].txt"], ["a[1].txt"]), (["b1"], ["[^a]?"]), (["a.txt", "b"], ["*.txt", "b"]), (["a/b/c"], ["a/*"]),
    ],
)  # fmt: skip
def test_files_that_a_task_must_leave_are_taken(names, patterns):
    assert are_announced(names, patterns)


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["a.txt"], []), ([], ["a.txt"]), (["b.txt"], ["a.txt"]), (["a.txt", ".bashrc"], ["*.txt"]),
        (["a.txt"], ["*.txt", "b"]), (["outer/a"], ["out"]), (["x/a.txt"], ["*.txt"]), (["a"], ["a/b"]),
        (["A.txt"], ["a.txt"]), (["x/b"], ["x/**/c"]), (["a1"], ["[^a]?"]),
    ],
)  # fmt: skip
def test_files_that_nobody_asked_for_and_missing_ones_are_not_taken(names, patterns):
    assert not are_announced(names, patterns)


def test_a_long_name_is_compared_with_a_long_pattern_in_little_time():
    """Each part of the pattern is a choice: tried one after the other, there would be more than any machine can try."""
    assert not are_announced(["/".join("a" * 1000)], ["/".join(["**", "a"] * 200 + ["b"])])
