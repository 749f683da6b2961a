"""A BOINC client in a few lines, which can be told to lie, to forget and to repeat itself. Its tasks are not run."""

from __future__ import annotations

import hashlib
import re
import time
import urllib.request

BEGIN = """<scheduler_request>
    <authenticator>{key}</authenticator>
    <hostid>{hostid}</hostid>
    <rpc_seqno>{seqno}</rpc_seqno>
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
    <dont_send_work>0</dont_send_work>
    <cpu_req_secs>{wants:.6f}</cpu_req_secs>
    <cpu_req_instances>{idle:.6f}</cpu_req_instances>
    <platform_name>x86_64-pc-linux-gnu</platform_name>
<time_stats>
    <now>{now:.6f}</now>
</time_stats>
<host_info>
    <domain_name>fake</domain_name>
    <host_cpid>{cpid}</host_cpid>
    <p_ncpus>{cpus}</p_ncpus>
    <m_nbytes>4000000000.000000</m_nbytes>
</host_info>
"""
RESULT = """<result>
    <name>{name}</name>
    <final_cpu_time>1.000000</final_cpu_time>
    <final_elapsed_time>1.000000</final_elapsed_time>
    <exit_status>{exit}</exit_status>
    <state>{state}</state>
<stderr_out>
<![CDATA[
<stderr_txt>
{stderr}
</stderr_txt>
]]>
</stderr_out>
{file}</result>
"""
FILE = """<file_info>
    <name>{name}_0</name>
    <nbytes>{size}.000000</nbytes>
    <md5_cksum>{md5}</md5_cksum>
</file_info>
"""


def post(url: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
        return bytes(answer.read())


def tag(text: str, name: str) -> list[str]:
    return re.findall(rf"<{name}>\s*([^<]*?)\s*</{name}>", text)


class FakeVolunteer:
    """One client; `says(task)` is what it pretends that a task wrote to standard output."""

    def __init__(self, url: str, key: str, cpid: str, cpus: int = 2) -> None:
        self.url, self.key, self.cpid, self.cpus = url, key, cpid, cpus
        self.hostid = self.seqno = 0
        self.held: dict[str, str] = {}
        """Results that it has, each with the certificate of its upload."""
        self.reports: dict[str, str] = {}
        self.clock_ahead_s = 0.0
        self.says = lambda task: f"task {task}\n"
        self.files: dict[str, bytes] = {}
        """Output files that it pretends every task left."""
        self.claims_s = 1.0

    def request(self, wants: float = 1000.0, idle: float | None = None) -> bytes:
        text = BEGIN.format(
            key=self.key, hostid=self.hostid, seqno=self.seqno, wants=wants, cpid=self.cpid, cpus=self.cpus,
            idle=self.cpus if idle is None else idle, now=time.time() + self.clock_ahead_s,
        )  # fmt: skip
        others = "".join(
            f"    <other_result>\n        <name>{name}</name>\n    </other_result>\n"
            for name in self.held
            if name not in self.reports
        )
        text += "".join(self.reports.values()) + f"<other_results>\n{others}</other_results>\n</scheduler_request>\n"
        return text.encode()

    def call(self, wants: float = 1000.0, idle: float | None = None, lose: bool = False) -> str:
        """Ask the scheduler; with `lose` the answer does not arrive."""
        answer = post(self.url + "cgi", self.request(wants, idle)).decode()
        self.seqno += 1
        return answer if lose else self.hear(answer)

    def hear(self, answer: str) -> str:
        for number in tag(answer, "hostid"):
            self.hostid = int(number)
        for block in re.findall(r"<result_ack>(.*?)</result_ack>", answer, re.S):
            for name in tag(block, "name"):
                self.reports.pop(name, None)
                self.held.pop(name, None)
        for block in re.findall(r"<result_abort>(.*?)</result_abort>", answer, re.S):
            for name in tag(block, "name"):
                self.held.pop(name, None)
        certificates = dict(zip(self._outputs(answer), tag(answer, "xml_signature"), strict=True))
        for block in re.findall(r"<result>(.*?)</result>", answer, re.S):
            name = tag(block, "name")[0]
            self.held[name] = certificates[f"{name}_0"]
        return answer

    @staticmethod
    def _outputs(answer: str) -> list[str]:
        blocks = re.findall(r"<file_info>(.*?)</file_info>", answer, re.S)
        return [tag(block, "name")[0] for block in blocks if "<xml_signature>" in block]

    def archive(self, name: str) -> bytes:
        _, first, count, _ = map(int, name.removeprefix("w").split("_"))
        parts = [b"WF1 %d\n" % count]
        for task in range(first, first + count):
            said, claim = self.says(task).encode(), b"%.3f" % self.claims_s
            head = b"T %d done 0 %b %b 1000 %d 0 0 0 %d\n" % (task, claim, claim, len(said), len(self.files))
            parts += [head, said]
            for file, data in self.files.items():
                parts.append(b"F 644 %d %d\n%b%b" % (len(data), len(file.encode()), file.encode(), data))
        return b"".join([*parts, b"E\n"])

    def upload(self, name: str, data: bytes, most: int = 256 << 20, offset: int = 0) -> str:
        head = (
            "<data_server_request>\n<file_upload>\n<file_info>\n"
            f"<name>{name}_0</name>\n<xml_signature>\n{self.held.get(name, '')}\n</xml_signature>\n"
            f"<max_nbytes>{most}</max_nbytes>\n</file_info>\n<nbytes>{len(data)}</nbytes>\n"
            f"<md5_cksum>{hashlib.md5(data).hexdigest()}</md5_cksum>\n<offset>{offset}</offset>\n<data>\n"
        )
        return tag(post(self.url + "file_upload_handler", head.encode() + data[offset:]).decode(), "status")[0]

    def finish(self, name: str, state: int = 5, exit: int = 0, stderr: str = "") -> None:
        """End a result: upload what it says, and report at the next call."""
        file = ""
        if state == 5:
            data = self.archive(name)
            assert self.upload(name, data) == "0"
            file = FILE.format(name=name, size=len(data), md5=hashlib.md5(data).hexdigest())
        self.reports[name] = RESULT.format(name=name, state=state, exit=exit, stderr=stderr, file=file)

    def work(self) -> int:
        """Ask, do all of it, report; how many results that were."""
        self.call()
        names = list(self.held)
        for name in names:
            self.finish(name)
        if names:
            self.call(wants=0.0)
        return len(names)
