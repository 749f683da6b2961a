"""Volunteers that attack: floods, hoarding, odd files, stalled uploads, claims; and strangers without a key."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import time
import urllib.error
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.e2e.pools.test_boinc_protocol import MUTATIONS, mutated
from tests.support.pools import boinc
from tests.support.pools.boinc_front import World
from tests.support.pools.fake_volunteer import FILE, RESULT, FakeVolunteer, post, tag
from windfall.boinc.names import read_name
from windfall.boinc.scheduler import NEWCOMER_HOLDS
from windfall.store.location import StateLocation
from windfall.store.view import open_view
from windfall.upkeep.checking import check

MOST_HOSTS = 20


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    boinc.require()
    made = World(tmp_path_factory.mktemp("boinc"), most_hosts=MOST_HOSTS)
    try:
        yield made
    finally:
        made.cluster.close()


@pytest.fixture(autouse=True)
def nothing_is_left(world) -> Iterator[None]:
    yield
    assert "Traceback" not in world.log
    for row in world.client.jobs():
        if row["state"] not in ("done", "failed", "cancelled"):
            world.client.job(row["job"]).cancel()


def test_an_account_makes_up_only_so_many_hosts(world):
    key = world.volunteer("Ann").key
    before = len(world.client.hosts())
    answers = [FakeVolunteer(world.url, key, os.urandom(16).hex()).call(wants=0.0) for _ in range(MOST_HOSTS + 5)]
    assert len(world.client.hosts()) - before == MOST_HOSTS
    assert "as many hosts" in answers[-1] and tag(answers[-1], "request_delay") == ["3600"]
    assert not tag(answers[-1], "hostid")
    # Others are let in as before.
    assert tag(world.volunteer("Ben").call(wants=0.0), "hostid")


def test_a_newcomer_cannot_hoard_tasks(world):
    job = world.submit(2000, estimate="1s")
    hog = world.volunteer("Hog")
    hog.cpus = 65536
    for _ in range(5):
        hog.call(wants=1e9, idle=65536)
    held = sum(bundle.count for name in hog.held if (bundle := read_name(name)) is not None)
    assert 0 < held == job.status()["tasks"]["running"] <= NEWCOMER_HOLDS
    # Who has shown a result gets what it asks for.
    hog.work()
    hog.call(wants=1e9, idle=100)
    assert job.status()["tasks"]["running"] > 2 * NEWCOMER_HOLDS


@pytest.mark.parametrize(
    "files", [{}, {"out": b"x", ".profile": b"echo"}, {"other": b"x"}, {"out/deep": b"x", "b": b""}]
)
def test_files_that_the_task_must_not_or_should_have_left_are_wrong(world, files):
    """Also where everybody is believed: what nobody asked for does not get into a job's results."""
    job = world.submit(1, outputs=["out"], max_failures=1)
    volunteer = world.volunteer("Cyd")
    volunteer.files = files
    volunteer.work()
    assert job.wait(30)["tasks"]["failed"] == 1
    (result,) = job.results()
    assert result.cause == "disagreed" and world.credit("Cyd") == 0


def test_the_announced_files_are_taken(world):
    job = world.submit(1, outputs=["out"])
    volunteer = world.volunteer("Dan")
    volunteer.files = {"out/a": b"x", "out/b/c": b"yy"}
    volunteer.work()
    job.wait(30)
    (result,) = job.results()
    assert [(name, size) for name, _, size, _ in result.outputs] == [("out/a", 1), ("out/b/c", 2)]


def test_nobody_is_credited_more_processors_than_the_task_asks_for(world):
    job = world.submit(1)
    volunteer = world.volunteer("Eli")
    volunteer.cpus, volunteer.claims_s = 1000, 1e8
    began = time.monotonic()
    volunteer.work()
    job.wait(30)
    # 200 a day, and the second of a clock that was read before and after.
    assert 0 < world.credit("Eli") <= (time.monotonic() - began + 2) * 200 / 86400


def _begun(world: World, volunteer: FakeVolunteer, name: str, data: bytes, sent: int, asks: str = "") -> socket.socket:
    """An upload of which only the first bytes are sent."""
    address = urlsplit(world.url)
    head = (
        "<data_server_request>\n<file_upload>\n<file_info>\n"
        f"<name>{name}_0</name>\n<xml_signature>\n{volunteer.held[name]}\n</xml_signature>\n"
        f"<max_nbytes>{256 << 20}</max_nbytes>\n</file_info>\n<nbytes>{len(data)}</nbytes>\n"
        f"<md5_cksum>{hashlib.md5(data).hexdigest()}</md5_cksum>\n<offset>0</offset>\n<data>\n"
    ).encode()
    request = f"POST /grid/file_upload_handler HTTP/1.1\r\nhost: x\r\ncontent-length: {len(head) + len(data)}\r\n"
    connection = socket.create_connection((address.hostname, address.port), timeout=30)
    connection.sendall(f"{request}{asks}\r\n".encode())
    if asks:
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
    connection.sendall(head + data[:sent])
    return connection


def test_an_upload_that_was_cut_off_goes_on_where_it_was(world):
    job = world.submit(1)
    volunteer = world.volunteer("Fay")
    volunteer.says = lambda task: "x" * 50_000
    volunteer.call()
    (name,) = volunteer.held
    data = volunteer.archive(name)
    with _begun(world, volunteer, name, data, 20_000):
        deadline = time.monotonic() + 30
        query = f"<data_server_request>\n<get_file_size>{name}_0</get_file_size>\n</data_server_request>\n".encode()
        while tag(post(world.url + "file_upload_handler", query).decode(), "file_size") == ["0"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # Nobody else writes to it meanwhile.
        assert volunteer.upload(name, data) == "1"
    while (stored := int(tag(post(world.url + "file_upload_handler", query).decode(), "file_size")[0])) < 20_000:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while volunteer.upload(name, data, offset=stored) != "0":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    volunteer.reports[name] = RESULT.format(
        name=name, state=5, exit=0, stderr="",
        file=FILE.format(name=name, size=len(data), md5=hashlib.md5(data).hexdigest()),
    )  # fmt: skip
    volunteer.call(wants=0.0)
    assert job.wait(30)["tasks"]["done"] == 1


def test_a_client_that_asks_for_leave_to_send_much_gets_it(world):
    world.submit(1)
    volunteer = world.volunteer("Guy")
    volunteer.says = lambda task: "x" * 900_000
    volunteer.call()
    (name,) = volunteer.held
    data = volunteer.archive(name)
    with _begun(world, volunteer, name, data, len(data), "Expect: 100-continue\r\n") as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_uploads_under_other_names_sizes_and_signatures_are_refused_for_good(world):
    job = world.submit(2)
    volunteer = world.volunteer("Gil")
    volunteer.call()
    name, other = volunteer.held
    own = volunteer.held[name]
    data = volunteer.archive(name)
    for wrong in (f"../{name}", f"{name}_0/../../secret", "w99_0_1_1", f"{name}%00", "signed.json", "", "." * 200):
        volunteer.held[wrong] = own
        assert volunteer.upload(wrong, data) == "-1", wrong
        del volunteer.held[wrong]
    assert volunteer.upload(name, data, most=1 << 40) == "-1"
    volunteer.held[name] = volunteer.held[other]
    assert volunteer.upload(name, data) == "-1"
    volunteer.held[name] = ""
    assert volunteer.upload(name, data) == "-1"
    uploads = world.cluster.state / "pools" / "boinc" / "uploads"
    assert not [path for path in uploads.iterdir() if path.name.startswith((name, other)) or path.name[0] != "w"]
    job.cancel()
    volunteer.held[name] = own
    assert volunteer.upload(name, data) == "-1"


def test_a_report_that_comes_twice_in_one_call_is_not_believed_and_ends_with_its_task(world):
    job = world.submit(1)
    volunteer = world.volunteer("Hal")
    volunteer.call()
    (name,) = volunteer.held
    volunteer.finish(name)
    volunteer.reports[name] += RESULT.format(name=name, state=6, exit=203, stderr="", file="")
    assert "<result_ack>" not in volunteer.call(wants=0.0) and job.status()["tasks"]["running"] == 1
    job.cancel()
    answer = volunteer.call(wants=0.0)
    assert "<result_ack>" in answer and "<result_abort>" not in answer and not volunteer.reports


def _post_long(url: str, body: bytes) -> bytes:
    """The answer to a long request. The server answers before it has all of it and closes: who still sends may hear of
    that first, and asks again."""
    for _ in range(20):
        try:
            return post(url, body)
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            if not isinstance(getattr(error, "reason", error), ConnectionError):
                raise
    raise AssertionError("no answer came before the connection was closed")


def test_a_long_request_of_a_stranger_is_not_read(world):
    """It has no end, which would be refused if anybody had looked for it."""
    body = b"<scheduler_request>\n<authenticator>" + b"0" * 32 + b"</authenticator>\n" + b"\n" * (15 << 20)
    assert "does not know this account key" in _post_long(world.url + "cgi", body).decode()
    known = world.volunteer("Ira").key.encode()
    for spoilt in (body.replace(b"0" * 32, known), b"\n" * (17 << 20)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            _post_long(world.url + "cgi", spoilt)
        assert refused.value.code == 400
        refused.value.close()


def test_spoilt_requests_with_a_good_key_change_nothing_that_is_anothers(world):
    """No traceback, no accepted result, no more hosts than one account may have."""
    job = world.submit(4, max_losses=1_000_000, max_failures=1_000_000)
    other, volunteer = world.volunteer("Ida"), world.volunteer("Jon")
    other.call()
    kept = dict(other.held)
    volunteer.call()
    mine, theirs = next(iter(volunteer.held)), next(iter(kept))
    for name in (mine, theirs):
        file = FILE.format(name=name, size=5, md5=hashlib.md5(b"hello").hexdigest())
        volunteer.reports[name] = RESULT.format(name=name, state=5, exit=0, stderr="x\n]]>\n", file=file)
    request = volunteer.request()
    chance, hosts = random.Random(11), len(world.client.hosts())
    for _ in range(MUTATIONS // 4):
        try:
            post(world.url + "cgi", mutated(request, chance))
        except urllib.error.HTTPError as error:
            assert error.code == 400, error.code
            error.close()
    assert job.status()["tasks"]["done"] == 0
    assert len(world.client.hosts()) - hosts <= MOST_HOSTS
    other.hear(post(world.url + "cgi", other.request(wants=0.0)).decode())
    assert other.held == kept
    assert other.work() >= len(kept)
    assert job.status()["tasks"]["done"] >= len(kept)


def test_an_attempt_that_two_made_up_names_of_one_call_hold_ends_once(world):
    """Names overlap: each result of the attempt counted, so that a task was done and waited at once, for ever."""
    job = world.submit(3, quorum=1, max_losses=1_000_000)
    volunteer = world.volunteer("Kim")
    volunteer.call()
    name = min(volunteer.held)
    volunteer.finish(name)
    _, first, count, attempt = name.removeprefix("w").split("_")
    for more in (1, 2):
        made_up = f"w{job.id}_{first}_{int(count) + more}_{attempt}"
        volunteer.reports[made_up] = RESULT.format(name=made_up, state=5, exit=0, stderr="", file="")
    volunteer.call(wants=0.0)
    assert job.status()["tasks"]["done"] == int(count)
    for _ in range(3):
        volunteer.work()
    assert job.status()["tasks"]["done"] == 3 and job.status()["state"] == "done"
    world.cluster.kill_server()
    view = open_view(StateLocation(world.cluster.state))
    assert check(view).problems == []
    view.close()
    world.cluster.start_server()
    assert job.status()["tasks"]["done"] == 3
