"""Simulated BOINC clients that run nothing: they ask the scheduler, upload an archive, report it. Touches sockets.

A process of its own (`python -m windfall.bench.live.volunteers`): another core than the server's makes the load.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import sys
import time

from windfall.bench.harness import cpu_of

CONNECTIONS = 50
PREFERENCES = "".join(f"   <preference_{number}>0.000000</preference_{number}>\n" for number in range(90))
REQUEST = """<scheduler_request>
    <authenticator>{key}</authenticator>
    <hostid>{hostid}</hostid>
    <rpc_seqno>{seqno}</rpc_seqno>
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
    <cpu_req_secs>1728.000000</cpu_req_secs>
    <cpu_req_instances>1.000000</cpu_req_instances>
    <platform_name>x86_64-pc-linux-gnu</platform_name>
<working_global_preferences>
{preferences}</working_global_preferences>
<host_info>
    <domain_name>volunteer</domain_name>
    <host_cpid>{cpid}</host_cpid>
    <p_ncpus>1</p_ncpus>
    <p_features>{features}</p_features>
    <m_nbytes>4000000000.000000</m_nbytes>
</host_info>
{results}<other_results>
</other_results>
</scheduler_request>
"""
RESULT = """<result>
    <name>{name}</name>
    <final_cpu_time>1.000000</final_cpu_time>
    <final_elapsed_time>1.000000</final_elapsed_time>
    <exit_status>0</exit_status>
    <state>5</state>
<stderr_out>
<![CDATA[
]]>
</stderr_out>
<file_info>
    <name>{name}_0</name>
    <nbytes>{size}.000000</nbytes>
    <md5_cksum>{md5}</md5_cksum>
</file_info>
</result>
"""
_WORK = re.compile(rb"<wu_name>([^<]+)</wu_name>")
_HOST = re.compile(rb"<hostid>(\d+)</hostid>")
_SIGNATURE = re.compile(rb"<max_nbytes>(\d+)</max_nbytes>.*?<xml_signature>\s*([^<]*?)\s*</xml_signature>", re.S)


class Volunteer:
    """One simulated client."""

    def __init__(self, number: int, key: str) -> None:
        self.key, self.cpid = key, f"{number:032x}"
        self.hostid = self.seqno = 0
        self.results = ""

    def request(self) -> bytes:
        text = REQUEST.format(
            key=self.key, hostid=self.hostid, seqno=self.seqno, preferences=PREFERENCES, cpid=self.cpid,
            features="fpu vme sse2 " * 80, results=self.results,
        )  # fmt: skip
        self.seqno += 1
        return text.encode()

    def take(self, answer: bytes) -> list[tuple[str, str, str]]:
        """(name, limit, certificate) of the workunits that it got."""
        self.results = ""
        if found := _HOST.search(answer):
            self.hostid = int(found[1])
        names = [name.decode() for name in _WORK.findall(answer)]
        certificates = [(most.decode(), text.decode()) for most, text in _SIGNATURE.findall(answer)]
        return [(name, *certificate) for name, certificate in zip(names, certificates, strict=False)]

    def upload(self, name: str, most: str, certificate: str) -> bytes:
        _, first, count, _ = map(int, name.removeprefix("w").split("_"))
        ends = (b"T %d done 0 1.000 1.000 1000 0 0 0 0 0\n" % task for task in range(first, first + count))
        data = b"".join([b"WF1 %d\n" % count, *ends, b"E\n"])
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.results += RESULT.format(name=name, size=len(data), md5=md5)
        head = (
            f"<data_server_request>\n<file_upload>\n<file_info>\n<name>{name}_0</name>\n<xml_signature>\n{certificate}"
            f"</xml_signature>\n<max_nbytes>{most}</max_nbytes>\n</file_info>\n<nbytes>{len(data)}</nbytes>\n"
            f"<md5_cksum>{md5}</md5_cksum>\n<offset>0</offset>\n<data>\n"
        )
        return head.encode() + data


class Connection:
    """One persistent HTTP connection that several volunteers use in turn."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def post(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: {self._address[0]}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(x[15:]) for x in answer.lower().split(b"\r\n") if x.startswith(b"content-length:"))
        got = await self._reader.readexactly(length)
        assert b" 200 " in answer[:20], (answer[:200], got[:200])
        return got

    def close(self) -> None:
        self._writer.close()


async def run(
    host: str, port: int, path: str, keys: list[str], hosts: int, seconds: float, server: int
) -> dict[str, object]:
    volunteers = [Volunteer(number, keys[number % len(keys)]) for number in range(hosts)]
    seen = {"requests": 0, "uploads": 0, "workunits": 0}
    latencies: list[float] = []
    joined = asyncio.Event()
    left = CONNECTIONS

    async def drive(place: int) -> None:
        nonlocal left
        connection = Connection(host, port)
        await connection.open()
        mine = volunteers[place::CONNECTIONS]
        for volunteer in mine:  # everybody joins, and is given a first workunit
            await turn(connection, volunteer, counts=False)
        left -= 1
        if not left:
            joined.set()
        await joined.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for volunteer in mine:
                await turn(connection, volunteer, counts=True)
                if time.perf_counter() >= end:
                    break
        connection.close()

    async def turn(connection: Connection, volunteer: Volunteer, counts: bool) -> None:
        began = time.perf_counter()
        work = volunteer.take(await connection.post(f"{path}cgi", volunteer.request()))
        if counts:
            latencies.append(time.perf_counter() - began)
            seen["requests"] += 1
            seen["workunits"] += len(work)
        for each in work:
            await connection.post(f"{path}file_upload_handler", volunteer.upload(*each))
            seen["uploads"] += counts

    began = time.perf_counter()
    driving = [asyncio.create_task(drive(place)) for place in range(CONNECTIONS)]
    await joined.wait()
    joined_s, (spent_s, _) = time.perf_counter() - began, cpu_of(server)
    await asyncio.gather(*driving)
    latencies.sort()
    return {
        **seen, "seconds": seconds, "joined_s": joined_s, "server_cpu_s": cpu_of(server)[0] - spent_s,
        "p50_ms": 1e3 * latencies[len(latencies) // 2], "p99_ms": 1e3 * latencies[int(len(latencies) * 0.99)],
    }  # fmt: skip


def main() -> None:
    options = json.loads(sys.argv[1])
    core = options.pop("core", None)
    if core is not None:
        os.sched_setaffinity(0, {core})
    with contextlib.suppress(KeyboardInterrupt):  # the bench tells that it was interrupted
        print(json.dumps(asyncio.run(run(**options))))


if __name__ == "__main__":
    main()
